//! The runtime blob: the state of one workflow, the one target of compare-and-swap.
//!
//! One letter a task (`states`), in the order of the definition, and details only of tasks that have something to say. As it is stored,
//! parts of both are `packed`; who reads it puts them together again and sees them whole.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::control::{ControlAction, ControlResult};
use super::id::{ControlSeq, Epoch, Revision, RunId, Stamp};
use super::packed::Packed;
use super::{DecodeError, Record, nonsense};
use crate::definition::WorkflowId;
use crate::engine::{
    Attempt, AttemptReport, Cancel, Changes, Due, Generation, Graph, Parts, Runtime, Status,
    StopAfter, TaskIx, TaskRun, TaskState,
};

/// The runtime blob, schema 2. In schema 1 nothing was packed; it is read all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuntimeRecord {
    /// 2.
    pub schema: u32,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// This life of the id.
    pub run_id: RunId,
    /// The run within it: raised by each retry of the workflow.
    pub generation: Generation,
    /// The leader that wrote this.
    pub epoch: Epoch,
    /// Its name, as `host/pid`.
    pub holder: String,
    /// Marks this write.
    pub stamp: Stamp,
    /// How often the state was written.
    pub revision: Revision,
    /// Where the workflow stands; follows from `states`, `cancel` and `stop`.
    pub status: Status,
    /// The first failure, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many requests of people were applied.
    pub control_seq: ControlSeq,
    /// The last results of such requests, newest last; at most [`RuntimeRecord::CONTROL_RESULTS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control_results: Vec<ControlResult>,
    /// The cancel applied to this generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Cancel>,
    /// The failure that has stopped the rest of this generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopAfter>,
    /// When the workflow was activated, by the leader's clock.
    pub created_at: Timestamp,
    /// When this was written, by the leader's clock.
    pub updated_at: Timestamp,
    /// One letter a task: `p`ending, `r`eady, `d`ispatched, `c`ompleted, `f`ailed, `u`pstream_failed, `s`kipped, cancelled (`x`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub states: String,
    /// Details, by rising place; tasks that never had an attempt nor a reason have none.
    pub tasks: Vec<TaskDetail>,
    /// As it is stored: what of `states` and `tasks` is said in a shorter way or elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<Box<Packed>>,
}

/// What is to be said of one task beside its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskDetail {
    /// Its place in the definition, from 0.
    pub place: TaskIx,
    /// The last attempt issued; 0 before the first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt_no: Attempt,
    /// Failures since the workflow was submitted or last retried.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failures: u32,
    /// When it may be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Due>,
    /// The dependencies that had ended when it was made ready, where its policy does not wait for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<TaskIx>>,
    /// Where the failure above it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_cause: Option<TaskIx>,
    /// How its last reported attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<AttemptReport>>,
    /// Why it is in a state that no report explains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Record for RuntimeRecord {
    const WHAT: &'static str = "runtime blob";
    const SCHEMA: u32 = 2;
}

pub(super) const fn letter(state: TaskState) -> char {
    match state {
        TaskState::Pending => 'p',
        TaskState::Ready => 'r',
        TaskState::Dispatched => 'd',
        TaskState::Completed => 'c',
        TaskState::Failed => 'f',
        TaskState::UpstreamFailed => 'u',
        TaskState::Skipped => 's',
        TaskState::Cancelled => 'x',
    }
}

impl RuntimeRecord {
    /// How many results of requests are kept for who asked.
    pub const CONTROL_RESULTS_MAX: usize = 16;

    /// Why a workflow came to `status`, as a sentence: who cancelled it, or else its first failure.
    #[must_use]
    pub fn why(
        status: Status,
        results: &[ControlResult],
        first_failure: Option<&str>,
    ) -> Option<String> {
        let is_cancel = |result: &&ControlResult| {
            result.action == ControlAction::Cancel && result.refused.is_none()
        };
        let cancel = match status {
            Status::Cancelling | Status::Cancelled => results.iter().rev().find(is_cancel),
            Status::Pending | Status::Running | Status::Completed | Status::Failed => None,
        };
        cancel
            .map(|result| format!("cancelled by {}", result.actor))
            .or_else(|| first_failure.map(ToOwned::to_owned))
    }

