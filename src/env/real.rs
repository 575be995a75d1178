//! The real world: the only file that reads the machine's clocks, its randomness and the process environment.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use nix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use super::{Clock, Entropy, Env, Joined, Mono, Spawner, TaskHandle, Timestamp};

/// The machine's clocks.
#[derive(Debug)]
struct RealClock;

impl Clock for RealClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn mono(&self) -> Mono {
        // CLOCK_BOOTTIME counts suspended time, CLOCK_MONOTONIC (where there is no other) does not.
        #[cfg(target_os = "linux")]
        const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
        #[cfg(not(target_os = "linux"))]
        const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;
        let now = clock_gettime(CLOCK).expect("the kernel always has a monotonic clock");
        Mono::new(Duration::from(now))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that really sleeps"
    )]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(duration).boxed()
    }
}

/// The kernel's randomness, by way of random UUIDs.
#[derive(Debug)]
struct RealEntropy;

impl Entropy for RealEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        // A version 4 UUID fixes six of its bits, in bytes 6 and 8; the other fourteen bytes are all chance.
        for chunk in bytes.chunks_mut(14) {
            let id = Uuid::new_v4().into_bytes();
            let free = id
                .iter()
                .enumerate()
                .filter(|(i, _)| *i != 6 && *i != 8)
                .map(|(_, byte)| *byte);
            for (to, from) in chunk.iter_mut().zip(free) {
                *to = from;
            }
        }
    }
}

/// Tasks of the running tokio runtime.
#[derive(Debug)]
struct RealSpawner;

impl Spawner for RealSpawner {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that really spawns"
    )]
    fn spawn(&self, _name: &'static str, future: BoxFuture<'static, ()>) -> TaskHandle {
        let handle = tokio::spawn(future);
        let abort = handle.abort_handle();
        let joined = async move {
            match handle.await {
                Ok(()) => Joined::Done,
                Err(error) if error.is_cancelled() => Joined::Aborted,
                Err(error) => Joined::Panicked(panic_text(error.into_panic().as_ref())),
            }
        };
        TaskHandle::new(Box::new(move || abort.abort()), joined.boxed())
    }
}

/// The text of a panic, where it has one.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}

/// The real environment. Needs a running tokio runtime when it sleeps or spawns.
#[must_use]
pub fn env() -> Env {
    Env {
        clock: Arc::new(RealClock),
        entropy: Arc::new(RealEntropy),
        spawner: Arc::new(RealSpawner),
    }
}

/// The value of the environment variable `name`; empty counts as unset, and so does text that is not Unicode.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the process environment"
)]
pub fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// All environment variables, for the environment of a task.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the process environment"
)]
pub fn vars() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

/// The folder for temporary files.
#[must_use]
pub fn temp_dir() -> PathBuf {
    std::env::temp_dir()
}

/// How many files this process may have open, where that can be told.
#[must_use]
pub fn open_files_limit() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit};
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(limit)
}

/// What names this process to people: `host/pid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessName {
    /// The machine's host name, `unknown-host` where there is none.
    pub host: String,
    /// The process id.
    pub pid: u32,
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.pid)
    }
}

/// The name of this process.
#[must_use]
pub fn process_name() -> ProcessName {
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok());
    ProcessName {
        host: host.unwrap_or_else(|| "unknown-host".to_owned()),
        pid: std::process::id(),
    }
}

/// Most characters of a login name that count: it travels in messages and rows, which have little room.
const LOGIN_CHARS_MAX: usize = 64;

/// Who acts, for records and journals: the login name of the process environment, at this host.
#[must_use]
pub fn actor() -> String {
    let user = var("USER")
        .or_else(|| var("LOGNAME"))
        .unwrap_or_else(|| "unknown".to_owned());
    let user: String = user.chars().take(LOGIN_CHARS_MAX).collect();
    format!("{user}@{}", process_name().host)
}

/// Whether the environment variable `name` is set, be it to nothing.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the process environment"
)]
pub fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}
