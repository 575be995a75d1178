//! A limit to how much is done at once, which is lower while each counts as many.
//!
//! Invariants:
//! 1. Who came first enters first.
//! 2. What one counts as is decided when it is its turn, however long it has stood in line.
//! 3. A few may be inside at once whatever they count as: one that hangs holds up nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// So many may be inside at once, whatever they count as.
const A_FEW: u32 = 4;

#[derive(Debug)]
pub(super) struct Gate {
    /// Held by the first in line.
    line: Mutex<()>,
    places: Arc<Semaphore>,
    count: u32,
}

impl Gate {
    /// A gate with `count` places.
    pub(super) fn new(count: u32) -> Self {
        let places = usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            line: Mutex::default(),
            places: Arc::new(Semaphore::new(places)),
            count,
        }
    }

    /// Waits for as many places as one counts as, and gives them.
    pub(super) async fn enter(&self, counts_as: &AtomicU32) -> OwnedSemaphorePermit {
        let _first = self.line.lock().await;
        let counts_as = counts_as
            .load(Ordering::Relaxed)
            .clamp(1, self.count / A_FEW);
        let places = Arc::clone(&self.places).acquire_many_owned(counts_as);
        places.await.expect("never closed")
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_one_counts_as_is_decided_when_it_enters() {
        let (gate, counts_as) = (Gate::new(64), AtomicU32::new(u32::MAX));
        let mut inside = Vec::new();
        for _ in 0..A_FEW {
            inside.push(gate.enter(&counts_as).now_or_never().expect("a few enter"));
        }
        let mut line: Vec<_> = (0..64).map(|_| Box::pin(gate.enter(&counts_as))).collect();
        for waiting in &mut line {
            assert!(waiting.now_or_never().is_none(), "the gate is full");
        }
        // It was slow, and is fast now.
        counts_as.store(1, Ordering::Relaxed);
        inside.clear();
        let mut entered = 0;
        for waiting in line {
            inside.extend(waiting.now_or_never());
            entered += 1;
            // The first in line was counted before.
            assert_eq!(inside.len(), entered.min(64 - 64 / 4 + 1), "{entered}");
        }
    }
}
