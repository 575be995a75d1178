//! Messages of the completion queue on their way from the queue to what is stored of them (P6, P9).
//!
//! Invariants:
//! 1. A message is deleted only when each of its entries was handed back as handled; one entry left over leaves the message.
//! 2. A message that cannot be handled goes to the poison queue, as it is if it fits, before it is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::layout::Layout;
use super::send::send;
use crate::store::{Kind, Message, Queue, Receipt, Store, StoreError};

/// What is kept of a message that its poison queue does not take as it is.
const POISON_BYTES_KEPT: usize = 32 * 1024;

/// A received message and how many of its entries are still under way.
#[derive(Debug)]
struct Inside {
    receipt: Receipt,
    body: String,
    deliveries: u32,
    open: AtomicUsize,
    left: AtomicBool,
    dropped: AtomicBool,
    poison: AtomicBool,
}

/// The share of one entry in its message.
#[derive(Debug)]
#[must_use = "an entry that is dropped leaves its message on the queue"]
pub struct Delivery {
    inside: Arc<Inside>,
    settled: bool,
}

/// What is to be done with a message once its last entry is settled.
#[derive(Debug)]
#[must_use]
pub enum Settled {
    /// Other entries are under way, or one was dropped: then it comes back when its visibility time-out is over.
    NotYet,
    /// It stays on the queue; the receipt shows it again at once.
    Leave(Receipt),
    /// It is done with.
    Delete(Receipt),
    /// It goes to the poison queue.
    Poison(Receipt, String),
}

impl Delivery {
    /// One delivery for each of the `entries` of a message.
    #[must_use]
    pub fn split(message: Message, entries: usize) -> Vec<Self> {
        let inside = Arc::new(Inside {
            receipt: message.receipt,
            body: message.body,
            deliveries: message.deliveries,
            open: AtomicUsize::new(entries),
            left: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            poison: AtomicBool::new(false),
        });
        (0..entries)
            .map(|_| Self {
                inside: Arc::clone(&inside),
                settled: false,
            })
            .collect()
    }

