//! The state of one workflow and the events that change it.
//!
//! Invariants:
//! 1. `tallies` and `counts` always equal what a count over `tasks` would give; [`Runtime::restore`] counts once, events adjust.
//! 2. Between events no pending task has dependencies that decide it: every event settles all that follows from it.
//! 3. While a cancel is applied, no task becomes `ready`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::effects::{Applied, Changes};
use super::graph::Graph;
use super::outcome::{AttemptReport, Failure, FailureKind, Outcome};
use super::policy::{Tally, Verdict, verdict};
use super::retry::rerun_set;
use super::task::{Attempt, Cause, Generation, TaskIx, TaskState};
use jiff::Timestamp;

/// Where a workflow stands, as the state tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Submitted; no state yet.
    Pending,
    /// Some task has not ended.
    Running,
    /// A cancel was applied; some task has not ended.
    Cancelling,
    /// Ended well.
    Completed,
    /// Ended with a failure that counts.
    Failed,
    /// Ended by a cancel.
    Cancelled,
}

impl Status {
    /// Whether the workflow has ended.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Cancelling => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// How many tasks are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([usize; TaskState::ALL.len()]);

impl Counts {
    /// Tasks in `state`.
    #[must_use]
    pub const fn of(&self, state: TaskState) -> usize {
        self.0[state as usize]
    }

    /// Tasks that have not ended.
    #[must_use]
    pub const fn unfinished(&self) -> usize {
        self.of(TaskState::Pending) + self.of(TaskState::Ready) + self.of(TaskState::Dispatched)
    }
}

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
    const NEW: Self = Self {
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
    graph: Arc<Graph>,
    generation: Generation,
    cancel: Option<Cancel>,
    first_failure: Option<String>,
    tasks: Vec<TaskRun>,
    tallies: Vec<Tally>,
    counts: Counts,
    failures_that_decide: usize,
    steps: u64,
}

impl Runtime {
    /// The state at activation: tasks without dependencies are ready.
    #[must_use]
    pub fn start(graph: Arc<Graph>, changes: &mut Changes) -> Self {
        let tasks = vec![TaskRun::NEW; graph.len()];
        let parts = Parts {
            generation: Generation::FIRST,
            cancel: None,
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
            first_failure,
            tasks,
        } = parts;
        assert_eq!(tasks.len(), graph.len(), "one entry for each task");
        let mut runtime = Self {
            tallies: Vec::new(),
            counts: Counts::default(),
            failures_that_decide: 0,
            steps: 0,
            graph,
            generation,
            cancel,
            first_failure,
            tasks,
        };
        runtime.recount();
        runtime.settle_all(changes);
        runtime
    }

