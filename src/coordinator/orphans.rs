//! Workflows that have a definition but no row: a submit that died half-way, or a table that was lost (P16, A12, A13); or a row of an
//! earlier life of the id, where definition and row both landed after the end of that life: then the definition is newer than the tombstone.
//!
//! The same listing shows the states that have no definition: tombstones, of which [`Tombstones`] takes care.
//!
//! Taking such a workflow up is all that is needed: loading it activates it if it has no state, and every load shows its row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::mail::Mail;
use super::purge::Tombstones;
use super::registry::Registry;
use super::stats::Stats;
use crate::definition::WorkflowId;
use crate::env::Timestamp;
use crate::protocol::Layout;
use crate::store::StoreError;

/// How often definitions are compared with rows: it costs a listing of all there are.
pub(super) const ORPHAN_INTERVAL: Duration = Duration::from_secs(3600);
/// When that is tried again where it has failed.
pub(super) const ORPHAN_PAUSE: Duration = Duration::from_secs(10);

/// Takes up every workflow without a row, or whose state is older than its definition; returns the states without a definition.
pub(super) async fn adopt_orphans(
    ctx: &Arc<Context>,
    registry: &Arc<Registry>,
) -> Result<Tombstones, StoreError> {
    // Definitions are listed first: one that is submitted meanwhile then has its row, or is taken up once for nothing.
    let (defined, states) = stored(ctx).await?;
    let listed = listed(ctx).await?;
    for (id, defined_at) in &defined {
        let has_row = listed.contains(id);
        // In the same second: to look costs little.
        let is_later = states.get(id).is_some_and(|at| at <= defined_at);
        if (!has_row || is_later) && !registry.holds(id) {
            if !has_row {
                Stats::count(&ctx.stats.orphans_adopted);
                tracing::warn!(workflow = %id, "workflow_without_row");
            }
            registry.post(ctx, id, Mail::TakeUp);
        }
    }
    let undefined = states.keys().filter(|id| !defined.contains_key(*id));
    Ok(undefined
        .map(|id| (id.clone(), listed.contains(id)))
        .collect())
}

/// When the blobs of a kind were changed last.
type Ages = BTreeMap<WorkflowId, Timestamp>;

/// The ids that have a definition, and those that have a state.
async fn stored(ctx: &Context) -> Result<(Ages, Ages), StoreError> {
    let (mut defined, mut states) = (Ages::new(), Ages::new());
    let mut after = None;
    loop {
        let page = ctx
            .store
            .blobs
            .list(ctx.layout.workflows(), "", after.as_ref())
            .await?;
        for (ids, ending) in [
            (&mut defined, Layout::DEFINITION_ENDING),
            (&mut states, Layout::RUNTIME_ENDING),
        ] {
            let aged = page.items.iter().filter_map(|blob| {
                let id = WorkflowId::new(blob.name.strip_suffix(ending)?).ok()?;
                Some((id, blob.changed_at))
            });
            ids.extend(aged);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok((defined, states)),
        }
    }
}

async fn listed(ctx: &Context) -> Result<BTreeSet<WorkflowId>, StoreError> {
    let mut ids = BTreeSet::new();
    for partition in [Layout::OPEN, Layout::DONE] {
        let mut after = None;
        loop {
            let page = ctx
                .store
                .rows
                .query(ctx.layout.index(), partition, after.as_ref())
                .await?;
            let keys = page.items.iter().map(|row| row.key.row());
            ids.extend(keys.filter_map(|key| WorkflowId::new(key).ok()));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(ids)
}
