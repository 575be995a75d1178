//! The three services inside this process: for `workflow run`, for tests and for the simulator.
//!
//! As strict as the real ones: what a storage account would refuse is refused here too, so that a mistake shows without one.
//!
//! Invariants:
//! 1. A lock covers one operation and is never held across an await; an operation costs the logarithm of what is stored, plus
//!    what it returns.
//! 2. Whether a lease or a hidden message is over is decided by [`ServiceClock::mono`]; times in replies come from
//!    [`ServiceClock::wall`]. Nothing else here reads a clock.
//! 3. Collections are ordered: the same calls give the same replies.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Kind, Store, StoreError};
use crate::env::{Env, Mono, Timestamp};

mod blobs;
mod queues;
mod rows;

#[cfg(test)]
pub(crate) mod manual;
#[cfg(test)]
mod tests;

/// Makes stores in this process.
#[derive(Debug)]
pub struct MemoryStore;

impl MemoryStore {
    /// An empty account, which lives as long as the [`Store`] and its clones.
    #[must_use]
    pub fn open(env: Env) -> Store {
        let clock = ServiceClock(env);
        Store {
            blobs: Arc::new(blobs::MemoryBlobs::new(clock.clone())),
            queues: Arc::new(queues::MemoryQueues::new(clock.clone())),
            rows: Arc::new(rows::MemoryRows::new(clock)),
        }
    }

    /// An account that tells nobody of a message, as a remote one: [`Queues::wait`](super::Queues::wait) takes its time.
    #[cfg(test)]
    pub(crate) fn silent(env: Env) -> Store {
        Store {
            queues: Arc::new(queues::MemoryQueues::silent(ServiceClock(env.clone()))),
            ..Self::open(env)
        }
    }
}

/// The clock of the service, apart from those of its clients: the one place to skew it.
#[derive(Debug, Clone)]
struct ServiceClock(Env);

impl ServiceClock {
    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    fn mono(&self) -> Mono {
        self.0.mono()
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state
        .lock()
        .expect("no operation panics while it holds the lock")
}

/// What failed, on what: makes the errors of one operation.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    verb: &'static str,
    on: &'a (dyn fmt::Display + Sync),
}

impl<'a> Attempt<'a> {
    fn new(verb: &'static str, on: &'a (dyn fmt::Display + Sync)) -> Self {
        Self { verb, on }
    }

    fn fail(self, kind: Kind, detail: impl Into<String>) -> StoreError {
        StoreError::new(kind, format!("{} {}", self.verb, self.on), detail)
    }
}
