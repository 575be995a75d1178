//! The state of one workflow, and what can be asked of it. `events` changes it, `settle` draws what follows.
//!
//! Invariants:
//! 1. `tallies` and `counts` always equal what a count over `tasks` would give; [`Runtime::restore`] counts once, events adjust.
//! 2. Between events no pending task has dependencies that decide it: every event settles all that follows from it.
//! 3. While a cancel is applied, no task becomes `ready`; while a stop is in force, only those that survive it do.
//! 4. Only a `ready` task has a `due` time.
//! 5. Where the definition says so, a stop is in force exactly if a task of this generation has failed before any cancel was applied.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::effects::{Applied, Changes};
use super::graph::Graph;
use super::outcome::AttemptReport;
use super::policy::Tally;
use super::status::{Counts, Status};
use super::task::{Attempt, Generation, TaskIx, TaskState};

/// When a retry may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Due {
    /// The moment, by the clock of the leader that decided it.
    pub at: Timestamp,
    /// The whole wait in milliseconds, which bounds what another clock can make of it.
    pub delay_ms: u64,
}

/// A cancel that was applied to the current generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// When it was applied, by the leader's clock; for people.
    pub applied_at: Timestamp,
    /// How much of the grace was used up by leaders so far, in milliseconds.
    pub grace_used_ms: u64,
}

/// A failure that has stopped the rest of the current generation (`on_failure: cancel`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopAfter {
    /// The task that failed.
    pub task: TaskIx,
    /// How much of the grace was used up by leaders so far, in milliseconds.
    pub grace_used_ms: u64,
}

/// The state of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRun {
    /// Where it stands.
    pub state: TaskState,
    /// The last attempt issued.
    pub attempt: Attempt,
    /// Failures since the workflow was submitted or last retried.
    pub failures: u32,
    /// Set while it is `ready` and waits for its time.
    pub due: Option<Due>,
    /// The dependencies that had ended when it was made ready, where its policy does not wait for all.
    pub inputs: Option<Vec<TaskIx>>,
    /// The task that a failure began with, for `upstream_failed`.
    pub root_cause: Option<TaskIx>,
    /// How its last reported attempt ended.
    pub report: Option<Box<AttemptReport>>,
    /// Why it is in a state that no report explains.
    pub reason: Option<String>,
}

impl TaskRun {
    pub(super) const NEW: Self = Self {
        state: TaskState::Pending,
        attempt: Attempt::NONE,
        failures: 0,
        due: None,
        inputs: None,
        root_cause: None,
        report: None,
        reason: None,
    };
}

/// What is stored of the state of one workflow; the rest is counted from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The current generation.
    pub generation: Generation,
    /// The cancel applied to it.
    pub cancel: Option<Cancel>,
    /// The stop in force in it.
    pub stop: Option<StopAfter>,
    /// Its first failure, as a sentence.
    pub first_failure: Option<String>,
    /// One entry for each task, in the order of the definition.
    pub tasks: Vec<TaskRun>,
}

/// One attempt of one task, as messages name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    /// The task.
    pub task: TaskIx,
    /// The generation.
    pub generation: Generation,
    /// The attempt.
    pub attempt: Attempt,
}

/// When a failed attempt would be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter {
    /// Now, by the clock of who decides.
    pub now: Timestamp,
    /// The wait.
    pub delay: Duration,
}

/// The state of one workflow.
#[derive(Debug, Clone)]
pub struct Runtime {
    pub(super) graph: Arc<Graph>,
    pub(super) generation: Generation,
    pub(super) cancel: Option<Cancel>,
    pub(super) stop: Option<StopAfter>,
    pub(super) first_failure: Option<String>,
    pub(super) tasks: Vec<TaskRun>,
    pub(super) tallies: Vec<Tally>,
    pub(super) counts: Counts,
    pub(super) failures_that_decide: usize,
    /// Tasks that have not ended and that a stop ends.
    pub(super) stoppable: usize,
    pub(super) steps: u64,
    /// Tasks of which something changed since it was last asked.
    pub(super) touched: Vec<TaskIx>,
    /// Every arrow taken since it was made.
    #[cfg(test)]
    pub(super) taken: Vec<(TaskState, super::Cause, TaskState)>,
}

impl Runtime {
    /// The state at activation: tasks without dependencies are ready.
    #[must_use]
    pub fn start(graph: Arc<Graph>, changes: &mut Changes) -> Self {
        let tasks = vec![TaskRun::NEW; graph.len()];
        let parts = Parts {
            generation: Generation::FIRST,
            cancel: None,
            stop: None,
            first_failure: None,
            tasks,
        };
        Self::restore(graph, parts, changes)
    }

