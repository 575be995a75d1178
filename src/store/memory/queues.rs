//! Queues with visibility time-outs.
//!
//! Invariants:
//! 1. Every message is in `messages` once and in `order` once, under the time from which it is visible.
//! 2. A receipt is good while its `pop` is the message's: each receive and each extension mints another. A receipt outlives the
//!    visibility time until somebody else receives the message, as on the real service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{Attempt, ServiceClock, lock};
use crate::env::{Mono, Timestamp};
use crate::store::{
    Kind, MESSAGE_BYTES_MAX, Message, Queue, Queues, RECEIVE_MAX, Receipt, Result, VISIBILITY_MAX,
};

#[derive(Debug)]
struct Stored {
    body: String,
    deliveries: u32,
    inserted_at: Timestamp,
    visible_at: Mono,
    pop: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By number, which is the message's id.
    messages: BTreeMap<u64, Stored>,
    /// All messages, the one visible first in front.
    order: BTreeSet<(Mono, u64)>,
    /// The last number given to a message or a receipt.
    numbers: u64,
    /// Rung when a message becomes visible earlier than a waiter could know.
    bell: Arc<Notify>,
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The message that `receipt` entitles to.
    fn entitled(&self, attempt: Attempt<'_>, receipt: &Receipt) -> Result<(u64, Mono)> {
        let id = receipt.message_id.parse().ok();
        let stored = id.and_then(|id: u64| Some((id, self.messages.get(&id)?)));
        match stored {
            None => Err(attempt.fail(Kind::Gone, "no such message")),
            Some((_, message)) if message.pop.to_string() != receipt.pop => {
                Err(attempt.fail(Kind::Gone, "the receipt is not the last one"))
            }
            Some((id, message)) => Ok((id, message.visible_at)),
        }
    }

    fn visible(&self, now: Mono) -> impl Iterator<Item = u64> + '_ {
        self.order
            .iter()
            .take_while(move |(at, _)| *at <= now)
            .map(|(_, id)| *id)
    }
}

#[derive(Debug)]
pub(super) struct MemoryQueues {
    clock: ServiceClock,
    queues: Mutex<BTreeMap<Queue, State>>,
    /// Whether who waits is told of a message.
    rings: bool,
}

impl MemoryQueues {
    pub(super) fn new(clock: ServiceClock) -> Self {
        Self {
            clock,
            queues: Mutex::default(),
            rings: true,
        }
    }

    /// Queues that tell nobody of a message, as those of a remote store.
    #[cfg(test)]
    pub(super) fn silent(clock: ServiceClock) -> Self {
        Self {
            rings: false,
            ..Self::new(clock)
        }
    }

    fn with<T>(
        &self,
        attempt: Attempt<'_>,
        queue: &Queue,
        act: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        let mut queues = lock(&self.queues);
        let state = queues
            .get_mut(queue)
            .ok_or_else(|| attempt.fail(Kind::NoResource, "no such queue"))?;
        act(state)
    }
}

/// Refuses what the service would refuse, or would take and never give back: characters that XML cannot carry.
fn check_text(attempt: Attempt<'_>, body: &str) -> Result<()> {
    if body.len() > MESSAGE_BYTES_MAX {
        return Err(attempt.fail(Kind::Invalid, "the text has more than 64 KiB"));
    }
    let unfit = |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    if body.contains(unfit) {
        return Err(attempt.fail(Kind::Invalid, "the text holds control characters"));
    }
    if body.trim() != body {
        return Err(attempt.fail(Kind::Invalid, "the text has white space at an end"));
    }
    Ok(())
}

fn check_count(attempt: Attempt<'_>, max: u8) -> Result<usize> {
    if (1..=RECEIVE_MAX).contains(&max) {
        Ok(usize::from(max))
    } else {
        Err(attempt.fail(Kind::Invalid, "1 to 32 messages can be asked for"))
    }
}

fn check_time(attempt: Attempt<'_>, time: Duration, least: Duration) -> Result<()> {
    if (least..=VISIBILITY_MAX).contains(&time) {
        Ok(())
    } else {
        Err(attempt.fail(Kind::Invalid, "the time is out of range"))
    }
}

#[async_trait]
impl Queues for MemoryQueues {
    async fn create_queue(&self, queue: &Queue) -> Result<()> {
        lock(&self.queues).entry(queue.clone()).or_default();
        Ok(())
    }

