//! Taking a workflow up: reading its state, activating it, and putting this leader's epoch into it (P3, P5, P12, P13).

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join;

use super::actor::Actor;
use super::book::{Book, Pass};
use super::context::Context;
use super::stats::Stats;
use crate::definition::{GraphError, WorkflowId};
use crate::engine::{Changes, Generation, Graph, Runtime, Status};
use crate::protocol::{ReadError, Shown, Stored, Swap, patiently, read_definition, store_errors};
use crate::record::{
    ControlSeq, DecodeError, DefinitionRecord, IndexRecord, Record, Revision, RuntimeRecord, Stamp,
    StateRecord, TombstoneRecord,
};
use crate::store::{Kind, StoreError};

/// How taking up ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub(super) enum Loaded {
    /// The book is open.
    Yes,
    /// There is no such workflow.
    Nothing,
    /// It was purged, perhaps not to the end; no later life of the id exists.
    Purged(Box<TombstoneRecord>),
    /// Its definition cannot be run; the workflow has failed with that reason.
    Unrunnable,
    /// This process does not lead any more.
    NotLeader,
}

/// The definition as it is stored now.
pub(super) async fn definition_now(
    ctx: &Context,
    id: &WorkflowId,
) -> Result<Option<Stored<DefinitionRecord>>, ReadError> {
    let read = || async { store_errors(read_definition(&ctx.store, &ctx.layout, id).await) };
    patiently(&ctx.env, &ctx.stopping, read).await?
}

/// Whether this process leads also after what a state says of its writer (P13).
pub(super) async fn leads_on_after(ctx: &Context, state: &StateRecord) -> Result<bool, ReadError> {
    let (epoch, holder) = state.writer();
    let own = (ctx.epoch(), ctx.leadership.holder());
    if epoch >= own.0 && (epoch, holder) != own {
        ctx.met(epoch, holder).await?;
        return Ok(ctx.leadership.fence().is_open());
    }
    Ok(true)
}

impl Actor {
    /// Opens the book. What must be written for that is noted in `pass`.
    pub(super) async fn load(&mut self, pass: &mut Pass) -> Result<Loaded, ReadError> {
        let ctx = Arc::clone(&self.ctx);
        let id = self.id.clone();
        let found = self.cell.load(&ctx.stopping);
        let (found, definition) = join(found, definition_now(&ctx, &id)).await;
        let (found, definition) = (found?, definition?);
        if let Some(state) = &found
            && !leads_on_after(&ctx, state).await?
        {
            return Ok(Loaded::NotLeader);
        }
        let life = definition.as_ref().map(|stored| stored.record.run_id);
        let record = match found {
            Some(StateRecord::Purged(tombstone))
                if life.is_none_or(|run| run == tombstone.run_id) =>
            {
                return Ok(Loaded::Purged(Box::new(tombstone)));
            }
            // A new life of the id: its first state takes the place of the tombstone.
            Some(StateRecord::Purged(_)) | None => None,
            Some(StateRecord::Live(record)) => Some(record),
        };
        let Some(definition) = definition else {
            return match record {
                None => Ok(Loaded::Nothing),
                Some(_) => Err(self.lost("its definition blob is missing")),
            };
        };
        let definition = Arc::new(definition.record);
        Stats::count(&ctx.stats.workflows_loaded);
        let graph = match Graph::new(&definition.definition) {
            Ok(graph) => Arc::new(graph),
            Err(error) => {
                return self
                    .fail_unrunnable(&definition, record.as_ref(), &error)
                    .await;
            }
        };
        match record {
            Some(record) => {
                if !record.status.is_final() {
                    ctx.create_queues(&definition.definition).await?;
                }
                self.open(definition, graph, record, pass)?;
            }
            None => return self.activate(definition, graph, pass).await,
        }
        Ok(Loaded::Yes)
    }

    fn open(
        &mut self,
        definition: Arc<DefinitionRecord>,
        graph: Arc<Graph>,
        record: RuntimeRecord,
        pass: &mut Pass,
    ) -> Result<(), ReadError> {
        if record.run_id != definition.run_id {
            return Err(self.lost("its definition and its state are of different lives of the id"));
        }
        let place = self.ctx.layout.runtime(&self.id).to_string();
        let mut changes = Changes::default();
        let restored = record.runtime(graph, &mut changes);
        let mut runtime = restored.map_err(|source| ReadError::Decode { place, source })?;
        self.outbox.mark(&mut runtime);
        let foreign =
            record.epoch != self.ctx.epoch() || record.holder != self.ctx.leadership.holder();
        let is_final = runtime.status().is_final();
        if foreign || self.cell.is_in_doubt() {
            // Also what is final: a write of its earlier leader, or one of this whose outcome is not known, must not reopen or purge it
            // behind the back of who finishes its row. Both are refused once this version is replaced.
            pass.changed = true;
        }
        if foreign && !is_final {
            tracing::info!(workflow = %self.id, from = %record.holder, epoch = %record.epoch, "workflow_taken_over");
            self.row_first = true;
        }
        pass.changed |= !changes.is_empty();
        if is_final {
            self.row_is_behind();
        }
        self.adopt(Book::restored(definition, runtime, record), changes, pass);
        Ok(())
    }

