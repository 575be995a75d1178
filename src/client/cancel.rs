//! Asks for the end of a workflow: a flag on its row, which nothing can lose, and a message, which is fast (P17, P30).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::control::{Ask, Seen};
use crate::client::{Answer, Client, ClientError, Result, TRIES_MAX};
use crate::definition::WorkflowId;
use crate::engine::{Generation, Status};
use crate::protocol::{FoundRow, read_definition, read_head, read_row};
use crate::record::{ControlAction, RuntimeRecord, StateRecord};
use crate::store::{Expect, Fields, Kind, Value};

/// The field of the row that holds the request.
const FIELD: &str = "cancel_requested";

impl Client {
    /// Asks for the end of the workflow as it runs now, and waits up to `wait` for the answer.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: it has ended already. [`ClientError::Purging`]: what is left of it is being removed.
    ///
    /// # Cancel safety
    /// May be dropped at any await; once the row has the flag, the workflow will be cancelled.
    pub async fn cancel(&self, id: &WorkflowId, wait: Duration) -> Result<Answer> {
        let mut met = None;
        for _ in 0..TRIES_MAX {
            let found = self.row_of(id).await?;
            let state = read_head(&self.store, &self.layout, id).await?;
            let runtime = match state.map(|stored| stored.record) {
                Some(StateRecord::Purged(tombstone)) if tombstone.run_id == found.record.run_id => {
                    return Err(ClientError::Purging(id.clone()));
                }
                state => state.and_then(StateRecord::live),
            };
            let generation = generation_at_hand(&found, runtime.as_ref());
            if let Some(status) = has_ended(&found, runtime.as_ref()) {
                return Err(ended(id, status));
            }
            let fields = Fields::from(BTreeMap::from([(
                FIELD.to_owned(),
                Value::Int(i64::from(generation.number())),
            )]));
            let expect = Expect::Version(found.row.etag.clone());
            let (table, key) = (self.layout.index(), &found.row.key);
            match self.store.rows.write(table, key, &fields, &expect).await {
                Ok(_) => {}
                // Looked at again: a write that landed after all is simply repeated.
                Err(error) if matches!(error.kind, Kind::Conflict | Kind::Ambiguous) => {
                    met = Some(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            let ask = Ask {
                action: ControlAction::Cancel,
                run_id: found.record.run_id,
                generation,
                control_seq: found.record.control_seq,
            };
            let request = self.send(id, ask).await?;
            let seen = |runtime: &RuntimeRecord| seen(generation, runtime);
            return self.answer(id, &ask, request, wait, seen).await;
        }
        Err(ClientError::gave_up(id, met))
    }

    /// The row, made anew from the definition where a submit was interrupted.
    async fn row_of(&self, id: &WorkflowId) -> Result<FoundRow> {
        if let Some(found) = read_row(&self.store, &self.layout, id).await? {
            return Ok(found);
        }
        let missing = || ClientError::NoWorkflow(id.clone());
        let definition = read_definition(&self.store, &self.layout, id).await?;
        let definition = definition.ok_or_else(missing)?.record;
        self.ensure_row(&definition, false).await?;
        read_row(&self.store, &self.layout, id)
            .await?
            .ok_or_else(missing)
    }
}

/// The coordinator may have met the flag before the message, and then refuses the message: what counts is the cancel in the state.
pub(super) fn seen(asked: Generation, runtime: &RuntimeRecord) -> Seen {
    if runtime.generation > asked {
        Seen::Passed("it was retried meanwhile")
    } else if runtime.generation == asked && runtime.cancel.is_some() {
        Seen::Met
    } else if runtime.generation == asked && runtime.status.is_final() {
        Seen::Passed("it ended meanwhile")
    } else {
        Seen::Open
    }
}

/// The generation to cancel: a retry raises that of the row first.
fn generation_at_hand(found: &FoundRow, runtime: Option<&RuntimeRecord>) -> Generation {
    let row = found.record.generation;
    runtime.map_or(row, |runtime| row.max(runtime.generation))
}

/// The final status, if the newest generation has one.
fn has_ended(found: &FoundRow, runtime: Option<&RuntimeRecord>) -> Option<Status> {
    if found.record.status.is_final() {
        return Some(found.record.status);
    }
    let runtime = runtime.filter(|runtime| runtime.generation >= found.record.generation)?;
    runtime.status.is_final().then_some(runtime.status)
}

fn ended(id: &WorkflowId, status: Status) -> ClientError {
    ClientError::Refused {
        id: id.clone(),
        why: format!("has ended already: it is `{status}`"),
    }
}
