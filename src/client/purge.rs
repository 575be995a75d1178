//! Asks for the removal of what is left of a workflow that has ended (P31).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::client::control::{Ask, Seen};
use crate::client::{Answer, Client, ClientError, Result};
use crate::definition::WorkflowId;
use crate::protocol::{Layout, found, read_head, read_row};
use crate::record::{ControlAction, RunId, RuntimeRecord, StateRecord};

impl Client {
    /// Asks to remove what is left of a workflow, and waits up to `wait` until nothing is.
    ///
    /// # Errors
    /// [`ClientError::NoWorkflow`]: there is nothing to remove. [`ClientError::Refused`]: it has not ended, or another request was faster.
    ///
    /// # Cancel safety
    /// May be dropped at any await: the request is then either sent or not, never half.
    pub async fn purge(&self, id: &WorkflowId, wait: Duration) -> Result<Answer> {
        let definition = self.definition(id).await?;
        let refused = |why: String| ClientError::Refused {
            id: id.clone(),
            why,
        };
        let run = definition.run_id;
        let state = match read_head(&self.store, &self.layout, id).await {
            Ok(stored) => stored.map(|stored| stored.record),
            Err(error) if error.is_damage() => {
                // It cannot be told from the state whether it has ended, but from the row.
                let ask = self.ask_by_row(id, run).await?;
                return self.purge_unread(id, ask.ok_or(error)?, wait).await;
            }
            Err(error) => return Err(error.into()),
        };
        let runtime = match state {
            Some(StateRecord::Live(runtime)) if runtime.run_id == definition.run_id => runtime,
            // Somebody has asked already: the end of that is waited for.
            Some(StateRecord::Purged(tombstone)) if tombstone.run_id == definition.run_id => {
                let ask = Ask {
                    action: ControlAction::Purge,
                    run_id: tombstone.run_id,
                    generation: crate::engine::Generation::FIRST,
                    control_seq: crate::record::ControlSeq::default(),
                };
                return self
                    .answer(id, &ask, tombstone.request_id, wait, |_| Seen::Open)
                    .await;
            }
            Some(StateRecord::Live(_) | StateRecord::Purged(_)) => {
                return Err(refused("has not started yet".to_owned()));
            }
            None => {
                let ask = self.ask_by_row(id, run).await?;
                let Some(ask) = ask else {
                    let gone = self.gone(&definition).await?.map(ClientError::from);
                    return Err(gone.unwrap_or_else(|| refused("has not started yet".to_owned())));
                };
                return self.purge_unread(id, ask, wait).await;
            }
        };
        if !runtime.status.is_final() {
            return Err(refused(format!(
                "has not ended: it is `{}`",
                runtime.status
            )));
        }
        let ask = Ask {
            action: ControlAction::Purge,
            run_id: runtime.run_id,
            generation: runtime.generation,
            control_seq: runtime.control_seq,
        };
        let request = self.send(id, ask).await?;
        let seen = |runtime: &RuntimeRecord| crate::client::retry::seen(&ask, runtime);
        self.answer(id, &ask, request, wait, seen).await
    }

    /// What to ask of a workflow whose state says nothing: none where its row does not show that the run has ended.
    async fn ask_by_row(&self, id: &WorkflowId, run: RunId) -> Result<Option<Ask>> {
        let row = read_row(&self.store, &self.layout, id).await?;
        let row = row.map(|found| found.record);
        let row = row.filter(|row| row.run_id == run && row.status.is_final());
        Ok(row.map(|row| Ask {
            action: ControlAction::Purge,
            run_id: row.run_id,
            generation: row.generation,
            control_seq: row.control_seq,
        }))
    }

    async fn purge_unread(&self, id: &WorkflowId, ask: Ask, wait: Duration) -> Result<Answer> {
        let request = self.send(id, ask).await?;
        self.answer(id, &ask, request, wait, |_| Seen::Open).await
    }

    /// The workflows that ended and whose rows were last written more than `age` ago, the oldest first. That compares this machine's
    /// clock with times that coordinators have noted by theirs.
    ///
    /// # Errors
    /// What keeps the table from being read; rows that cannot be read are passed over.
    pub async fn ended_before(&self, age: SignedDuration) -> Result<Vec<WorkflowId>> {
        let limit = self.env.wall().checked_sub(age).unwrap_or(Timestamp::MIN);
        let mut ended = Vec::new();
        let mut after = None;
        loop {
            let rows = &self.store.rows;
            let page = rows.query(self.layout.index(), Layout::DONE, after.as_ref());
            let page = page.await?;
            for row in page.items {
                match found(row) {
                    Ok(found) if found.record.updated_at < limit => {
                        ended.push((found.record.updated_at, found.record.workflow_id));
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "row_unreadable"),
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        ended.sort();
        Ok(ended.into_iter().map(|(_, id)| id).collect())
    }
}
