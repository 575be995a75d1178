//! Purging: a tombstone in the place of the state, then everything else that carries the run goes, and at last, after a week, the tombstone (P31).
//!
//! Invariants:
//! 1. From the opening of the row to the end of the definition one of row, tombstone and definition leads every later leader here: rows go
//!    before the definition, since a definition without a row is found (P16), and a row without a definition is looked at.
//! 2. What is removed is named by its run, and by the version that was seen: doing it twice, or by two leaders at once, is harmless. So a
//!    tombstone needs no take-over.
//! 3. What cannot be read is judged by its row, and only what that says has ended is replaced: by exactly the version that was seen.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use uuid::Uuid;

use super::actor::{Actor, News, Trouble};
use super::book::{answer, refused_by_purge};
use super::context::Context;
use super::limit::Inside;
use super::load::{definition_now, leads_on_after};
use super::mail::Mail;
use super::registry::Registry;
use super::stats::Stats;
use crate::definition::WorkflowId;
use crate::protocol::{
    Outbox, ReadError, Shown, Swap, found_claim, list_claims, note, patiently, understand_state,
};
use crate::record::{
    ControlAction, ControlRecord, IndexRecord, Record, RunId, Stamp, StateRecord, TombstoneRecord,
};
use crate::store::{BlobPath, Container, Kind, Listed, Row, StoreError};

/// How long a tombstone stays, by the service's clock.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Deletes of one workflow on the wire at once.
const DELETES_AT_ONCE: usize = 8;
/// Tombstones looked at, all at once, before the next look at what is unfinished: a store that hangs holds it for one time-out.
const TOMBSTONES_PER_TURN: usize = DELETES_AT_ONCE;

/// Whose purge was applied.
#[derive(Debug, Clone)]
pub(super) struct Purger {
    pub(super) request_id: Uuid,
    pub(super) actor: String,
}

impl Actor {
    /// Puts a tombstone in the place of the state; the row is among the unfinished ones before.
    pub(super) async fn bury(&mut self, by: &Purger) -> Result<Swap, Trouble> {
        let Some(book) = &self.book else {
            return Ok(Swap::Stored);
        };
        let index = book.index(self.ctx.epoch(), self.ctx.env.wall());
        self.put_tombstone(index, by).await
    }

    /// Opens the row and replaces what the cell has seen last by a tombstone of the run that `index` shows.
    async fn put_tombstone(
        &mut self,
        mut index: IndexRecord,
        by: &Purger,
    ) -> Result<Swap, Trouble> {
        let Self { ctx, row, cell, .. } = self;
        index.reason = format!("it is being purged, as {} asked", by.actor);
        if let Shown::Met(epoch) = row.reopen(&index, &ctx.stopping).await? {
            ctx.met(epoch, "the index row").await?;
            return Ok(Swap::Rival);
        }
        let tombstone = TombstoneRecord {
            schema: TombstoneRecord::SCHEMA,
            workflow_id: self.id.clone(),
            run_id: index.run_id,
            epoch: ctx.epoch(),
            holder: ctx.leadership.holder().to_owned(),
            stamp: Stamp::new(ctx.env.uuid()),
            request_id: by.request_id,
            purged_by: by.actor.clone(),
            purged_at: ctx.env.wall(),
        };
        let swap = cell.bury(&tombstone, &ctx.stopping).await?;
        Stats::count(&ctx.stats.state_writes);
        if swap == Swap::Stored {
            tracing::info!(workflow = %self.id, run = %tombstone.run_id, actor = by.actor, "purge_begun");
            self.book = None;
            self.outbox = Outbox::default();
            self.marks_since = None;
            self.row_behind_since = None;
            self.tombstone = Some(tombstone);
        }
        Ok(swap)
    }

    /// News of what was purged: all of it is old. It belongs to the run that is gone, or is later than its end.
    pub(super) async fn turn_purged(
        &mut self,
        news: News,
        tombstone: &TombstoneRecord,
        turn: Inside,
    ) -> Result<(), Trouble> {
        let ctx = Arc::clone(&self.ctx);
        for (control, _) in &news.controls {
            if let Some(entry) = refused_by_purge(&ctx.env, control) {
                note(&ctx.env, &ctx.store, &ctx.layout, &entry).await;
            }
        }
        self.acknowledge(news, &BTreeSet::new()).await?;
        // What is left may be much: others need not wait for it.
        drop(turn);
        self.clear_away(tombstone).await
    }

    /// News of a workflow that cannot be loaded: it is left on the queue (P9), unless it asks for the purge of what has ended.
    pub(super) async fn turn_unread(
        &mut self,
        news: News,
        why: ReadError,
        turn: Inside,
    ) -> Result<(), Trouble> {
        let is_damage = why.is_damage();
        let trouble = match (Trouble::from(why), is_damage) {
            (Trouble::Fenced, _) => return Err(Trouble::Fenced),
            (aside @ Trouble::Aside(_), false) => aside,
            (aside @ Trouble::Aside(_), true) => match self.bury_unread(&news).await {
                Ok(Some(tombstone)) => return self.turn_purged(news, &tombstone, turn).await,
                Ok(None) => aside,
                Err(Trouble::Fenced) => return Err(Trouble::Fenced),
                Err(other @ Trouble::Aside(_)) => other,
            },
        };
        self.quarantine(news).await?;
        Err(trouble)
    }

