//! A limit to how much is done at once, which follows how fast the service is.
//!
//! Invariants:
//! 1. Who came first enters first.
//! 2. The limit counts when one enters, however long it has stood in line; who is inside stays.
//! 3. A limit that rises lets those in who wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{Mutex, Notify};

/// The least limit: so many that hang hold up the others while the service is slow, and no longer.
const LIMIT_MIN: u32 = 8;

#[derive(Debug)]
pub(super) struct AtOnce {
    /// Held by the first in line.
    line: Mutex<()>,
    inside: AtomicU32,
    /// Tells the first in line to look again.
    changed: Notify,
    limit_max: u32,
}

/// A place among those at work, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Inside(Arc<AtOnce>);

impl AtOnce {
    /// A limit of so many at once, and fewer where each counts as several.
    pub(super) fn new(limit_max: u32) -> Arc<Self> {
        Arc::new(Self {
            line: Mutex::default(),
            inside: AtomicU32::new(0),
            changed: Notify::new(),
            limit_max,
        })
    }

    /// Waits for a place.
    pub(super) async fn enter(self: &Arc<Self>, counts_as: &AtomicU32) -> Inside {
        let _first = self.line.lock().await;
        loop {
            // A change between the look and the wait is kept for the wait.
            let counts_as = counts_as.load(Ordering::Acquire).max(1);
            let limit = (self.limit_max / counts_as).max(LIMIT_MIN);
            // Only the first in line adds.
            if self.inside.load(Ordering::Acquire) < limit {
                self.inside.fetch_add(1, Ordering::AcqRel);
                return Inside(Arc::clone(self));
            }
            self.changed.notified().await;
        }
    }

    /// Looks again: each may count as fewer now.
    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::AcqRel);
        self.0.changed();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_limit_that_rises_lets_those_in_who_came_while_it_was_low() {
        let (limit, counts_as) = (AtOnce::new(64), AtomicU32::new(u32::MAX));
        let mut inside = Vec::new();
        for _ in 0..LIMIT_MIN {
            inside.push(limit.enter(&counts_as).now_or_never().expect("a few enter"));
        }
        let mut line: Vec<_> = (0..64).map(|_| Box::pin(limit.enter(&counts_as))).collect();
        for waiting in &mut line {
            assert!(
                waiting.now_or_never().is_none(),
                "as many as may are inside"
            );
        }
        // It was slow, and is fast now; those inside hang.
        counts_as.store(1, Ordering::Release);
        limit.changed();
        for waiting in line.drain(..56) {
            inside.push(waiting.now_or_never().expect("there is room"));
        }
        assert!((&mut line[0]).now_or_never().is_none(), "64 are inside");
        drop(inside.pop());
        drop(line.remove(0).now_or_never().expect("one has left"));
    }
}
