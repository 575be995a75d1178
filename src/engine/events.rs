//! The events that change a state, each whole: when one returns, all that follows from it is drawn.

use jiff::Timestamp;

use super::effects::{Applied, Changes};
use super::outcome::{AttemptReport, Failure, FailureKind, Outcome};
use super::retry::rerun_set;
use super::runtime::{AttemptId, Due, RetryAfter, Runtime, TaskRun};
use super::task::{Attempt, Cause, TaskIx, TaskState};

impl Runtime {
    /// Applies how an attempt ended; `retry` times the next attempt, should one follow. `maybe_sent` is asked if the end stops the
    /// workflow, as in [`Self::cancel`].
    pub fn apply_report(
        &mut self,
        id: AttemptId,
        report: AttemptReport,
        retry: RetryAfter,
        maybe_sent: impl Fn(TaskIx, Attempt) -> bool,
        changes: &mut Changes,
    ) -> Applied {
        match self.place_of(id) {
            Applied::Changed => {}
            other => return other,
        }
        let task = id.task;
        let cause = self.cause_of(task, &report.outcome);
        if let Outcome::Failed(failure) = &report.outcome {
            let failures = &mut self.tasks[task.at()].failures;
            *failures = failures.saturating_add(1);
            if cause == Cause::FailedForGood {
                self.note_failure(task, failure);
            }
        }
        self.tasks[task.at()].report = Some(Box::new(report));
        if cause == Cause::Cancelled {
            self.tasks[task.at()].reason = self.stop_reason();
        }
        self.step(task, cause);
        if cause == Cause::FailedOnce {
            self.issue(task, changes);
            let delay_ms = u64::try_from(retry.delay.as_millis()).unwrap_or(u64::MAX);
            let at = retry.now.checked_add(retry.delay).unwrap_or(Timestamp::MAX);
            self.tasks[task.at()].due = Some(Due { at, delay_ms });
        } else {
            self.settle_and_stop(task, retry.now, maybe_sent, changes);
        }
        Applied::Changed
    }

    /// Keeps the first failure of a generation for people.
    fn note_failure(&mut self, task: TaskIx, failure: &Failure) {
        if self.first_failure.is_none() {
            let (name, why) = (self.graph.name(task), &failure.message);
            self.first_failure = Some(format!("task `{name}` failed: {why}"));
        }
    }

    fn cause_of(&self, task: TaskIx, outcome: &Outcome) -> Cause {
        let may_retry =
            !self.is_ending(task) && self.tasks[task.at()].failures < self.graph.retries(task);
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
        Applied::Changed
    }

    /// Fails a ready task whose message can never be sent. `now` and `maybe_sent` are for the stop that may follow, as in
    /// [`Self::cancel`].
    pub fn refuse(
        &mut self,
        task: TaskIx,
        attempt: Attempt,
        failure: Failure,
        now: Timestamp,
        maybe_sent: impl Fn(TaskIx, Attempt) -> bool,
        changes: &mut Changes,
    ) -> Applied {
        let run = &self.tasks[task.at()];
        if run.attempt != attempt || run.state != TaskState::Ready {
            return Applied::OldNews;
        }
        self.note_failure(task, &failure);
        self.tasks[task.at()].reason = Some(failure.message);
        debug_assert_eq!(
            failure.kind,
            FailureKind::Send,
            "only an unsendable message is refused"
        );
        self.step(task, Cause::Refused);
        self.settle_and_stop(task, now, maybe_sent, changes);
        Applied::Changed
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
        self.stop = None;
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
}