    /// Puts a tombstone in the place of a state that cannot be read, or is gone, if a purge asks for that and names what the row shows:
    /// a run that has ended.
    async fn bury_unread(&mut self, news: &News) -> Result<Option<TombstoneRecord>, Trouble> {
        if !news.asks_to_purge() {
            return Ok(None);
        }
        let ctx = Arc::clone(&self.ctx);
        // What was stored before the row was read as final is of that end, or is replaced by now, which the swap notices: a row is
        // opened before its state goes on.
        let seen = self.cell.look(&ctx.stopping).await?;
        let seen = seen.map(|blob| understand_state(&ctx.layout.runtime(&self.id), &blob));
        if let Some(Ok(state)) = &seen
            && !leads_on_after(&ctx, state).await?
        {
            return Err(Trouble::Fenced);
        }
        let definition = definition_now(&ctx, &self.id).await?;
        let life = definition.map(|stored| stored.record.run_id);
        let Some(run) = life else { return Ok(None) };
        let row = self.row.read(run, ctx.epoch(), &ctx.stopping).await?;
        let Some(mut row) = row.filter(|row| row.run_id == run) else {
            return Ok(None);
        };
        let names = |asked: &&ControlRecord| {
            asked.action == ControlAction::Purge
                && (asked.run_id, asked.generation, asked.control_seq)
                    == (row.run_id, row.generation, row.control_seq)
        };
        let mut asked = news.controls.iter().map(|(control, _)| &**control);
        let Some(asked) = asked.find(names) else {
            return Ok(None);
        };
        if !row.status.is_final() || seen.is_some_and(|seen| !agrees(seen, asked)) {
            return Ok(None);
        }
        (row.epoch, row.updated_at) = (ctx.epoch(), ctx.env.wall());
        let by = Purger {
            request_id: asked.request_id,
            actor: asked.actor.clone(),
        };
        if self.put_tombstone(row, &by).await? == Swap::Rival {
            return Err(self.trouble(Kind::Conflict, "met a rival"));
        }
        let entry = answer(&ctx.env, asked, None);
        note(&ctx.env, &ctx.store, &ctx.layout, &entry).await;
        Ok(self.tombstone.take())
    }

    /// Removes what is left of a purged run; of a purge that is over, nothing is. What fails is tried again after a pause.
    pub(super) async fn clear_away(&mut self, tombstone: &TombstoneRecord) -> Result<(), Trouble> {
        let ctx = Arc::clone(&self.ctx);
        let run = tombstone.run_id;
        let definition = definition_now(&ctx, &self.id).await?;
        let definition = definition.filter(|stored| stored.record.run_id == run);
        if definition.is_some() {
            let (outputs, logs) = (ctx.layout.outputs(), ctx.layout.logs());
            let gone = remove_claims(&ctx, &self.id, run).await?
                && remove_blobs(&ctx, outputs, &self.id, run).await?
                && remove_blobs(&ctx, logs, &self.id, run).await?;
            if !gone {
                return Ok(());
            }
        }
        self.row.remove(run, &ctx.stopping).await?;
        if let Some(definition) = definition {
            let path = ctx.layout.definition(&self.id);
            let delete = || ctx.store.blobs.delete(&path, &definition.etag);
            done(patiently(&ctx.env, &ctx.stopping, delete).await)?;
            tracing::info!(workflow = %self.id, run = %run, "purged");
            Stats::count(&ctx.stats.workflows_purged);
        }
        Ok(())
    }
}

/// Whether what is in the place of the state says nothing against a purge that the row allows.
fn agrees(seen: Result<StateRecord, ReadError>, asked: &ControlRecord) -> bool {
    match seen {
        // What is beside it cannot be read.
        Ok(StateRecord::Live(state)) => {
            state.status.is_final()
                && (state.run_id, state.generation, state.control_seq)
                    == (asked.run_id, asked.generation, asked.control_seq)
        }
        // Somebody was faster.
        Ok(StateRecord::Purged(_)) => false,
        Err(error) => error.is_damage(),
    }
}

