//! How far the handlers are whose commands have ended: who only tidies up holds no slot, and slots about to be free are waited for.
//!
//! Invariants:
//! 1. Whoever waits for [`Ends::changed`] learns of each slot that is freed after it last looked.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts of handlers.
#[derive(Debug, Default)]
pub(super) struct Ends {
    posting: AtomicUsize,
    leaving: AtomicUsize,
    changed: Notify,
}

/// Counted as long as it lives.
#[derive(Debug)]
pub(super) struct Counted<'a> {
    among: &'a AtomicUsize,
    changed: &'a Notify,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.among.fetch_sub(1, Ordering::SeqCst);
        self.changed.notify_one();
    }
}

impl Ends {
    fn count<'a>(&'a self, among: &'a AtomicUsize) -> Counted<'a> {
        among.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
        Counted {
            among,
            changed: &self.changed,
        }
    }

    /// A handler stores what its attempt left, and how it ended.
    pub(super) fn posts(&self) -> Counted<'_> {
        self.count(&self.posting)
    }

    /// A handler is at its last requests: its slot is free.
    pub(super) fn leaves(&self) -> Counted<'_> {
        self.count(&self.leaving)
    }

    /// How many handlers free their slots soon.
    pub(super) fn posting(&self) -> usize {
        self.posting.load(Ordering::SeqCst)
    }

    /// How many handlers hold no slot any more.
    pub(super) fn leaving(&self) -> usize {
        self.leaving.load(Ordering::SeqCst)
    }

    /// Waits for one of the counts to change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