    /// How often its message was received.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.inside.deliveries
    }

    /// The entry is stored, or old news whose end is stored.
    pub fn handled(mut self) -> Settled {
        self.settle()
    }

    /// The entry cannot be handled, now or ever.
    pub fn poisoned(mut self) -> Settled {
        self.inside.poison.store(true, Ordering::Release);
        self.settle()
    }

    /// The entry was not handled: the message comes back at once, if the others were handled or left, too.
    pub fn left(mut self) -> Settled {
        self.inside.left.store(true, Ordering::Release);
        self.settle()
    }

    fn settle(&mut self) -> Settled {
        self.settled = true;
        if self.inside.open.fetch_sub(1, Ordering::AcqRel) > 1
            || self.inside.dropped.load(Ordering::Acquire)
        {
            return Settled::NotYet;
        }
        let receipt = self.inside.receipt.clone();
        if self.inside.left.load(Ordering::Acquire) {
            Settled::Leave(receipt)
        } else if self.inside.poison.load(Ordering::Acquire) {
            Settled::Poison(receipt, self.inside.body.clone())
        } else {
            Settled::Delete(receipt)
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.settled {
            self.inside.dropped.store(true, Ordering::Release);
            self.inside.open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Carries out what was settled. Losing the message meanwhile is no error: whoever has it now finds old news.
///
/// # Errors
/// The store's; the message then comes back by itself.
pub async fn carry_out(store: &Store, layout: &Layout, settled: Settled) -> Result<(), StoreError> {
    let queue = layout.completions();
    match settled {
        Settled::NotYet => Ok(()),
        Settled::Leave(receipt) => lost_is_fine(
            store
                .queues
                .extend(queue, &receipt, Duration::ZERO)
                .await
                .map(|_| ()),
        ),
        Settled::Delete(receipt) => lost_is_fine(store.queues.delete(queue, &receipt).await),
        Settled::Poison(receipt, body) => {
            poison(store, queue, layout.completions_poison(), &receipt, &body).await
        }
    }
}

/// Copies a message to a poison queue, then deletes it. After a crash between the two there are two copies, never none.
///
/// # Errors
/// The store's; the message then comes back by itself.
async fn poison(
    store: &Store,
    from: &Queue,
    to: &Queue,
    receipt: &Receipt,
    body: &str,
) -> Result<(), StoreError> {
    keep_poison(store, to, body).await?;
    lost_is_fine(store.queues.delete(from, receipt).await)
}

/// Copies a message to a poison queue as it is; if the service does not take it, its beginning and its hash.
///
/// # Errors
/// The store's; nothing is known to be kept then.
pub async fn keep_poison(store: &Store, to: &Queue, body: &str) -> Result<(), StoreError> {
    match send(store, to, body, Duration::ZERO).await {
        Err(error) if error.kind == Kind::Invalid => {
            let digest = Sha256::digest(body.as_bytes());
            let kept = &body.as_bytes()[..body.len().min(POISON_BYTES_KEPT)];
            let beginning = STANDARD.encode(kept);
            let text = format!("sha256 {digest:x}, first bytes in base64: {beginning}");
            send(store, to, &text, Duration::ZERO).await
        }
        sent => sent,
    }
}

fn lost_is_fine(result: Result<(), StoreError>) -> Result<(), StoreError> {
    match result {
        Err(error) if error.kind == Kind::Gone => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::env::real;
    use crate::store::layers::Op;
    use crate::store::layers::fault::{Fault, Faults};
    use crate::store::memory::MemoryStore;

    #[tokio::test]
    async fn poison_that_does_not_fit_leaves_its_beginning_and_its_hash() {
        let env = real::env();
        let layout = Layout::new("test").expect("legal");
        let plain = MemoryStore::open(env.clone());
        layout.create(&plain).await.expect("memory");
        let refused = Faults::script().on(Op::QueueSend, 1, Fault::Refused);
        let (store, _) = refused.wrap(plain.clone(), env);
        let (from, to) = (layout.completions(), layout.completions_poison());
        let body = "x".repeat(40 * 1024);
        let (queues, minute) = (&plain.queues, Duration::from_secs(60));
        queues
            .send(from, &body, Duration::ZERO)
            .await
            .expect("memory");
        let received = queues.receive(from, 1, minute).await.expect("memory");
        poison(&store, from, to, &received[0].receipt, &received[0].body)
            .await
            .expect("the second is taken");
        assert_eq!(queues.depth(from).await.expect("memory"), 0);
        let kept = queues.peek(to, 1).await.expect("memory").remove(0);
        let beginning = STANDARD.encode("x".repeat(POISON_BYTES_KEPT));
        assert!(kept.ends_with(&format!(": {beginning}")), "{kept}");
        let hash = format!("sha256 {:x},", Sha256::digest(&body));
        assert!(kept.starts_with(&hash), "{kept}");
    }

    fn entries(count: usize) -> Vec<Delivery> {
        let receipt = Receipt {
            message_id: "m".to_owned(),
            pop: "p".to_owned(),
        };
        let message = Message {
            receipt,
            body: "b".to_owned(),
            deliveries: 1,
            inserted_at: Timestamp::UNIX_EPOCH,
            read_at: Timestamp::UNIX_EPOCH,
        };
        Delivery::split(message, count)
    }

    #[test]
    fn a_message_is_deleted_only_when_all_its_entries_are_handled() {
        let mut entries = entries(3).into_iter();
        let mut next = || entries.next().expect("three were made").handled();
        assert!(matches!(next(), Settled::NotYet));
        assert!(matches!(next(), Settled::NotYet));
        assert!(matches!(next(), Settled::Delete(_)));
    }

    #[test]
    fn one_entry_that_is_left_gives_the_message_back_one_dropped_leaves_it_and_a_bad_one_poisons_it()
     {
        let mut left = entries(2).into_iter();
        assert!(matches!(
            left.next().map(Delivery::left),
            Some(Settled::NotYet)
        ));
        assert!(matches!(
            left.next().map(Delivery::poisoned),
            Some(Settled::Leave(_))
        ));
        for settle in [Delivery::handled, Delivery::poisoned, Delivery::left] {
            let mut dropped = entries(2).into_iter();
            drop(dropped.next());
            assert!(matches!(dropped.next().map(settle), Some(Settled::NotYet)));
        }
        let mut bad = entries(2).into_iter();
        assert!(matches!(
            bad.next().map(Delivery::poisoned),
            Some(Settled::NotYet)
        ));
        assert!(matches!(
            bad.next().map(Delivery::handled),
            Some(Settled::Poison(_, _))
        ));
    }
}
