//! How many messages may be sent and unfinished per task queue (P28), shared fairly between workflows.
//!
//! Invariants:
//! 1. `held` counts the slots of each workflow, granted but unused ones included; `used` is their sum.
//! 2. While workflows wait, free slots go round over them, some at a time; nobody overtakes.
//! 3. What is sent together ends together and shares state writes, so slots that come free one by one are not handed on one by one: they
//!    gather for whoever is first in line, but for no longer than [`GATHER`] and the next look of [`Window::deal`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::mail::Mail;
use crate::definition::{QueueName, WorkflowId};
use crate::env::Mono;

/// Most slots that a waiting workflow is given at once.
const GRANT_MAX: u32 = 32;
/// How many such grants a window has at the least.
const GRANTS: u32 = 8;
/// How long fewer slots than whoever is first in line could use wait for more.
const GATHER: Duration = Duration::from_millis(100);

/// A workflow in line.
#[derive(Debug)]
struct Waiter {
    id: WorkflowId,
    want: u32,
    mailbox: UnboundedSender<Mail>,
}

#[derive(Debug, Default)]
struct Lane {
    used: u32,
    held: BTreeMap<WorkflowId, u32>,
    line: VecDeque<Waiter>,
    waiting: BTreeSet<WorkflowId>,
    /// Since when free slots were seen to gather.
    gathers_since: Option<Mono>,
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

    /// Hands what is free of `cap` to those who wait; only as much at once as is worth it, unless `any` is.
    fn grant(&mut self, queue: &QueueName, cap: Option<u32>, any: bool) {
        let Some(cap) = cap else { return };
        let most = (cap / GRANTS).clamp(1, GRANT_MAX);
        while let Some(first) = self.line.front() {
            let free = cap.saturating_sub(self.used);
            let wanted = first.want.min(most);
            if free == 0 || (free < wanted && !any) {
                return;
            }
            let Waiter { id, mailbox, .. } = self.line.pop_front().expect("seen");
            self.waiting.remove(&id);
            let (queue, count) = (queue.clone(), wanted.min(free));
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
            lane.line.push_back(Waiter {
                id: id.clone(),
                want: want - got,
                mailbox: mailbox.clone(),
            });
        }
        got
    }

    /// Counts a slot that is held already: of a message sent by an earlier leader.
    pub(super) fn adopt(&self, queue: &QueueName, id: &WorkflowId) {
        let mut lanes = self.lanes();
        lanes.entry(queue.clone()).or_default().hold(id, 1);
    }

    /// Gives slots back, and hands them to who waits if they are enough for that.
    pub(super) fn give_back(&self, queue: &QueueName, id: &WorkflowId, count: u32) {
        let mut lanes = self.lanes();
        let lane = lanes.entry(queue.clone()).or_default();
        lane.release(id, count);
        lane.grant(queue, self.cap, false);
    }

    /// Hands out slots that have gathered for long; to be called again and again, the more often the more happens.
    pub(super) fn deal(&self, now: Mono) {
        let Some(cap) = self.cap else { return };
        for (queue, lane) in self.lanes().iter_mut() {
            if lane.line.is_empty() || lane.used >= cap {
                lane.gathers_since = None;
            } else if now.since(*lane.gathers_since.get_or_insert(now)) >= GATHER {
                lane.gathers_since = None;
                lane.grant(queue, self.cap, true);
            }
        }
    }

    /// Takes all slots of a workflow whose actor is gone, and its places in line.
    pub(super) fn forget(&self, id: &WorkflowId) {
        for (queue, lane) in self.lanes().iter_mut() {
            if lane.waiting.remove(id) {
                lane.line.retain(|waiter| waiter.id != *id);
            }
            lane.release(id, u32::MAX);
            lane.grant(queue, self.cap, false);
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
    fn slots_that_come_free_one_by_one_gather_for_who_waits_but_not_for_long() {
        let window = Window::new(Some(64));
        let queue = QueueName::new("default").expect("legal");
        let (a, _from_a) = unbounded_channel();
        let (b, mut from_b) = unbounded_channel();
        assert_eq!(window.take(&queue, 64, &id("a"), &a), 64);
        assert_eq!(window.take(&queue, 20, &id("b"), &b), 0);
        for _ in 0..7 {
            window.give_back(&queue, &id("a"), 1);
        }
        assert_eq!(granted(&mut from_b), 0);
        window.give_back(&queue, &id("a"), 1);
        assert_eq!(granted(&mut from_b), 8, "an eighth of the window");
        assert_eq!(window.take(&queue, 12, &id("b"), &b), 0);
        window.give_back(&queue, &id("a"), 1);
        let at = |millis| Mono::new(Duration::from_millis(millis));
        window.deal(at(1_000));
        window.deal(at(1_099));
        assert_eq!(granted(&mut from_b), 0);
        window.deal(at(1_100));
        assert_eq!(granted(&mut from_b), 1);
    }

    #[test]
    fn what_a_workflow_held_and_awaited_goes_with_its_actor() {
        let window = Window::new(Some(1));
        let queue = QueueName::new("default").expect("legal");
        let (gone, inbox) = unbounded_channel();
        let (b, mut from_b) = unbounded_channel();
        let (anew, mut from_anew) = unbounded_channel();
        assert_eq!(window.take(&queue, 2, &id("a"), &gone), 1);
        assert_eq!(window.take(&queue, 1, &id("b"), &b), 0);
        drop(inbox);
        window.forget(&id("a"));
        assert_eq!(granted(&mut from_b), 1);
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
