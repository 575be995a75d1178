//! Submits a workflow: definition, row, message, in this order (P3).
//!
//! A crash between any two steps leaves what the next submit, or the coordinator's sweeps, complete.

use crate::client::control::Ask;
use crate::client::{Client, ClientError, Result, TRIES_MAX};
use crate::definition::{Definition, WorkflowId};
use crate::engine::{Generation, Graph, Status};
use crate::protocol::{fields_of, read_definition, read_head, read_row};
use crate::record::{
    ControlAction, ControlSeq, DefinitionRecord, Epoch, IndexRecord, JournalAction, JournalResult,
    Record, Revision, RunId, StateRecord, encode,
};
use crate::store::{Expect, Kind, StoreError};

/// A workflow that is stored now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// Its id.
    pub id: WorkflowId,
    /// This life of the id.
    pub run_id: RunId,
    /// Whether this call stored it; otherwise it was there already, with the same definition.
    pub is_new: bool,
}

/// Texts of a row longer than this are cut: a row must never fail because of a name.
const ROW_TEXT_CHARS_MAX: usize = 1_000;

impl Client {
    /// An id for a workflow that was given none; ids sort by time.
    #[must_use]
    pub fn new_id(&self) -> WorkflowId {
        WorkflowId::new(self.env.time_ordered_uuid().to_string())
            .expect("a UUID is 36 characters of the alphabet of ids")
    }

    /// Stores a workflow for the coordinator to take up, or completes an earlier, interrupted submit of the same.
    ///
    /// # Errors
    /// [`ClientError::Taken`]: choose another id. [`ClientError::Purging`]: wait until what had the id is gone. [`ClientError::Graph`]: the definition needs a change. Of the store: submit again,
    /// with the same id; nothing is stored twice.
    ///
    /// # Cancel safety
    /// May be dropped at any await; submit the same again.
    pub async fn submit(&self, id: &WorkflowId, definition: &Definition) -> Result<Submitted> {
        Graph::new(definition)?;
        match self.try_submit(id, definition).await {
            Err(error) if error.is_kind(Kind::NoResource) => {
                self.layout.create(&self.store).await?;
                self.try_submit(id, definition).await
            }
            result => result,
        }
    }

    async fn try_submit(&self, id: &WorkflowId, definition: &Definition) -> Result<Submitted> {
        let (record, is_new) = self.store_definition(id, definition).await?;
        let waits = self.ensure_row(&record, is_new).await?;
        if waits {
            self.announce(&record).await?;
        }
        if is_new {
            self.note(JournalAction::Submit, id, None, JournalResult::Applied)
                .await;
        }
        Ok(Submitted {
            id: id.clone(),
            run_id: record.run_id,
            is_new,
        })
    }

    /// Writes the definition blob, or finds the same definition there.
    async fn store_definition(
        &self,
        id: &WorkflowId,
        definition: &Definition,
    ) -> Result<(DefinitionRecord, bool)> {
        let record = DefinitionRecord {
            schema: DefinitionRecord::schema_of(definition),
            workflow_id: id.clone(),
            run_id: RunId::new(self.env.uuid()),
            submitted_at: self.env.wall(),
            submitted_by: self.actor.clone(),
            definition: definition.clone(),
        };
        let path = self.layout.definition(id);
        let body = bytes::Bytes::from(encode(&record));
        let mut met = None;
        for _ in 0..TRIES_MAX {
            let put = self
                .store
                .blobs
                .put(&path, body.clone(), &Expect::Absent, None)
                .await;
            match put {
                Ok(_) => return Ok((record, true)),
                Err(error) if matches!(error.kind, Kind::Conflict | Kind::Ambiguous) => {
                    met = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
            match read_definition(&self.store, &self.layout, id).await? {
                Some(found) if found.record.run_id == record.run_id => return Ok((record, true)),
                Some(found) if found.record.definition == *definition => {
                    return Ok((found.record, false));
                }
                Some(found) => {
                    self.check_not_purged(&found.record).await?;
                    return Err(ClientError::Taken(id.clone()));
                }
                // The write whose outcome is unknown has not happened (yet); whichever try lands carries the same run id.
                None => {}
            }
        }
        Err(ClientError::gave_up(id, met))
    }

    /// Makes sure that there is a row. Tells whether the workflow still waits for a coordinator.
    pub(super) async fn ensure_row(
        &self,
        definition: &DefinitionRecord,
        is_new: bool,
    ) -> Result<bool> {
        let id = &definition.workflow_id;
        if !is_new {
            let row = read_row(&self.store, &self.layout, id).await?;
            // Looked at after the row: a purge removes that only when its tombstone is there.
            self.check_not_purged(definition).await?;
            if let Some(found) = row {
                return Ok(found.record.status == Status::Pending);
            }
        }
        let fields = fields_of(&first_row(definition));
        let (table, key) = (self.layout.index(), self.layout.open_row(id));
        let mut met = None;
        for _ in 0..TRIES_MAX {
            let write = self.store.rows.write(table, &key, &fields, &Expect::Absent);
            match write.await {
                // Conflict: the coordinator's sweep, or another submit, was faster.
                Ok(_)
                | Err(StoreError {
                    kind: Kind::Conflict,
                    ..
                }) => return Ok(true),
                Err(error) if error.kind == Kind::Ambiguous => met = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Err(ClientError::gave_up(id, met))
    }

    /// Fails if what is left of this life of the id is being removed.
    pub(super) async fn check_not_purged(&self, definition: &DefinitionRecord) -> Result<()> {
        let id = &definition.workflow_id;
        let state = read_head(&self.store, &self.layout, id).await?;
        match state.map(|stored| stored.record) {
            Some(StateRecord::Purged(tombstone)) if tombstone.run_id == definition.run_id => {
                Err(ClientError::Purging(id.clone()))
            }
            Some(StateRecord::Purged(_) | StateRecord::Live(_)) | None => Ok(()),
        }
    }

    /// Tells the coordinator, so that it need not wait for its next sweep.
    pub(super) async fn announce(&self, definition: &DefinitionRecord) -> Result<()> {
        let ask = Ask {
            action: ControlAction::Submit,
            run_id: definition.run_id,
            generation: Generation::FIRST,
            control_seq: ControlSeq::default(),
        };
        self.send(&definition.workflow_id, ask).await.map(drop)
    }
}

/// The row of a workflow that no coordinator has seen.
fn first_row(definition: &DefinitionRecord) -> IndexRecord {
    let total = u64::try_from(definition.definition.tasks.len()).unwrap_or(u64::MAX);
    let name = definition.definition.name.as_deref();
    let name = name.unwrap_or(definition.workflow_id.as_str());
    IndexRecord {
        schema: IndexRecord::SCHEMA,
        workflow_id: definition.workflow_id.clone(),
        name: name.chars().take(ROW_TEXT_CHARS_MAX).collect(),
        run_id: definition.run_id,
        generation: Generation::FIRST,
        epoch: Epoch::default(),
        revision: Revision::default(),
        status: Status::Pending,
        reason: String::new(),
        total,
        counts: [("pending".to_owned(), total)].into(),
        control_seq: ControlSeq::default(),
        cancel_requested: None,
        stopping: None,
        created_at: definition.submitted_at,
        updated_at: definition.submitted_at,
    }
}
