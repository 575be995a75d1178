//! Whether a message is to be started at all (P18): a message that could be a second copy is checked against state and claims first.
//!
//! Invariants:
//! 1. A message that nothing speaks against costs no request beyond its workflow's row, once an interval.
//! 2. A suspect is started only under a claim written before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::{debug, info};

use super::cancel::Standing;
use super::{Delivery, Worker};
use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, TaskIx, TaskState};
use crate::protocol::{
    FoundClaim, Judged, ReadError, delete_claim, judge, meet_claim, read_claim, read_definition,
    read_runtime, write_claim,
};
use crate::record::{ClaimRecord, DecodeError, RunId, RuntimeRecord, TaskMessage};
use crate::store::{ETag, Expect, Kind};

/// Definitions whose places are remembered.
const PLACES_MAX: usize = 16;
/// The least pause before a message held by another is looked at again.
const LOOK_AGAIN_MIN: Duration = Duration::from_secs(1);

/// What is to be done with a message.
#[derive(Debug)]
#[must_use]
pub(super) enum Verdict {
    /// Run it, under this claim if it was written already.
    Start(ClaimRecord, Option<ETag>),
    /// Post that a cancel kept it from starting.
    Cancelled(ClaimRecord, Option<ETag>),
    /// Post that it was started too often.
    TooOften(ClaimRecord, Option<ETag>),
    /// Remove it.
    OldNews,
    /// Show it again after this time.
    GiveBack(Duration),
}

type PlacesOfOne = Arc<BTreeMap<TaskName, TaskIx>>;

/// Places of tasks in their definitions, of the workflows asked for last.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<BTreeMap<WorkflowId, (RunId, PlacesOfOne)>>);

impl Places {
    fn known(&self, id: &WorkflowId, run: RunId) -> Option<PlacesOfOne> {
        let known = self.0.lock().ok()?;
        let (of, places) = known.get(id)?;
        (*of == run).then(|| places.clone())
    }

    fn keep(&self, id: &WorkflowId, run: RunId, places: &PlacesOfOne) {
        if let Ok(mut known) = self.0.lock() {
            if known.len() >= PLACES_MAX {
                known.pop_first();
            }
            known.insert(id.clone(), (run, places.clone()));
        }
    }
}

impl Worker {
    /// Judges a message before anything is started.
    ///
    /// # Errors
    /// What had to be read could not be: nothing is known of the message, give it back.
    pub(super) async fn judge_message(&self, delivery: &Delivery) -> Result<Verdict, ReadError> {
        let standing = self.workflows.standing(&delivery.task).await?;
        let again = delivery.message.deliveries > 1 || delivery.task.again;
        let record = self.claim_of(delivery);
        match standing {
            Some(Standing::OldNews) => Ok(Verdict::OldNews),
            Some(Standing::Current) if !again => Ok(Verdict::Start(record, None)),
            Some(Standing::Cancelled) if !again => Ok(Verdict::Cancelled(record, None)),
            Some(Standing::Current | Standing::Suspect) | None => {
                self.judge_suspect(delivery, record, false).await
            }
            Some(Standing::Cancelled) => self.judge_suspect(delivery, record, true).await,
        }
    }

    async fn judge_suspect(
        &self,
        delivery: &Delivery,
        record: ClaimRecord,
        is_cancelled: bool,
    ) -> Result<Verdict, ReadError> {
        let task = &delivery.task;
        debug!(workflow_id = %task.workflow_id, task = %task.task, attempt_no = %task.attempt_no, "suspect");
        if delivery.message.deliveries == 1 && !is_cancelled {
            // The other copy may have been started a moment ago: its claim comes with its first heartbeat. The wait is the
            // message's, not a slot's: after a change of leaders all that is queued is suspect.
            return Ok(Verdict::GiveBack(self.config.heartbeat_interval));
        }
        let current = self.current(task).await?;
        let Some(current) = current else {
            return Ok(Verdict::OldNews);
        };
        let is_cancelled = is_cancelled || current.is_cancelled;
        let found = meet_claim(&self.store, &self.layout, &record).await?;
        self.judge_claim(delivery, record, found, is_cancelled)
            .await
    }