    fn recount(&mut self) {
        self.tallies = vec![Tally::default(); self.tasks.len()];
        self.counts = Counts::default();
        self.failures_that_decide = 0;
        for task in self.graph.tasks() {
            let state = self.tasks[task.at()].state;
            self.counts.0[state as usize] += 1;
            if state.is_dep_failed() && self.graph.decides_result(task) {
                self.failures_that_decide += 1;
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

    /// Where the workflow stands.
    #[must_use]
    pub const fn status(&self) -> Status {
        match (self.counts.unfinished() > 0, self.cancel.is_some()) {
            (true, true) => Status::Cancelling,
            (true, false) => Status::Running,
            (false, true) => Status::Cancelled,
            (false, false) if self.failures_that_decide > 0 => Status::Failed,
            (false, false) => Status::Completed,
        }
    }

    /// Applies how an attempt ended; `retry` times the next attempt, should one follow.
    pub fn apply_report(
        &mut self,
        id: AttemptId,
        report: AttemptReport,
        retry: RetryAfter,
        changes: &mut Changes,
    ) -> Applied {
        match self.place_of(id) {
            Applied::Changed => {}
            other => return other,
        }
        let task = id.task;
        let cause = self.cause_of(task, &report.outcome);
        if let Outcome::Failed(failure) = &report.outcome {
            self.tasks[task.at()].failures += 1;
            if cause == Cause::FailedForGood && self.first_failure.is_none() {
                self.first_failure = Some(format!(
                    "task `{}` failed: {}",
                    self.graph.name(task),
                    failure.message
                ));
            }
        }
        self.tasks[task.at()].report = Some(Box::new(report));
        self.step(task, cause);
        if cause == Cause::FailedOnce {
            self.issue(task, changes);
            let delay_ms = u64::try_from(retry.delay.as_millis()).unwrap_or(u64::MAX);
            let at = retry.now.checked_add(retry.delay).unwrap_or(Timestamp::MAX);
            self.tasks[task.at()].due = Some(Due { at, delay_ms });
        } else {
            self.settle(task, changes);
        }
        Applied::Changed
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

    fn cause_of(&self, task: TaskIx, outcome: &Outcome) -> Cause {
        let may_retry =
            self.cancel.is_none() && self.tasks[task.at()].failures < self.graph.retries(task);
        match outcome {
            Outcome::Succeeded => Cause::Succeeded,
            Outcome::Failed(failure) if may_retry && !failure.is_final => Cause::FailedOnce,
            Outcome::Failed(_) => Cause::FailedForGood,
            Outcome::Cancelled(_) => Cause::Cancelled,
        }
    }

    /// Notes that the message of this attempt was sent.
    pub fn mark_sent(&mut self, task: TaskIx, attempt: Attempt) -> Applied {
        let run = &self.tasks[task.at()];
        if run.attempt != attempt || run.state != TaskState::Ready {
            return Applied::OldNews;
        }
        self.step(task, Cause::Sent);
        self.tasks[task.at()].due = None;
        Applied::Changed
    }

    /// Fails a ready task whose message can never be sent.
    pub fn refuse(
        &mut self,
        task: TaskIx,
        attempt: Attempt,
        failure: Failure,
        changes: &mut Changes,
    ) -> Applied {
        let run = &self.tasks[task.at()];
        if run.attempt != attempt || run.state != TaskState::Ready {
            return Applied::OldNews;
        }
        if self.first_failure.is_none() {
            self.first_failure = Some(format!(
                "task `{}` failed: {}",
                self.graph.name(task),
                failure.message
            ));
        }
        self.tasks[task.at()].reason = Some(failure.message);
        debug_assert_eq!(
            failure.kind,
            FailureKind::Send,
            "only an unsendable message is refused"
        );
        self.step(task, Cause::Refused);
        self.settle(task, changes);
        Applied::Changed
    }

    /// Applies a cancel of the current generation. `maybe_sent` says whether a ready task may be with a worker: such a task counts
    /// as dispatched; all others that have not ended are cancelled at once.
    pub fn cancel(
        &mut self,
        now: Timestamp,
        maybe_sent: impl Fn(TaskIx) -> bool,
        changes: &mut Changes,
    ) -> Applied {
        if self.cancel.is_some() || self.status().is_final() {
            return Applied::OldNews;
        }
        self.cancel = Some(Cancel {
            applied_at: now,
            grace_used_ms: 0,
        });
        for task in self.graph.tasks() {
            let run = &self.tasks[task.at()];
            let with_a_worker = run.due.is_none() && maybe_sent(task);
            match run.state {
                TaskState::Ready if with_a_worker => self.step(task, Cause::Sent),
                TaskState::Pending | TaskState::Ready => self.end_cancelled(task, changes),
                TaskState::Dispatched
                | TaskState::Completed
                | TaskState::Failed
                | TaskState::UpstreamFailed
                | TaskState::Skipped
                | TaskState::Cancelled => {}
            }
        }
        Applied::Changed
    }

    /// Adds to the grace used up since the cancel.
    pub fn use_grace(&mut self, used: Duration) {
        if let Some(cancel) = &mut self.cancel {
            let ms = u64::try_from(used.as_millis()).unwrap_or(u64::MAX);
            cancel.grace_used_ms = cancel.grace_used_ms.saturating_add(ms);
        }
    }

    /// Ends what a cancel still waits for: the grace is over.
    pub fn end_grace(&mut self, changes: &mut Changes) -> Applied {
        if self.status() != Status::Cancelling {
            return Applied::OldNews;
        }
        for task in self.graph.tasks() {
            if !self.tasks[task.at()].state.is_terminal() {
                self.tasks[task.at()].reason =
                    Some("no worker answered within the cancel grace".to_owned());
                self.end_cancelled(task, changes);
            }
        }
        Applied::Changed
    }

    fn end_cancelled(&mut self, task: TaskIx, changes: &mut Changes) {
        self.step(task, Cause::Cancelled);
        self.tally_children(task);
        changes.ended.push(task);
    }

    /// Starts the next generation: runs again what failed, was blocked or cancelled, and what must be asked again because of it.
    ///
    /// [`Applied::OldNews`] when the workflow has not ended or has nothing to run again.
    pub fn rerun(&mut self, changes: &mut Changes) -> Applied {
        if !self.status().is_final() {
            return Applied::OldNews;
        }
        let rerun = rerun_set(&self.graph, &self.tasks);
        if !rerun.contains(&true) {
            return Applied::OldNews;
        }
        self.generation = self.generation.next();
        self.cancel = None;
        self.first_failure = None;
        for task in self.graph.tasks().filter(|task| rerun[task.at()]) {
            self.step(task, Cause::Rerun);
            let attempt = self.tasks[task.at()].attempt;
            self.tasks[task.at()] = TaskRun {
                attempt,
                ..TaskRun::NEW
            };
        }
        self.recount();
        self.settle_all(changes);
        Applied::Changed
    }

    /// Moves `task` along the arrow of `cause` and adjusts the counts.
    fn step(&mut self, task: TaskIx, cause: Cause) {
        let from = self.tasks[task.at()].state;
        let to = from
            .after(cause)
            .expect("the caller has looked at the state");
        self.steps += 1;
        self.tasks[task.at()].state = to;
        self.counts.0[from as usize] -= 1;
        self.counts.0[to as usize] += 1;
        if self.graph.decides_result(task) {
            self.failures_that_decide += usize::from(to.is_dep_failed());
            self.failures_that_decide -= usize::from(from.is_dep_failed());
        }
    }

    /// Draws everything that follows from pending tasks as they stand.
    fn settle_all(&mut self, changes: &mut Changes) {
        let mut ended = VecDeque::new();
        for task in self.graph.tasks() {
            self.judge(task, None, changes, &mut ended);
        }
        self.drain(ended, changes);
    }

    /// Draws everything that follows from the end of `task`.
    fn settle(&mut self, task: TaskIx, changes: &mut Changes) {
        changes.ended.push(task);
        self.drain(VecDeque::from([task]), changes);
    }

    fn drain(&mut self, mut ended: VecDeque<TaskIx>, changes: &mut Changes) {
        while let Some(task) = ended.pop_front() {
            self.tally_children(task);
            let graph = Arc::clone(&self.graph);
            for child in graph.children(task) {
                self.judge(*child, Some(task), changes, &mut ended);
            }
        }
    }

    fn tally_children(&mut self, task: TaskIx) {
        let state = self.tasks[task.at()].state;
        for child in self.graph.children(task) {
            self.steps += 1;
            tally(&mut self.tallies[child.at()], state);
        }
    }

    /// Decides a pending task, after `parent` has ended.
    fn judge(
        &mut self,
        task: TaskIx,
        parent: Option<TaskIx>,
        changes: &mut Changes,
        ended: &mut VecDeque<TaskIx>,
    ) {
        self.steps += 1;
        if self.tasks[task.at()].state != TaskState::Pending || self.cancel.is_some() {
            return;
        }
        let parents = u32::try_from(self.graph.parents(task).len()).unwrap_or(u32::MAX);
        match verdict(self.graph.policy(task), parents, self.tallies[task.at()]) {
            Verdict::Wait => {}
            Verdict::Run => {
                self.step(task, Cause::Released);
                self.issue(task, changes);
            }
            Verdict::Block => {
                let failed = parent.filter(|parent| self.tasks[parent.at()].state.is_dep_failed());
                let failed = failed.or_else(|| self.a_failed_parent(task));
                let root =
                    failed.map(|parent| self.tasks[parent.at()].root_cause.unwrap_or(parent));
                self.tasks[task.at()].root_cause = root;
                self.end_unrun(task, Cause::Blocked, changes, ended);
            }
            Verdict::Skip => {
                self.tasks[task.at()].reason = Some("no dependency failed".to_owned());
                self.end_unrun(task, Cause::Unneeded, changes, ended);
            }
        }
    }

    fn end_unrun(
        &mut self,
        task: TaskIx,
        cause: Cause,
        changes: &mut Changes,
        ended: &mut VecDeque<TaskIx>,
    ) {
        self.step(task, cause);
        changes.ended.push(task);
        ended.push_back(task);
    }

    fn a_failed_parent(&self, task: TaskIx) -> Option<TaskIx> {
        let mut parents = self.graph.parents(task).iter().copied();
        parents.find(|parent| self.tasks[parent.at()].state.is_dep_failed())
    }

    /// Gives a ready task its next attempt and fixes its inputs.
    fn issue(&mut self, task: TaskIx, changes: &mut Changes) {
        let parents = self.graph.parents(task);
        let tally = self.tallies[task.at()];
        let all_ended = (tally.satisfied + tally.failed) as usize >= parents.len();
        let ended = |parent: &TaskIx| self.tasks[parent.at()].state.is_terminal();
        let inputs = if all_ended {
            None
        } else {
            Some(parents.iter().copied().filter(ended).collect())
        };
        let run = &mut self.tasks[task.at()];
        run.attempt = run.attempt.next();
        run.inputs = inputs;
        changes.ready.push(task);
    }
}

fn tally(tally: &mut Tally, parent: TaskState) {
    if parent.satisfies() {
        tally.satisfied += 1;
    } else if parent.is_dep_failed() {
        tally.failed += 1;
    }
}
