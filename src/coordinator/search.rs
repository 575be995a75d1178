//! The search for lost messages (P26): looks at queues and claims, and has sent again what [`super::lost`] calls lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};

use super::context::Context;
use super::lost::{Claims, Out};
use super::mail::Mail;
use super::registry::Registry;
use crate::definition::{QueueName, TaskName, WorkflowId};
use crate::engine::Attempt;
use crate::env::Mono;
use crate::protocol::{FoundClaim, list_claims, readable_claim};
use crate::store::{Kind, StoreError};

/// Looks in the course of a threshold.
const LOOKS: u32 = 5;
/// The longest time between two looks: a claim of a worker that is gone lives longer.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Listings of claims on the wire at once.
const LISTINGS_AT_ONCE: usize = 8;

/// The search for lost messages of one term.
#[derive(Debug)]
pub(super) struct Search {
    next: Mono,
    /// What the last look has found lost, and when that look was over.
    found: Option<(Mono, Vec<Out>)>,
}

impl Search {
    pub(super) fn new(ctx: &Context, now: Mono) -> Self {
        Self {
            next: now.plus(interval(ctx)),
            found: None,
        }
    }

    /// Has sent again what the last look has found once the completions posted until then are known; looks when it is time.
    pub(super) async fn turn(&mut self, ctx: &Arc<Context>, registry: &Registry) {
        let received_to = *ctx.received_to();
        if let Some((_, lost)) = self
            .found
            .take_if(|(looked, _)| received_to >= Some(*looked))
        {
            send_again(ctx, registry, lost);
        }
        let now = ctx.env.mono();
        // While something is being loaded, not all claims and sendings can be known.
        if now >= self.next && registry.all_settled() {
            self.next = now.plus(interval(ctx));
            // A completion that was posted while the look went on counts as well. What an earlier look has found is old by now.
            self.found = match look(ctx, now).await {
                Ok(found) => (!found.is_empty()).then(|| (ctx.env.mono(), found)),
                Err(error) => {
                    tracing::warn!(error = %error, "lost_messages_not_looked_for");
                    None
                }
            };
        }
    }
}

/// Tells the workflows, whose state has the last word.
fn send_again(ctx: &Arc<Context>, registry: &Registry, lost: Vec<Out>) {
    ctx.sendings.sent_again(&lost, ctx.env.mono());
    let mut mail: BTreeMap<WorkflowId, Vec<(TaskName, Attempt)>> = BTreeMap::new();
    for Out { id, task, attempt } in lost {
        mail.entry(id).or_default().push((task, attempt));
    }
    for (id, lost) in mail {
        registry.post(ctx, &id, Mail::Lost(lost));
    }
}

fn interval(ctx: &Context) -> Duration {
    (ctx.config.lost_dispatch_threshold / LOOKS).min(LOOK_INTERVAL_MAX)
}

/// One look at all queues on which something was not seen for long.
async fn look(ctx: &Context, now: Mono) -> Result<Vec<Out>, StoreError> {
    let threshold = ctx.config.lost_dispatch_threshold;
    let mut lost = Vec::new();
    for quiet in ctx.sendings.quiet(threshold, now) {
        let depth = depth(ctx, &quiet.queue).await?;
        // With a message for each task nothing is missing, whoever holds what.
        let claims = if depth < quiet.out || quiet.is_passed {
            claims(ctx, quiet.ids).await?
        } else {
            Claims::new()
        };
        lost.extend(
            ctx.sendings
                .judge(&quiet.queue, depth, &claims, threshold, now),
        );
    }
    Ok(lost)
}

async fn depth(ctx: &Context, queue: &QueueName) -> Result<u64, StoreError> {
    match ctx.store.queues.depth(&ctx.layout.task_queue(queue)).await {
        // Its messages went with it; sending makes it anew.
        Err(error) if error.kind == Kind::NoResource => Ok(0),
        other => other,
    }
}

/// The live claims on tasks of these workflows.
async fn claims(ctx: &Context, ids: BTreeSet<WorkflowId>) -> Result<Claims, StoreError> {
    futures::stream::iter(ids.into_iter().map(|id| claims_of(ctx, id)))
        .buffer_unordered(LISTINGS_AT_ONCE)
        .try_collect()
        .await
}

async fn claims_of(
    ctx: &Context,
    id: WorkflowId,
) -> Result<(WorkflowId, BTreeMap<TaskName, Attempt>), StoreError> {
    let mut held = BTreeMap::new();
    let mut after = None;
    loop {
        let page = match list_claims(&ctx.store, &ctx.layout, &id, after.as_ref()).await {
            Ok(page) => page,
            Err(error) if error.kind == Kind::NoResource => return Ok((id, held)),
            Err(error) => return Err(error),
        };
        let claims = page.items.into_iter();
        let claims = claims.filter_map(readable_claim);
        let live = claims.filter(FoundClaim::is_live);
        held.extend(live.map(|claim| (claim.record.task, claim.record.attempt_no)));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok((id, held)),
        }
    }
}
