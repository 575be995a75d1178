//! Time, chance and concurrency as inputs, so that one seed can replay a whole history.
//!
//! Everything above this module receives an [`Env`] and asks it; nothing else reads a clock, rolls dice or starts a task.
//!
//! Invariants:
//! 1. [`Clock::wall`] is stored and shown, never compared with another machine's clock to decide anything.
//! 2. [`Clock::mono`] keeps counting while the machine is suspended, so a fence measured with it also closes on a sleeping laptop.
//! 3. A future handed to [`Spawner::spawn`] may be dropped at any await: state that matters is in storage.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use futures::pin_mut;
use uuid::Uuid;

mod pulse;
pub mod real;

pub use jiff::Timestamp;
pub use pulse::{PAUSE_MAX, Pulse, TURN_MAX};

/// A reading of a clock that never goes back: the time since an arbitrary origin of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(Duration);

impl Mono {
    /// The reading `since_origin` after the origin.
    #[must_use]
    pub const fn new(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// Time from `earlier` to this reading; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The reading `by` later.
    #[must_use]
    pub const fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

/// Reads time and waits.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The wall clock.
    fn wall(&self) -> Timestamp;
    /// The monotonic clock (invariant 2).
    fn mono(&self) -> Mono;
    /// Completes after `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The source of chance.
pub trait Entropy: fmt::Debug + Send + Sync {
    /// Fills `bytes` with random bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// How a spawned task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// It ran to its end.
    Done,
    /// It was aborted.
    Aborted,
    /// It panicked with this message.
    Panicked(String),
}

/// A started task. Dropping the handle leaves the task running.
pub struct TaskHandle {
    abort: Box<dyn Fn() + Send + Sync>,
    joined: BoxFuture<'static, Joined>,
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle").finish_non_exhaustive()
    }
}

impl TaskHandle {
    /// A handle from its two halves; for implementations of [`Spawner`].
    #[must_use]
    pub fn new(abort: Box<dyn Fn() + Send + Sync>, joined: BoxFuture<'static, Joined>) -> Self {
        Self { abort, joined }
    }

    /// Drops the task's future at its current await.
    pub fn abort(&self) {
        (self.abort)();
    }

    /// Waits for the end.
    ///
    /// # Cancel safety
    /// Dropping the wait leaves the task running.
    pub async fn join(self) -> Joined {
        self.joined.await
    }
}

/// Starts concurrent work.
pub trait Spawner: fmt::Debug + Send + Sync {
    /// Runs `future` concurrently; `name` is for people.
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> TaskHandle;
}

/// The outside world of one process: clock, chance and concurrency.
#[derive(Debug, Clone)]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Concurrency.
    pub spawner: Arc<dyn Spawner>,
}

/// The time given to [`Env::timeout`] was over first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("time is over")]
pub struct Elapsed;

impl Env {
    /// The wall clock.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// The monotonic clock.
    #[must_use]
    pub fn mono(&self) -> Mono {
        self.clock.mono()
    }

    /// Completes after `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }

    /// Starts `future` concurrently.
    pub fn spawn(
        &self,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> TaskHandle {
        self.spawner.spawn(name, Box::pin(future))
    }

    /// Runs `future` for at most `limit`.
    ///
    /// # Errors
    /// [`Elapsed`] when the limit came first; the future is dropped then.
    pub async fn timeout<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let sleep = self.clock.sleep(limit);
        pin_mut!(future);
        match select(future, sleep).await {
            Either::Left((value, _)) => Ok(value),
            Either::Right(((), _)) => Err(Elapsed),
        }
    }

    /// A random 64-bit number.
    #[must_use]
    pub fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.entropy.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A duration drawn uniformly from zero to `limit`.
    #[must_use]
    pub fn jitter(&self, limit: Duration) -> Duration {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.random() % (micros + 1))
    }

    /// A random UUID (version 4).
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.entropy.fill(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// A UUID that sorts by the wall clock (version 7).
    #[must_use]
    pub fn time_ordered_uuid(&self) -> Uuid {
        let mut bytes = [0; 10];
        self.entropy.fill(&mut bytes);
        let millis = u64::try_from(self.wall().as_millisecond()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
    }
}
