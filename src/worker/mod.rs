//! The worker: takes task messages, keeps them hidden, runs their commands, and posts how they ended.

mod capture;
mod config;
mod environment;
mod executor;
mod files;
mod process;

use crate::env::{Env, Mono};
use std::time::Duration;

pub use config::{Config, ConfigError};
pub use executor::{End, Execution, Executor, Job, OUTPUT_BYTES_MAX, Signals, Written};
pub use process::ProcessExecutor;

/// Completes at `deadline`, soon also if the machine slept meanwhile: one long sleep would not see that.
async fn sleep_until(env: &Env, deadline: Mono) {
    const PIECE: Duration = Duration::from_secs(5);
    loop {
        let left = deadline.since(env.mono());
        if left.is_zero() {
            return;
        }
        env.sleep(left.min(PIECE)).await;
    }
}
