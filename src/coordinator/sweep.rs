//! The sweeps: unfinished workflows that nobody holds, cancel requests on rows, and what is ready but unattended (P16, P17, P25).

use std::sync::Arc;

use super::context::Context;
use super::mail::Mail;
use super::registry::Registry;
use crate::env::Mono;
use crate::protocol::{Layout, found};
use crate::store::{Continuation, Kind, Row, StoreError};

/// Sweeps until the process stops or the fence closes.
pub(super) async fn sweep(ctx: &Arc<Context>, registry: &Arc<Registry>) {
    let mut repair_at = ctx.env.mono().plus(ctx.config.ready_sweep_interval);
    let mut take_up_at = ctx.env.mono();
    loop {
        let now = ctx.env.mono();
        registry.bury(ctx).await;
        if now >= repair_at {
            registry.post_all(|| Mail::Repair);
            repair_at = now.plus(ctx.config.ready_sweep_interval);
        }
        let take_up = now >= take_up_at;
        if take_up {
            take_up_at = now.plus(ctx.config.activation_sweep_interval);
        }
        if take_up || registry.len() > 0 {
            match look_at_rows(ctx, registry, take_up).await {
                Ok(()) => {}
                Err(error) if error.kind == Kind::Fenced => return,
                Err(error) => tracing::warn!(error = %error, "sweep_failed"),
            }
        }
        let next = if registry.len() > 0 {
            now.plus(ctx.config.cancel_poll_interval)
        } else {
            take_up_at
        };
        if !rest(ctx, next.min(repair_at)).await {
            return;
        }
    }
}

/// Waits until `at`; false when the process stops or leads no more.
async fn rest(ctx: &Context, at: Mono) -> bool {
    tokio::select! {
        biased;
        () = ctx.env.sleep(at.since(ctx.env.mono())) => true,
        () = ctx.stopping.cancelled() => false,
        () = ctx.leadership.fence().closed().cancelled() => false,
    }
}

/// Looks at every row of an unfinished workflow.
async fn look_at_rows(
    ctx: &Arc<Context>,
    registry: &Arc<Registry>,
    take_up: bool,
) -> Result<(), StoreError> {
    let mut after: Option<Continuation> = None;
    loop {
        let page = ctx
            .store
            .rows
            .query(ctx.layout.index(), Layout::OPEN, after.as_ref())
            .await?;
        for row in page.items {
            look_at(ctx, registry, row, take_up);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
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
        registry.post(ctx, id, Mail::CancelRequested(record.generation));
    }
}
