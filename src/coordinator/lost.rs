//! Dispatched tasks whose messages are gone: somebody deleted one, cleared or deleted a queue (P26).
//!
//! No service tells that a message is gone, and one that waits in line for hours looks the same from outside. What speaks for a loss:
//!
//! - nobody has a live claim on the task, and
//! - either its queue holds no more messages than there are live claims on it: all that is there is with workers, nothing waits; or
//!   something that was sent clearly later was claimed or has ended: the queue has moved past it.
//!
//! One look can be wrong: between its requests a message may be taken, a claim removed, a completion posted. So a task counts as
//! lost when every look of a whole threshold has found the same, and what was posted before the last of them has been received.
//! A wrong verdict costs one more message, which is marked and so checked by whoever gets it (P18).
//! [`super::search`] makes the requests.
//!
//! Invariants:
//! 1. A task is looked for in vain for a threshold, after it was not seen for one; both by the clock of this leader, from the moment
//!    when it sent the task or loaded its workflow. After each new sending the search is twice as long.
//! 2. A sending counts as later than another when it began [`ORDER_SLACK`] after the other had ended: queues keep order roughly.
//!    What an earlier leader sent was sent before everything of this one, in no order among itself.
//! 3. A look costs nothing while no task is older than the threshold; then one request a queue, and where that does not settle
//!    it, one listing of claims for each workflow with tasks out there. Never a request a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::definition::{QueueName, TaskName, WorkflowId};
use crate::engine::Attempt;
use crate::env::Mono;

/// So much later must a sending begin to count as sent after another.
const ORDER_SLACK: Duration = Duration::from_secs(5);
/// The wait doubles so often at most.
const DOUBLINGS_MAX: u32 = 16;

/// An attempt that is out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Out {
    pub(super) id: WorkflowId,
    pub(super) task: TaskName,
    pub(super) attempt: Attempt,
}

/// What is known of one message.
#[derive(Debug)]
struct Sending {
    attempt: Attempt,
    /// When its first sending by this leader began; none: an earlier leader sent it.
    began: Option<Mono>,
    /// When its last sending by this leader had ended.
    sent: Option<Mono>,
    /// When it was sent, loaded, or seen with a worker.
    seen: Mono,
    /// Since when everything speaks for its loss.
    suspect_since: Option<Mono>,
    /// How often it was found lost.
    losses: u32,
}

/// What is out on one queue.
#[derive(Debug, Default)]
struct Lane {
    out: BTreeMap<WorkflowId, BTreeMap<TaskName, Sending>>,
    /// When the latest sending began that was claimed or has ended.
    passed: Option<Mono>,
}

/// A queue on which something has not been seen for long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Quiet {
    pub(super) queue: QueueName,
    /// Messages that should be there, with workers or in line.
    pub(super) out: u64,
    /// Whether it has moved past something that was not seen for long.
    pub(super) is_passed: bool,
    /// Whose messages these are.
    pub(super) ids: BTreeSet<WorkflowId>,
}

/// Live claims: the attempt that is held of each task.
pub(super) type Claims = BTreeMap<WorkflowId, BTreeMap<TaskName, Attempt>>;

impl Sending {
    fn is_quiet(&self, threshold: Duration, now: Mono) -> bool {
        now.since(self.seen) >= threshold
    }

    /// Whether something that was sent after it has left its queue.
    fn is_passed(&self, passed: Option<Mono>) -> bool {
        match (passed, self.sent) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(passed), Some(sent)) => passed.since(sent) >= ORDER_SLACK,
        }
    }
}

impl Lane {
    fn sendings(&self) -> impl Iterator<Item = &Sending> {
        self.out.values().flat_map(BTreeMap::values)
    }

    /// The decision. With `depth` messages on the queue and these claims live, what has been suspect for long enough?
    fn judge(&mut self, depth: u64, claims: &Claims, threshold: Duration, now: Mono) -> Vec<Out> {
        let mut claimed = 0;
        for (id, tasks) in &mut self.out {
            let held = claims.get(id);
            for (task, sending) in tasks {
                if held.and_then(|held| held.get(task)) == Some(&sending.attempt) {
                    claimed += 1;
                    self.passed = self.passed.max(sending.began);
                    sending.seen = now;
                    sending.suspect_since = None;
                }
            }
        }
        let nothing_waits = depth <= claimed;
        let mut lost = Vec::new();
        for (id, tasks) in &mut self.out {
            for (task, sending) in tasks {
                if !sending.is_quiet(threshold, now) {
                    continue;
                }
                if !nothing_waits && !sending.is_passed(self.passed) {
                    sending.suspect_since = None;
                    continue;
                }
                let since = *sending.suspect_since.get_or_insert(now);
                let wait = threshold.saturating_mul(1 << sending.losses.min(DOUBLINGS_MAX));
                if now.since(since) >= wait {
                    lost.push(Out {
                        id: id.clone(),
                        task: task.clone(),
                        attempt: sending.attempt,
                    });
                }
            }
        }
        lost
    }
}