    /// The state from its stored parts; what follows from them and was not yet drawn is drawn now (P5).
    ///
    /// # Panics
    /// If there is not one entry for each task of `graph`; who reads stored forms checks that.
    #[must_use]
    pub fn restore(graph: Arc<Graph>, parts: Parts, changes: &mut Changes) -> Self {
        let Parts {
            generation,
            cancel,
            stop,
            first_failure,
            tasks,
        } = parts;
        assert_eq!(tasks.len(), graph.len(), "one entry for each task");
        let mut runtime = Self {
            tallies: Vec::new(),
            counts: Counts::default(),
            failures_that_decide: 0,
            stoppable: 0,
            steps: 0,
            touched: Vec::new(),
            #[cfg(test)]
            taken: Vec::new(),
            graph,
            generation,
            cancel,
            stop,
            first_failure,
            tasks,
        };
        runtime.recount();
        runtime.draw_stop();
        runtime.settle_all(changes);
        runtime.withdraw_unsent(changes);
        runtime
    }

    pub(super) fn recount(&mut self) {
        self.tallies = vec![Tally::default(); self.tasks.len()];
        self.counts = Counts::default();
        self.failures_that_decide = 0;
        self.stoppable = 0;
        for task in self.graph.tasks() {
            let state = self.tasks[task.at()].state;
            self.counts.add(state);
            if state.is_dep_failed() && self.graph.decides_result(task) {
                self.failures_that_decide += 1;
            }
            if !state.is_terminal() && !self.graph.survives_stop(task) {
                self.stoppable += 1;
            }
            for child in self.graph.children(task) {
                tally(&mut self.tallies[child.at()], state);
            }
        }
    }

    /// The graph it runs.
    #[must_use]
    pub const fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// The current generation.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The cancel applied to the current generation, if there is one.
    #[must_use]
    pub const fn cancel_applied(&self) -> Option<&Cancel> {
        self.cancel.as_ref()
    }

    /// The stop in force in the current generation, if there is one.
    #[must_use]
    pub const fn stop_in_force(&self) -> Option<&StopAfter> {
        self.stop.as_ref()
    }

    /// The first failure of the current generation, as a sentence.
    #[must_use]
    pub fn first_failure(&self) -> Option<&str> {
        self.first_failure.as_deref()
    }

    /// One task.
    #[must_use]
    pub fn task(&self, task: TaskIx) -> &TaskRun {
        &self.tasks[task.at()]
    }

    /// All tasks, in the order of the definition.
    #[must_use]
    pub fn tasks(&self) -> &[TaskRun] {
        &self.tasks
    }

    /// How many tasks are in each state.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Steps of work since it was made: one per task judged and per edge followed. For measuring.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// The tasks of which something changed since the last call, or since it was restored; some may be told twice.
    pub fn take_touched(&mut self) -> Vec<TaskIx> {
        std::mem::take(&mut self.touched)
    }

    /// Where the workflow stands.
    #[must_use]
    pub const fn status(&self) -> Status {
        match (self.counts.unfinished() > 0, self.cancel.is_some()) {
            (true, true) => Status::Cancelling,
            (true, false) => Status::Running,
            (false, true) => Status::Cancelled,
            (false, false) if self.failures_that_decide > 0 || self.stop.is_some() => {
                Status::Failed
            }
            (false, false) => Status::Completed,
        }
    }

    /// Whether news of this attempt is current, old or unheard of.
    pub fn place_of(
        &self,
        AttemptId {
            task,
            generation,
            attempt,
        }: AttemptId,
    ) -> Applied {
        let run = &self.tasks[task.at()];
        if (generation, attempt) < (self.generation, run.attempt) || attempt < run.attempt {
            return Applied::OldNews;
        }
        if generation > self.generation || attempt > run.attempt {
            return Applied::Unissued;
        }
        match run.state {
            TaskState::Ready | TaskState::Dispatched => Applied::Changed,
            TaskState::Pending => Applied::Unissued,
            TaskState::Completed
            | TaskState::Failed
            | TaskState::UpstreamFailed
            | TaskState::Skipped
            | TaskState::Cancelled => Applied::OldNews,
        }
    }
}

pub(super) fn tally(tally: &mut Tally, parent: TaskState) {
    if parent.satisfies() {
        tally.satisfied += 1;
    } else if parent.is_dep_failed() {
        tally.failed += 1;
    }
}
