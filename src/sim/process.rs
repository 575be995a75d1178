//! The outside world of one simulated process: a clock that may be wrong, dice, and tasks that die with it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::scheduler::{ProcessId, Scheduler, TimerKey};
use crate::env::{Clock, Entropy, Env, Joined, Mono, Spawner, TaskHandle, Timestamp};

/// The wall clock at the start of every run: 2026-01-01.
const EPOCH_SECS: i64 = 1_767_225_600;
/// A wait longer than this is as good as for ever.
const SLEEP_MAX: Duration = Duration::from_secs(100 * 24 * 3600);
const MILLION: u128 = 1_000_000;

/// One simulated process.
#[derive(Clone)]
pub(super) struct Process {
    scheduler: Scheduler,
    pub(super) id: ProcessId,
    pub(super) name: Arc<str>,
    /// How many microseconds its clocks count in a second.
    rate: u32,
    /// How wrong its wall clock is, in milliseconds.
    skew: Arc<AtomicI64>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Process {
    /// A process whose clocks gain `drift_ppm` microseconds a second.
    pub(super) fn new(
        scheduler: &Scheduler,
        id: u32,
        name: impl Into<Arc<str>>,
        drift_ppm: i32,
    ) -> Self {
        let rate = 1_000_000_i64 + i64::from(drift_ppm);
        Self {
            scheduler: scheduler.clone(),
            id: ProcessId(id),
            name: name.into(),
            rate: u32::try_from(rate).expect("a clock drifts by less than it runs"),
            skew: Arc::default(),
        }
    }

    /// Sets its wall clock wrong by so many milliseconds.
    pub(super) fn set_skew(&self, millis: i64) {
        self.skew.store(millis, Ordering::SeqCst);
    }

    /// Turns its wall clock back.
    pub(super) fn turn_back(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.skew.fetch_sub(millis, Ordering::SeqCst);
    }

    /// What its code is given.
    pub(super) fn env(&self) -> Env {
        let this = Arc::new(self.clone());
        Env {
            clock: this.clone(),
            entropy: this.clone(),
            spawner: this,
        }
    }

    /// Starts a task of the process.
    pub(super) fn start(
        &self,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) {
        drop(self.scheduler.spawn(self.id, name, future.boxed()));
    }

    fn own(&self) -> Duration {
        let micros = self.scheduler.now().as_micros() * u128::from(self.rate) / MILLION;
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

impl Clock for Process {
    fn wall(&self) -> Timestamp {
        let micros = i64::try_from(self.own().as_micros()).unwrap_or(i64::MAX);
        let skew = self.skew.load(Ordering::SeqCst) * 1000;
        let since = (EPOCH_SECS * 1_000_000)
            .saturating_add(micros)
            .saturating_add(skew);
        Timestamp::from_microsecond(since).expect("years around the start of the run")
    }

    fn mono(&self) -> Mono {
        Mono::new(self.own())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let own = duration.min(SLEEP_MAX).as_micros();
        // Rounded up, so that after the sleep the own clock has counted all of it.
        let micros = (own * MILLION).div_ceil(u128::from(self.rate)) + 1;
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        let at = self.scheduler.now() + Duration::from_micros(micros);
        Sleep {
            scheduler: self.scheduler.clone(),
            key: self.scheduler.timer_key(at),
        }
        .boxed()
    }
}

struct Sleep {
    scheduler: Scheduler,
    key: TimerKey,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.scheduler.poll_timer(self.key, context.waker())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.scheduler.drop_timer(self.key);
    }
}

impl Entropy for Process {
    fn fill(&self, bytes: &mut [u8]) {
        self.scheduler.roll(|dice| {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&dice.next().to_le_bytes()[..chunk.len()]);
            }
        });
    }
}

impl Spawner for Process {
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> TaskHandle {
        let (task, ended) = self.scheduler.spawn(self.id, name, future);
        let scheduler = self.scheduler.clone();
        let joined = ended.map(|how| how.unwrap_or(Joined::Aborted)).boxed();
        TaskHandle::new(Box::new(move || scheduler.abort(task)), joined)
    }
}
