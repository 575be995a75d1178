//! How many messages may be sent and unfinished per task queue (P28), shared fairly between workflows.
//!
//! Invariants:
//! 1. `used` counts every slot that some workflow holds, granted but unused ones included.
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
    line: VecDeque<(WorkflowId, UnboundedSender<Mail>)>,
    waiting: BTreeSet<WorkflowId>,
    has_warned: bool,
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
        lane.used += got;
        if got < want && lane.waiting.insert(id.clone()) {
            if !lane.has_warned {
                lane.has_warned = true;
                tracing::warn!(queue = %queue, max_outstanding = self.cap, "window_full");
            }
            lane.line.push_back((id.clone(), mailbox.clone()));
        }
        got
    }

    /// Counts slots that are held already: messages sent by an earlier leader.
    pub(super) fn adopt(&self, queue: &QueueName, count: u32) {
        self.lanes().entry(queue.clone()).or_default().used += count;
    }

    /// Gives slots back, and hands what is free to those who wait.
    pub(super) fn give_back(&self, queue: &QueueName, count: u32) {
        let mut lanes = self.lanes();
        let lane = lanes.entry(queue.clone()).or_default();
        lane.used = lane.used.saturating_sub(count);
        let Some(cap) = self.cap else { return };
        while lane.used < cap {
            let Some((id, mailbox)) = lane.line.pop_front() else {
                return;
            };
            lane.waiting.remove(&id);
            let granted = GRANT_MAX.min(cap - lane.used);
            // A workflow that is gone needs none.
            if mailbox
                .send(Mail::Slots {
                    queue: queue.clone(),
                    count: granted,
                })
                .is_ok()
            {
                lane.used += granted;
            }
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
        window.give_back(&queue, 1);
        assert_eq!((granted(&mut from_a), granted(&mut from_b)), (1, 0));
        assert_eq!(
            window.take(&queue, 10, &id("a"), &a),
            0,
            "who was served stands at the end of the line"
        );
        window.give_back(&queue, 1);
        assert_eq!((granted(&mut from_a), granted(&mut from_b)), (0, 1));
    }

    #[test]
    fn slots_offered_to_a_workflow_that_is_gone_go_to_the_next() {
        let window = Window::new(Some(1));
        let queue = QueueName::new("default").expect("legal");
        let (gone, inbox) = unbounded_channel();
        let (b, mut from_b) = unbounded_channel();
        window.adopt(&queue, 1);
        assert_eq!(window.take(&queue, 1, &id("gone"), &gone), 0);
        assert_eq!(window.take(&queue, 1, &id("b"), &b), 0);
        drop(inbox);
        window.give_back(&queue, 1);
        assert_eq!(granted(&mut from_b), 1);
    }
}