    /// The letters and details of the tasks of `runtime`.
    #[must_use]
    pub fn tasks_of(runtime: &Runtime) -> (String, Vec<TaskDetail>) {
        let states = runtime
            .tasks()
            .iter()
            .map(|task| letter(task.state))
            .collect();
        let details = runtime
            .graph()
            .tasks()
            .map(|place| TaskDetail::of(place, runtime.task(place)));
        let said = details.filter(|detail| *detail != TaskDetail::nothing(detail.place));
        (states, said.collect())
    }

    /// The states of all tasks.
    ///
    /// # Errors
    /// [`DecodeError::Nonsense`] if a letter stands for none.
    pub fn task_states(&self) -> Result<Vec<TaskState>, DecodeError> {
        let state = |found: char| {
            let state = TaskState::ALL
                .into_iter()
                .find(|state| letter(*state) == found);
            state.ok_or_else(|| nonsense::<Self>(&format!("`{found}` stands for no task state")))
        };
        self.states.chars().map(state).collect()
    }

    /// The state machine that this record stores, and what is to be done at once (P5).
    ///
    /// # Errors
    /// [`DecodeError::Nonsense`] if the record does not fit `graph`.
    pub fn runtime(
        &self,
        graph: Arc<Graph>,
        changes: &mut Changes,
    ) -> Result<Runtime, DecodeError> {
        let states = self.task_states()?;
        if states.len() != graph.len() {
            let why = format!(
                "holds {} tasks, its definition {}",
                states.len(),
                graph.len()
            );
            return Err(nonsense::<Self>(&why));
        }
        let fits = |place: &TaskIx| place.at() < states.len();
        let mut tasks: Vec<TaskRun> = states.iter().copied().map(bare).collect();
        for detail in &self.tasks {
            let mut places = detail
                .inputs
                .iter()
                .flatten()
                .chain(&detail.root_cause)
                .chain([&detail.place]);
            if !places.all(fits) {
                return Err(nonsense::<Self>(
                    "names a task that its definition does not have",
                ));
            }
            let state = states[detail.place.at()];
            tasks[detail.place.at()] = TaskRun {
                state,
                attempt: detail.attempt_no,
                failures: detail.failures,
                due: detail.due,
                inputs: detail.inputs.clone(),
                root_cause: detail.root_cause,
                report: detail.report.clone(),
                reason: detail.reason.clone(),
            };
        }
        if self.stop.is_some_and(|stop| !fits(&stop.task)) {
            return Err(nonsense::<Self>(
                "was stopped by a task that its definition does not have",
            ));
        }
        let parts = Parts {
            generation: self.generation,
            cancel: self.cancel,
            stop: self.stop,
            first_failure: self.reason.clone(),
            tasks,
        };
        Ok(Runtime::restore(graph, parts, changes))
    }
}

impl TaskDetail {
    /// Of a task that never had an attempt nor a reason.
    #[must_use]
    pub const fn nothing(place: TaskIx) -> Self {
        Self {
            place,
            attempt_no: Attempt::NONE,
            failures: 0,
            due: None,
            inputs: None,
            root_cause: None,
            report: None,
            reason: None,
        }
    }

    /// All that is to be said of a task.
    #[must_use]
    pub fn of(place: TaskIx, task: &TaskRun) -> Self {
        Self {
            place,
            attempt_no: task.attempt,
            failures: task.failures,
            due: task.due,
            inputs: task.inputs.clone(),
            root_cause: task.root_cause,
            report: task.report.clone(),
            reason: task.reason.clone(),
        }
    }
}

const fn bare(state: TaskState) -> TaskRun {
    TaskRun {
        state,
        attempt: Attempt::NONE,
        failures: 0,
        due: None,
        inputs: None,
        root_cause: None,
        report: None,
        reason: None,
    }
}