/// A delete that finds nothing has succeeded.
fn done(deleted: Result<(), StoreError>) -> Result<(), ReadError> {
    match deleted {
        Err(error) if error.kind != Kind::NotFound => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes the claims of a run; false if this process stops before that is done.
async fn remove_claims(ctx: &Context, id: &WorkflowId, run: RunId) -> Result<bool, ReadError> {
    let mut after = None;
    loop {
        if ctx.stopping.is_cancelled() {
            return Ok(false);
        }
        let list = || list_claims(&ctx.store, &ctx.layout, id, after.as_ref());
        let page = match patiently(&ctx.env, &ctx.stopping, list).await {
            Err(error) if error.kind == Kind::NoResource => return Ok(true),
            page => page?,
        };
        // What cannot be read is of this run: there is no other while its definition is there.
        let is_of_run =
            |row: &Row| found_claim(row.clone()).map_or(true, |f| f.record.run_id == run);
        let rows = page.items.into_iter().filter(is_of_run);
        let deletes: Vec<_> = rows.map(|row| remove_claim(ctx, row).boxed()).collect();
        let deletes = futures::stream::iter(deletes).buffer_unordered(DELETES_AT_ONCE);
        deletes.try_collect::<()>().await?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(true),
        }
    }
}

async fn remove_claim(ctx: &Context, row: Row) -> Result<(), ReadError> {
    let rows = &ctx.store.rows;
    let delete = || rows.delete(ctx.layout.claims(), &row.key, &row.etag);
    done(patiently(&ctx.env, &ctx.stopping, delete).await)
}

/// Removes the blobs of a run from a container; false if this process stops before that is done.
async fn remove_blobs(
    ctx: &Context,
    container: &Container,
    id: &WorkflowId,
    run: RunId,
) -> Result<bool, ReadError> {
    let prefix = ctx.layout.run_folder(id, run);
    let mut after = None;
    loop {
        if ctx.stopping.is_cancelled() {
            return Ok(false);
        }
        let list = || ctx.store.blobs.list(container, &prefix, after.as_ref());
        let page = match patiently(&ctx.env, &ctx.stopping, list).await {
            Err(error) if error.kind == Kind::NoResource => return Ok(true),
            page => page?,
        };
        let blobs = page.items.into_iter();
        let deletes: Vec<_> = blobs
            .map(|blob| remove_blob(ctx, container, blob).boxed())
            .collect();
        let deletes = futures::stream::iter(deletes).buffer_unordered(DELETES_AT_ONCE);
        deletes.try_collect::<()>().await?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(true),
        }
    }
}

async fn remove_blob(ctx: &Context, container: &Container, blob: Listed) -> Result<(), ReadError> {
    let Ok(path) = BlobPath::new(container.clone(), blob.name.as_str()) else {
        tracing::warn!(container = %container, blob = blob.name, "foreign_blob_left");
        return Ok(());
    };
    let delete = || ctx.store.blobs.delete(&path, &blob.etag);
    done(patiently(&ctx.env, &ctx.stopping, delete).await)
}

/// States without a definition that were not looked at yet, and whether there is a row: tombstones, if nothing is damaged.
#[derive(Debug, Default)]
pub(super) struct Tombstones(VecDeque<(WorkflowId, bool)>);

impl FromIterator<(WorkflowId, bool)> for Tombstones {
    fn from_iter<I: IntoIterator<Item = (WorkflowId, bool)>>(found: I) -> Self {
        Self(found.into_iter().collect())
    }
}

impl Tombstones {
    /// Whether all were looked at.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks at some: an old one goes, and a row beside one, which was written so late that the purge was over. What fails is left for
    /// the next time that they are listed, and keeps nothing else.
    pub(super) async fn turn(&mut self, ctx: &Arc<Context>, registry: &Registry) {
        let some = self.0.drain(..self.0.len().min(TOMBSTONES_PER_TURN));
        let looks = some.map(|(id, has_row)| look_at_tombstone(ctx, registry, id, has_row));
        futures::stream::iter(looks)
            .buffer_unordered(TOMBSTONES_PER_TURN)
            .collect::<()>()
            .await;
    }
}

async fn look_at_tombstone(ctx: &Arc<Context>, registry: &Registry, id: WorkflowId, has_row: bool) {
    let path = ctx.layout.runtime(&id);
    let look = async {
        let Some(blob) = ctx.store.blobs.get(&path).await? else {
            return Ok(());
        };
        match understand_state(&path, &blob) {
            Ok(StateRecord::Purged(_)) => {}
            Ok(StateRecord::Live(_)) | Err(_) => return Ok(()),
        }
        if has_row {
            tracing::warn!(workflow = %id, "row_of_purged_workflow");
            registry.post(ctx, &id, Mail::TakeUp);
            return Ok(());
        }
        // Their age is that which the service tells.
        let age = blob.read_at.duration_since(blob.changed_at);
        if Duration::try_from(age).is_ok_and(|age| age < KEPT) {
            return Ok(());
        }
        ctx.store.blobs.delete(&path, &blob.etag).await?;
        tracing::info!(workflow = %id, "tombstone_removed");
        Ok::<(), StoreError>(())
    };
    match look.await {
        Ok(()) => {}
        // A new life of the id has taken its place.
        Err(error) if matches!(error.kind, Kind::Conflict | Kind::NotFound) => {}
        Err(error) => tracing::warn!(workflow = %id, error = %error, "tombstone_left"),
    }
}
