//! The events that change a state, each whole: when one returns, all that follows from it is drawn.

use std::time::Duration;

use jiff::Timestamp;

use super::effects::{Applied, Changes};
use super::outcome::{AttemptReport, Failure, FailureKind, Outcome};
use super::retry::rerun_set;
use super::runtime::{AttemptId, Cancel, Due, RetryAfter, Runtime, TaskRun};
use super::status::Status;
use super::task::{Attempt, Cause, TaskIx, TaskState};

impl Runtime {
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
            if cause == Cause::FailedForGood {
                self.note_failure(task, failure);
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

    /// Keeps the first failure of a generation for people.
    fn note_failure(&mut self, task: TaskIx, failure: &Failure) {
        if self.first_failure.is_none() {
            let (name, why) = (self.graph.name(task), &failure.message);
            self.first_failure = Some(format!("task `{name}` failed: {why}"));
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
        self.note_failure(task, &failure);
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

    /// Applies a cancel of the current generation. `maybe_sent` says whether a ready attempt may be with a worker: unless it still
    /// waits for its time, it counts as dispatched; all others that have not ended are cancelled at once.
    pub fn cancel(
        &mut self,
        now: Timestamp,
        maybe_sent: impl Fn(TaskIx, Attempt) -> bool,
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
            let waits = run.due.is_some_and(|due| due.at > now);
            let with_a_worker = !waits && maybe_sent(task, run.attempt);
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
}
