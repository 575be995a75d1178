//! How many messages may be sent and unfinished per task queue (P28), shared fairly between workflows.
//!
//! Invariants:
//! 1. `held` counts the slots of each workflow, granted but unused ones included; `used` is their sum.
//! 2. While workflows wait, free slots go round over them, a few at a time; nobody overtakes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use tokio::sync::mpsc::UnboundedSender;

use super::mail::Mail;
use crate::definition::{QueueName, WorkflowId};

/// Most slots that a waiting workflow is given at once.
const GRANT_MAX: u32 = 16;

#[derive(Debug, Default)]
struct Lane {
    used: u32,
    held: BTreeMap<WorkflowId, u32>,
    line: VecDeque<(WorkflowId, UnboundedSender<Mail>)>,
    waiting: BTreeSet<WorkflowId>,
    has_warned: bool,
}

impl Lane {
    fn hold(&mut self, id: &WorkflowId, count: u32) {
        if count > 0 {
            self.used += count;
            *self.held.entry(id.clone()).or_default() += count;
        }
    }

    fn release(&mut self, id: &WorkflowId, count: u32) {
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        let count = count.min(*held);
        *held -= count;
        self.used -= count;
        if *held == 0 {
            self.held.remove(id);
        }
    }

    /// Hands what is free of `cap` to those who wait.
    fn grant(&mut self, queue: &QueueName, cap: Option<u32>) {
        let Some(cap) = cap else { return };
        while self.used < cap {
            let Some((id, mailbox)) = self.line.pop_front() else {
                return;
            };
            self.waiting.remove(&id);
            let count = GRANT_MAX.min(cap - self.used);
            let queue = queue.clone();
            // A workflow that is gone needs none.
            if mailbox.send(Mail::Slots { queue, count }).is_ok() {
                self.hold(&id, count);
            }
        }
    }
}

/// The slots of all task queues.
#[derive(Debug)]
pub(super) struct Window {
    cap: Option<u32>,
    lanes: Mutex<BTreeMap<QueueName, Lane>>,
}

impl Window {
    pub(super) fn new(cap: Option<u32>) -> Self {
        Self {
            cap,
            lanes: Mutex::new(BTreeMap::new()),
        }
    }

    fn lanes(&self) -> std::sync::MutexGuard<'_, BTreeMap<QueueName, Lane>> {
        self.lanes
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes up to `want` slots now. If that is not all, the workflow stands in line and gets [`Mail::Slots`].
    pub(super) fn take(
        &self,
        queue: &QueueName,
        want: u32,
        id: &WorkflowId,
        mailbox: &UnboundedSender<Mail>,
    ) -> u32 {
        let mut lanes = self.lanes();
        let lane = lanes.entry(queue.clone()).or_default();
        let free = self
            .cap
            .map_or(u32::MAX, |cap| cap.saturating_sub(lane.used));
        let got = if lane.line.is_empty() {
            want.min(free)
        } else {
            0
        };
        lane.hold(id, got);
        if got < want && lane.waiting.insert(id.clone()) {
            if !lane.has_warned {
                lane.has_warned = true;
                tracing::warn!(queue = %queue, max_outstanding = self.cap, "window_full");
            }
            lane.line.push_back((id.clone(), mailbox.clone()));
        }
        got
    }

    /// Counts a slot that is held already: of a message sent by an earlier leader.
    pub(super) fn adopt(&self, queue: &QueueName, id: &WorkflowId) {
        let mut lanes = self.lanes();
        lanes.entry(queue.clone()).or_default().hold(id, 1);
    }

    /// Gives slots back, and hands what is free to those who wait.
    pub(super) fn give_back(&self, queue: &QueueName, id: &WorkflowId, count: u32) {
        let mut lanes = self.lanes();
        let lane = lanes.entry(queue.clone()).or_default();
        lane.release(id, count);
        lane.grant(queue, self.cap);
    }

    /// Takes all slots of a workflow whose actor is gone, and its places in line.
    pub(super) fn forget(&self, id: &WorkflowId) {
        for (queue, lane) in self.lanes().iter_mut() {
            if lane.waiting.remove(id) {
                lane.line.retain(|(waiting, _)| waiting != id);
            }
            lane.release(id, u32::MAX);
            lane.grant(queue, self.cap);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    fn id(name: &str) -> WorkflowId {
        WorkflowId::new(name).expect("legal")
    }

    fn granted(inbox: &mut UnboundedReceiver<Mail>) -> u32 {
        match inbox.try_recv() {
            Ok(Mail::Slots { count, .. }) => count,
            Ok(_) | Err(_) => 0,
        }
    }

    #[test]
    fn free_slots_go_round_over_those_who_wait() {
        let window = Window::new(Some(4));
        let queue = QueueName::new("default").expect("legal");
        let (a, mut from_a) = unbounded_channel();
        let (b, mut from_b) = unbounded_channel();
        assert_eq!(window.take(&queue, 10, &id("a"), &a), 4);
        assert_eq!(window.take(&queue, 1, &id("b"), &b), 0);
        window.give_back(&queue, &id("a"), 1);
        assert_eq!((granted(&mut from_a), granted(&mut from_b)), (1, 0));
        assert_eq!(
            window.take(&queue, 10, &id("a"), &a),
            0,
            "who was served stands at the end of the line"
        );
        window.give_back(&queue, &id("a"), 1);
        assert_eq!((granted(&mut from_a), granted(&mut from_b)), (0, 1));
    }

    #[test]
    fn what_a_workflow_held_and_awaited_goes_with_its_actor() {
        let window = Window::new(Some(2));
        let queue = QueueName::new("default").expect("legal");
        let (gone, inbox) = unbounded_channel();
        let (b, mut from_b) = unbounded_channel();
        let (anew, mut from_anew) = unbounded_channel();
        assert_eq!(window.take(&queue, 3, &id("a"), &gone), 2);
        assert_eq!(window.take(&queue, 1, &id("b"), &b), 0);
        drop(inbox);
        window.forget(&id("a"));
        assert_eq!(granted(&mut from_b), 2);
        // Its next actor stands in line for itself.
        assert_eq!(window.take(&queue, 1, &id("a"), &anew), 0);
        window.give_back(&queue, &id("b"), 1);
        assert_eq!(granted(&mut from_anew), 1);
    }

    #[test]
    fn slots_offered_to_a_workflow_that_is_gone_go_to_the_next() {
        let window = Window::new(Some(1));
        let queue = QueueName::new("default").expect("legal");
        let (gone, inbox) = unbounded_channel();
        let (b, mut from_b) = unbounded_channel();
        window.adopt(&queue, &id("c"));
        assert_eq!(window.take(&queue, 1, &id("gone"), &gone), 0);
        assert_eq!(window.take(&queue, 1, &id("b"), &b), 0);
        drop(inbox);
        window.give_back(&queue, &id("c"), 1);
        assert_eq!(granted(&mut from_b), 1);
    }
}