    /// The first state of a workflow that has only a definition; never where the row already names a revision, or while somebody removes
    /// the workflow (P3).
    async fn activate(
        &mut self,
        definition: Arc<DefinitionRecord>,
        graph: Arc<Graph>,
        pass: &mut Pass,
    ) -> Result<Loaded, ReadError> {
        let ctx = &self.ctx;
        let row = self.row.read(definition.run_id, ctx.epoch(), &ctx.stopping);
        let (created, row) = join(ctx.create_queues(&definition.definition), row).await;
        created?;
        match row? {
            Some(record)
                if record.run_id == definition.run_id && record.revision > Revision::new(0) =>
            {
                return Err(self.lost(&format!(
                    "its row shows revision {}, but the blob is gone",
                    record.revision
                )));
            }
            Some(_) => {}
            // Who removes a workflow begins with its definition, which may have been read before that.
            None => {
                let Some(now) = definition_now(ctx, &self.id).await? else {
                    return Ok(Loaded::Nothing);
                };
                if now.record.run_id != definition.run_id {
                    return Err(self.met("its definition was replaced meanwhile"));
                }
            }
        }
        tracing::info!(workflow = %self.id, tasks = graph.len(), "workflow_activated");
        let mut changes = Changes::default();
        let runtime = Runtime::start(graph, &mut changes);
        pass.changed = true;
        self.row_first = true;
        let now = self.ctx.env.wall();
        self.adopt(Book::new(definition, runtime, now), changes, pass);
        Ok(Loaded::Yes)
    }

    fn adopt(&mut self, book: Book, changes: Changes, pass: &mut Pass) {
        let own: BTreeSet<_> = changes.ready.iter().copied().collect();
        self.dispatch.reload(&self.ctx, &book, &own);
        pass.changes.ready.extend(changes.ready);
        pass.changes.ended.extend(changes.ended);
        self.book = Some(book);
    }

    fn met(&self, why: &str) -> ReadError {
        let operation = format!("put blob {}", self.ctx.layout.runtime(&self.id));
        StoreError::new(Kind::Conflict, operation, why).into()
    }

    fn lost(&self, why: &str) -> ReadError {
        let place = self.ctx.layout.runtime(&self.id).to_string();
        ReadError::Decode {
            place,
            source: DecodeError::Nonsense {
                what: RuntimeRecord::WHAT,
                why: why.to_owned(),
            },
        }
    }

    /// Ends a workflow whose stored definition has no graph that can be run, rather than leave it waiting.
    async fn fail_unrunnable(
        &mut self,
        definition: &DefinitionRecord,
        record: Option<&RuntimeRecord>,
        error: &GraphError,
    ) -> Result<Loaded, ReadError> {
        let ctx = Arc::clone(&self.ctx);
        if record.is_some_and(|record| !record.status.is_final()) {
            return Err(self.lost(&format!("its definition cannot be run: {error}")));
        }
        let reason = format!("the definition cannot be run: {error}");
        let (now, tasks) = (ctx.env.wall(), definition.definition.tasks.len());
        if record.is_none() {
            tracing::error!(workflow = %self.id, reason, "workflow_unrunnable");
            let failed = RuntimeRecord {
                schema: RuntimeRecord::SCHEMA,
                workflow_id: self.id.clone(),
                run_id: definition.run_id,
                generation: Generation::FIRST,
                epoch: ctx.epoch(),
                holder: ctx.leadership.holder().to_owned(),
                stamp: Stamp::new(ctx.env.uuid()),
                revision: Revision::new(1),
                status: Status::Failed,
                reason: Some(reason.clone()),
                control_seq: ControlSeq::new(0),
                control_results: Vec::new(),
                cancel: None,
                stop: None,
                created_at: now,
                updated_at: now,
                states: "f".repeat(tasks),
                tasks: Vec::new(),
                packed: None,
            };
            if self.cell.swap(&failed, &mut 0, &ctx.stopping).await? == Swap::Rival {
                return Err(self.met("somebody else activates it"));
            }
        }
        let row = IndexRecord {
            schema: IndexRecord::SCHEMA,
            workflow_id: self.id.clone(),
            name: definition
                .definition
                .name
                .clone()
                .unwrap_or_else(|| self.id.to_string()),
            run_id: definition.run_id,
            generation: Generation::FIRST,
            epoch: ctx.epoch(),
            revision: Revision::new(1),
            status: Status::Failed,
            reason,
            total: tasks as u64,
            counts: [("failed".to_owned(), tasks as u64)].into(),
            control_seq: ControlSeq::new(0),
            cancel_requested: None,
            stopping: None,
            created_at: definition.submitted_at,
            updated_at: now,
        };
        if let Shown::Met(epoch) = self.row.finish(&row, &ctx.stopping).await? {
            ctx.met(epoch, "the index row").await?;
        }
        Ok(Loaded::Unrunnable)
    }
}