    async fn send(&self, queue: &Queue, body: &str, delay: Duration) -> Result<()> {
        let attempt = Attempt::new("send to queue", queue);
        check_text(attempt, body)?;
        check_time(attempt, delay, Duration::ZERO)?;
        let visible_at = self.clock.mono().plus(delay);
        let inserted_at = self.clock.wall();
        self.with(attempt, queue, |state| {
            let id = state.number();
            let pop = state.number();
            let stored = Stored {
                body: body.to_owned(),
                deliveries: 0,
                inserted_at,
                visible_at,
                pop,
            };
            state.messages.insert(id, stored);
            state.order.insert((visible_at, id));
            state.bell.notify_waiters();
            Ok(())
        })
    }

    async fn receive(&self, queue: &Queue, max: u8, visibility: Duration) -> Result<Vec<Message>> {
        let attempt = Attempt::new("receive from queue", queue);
        let max = check_count(attempt, max)?;
        check_time(attempt, visibility, Duration::from_secs(1))?;
        let now = self.clock.mono();
        let read_at = self.clock.wall();
        self.with(attempt, queue, |state| {
            let ids: Vec<u64> = state.visible(now).take(max).collect();
            let mut received = Vec::with_capacity(ids.len());
            for id in ids {
                let pop = state.number();
                let stored = state
                    .messages
                    .get_mut(&id)
                    .expect("what is in the order is stored");
                state.order.remove(&(stored.visible_at, id));
                stored.visible_at = now.plus(visibility);
                stored.deliveries = stored.deliveries.saturating_add(1);
                stored.pop = pop;
                state.order.insert((stored.visible_at, id));
                received.push(Message {
                    receipt: Receipt {
                        message_id: id.to_string(),
                        pop: pop.to_string(),
                    },
                    body: stored.body.clone(),
                    deliveries: stored.deliveries,
                    inserted_at: stored.inserted_at,
                    read_at,
                });
            }
            Ok(received)
        })
    }

    async fn extend(
        &self,
        queue: &Queue,
        receipt: &Receipt,
        visibility: Duration,
    ) -> Result<Receipt> {
        let attempt = Attempt::new("extend message of queue", queue);
        check_time(attempt, visibility, Duration::ZERO)?;
        let visible_at = self.clock.mono().plus(visibility);
        self.with(attempt, queue, |state| {
            let (id, before) = state.entitled(attempt, receipt)?;
            let pop = state.number();
            let stored = state
                .messages
                .get_mut(&id)
                .expect("a receipt entitles only to what is stored");
            stored.visible_at = visible_at;
            stored.pop = pop;
            state.order.remove(&(before, id));
            state.order.insert((visible_at, id));
            if visible_at < before {
                state.bell.notify_waiters();
            }
            Ok(Receipt {
                message_id: receipt.message_id.clone(),
                pop: pop.to_string(),
            })
        })
    }

    async fn delete(&self, queue: &Queue, receipt: &Receipt) -> Result<()> {
        let attempt = Attempt::new("delete message of queue", queue);
        self.with(attempt, queue, |state| {
            let (id, visible_at) = state.entitled(attempt, receipt)?;
            state.messages.remove(&id);
            state.order.remove(&(visible_at, id));
            Ok(())
        })
    }

    async fn depth(&self, queue: &Queue) -> Result<u64> {
        let attempt = Attempt::new("count messages of queue", queue);
        self.with(attempt, queue, |state| {
            Ok(u64::try_from(state.messages.len()).unwrap_or(u64::MAX))
        })
    }

    async fn peek(&self, queue: &Queue, max: u8) -> Result<Vec<String>> {
        let attempt = Attempt::new("peek at queue", queue);
        let max = check_count(attempt, max)?;
        let now = self.clock.mono();
        self.with(attempt, queue, |state| {
            let visible = state.visible(now).take(max);
            Ok(visible
                .filter_map(|id| state.messages.get(&id))
                .map(|stored| stored.body.clone())
                .collect())
        })
    }

    async fn wait(&self, queue: &Queue, at_most: Duration) {
        if !self.rings {
            return self.clock.0.sleep(at_most).await;
        }
        let deadline = self.clock.mono().plus(at_most);
        let bell = lock(&self.queues)
            .get(queue)
            .map(|state| state.bell.clone());
        let Some(bell) = bell else {
            return self.clock.0.sleep(at_most).await;
        };
        loop {
            // Made before the look at the queue, so that a message sent in between is heard.
            let rung = bell.notified();
            let first = lock(&self.queues)
                .get(queue)
                .and_then(|state| state.order.first().map(|(at, _)| *at));
            let now = self.clock.mono();
            let left = deadline.since(now);
            let until_visible = first.map_or(left, |at| at.since(now));
            let pause = until_visible.min(left);
            if pause.is_zero() {
                return;
            }
            // Rung or over: both mean to look again.
            self.clock.0.timeout(pause, rung).await.ok();
        }
    }
}
