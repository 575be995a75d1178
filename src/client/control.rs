//! Requests to the coordinator and their answers (P29).

use std::time::Duration;

use uuid::Uuid;

use crate::client::{Answer, Client, ClientError, Result};
use crate::definition::WorkflowId;
use crate::engine::Generation;
use crate::protocol::{ReadError, read_definition, read_head};
use crate::record::{
    CompletionRecord, ControlAction, ControlRecord, ControlSeq, JournalResult, RunId,
    RuntimeRecord, StateRecord, TombstoneRecord, encode_message,
};
use crate::store::Kind;

/// How often the answer is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What became of a workflow whose tombstone is met.
const PURGED: &str = "it was purged meanwhile";

/// What is asked, and the state it was asked of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) action: ControlAction,
    pub(super) run_id: RunId,
    pub(super) generation: Generation,
    pub(super) control_seq: ControlSeq,
}

/// What a state tells of a request, apart from the answer in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The wish is fulfilled, whoever asked first.
    Met,
    /// It has gone on: the request was refused, or will be when its turn comes. This is why.
    Passed(&'static str),
    /// Nothing yet.
    Open,
}

impl Client {
    /// Sends a request and returns its id.
    pub(super) async fn send(&self, id: &WorkflowId, ask: Ask) -> Result<Uuid> {
        let request_id = self.post(id, ask).await?;
        if ask.action != ControlAction::Submit {
            let (action, result) = (ask.action.into(), JournalResult::Asked);
            self.note(action, id, Some(request_id), result).await;
        }
        Ok(request_id)
    }

    async fn post(&self, id: &WorkflowId, ask: Ask) -> Result<Uuid> {
        let record = ControlRecord {
            request_id: self.env.uuid(),
            action: ask.action,
            workflow_id: id.clone(),
            run_id: ask.run_id,
            generation: ask.generation,
            control_seq: ask.control_seq,
            actor: self.actor.clone(),
            requested_at: self.env.wall(),
        };
        let request_id = record.request_id;
        let body = encode_message(&CompletionRecord::of_control(record));
        let queue = self.layout.completions();
        // A second copy is refused by the sequence number that it names, so an unknown outcome allows another try.
        for _ in 0..3 {
            match self.store.queues.send(queue, &body, Duration::ZERO).await {
                Ok(()) => return Ok(request_id),
                Err(error) if error.kind == Kind::Ambiguous => {}
                Err(error) if error.kind == Kind::NoResource => {
                    self.store.queues.create_queue(queue).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        // It may be under way; who waits for an answer will find out, and a submit is found by the sweep.
        tracing::warn!(workflow_id = %id, "request_outcome_unknown");
        Ok(request_id)
    }

    /// Waits for the answer. `seen` judges a state without one: only the last answers are kept, so that of many requests at once
    /// some never find theirs.
    pub(super) async fn answer(
        &self,
        id: &WorkflowId,
        ask: &Ask,
        request_id: Uuid,
        wait: Duration,
        seen: impl Fn(&RuntimeRecord) -> Seen,
    ) -> Result<Answer> {
        let start = self.env.mono();
        let refused = |why: &str| ClientError::Refused {
            id: id.clone(),
            why: format!("was left as it is: {why}"),
        };
        let mut none_yet = Answer::Stored;
        loop {
            let found = read_head(&self.store, &self.layout, id).await;
            match found.map(|found| found.map(|stored| stored.record)) {
                Ok(Some(StateRecord::Purged(tombstone))) => {
                    if !self.is_purged(&tombstone, ask).await? {
                        if tombstone.run_id == ask.run_id {
                            none_yet = Answer::Underway;
                        }
                    } else if ask.action == ControlAction::Purge {
                        return Ok(Answer::Applied);
                    } else {
                        return Err(refused(PURGED));
                    }
                }
                // There is another life of the id: of the one that was asked for nothing is left.
                Ok(Some(StateRecord::Live(runtime))) if runtime.run_id != ask.run_id => {
                    return match ask.action {
                        ControlAction::Purge => Ok(Answer::Applied),
                        ControlAction::Submit | ControlAction::Cancel | ControlAction::Retry => {
                            Err(refused(PURGED))
                        }
                    };
                }
                Ok(Some(StateRecord::Live(runtime))) => {
                    let seen = seen(&runtime);
                    let mut results = runtime.control_results.into_iter();
                    let own = results.find(|result| result.request_id == request_id);
                    match (seen, own.map(|result| result.refused)) {
                        (Seen::Met, _) | (_, Some(None)) => return Ok(Answer::Applied),
                        (_, Some(Some(why))) => return Err(refused(&why)),
                        (Seen::Passed(why), None) => return Err(refused(why)),
                        (Seen::Open, None) => {}
                    }
                }
                Ok(None) => {}
                // The request is stored: an answer that cannot be read now changes nothing about that.
                Err(ReadError::Store(error)) if error.is_transient() => {}
                // Until it is purged it can be read as little as before.
                Err(error) if ask.action == ControlAction::Purge && error.is_damage() => {}
                Err(error) => return Err(error.into()),
            }
            let left = wait.saturating_sub(self.env.mono().since(start));
            if left.is_zero() {
                return Ok(none_yet);
            }
            self.env.sleep(LOOK_EVERY.min(left)).await;
        }
    }

    /// Whether a tombstone ends the wait: a purge is over when the definition is gone, another request of that run is refused at once.
    /// The tombstone of an earlier run says nothing of one that was submitted since and has no state yet.
    async fn is_purged(&self, tombstone: &TombstoneRecord, ask: &Ask) -> Result<bool> {
        if ask.action != ControlAction::Purge && tombstone.run_id == ask.run_id {
            return Ok(true);
        }
        match read_definition(&self.store, &self.layout, &tombstone.workflow_id).await {
            Ok(definition) => {
                Ok(definition.is_none_or(|stored| stored.record.run_id != ask.run_id))
            }
            Err(ReadError::Store(error)) if error.is_transient() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