/// Everything that is out, by queue.
#[derive(Debug, Default)]
pub(super) struct Sendings(Mutex<BTreeMap<QueueName, Lane>>);

impl Sendings {
    fn lanes(&self) -> MutexGuard<'_, BTreeMap<QueueName, Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a state just loaded holds as dispatched. What this leader has sent itself keeps its place in the order, but is looked
    /// for anew: news that came while the state could not be had is on its way back.
    pub(super) fn adopt(&self, queue: &QueueName, out: &Out, now: Mono) {
        self.note(queue, out, None, now);
    }

    /// Notes a sending that began at `began` and has ended `now`.
    pub(super) fn sent(&self, queue: &QueueName, out: &Out, began: Mono, now: Mono) {
        self.note(queue, out, Some(began), now);
    }

    fn note(&self, queue: &QueueName, out: &Out, began: Option<Mono>, now: Mono) {
        let mut lanes = self.lanes();
        let lane = lanes.entry(queue.clone()).or_default();
        let tasks = lane.out.entry(out.id.clone()).or_default();
        let sent = began.map(|_| now);
        match tasks.get_mut(&out.task) {
            Some(known) if known.attempt == out.attempt => {
                known.sent = sent.or(known.sent);
                known.seen = now;
                known.suspect_since = None;
            }
            Some(_) | None => {
                let sending = Sending {
                    attempt: out.attempt,
                    began,
                    sent,
                    seen: now,
                    suspect_since: None,
                    losses: 0,
                };
                tasks.insert(out.task.clone(), sending);
            }
        }
    }

    /// Forgets a task, whichever attempt is known of it. If a worker had its message, the queue has moved past all sent before.
    pub(super) fn ended(&self, queue: &QueueName, out: &Out, was_taken: bool) {
        let mut lanes = self.lanes();
        let Some(lane) = lanes.get_mut(queue) else {
            return;
        };
        let Some(tasks) = lane.out.get_mut(&out.id) else {
            return;
        };
        let ended = tasks.remove(&out.task);
        if tasks.is_empty() {
            lane.out.remove(&out.id);
        }
        if was_taken {
            lane.passed = lane.passed.max(ended.and_then(|ended| ended.began));
        }
    }

    /// Forgets a workflow.
    pub(super) fn forget(&self, id: &WorkflowId) {
        for lane in self.lanes().values_mut() {
            lane.out.remove(id);
        }
    }

    /// Queues on which something was not seen for the threshold.
    pub(super) fn quiet(&self, threshold: Duration, now: Mono) -> Vec<Quiet> {
        let mut found = Vec::new();
        for (queue, lane) in &*self.lanes() {
            let mut quiet = lane
                .sendings()
                .filter(|sending| sending.is_quiet(threshold, now))
                .peekable();
            if quiet.peek().is_some() {
                found.push(Quiet {
                    queue: queue.clone(),
                    is_passed: quiet.any(|sending| sending.is_passed(lane.passed)),
                    out: lane.sendings().count() as u64,
                    ids: lane.out.keys().cloned().collect(),
                });
            }
        }
        found
    }

    /// What on this queue counts as lost, with `depth` messages on it and these claims live.
    pub(super) fn judge(
        &self,
        queue: &QueueName,
        depth: u64,
        claims: &Claims,
        threshold: Duration,
        now: Mono,
    ) -> Vec<Out> {
        let mut lanes = self.lanes();
        let lane = lanes.get_mut(queue);
        lane.map(|lane| lane.judge(depth, claims, threshold, now))
            .unwrap_or_default()
    }

    /// Notes that these are sent again: they are looked for anew, with twice the wait.
    pub(super) fn sent_again(&self, lost: &[Out], now: Mono) {
        for lane in self.lanes().values_mut() {
            for out in lost {
                let tasks = lane.out.get_mut(&out.id);
                if let Some(sending) = tasks.and_then(|tasks| tasks.get_mut(&out.task)) {
                    sending.seen = now;
                    sending.suspect_since = None;
                    sending.losses += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
