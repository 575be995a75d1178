//! An environment whose time moves only when a test says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;

use super::lock;
use crate::env::{Clock, Entropy, Env, Mono, Timestamp, real};

#[derive(Debug, Default)]
struct Time {
    now: Duration,
    slept: Vec<Duration>,
    sleepers: BTreeMap<(Duration, usize), oneshot::Sender<()>>,
}

/// A clock that stands still until it is advanced, or, made by [`ManualClock::eager`], jumps to the end of every sleep at once.
#[derive(Debug)]
pub(crate) struct ManualClock {
    eager: bool,
    time: Mutex<Time>,
}

impl ManualClock {
    fn new(eager: bool) -> Arc<Self> {
        Arc::new(Self {
            eager,
            time: Mutex::default(),
        })
    }

    /// A clock that only [`Self::advance`] moves.
    pub(crate) fn still() -> Arc<Self> {
        Self::new(false)
    }

    /// A clock on which every sleep is over at once and has taken its time.
    pub(crate) fn eager() -> Arc<Self> {
        Self::new(true)
    }

    /// The environment with this clock, and with dice that always show the same.
    pub(crate) fn env(self: &Arc<Self>) -> Env {
        Env {
            clock: self.clone(),
            entropy: Arc::new(Loaded),
            spawner: real::env().spawner,
        }
    }

    /// Moves time and ends the sleeps that are over.
    pub(crate) fn advance(&self, by: Duration) {
        let mut time = lock(&self.time);
        time.now += by;
        let now = time.now;
        while let Some(entry) = time.sleepers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            // A sleeper that is gone needs no call.
            entry.remove().send(()).ok();
        }
    }

    /// All sleeps so far, in order.
    pub(crate) fn slept(&self) -> Vec<Duration> {
        lock(&self.time).slept.clone()
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        let since = lock(&self.time).now;
        Timestamp::UNIX_EPOCH + since
    }

    fn mono(&self) -> Mono {
        Mono::new(lock(&self.time).now)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let mut time = lock(&self.time);
        time.slept.push(duration);
        if self.eager {
            time.now += duration;
            return futures::future::ready(()).boxed();
        }
        let (end, over) = oneshot::channel();
        let key = (time.now + duration, time.slept.len());
        time.sleepers.insert(key, end);
        over.map(|_| ()).boxed()
    }
}

/// Dice whose every byte is 0x55.
#[derive(Debug)]
struct Loaded;

impl Entropy for Loaded {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0x55);
    }
}
