//! What this leader knows about its own sending, apart from the state, so that it survives a re-read (P8, P18).
//!
//! Invariants:
//! 1. A task is *fresh* only between the write by which this leader itself made it ready and the first sending of it. Everything
//!    else that is sent may be a second copy and is marked `again`.
//! 2. What was sent is remembered until the mark "dispatched" is stored.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Applied, Attempt, Runtime, TaskIx};

/// The memory of what was sent for one workflow.
#[derive(Debug, Default)]
pub struct Outbox {
    fresh: BTreeSet<(TaskIx, Attempt)>,
    sent: BTreeMap<TaskIx, Attempt>,
}

impl Outbox {
    /// Notes that a write of this leader has made the task ready.
    pub fn made_ready(&mut self, task: TaskIx, attempt: Attempt) {
        self.fresh.insert((task, attempt));
    }

    /// Forgets what is not stored: the memory of the state was thrown away.
    pub fn state_dropped(&mut self) {
        self.fresh.clear();
    }

    /// Begins a sending; tells whether it must be marked `again`.
    pub fn begin(&mut self, task: TaskIx, attempt: Attempt) -> bool {
        !self.fresh.remove(&(task, attempt))
    }

    /// Whether a copy of the attempt may be with a worker: it was not made ready by this leader, or its sending has begun.
    #[must_use]
    pub fn maybe_sent(&self, task: TaskIx, attempt: Attempt) -> bool {
        !self.fresh.contains(&(task, attempt))
    }

    /// Notes that the message was taken by the queue.
    pub fn sent(&mut self, task: TaskIx, attempt: Attempt) {
        self.sent.insert(task, attempt);
    }

    /// Marks in `runtime` what was sent; tells whether that changed it.
    pub fn mark(&self, runtime: &mut Runtime) -> bool {
        let mut changed = false;
        for (task, attempt) in &self.sent {
            changed |= runtime.mark_sent(*task, *attempt) == Applied::Changed;
        }
        changed
    }

    /// Forgets the marks: a stored write holds them all.
    pub fn marks_stored(&mut self) {
        self.sent.clear();
    }

    /// Whether marks wait for a write.
    #[must_use]
    pub fn has_unstored_marks(&self) -> bool {
        !self.sent.is_empty()
    }
}