    async fn judge_claim(
        &self,
        delivery: &Delivery,
        mut record: ClaimRecord,
        found: Option<FoundClaim>,
        is_cancelled: bool,
    ) -> Result<Verdict, ReadError> {
        let mut expect = Expect::Absent;
        if let Some(found) = found {
            match judge(&found, &record) {
                Judged::Held(left) => {
                    let left = left.min(self.config.visibility).max(LOOK_AGAIN_MIN);
                    return Ok(Verdict::GiveBack(left));
                }
                Judged::Newer => return Ok(Verdict::OldNews),
                Judged::Unclaimed => {}
                Judged::Freed {
                    starts,
                    interruptions,
                } => {
                    record.starts = starts;
                    record.interruptions = interruptions;
                }
                Judged::Abandoned {
                    starts,
                    interruptions,
                } => {
                    record.starts = starts.saturating_add(1);
                    record.interruptions = interruptions;
                }
            }
            expect = Expect::Version(found.etag);
        }
        let known = match &expect {
            Expect::Absent => None,
            Expect::Version(etag) => Some(etag.clone()),
        };
        if is_cancelled {
            return Ok(Verdict::Cancelled(record, known));
        }
        if record.starts > self.config.max_deliveries {
            return Ok(Verdict::TooOften(record, known));
        }
        let age = self.env.mono().since(delivery.received_at);
        if age > self.config.visibility / 2 {
            // This process was paused: by now another may have finished the message, and nobody would meet this claim again.
            info!(task = %record.task, age_s = age.as_secs(), "message_judged_too_late");
            return Ok(Verdict::GiveBack(Duration::ZERO));
        }
        match write_claim(&self.store, &self.layout, &record, &expect).await {
            Ok(etag) => Ok(Verdict::Start(record, Some(etag))),
            Err(error) if error.kind == Kind::Conflict => {
                info!(task = %record.task, "claim_taken_by_another");
                Ok(Verdict::GiveBack(LOOK_AGAIN_MIN))
            }
            Err(error) if error.kind == Kind::Ambiguous => {
                let found = meet_claim(&self.store, &self.layout, &record).await?;
                match found.filter(|found| found.record.token == record.token) {
                    Some(found) => Ok(Verdict::Start(record, Some(found.etag))),
                    // If it is written later, nobody has its token: it just runs out.
                    None => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the state says of the attempt; none where it is not, or no longer, to be run.
    async fn current(&self, task: &TaskMessage) -> Result<Option<Current>, ReadError> {
        let id = &task.workflow_id;
        let Some(state) = read_runtime(&self.store, &self.layout, id).await? else {
            return Ok(None);
        };
        let state = state.record;
        if (state.run_id, state.generation) != (task.run_id, task.generation) {
            return Ok(None);
        }
        let Some(place) = self.place(task).await? else {
            return Ok(None);
        };
        let attempt = attempt_at(&state, place).map_err(|source| ReadError::Decode {
            place: self.layout.runtime(id).to_string(),
            source,
        })?;
        Ok(attempt
            .filter(|attempt| *attempt == task.attempt_no)
            .map(|_| Current {
                is_cancelled: state.cancel.is_some()
                    || (state.stop.is_some() && !task.survives_stop),
            }))
    }

    async fn place(&self, task: &TaskMessage) -> Result<Option<TaskIx>, ReadError> {
        let id = &task.workflow_id;
        if let Some(places) = self.places.known(id, task.run_id) {
            return Ok(places.get(&task.task).copied());
        }
        let Some(stored) = read_definition(&self.store, &self.layout, id).await? else {
            return Ok(None);
        };
        let names = stored.record.definition.tasks.into_iter();
        let places: BTreeMap<TaskName, TaskIx> = names
            .map(|task| task.name)
            .zip((0..).map(TaskIx::new))
            .collect();
        let places = Arc::new(places);
        self.places.keep(id, stored.record.run_id, &places);
        Ok((stored.record.run_id == task.run_id)
            .then(|| places.get(&task.task).copied())
            .flatten())
    }

    /// Removes the claim that belongs to old news, and leaves a later one alone.
    pub(super) async fn remove_old_claim(&self, delivery: &Delivery) -> Result<(), ReadError> {
        let TaskMessage {
            workflow_id: id,
            task,
            ..
        } = &delivery.task;
        let Some(found) = read_claim(&self.store, &self.layout, id, task).await? else {
            return Ok(());
        };
        let of = (found.record.run_id, found.record.attempt_no);
        if of == (delivery.task.run_id, delivery.task.attempt_no) {
            delete_claim(&self.store, &self.layout, id, task, &found.etag).await?;
        }
        Ok(())
    }
}

/// What is known of an attempt that is to be run.
#[derive(Debug, Clone, Copy)]
struct Current {
    is_cancelled: bool,
}

/// The last attempt issued of the task at `place`; none if the task has ended or was never issued.
fn attempt_at(state: &RuntimeRecord, place: TaskIx) -> Result<Option<Attempt>, DecodeError> {
    let runs = match state.task_states()?.get(place.at()) {
        Some(TaskState::Ready | TaskState::Dispatched) => true,
        Some(
            TaskState::Pending
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::UpstreamFailed
            | TaskState::Skipped
            | TaskState::Cancelled,
        )
        | None => false,
    };
    let at = state
        .tasks
        .binary_search_by_key(&place, |detail| detail.place);
    Ok(at
        .ok()
        .filter(|_| runs)
        .map(|at| state.tasks[at].attempt_no))
}
