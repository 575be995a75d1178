//! Ending what has not ended: a person's cancel, and the stop after a failure (`on_failure: cancel`).
//!
//! A cancel ends every task, a stop all but those that survive it. Both end at once what no worker has, and wait, no longer than a
//! grace, for the word of the workers that have the rest.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::effects::{Applied, Changes};
use super::runtime::{Cancel, Runtime, StopAfter};
use super::task::{Attempt, Cause, TaskIx, TaskState};

impl Runtime {
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
        self.withdraw(now, maybe_sent, changes);
        Applied::Changed
    }

    /// Draws what follows from the end of `task`, and puts a stop in force if that is called for.
    pub(super) fn settle_and_stop(
        &mut self,
        task: TaskIx,
        now: Timestamp,
        maybe_sent: impl Fn(TaskIx, Attempt) -> bool,
        changes: &mut Changes,
    ) {
        let was_stopped = self.stop.is_some();
        self.draw_stop();
        // What depends on the failed task is `upstream_failed` and names it; only the rest is stopped.
        self.settle(task, changes);
        if self.stop.is_some() && !was_stopped {
            self.withdraw(now, maybe_sent, changes);
        }
    }

    /// Puts a stop in force if the definition asks for one and a task has failed. Under a cancel there is nothing left to stop.
    pub(super) fn draw_stop(&mut self) {
        let called_for = self.graph.stops_on_failure() && self.counts.of(TaskState::Failed) > 0;
        if !called_for || self.stop.is_some() || self.cancel.is_some() {
            return;
        }
        let failed = |task: &TaskIx| self.tasks[task.at()].state == TaskState::Failed;
        self.stop = self.graph.tasks().find(failed).map(|task| StopAfter {
            task,
            grace_used_ms: 0,
        });
    }

    /// Whether a cancel or a stop ends `task`.
    #[must_use]
    pub fn is_ending(&self, task: TaskIx) -> bool {
        self.cancel.is_some() || self.is_stopped(task)
    }

    /// Whether a stop ends `task`.
    #[must_use]
    pub fn is_stopped(&self, task: TaskIx) -> bool {
        self.stop.is_some() && !self.graph.survives_stop(task)
    }

    /// Why a stop ends a task; none where a cancel ends all, which needs no reason.
    pub(super) fn stop_reason(&self) -> Option<String> {
        let stop = self.stop.filter(|_| self.cancel.is_none())?;
        let name = self.graph.name(stop.task);
        Some(format!("stopped because task `{name}` failed"))
    }

    /// Withdraws what a loaded state left to be withdrawn; of what is ready nobody knows whether it was sent.
    pub(super) fn withdraw_unsent(&mut self, changes: &mut Changes) {
        if self.stop.is_some() {
            self.withdraw(Timestamp::MAX, |_, _| true, changes);
        }
    }

    /// Ends at once what is to be ended and is with no worker.
    fn withdraw(
        &mut self,
        now: Timestamp,
        maybe_sent: impl Fn(TaskIx, Attempt) -> bool,
        changes: &mut Changes,
    ) {
        // What became ready since the state was stored cannot have been sent.
        let new: BTreeSet<_> = changes.ready.iter().copied().collect();
        let mut ended = VecDeque::new();
        for task in self.graph.tasks() {
            if !self.is_ending(task) {
                continue;
            }
            let run = &self.tasks[task.at()];
            let waits = run.due.is_some_and(|due| due.at > now);
            let with_a_worker = !waits && !new.contains(&task) && maybe_sent(task, run.attempt);
            match run.state {
                TaskState::Ready if with_a_worker => self.step(task, Cause::Sent),
                TaskState::Pending | TaskState::Ready => {
                    self.tasks[task.at()].reason = self.stop_reason();
                    self.step(task, Cause::Cancelled);
                    changes.ended.push(task);
                    ended.push_back(task);
                }
                TaskState::Dispatched
                | TaskState::Completed
                | TaskState::Failed
                | TaskState::UpstreamFailed
                | TaskState::Skipped
                | TaskState::Cancelled => {}
            }
        }
        // Last, so that what is below a withdrawn task is withdrawn too, not blocked.
        self.drain(ended, changes);
    }

    /// How much of the grace is used up; none while a cancel or a stop waits for nothing.
    #[must_use]
    pub fn grace_used(&self) -> Option<Duration> {
        let (used_ms, waits_for) = match (&self.cancel, &self.stop) {
            (Some(cancel), _) => (cancel.grace_used_ms, self.counts.unfinished()),
            (None, Some(stop)) => (stop.grace_used_ms, self.stoppable),
            (None, None) => return None,
        };
        (waits_for > 0).then(|| Duration::from_millis(used_ms))
    }

    /// Adds to the grace used up: a cancel's where there is one, since it waits for more than a stop before it did.
    pub fn use_grace(&mut self, used: Duration) {
        let of_cancel = self.cancel.as_mut().map(|cancel| &mut cancel.grace_used_ms);
        let of_stop = self.stop.as_mut().map(|stop| &mut stop.grace_used_ms);
        if let Some(grace_used_ms) = of_cancel.or(of_stop) {
            let ms = u64::try_from(used.as_millis()).unwrap_or(u64::MAX);
            *grace_used_ms = grace_used_ms.saturating_add(ms);
        }
    }

    /// Ends what a cancel or a stop still waits for: the grace is over.
    pub fn end_grace(&mut self, changes: &mut Changes) -> Applied {
        if self.grace_used().is_none() {
            return Applied::OldNews;
        }
        let unanswered = "no worker answered within the cancel grace";
        let reason = match self.stop_reason() {
            Some(stopped) => format!("{stopped}; {unanswered}"),
            None => unanswered.to_owned(),
        };
        let mut ended = VecDeque::new();
        for task in self.graph.tasks() {
            if self.is_ending(task) && !self.tasks[task.at()].state.is_terminal() {
                self.tasks[task.at()].reason = Some(reason.clone());
                self.step(task, Cause::Cancelled);
                changes.ended.push(task);
                ended.push_back(task);
            }
        }
        self.drain(ended, changes);
        Applied::Changed
    }
}
