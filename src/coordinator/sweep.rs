//! The sweeps: unfinished workflows that nobody holds, held ones whose row is gone, cancel requests on rows, what is ready but unattended,
//! and lost messages (P16, P17, P25, P26).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::mail::Mail;
use super::orphans::{ORPHAN_INTERVAL, ORPHAN_PAUSE, adopt_orphans};
use super::purge::Tombstones;
use super::registry::{Quiet, Registry};
use super::search::Search;
use crate::definition::WorkflowId;
use crate::env::Mono;
use crate::protocol::{Layout, Pauses, found};
use crate::store::{Continuation, Kind, Row, StoreError};

/// The shortest time between two looks for unfinished workflows where there was none for long. Who submits one sends a message, too.
const QUIET_INTERVAL: Duration = Duration::from_secs(60);
/// A look at many rows, or at a slow service, takes no more than this part of the time.
const LOOKS_SHARE: u32 = 5;

/// Sweeps until the process stops or the fence closes.
pub(super) async fn sweep(ctx: &Arc<Context>, registry: &Arc<Registry>) {
    let now = ctx.env.mono();
    let mut due = Due {
        repair: now.plus(ctx.config.ready_sweep_interval),
        take_up: now,
        orphans: now,
        unlisted: BTreeSet::new(),
        tombstones: Tombstones::default(),
        search: Search::new(ctx, now),
        quiet: Quiet::since(now),
    };
    let mut failing: Option<Pauses> = None;
    loop {
        registry.bury(ctx).await;
        let now = ctx.env.mono();
        let next = match turn(ctx, registry, now, &mut due).await {
            Ok(()) => {
                if failing.take().is_some() {
                    tracing::info!("sweep_recovered");
                }
                let took = ctx.env.mono().since(now);
                let poll = now.plus(ctx.config.cancel_poll_interval.max(took * LOOKS_SHARE));
                let looks = if registry.len() > 0 {
                    poll
                } else {
                    due.take_up
                };
                if due.tombstones.is_empty() {
                    looks.min(due.repair)
                } else {
                    now
                }
            }
            Err(error) if error.kind == Kind::Fenced => return,
            Err(error) => {
                // One line at the start of an outage, one at its end.
                if failing.is_none() {
                    tracing::error!(error = %error, "sweep_failed");
                }
                due.take_up = now;
                let first = ctx.config.cancel_poll_interval;
                let pauses = failing.get_or_insert_with(|| Pauses::from(first));
                now.plus(pauses.next(&ctx.env, error.retry_after))
            }
        };
        if !rest(ctx, next).await {
            return;
        }
    }
}

/// When each sweep is due.
#[derive(Debug)]
struct Due {
    repair: Mono,
    take_up: Mono,
    orphans: Mono,
    /// Held, and without a row at the last look.
    unlisted: BTreeSet<WorkflowId>,
    tombstones: Tombstones,
    search: Search,
    quiet: Quiet,
}

/// Does what is due.
async fn turn(
    ctx: &Arc<Context>,
    registry: &Arc<Registry>,
    now: Mono,
    due: &mut Due,
) -> Result<(), StoreError> {
    if now >= due.repair {
        registry.post_all(|| Mail::Repair);
        due.repair = now.plus(ctx.config.ready_sweep_interval);
    }
    let take_up = now >= due.take_up;
    if take_up || registry.len() > 0 {
        match look_at_rows(ctx, registry, take_up).await {
            Err(error) if error.kind == Kind::NoResource => {
                tracing::warn!(table = %ctx.layout.index(), "index_was_missing");
                ctx.store.rows.create_table(ctx.layout.index()).await?;
                due.orphans = now;
            }
            looked => tell_unlisted(ctx, registry, looked?, &mut due.unlisted),
        }
    }
    if take_up {
        let interval = ctx.config.activation_sweep_interval;
        due.take_up = now.plus(if due.quiet.is_at(now, registry) {
            interval.max(QUIET_INTERVAL)
        } else {
            interval
        });
    }
    // What may take long or fail stands last, and keeps nothing above.
    due.search.turn(ctx, registry).await;
    if now >= due.orphans {
        due.orphans = match adopt_orphans(ctx, registry).await {
            Ok(tombstones) => {
                due.tombstones = tombstones;
                now.plus(ORPHAN_INTERVAL)
            }
            Err(error) => {
                tracing::warn!(error = %error, "orphans_not_looked_for");
                now.plus(ORPHAN_PAUSE)
            }
        };
    }
    due.tombstones.turn(ctx, registry).await;
    Ok(())
}

/// Waits until `at`; false when the process stops or leads no more.
async fn rest(ctx: &Context, at: Mono) -> bool {
    tokio::select! {
        biased;
        // First: while tombstones are left the wait is over at once.
        () = ctx.stopping.cancelled() => false,
        () = ctx.leadership.fence().closed().cancelled() => false,
        () = ctx.env.sleep(at.since(ctx.env.mono())) => true,
    }
}

/// Looks at every row of an unfinished workflow; returns those that were held all the while and have none.
async fn look_at_rows(
    ctx: &Arc<Context>,
    registry: &Arc<Registry>,
    take_up: bool,
) -> Result<BTreeSet<WorkflowId>, StoreError> {
    let mut unlisted = registry.held();
    let mut after: Option<Continuation> = None;
    loop {
        let page = ctx
            .store
            .rows
            .query(ctx.layout.index(), Layout::OPEN, after.as_ref())
            .await?;
        for row in page.items {
            // Also one that cannot be read is there.
            if let Ok(id) = WorkflowId::new(row.key.row()) {
                unlisted.remove(&id);
            }
            look_at(ctx, registry, row, take_up);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(unlisted),
        }
    }
}

/// Tells the actors of workflows that had no row at two looks: somebody has removed the workflow, or its row alone. One look may fall between
/// a state and its row, which is made or moved after it.
fn tell_unlisted(
    ctx: &Arc<Context>,
    registry: &Arc<Registry>,
    now: BTreeSet<WorkflowId>,
    before: &mut BTreeSet<WorkflowId>,
) {
    let (again, first) = now.into_iter().partition(|id| before.contains(id));
    *before = first;
    let again: BTreeSet<_> = again;
    for id in again.iter().filter(|id| registry.holds(id)) {
        registry.post(ctx, id, Mail::Unlisted);
    }
}

fn look_at(ctx: &Arc<Context>, registry: &Arc<Registry>, row: Row, take_up: bool) {
    let record = match found(row) {
        Ok(found) => found.record,
        Err(error) => {
            if take_up {
                tracing::warn!(error = %error, "row_unreadable");
            }
            return;
        }
    };
    let id = &record.workflow_id;
    let held = registry.holds(id);
    if take_up && !held {
        registry.post(ctx, id, Mail::TakeUp);
    }
    let asked = record.cancel_requested == Some(record.generation);
    if asked && (held || take_up) && record.status != crate::engine::Status::Cancelling {
        registry.post(
            ctx,
            id,
            Mail::CancelRequested(record.run_id, record.generation),
        );
    }
}
