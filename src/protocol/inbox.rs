//! Messages of the completion queue on their way from the queue to what is stored of them (P6, P9).
//!
//! Invariants:
//! 1. A message is deleted only when each of its entries was handed back as handled; one entry left over leaves the message.
//! 2. A message that cannot be handled goes to the poison queue as it is before it is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::layout::Layout;
use crate::store::{Kind, Message, Queue, Receipt, Store, StoreError};

/// A received message and how many of its entries are still under way.
#[derive(Debug)]
struct Inside {
    receipt: Receipt,
    body: String,
    deliveries: u32,
    open: AtomicUsize,
    left: AtomicBool,
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
    /// Other entries are under way.
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

    /// The entry was not handled: the message comes back.
    pub fn left(mut self) -> Settled {
        self.inside.left.store(true, Ordering::Release);
        self.settle()
    }

    fn settle(&mut self) -> Settled {
        self.settled = true;
        if self.inside.open.fetch_sub(1, Ordering::AcqRel) > 1 {
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
            self.inside.left.store(true, Ordering::Release);
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
pub async fn poison(
    store: &Store,
    from: &Queue,
    to: &Queue,
    receipt: &Receipt,
    body: &str,
) -> Result<(), StoreError> {
    super::send::send(store, to, body, Duration::ZERO).await?;
    lost_is_fine(store.queues.delete(from, receipt).await)
}

fn lost_is_fine(result: Result<(), StoreError>) -> Result<(), StoreError> {
    match result {
        Err(error) if error.kind == Kind::Gone => Ok(()),
        other => other,
    }
}
