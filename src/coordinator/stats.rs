//! Counters of one coordinator, for its log, the sentinel and `doctor`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counters since this coordinator became leader.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: AtomicU64,)+
        }

        impl Stats {
            /// All counters by name.
            #[must_use]
            pub fn snapshot(&self) -> BTreeMap<String, u64> {
                BTreeMap::from([$((stringify!($name).to_owned(), self.$name.load(Ordering::Relaxed)),)+])
            }
        }
    };
}

counters! {
    /// Messages received from the completion queue.
    received_messages,
    /// Receives of the completion queue that failed.
    receive_errors,
    /// Completions that changed a state.
    completions_applied,
    /// Completions that were old news.
    completions_old_news,
    /// Messages moved to the poison queue.
    poison_messages,
    /// Messages left on the queue because a newer version wrote them.
    newer_messages,
    /// Requests of people that were answered.
    requests_answered,
    /// State writes.
    state_writes,
    /// Bytes of state written.
    state_bytes,
    /// State writes that met a rival.
    state_conflicts,
    /// Times that the memory of a workflow was thrown away.
    memory_dropped,
    /// Task messages sent.
    tasks_sent,
    /// Task messages sent that may be second copies.
    tasks_sent_again,
    /// Dispatched tasks whose message was found to be gone.
    dispatches_lost,
    /// Task messages that could not be sent at the time.
    send_errors,
    /// Workflows taken up.
    workflows_loaded,
    /// Workflows that ended.
    workflows_ended,
    /// Workflows that could not be read, at the time of reading.
    workflows_broken,
    /// Workflows that had a definition but no row, and were taken up.
    orphans_adopted,
    /// Workflows that were purged to the end.
    workflows_purged,
    /// Actors that ended by a panic.
    panics,
}

impl Stats {
    /// Adds one to a counter.
    pub fn count(counter: &AtomicU64) {
        Self::add(counter, 1);
    }

    /// Adds `by` to a counter.
    pub fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}
