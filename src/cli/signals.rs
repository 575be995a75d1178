//! Signals as two requests: to end in order, and to end at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use super::exit::Exit;
use crate::env::Env;

/// What signals have asked for so far.
#[derive(Debug, Clone)]
pub(super) struct Interrupts {
    /// The first signal: end in order.
    pub(super) first: CancellationToken,
    /// The second: end at once.
    pub(super) second: CancellationToken,
    last: Arc<AtomicU8>,
}

impl Interrupts {
    /// Listens to SIGTERM, SIGINT and SIGHUP from now on.
    pub(super) fn listen(env: &Env) -> Result<Self, CliError> {
        let open = |kind: SignalKind| signal(kind).context("signals cannot be heard");
        let (mut term, mut int, mut hup) = (
            open(SignalKind::terminate())?,
            open(SignalKind::interrupt())?,
            open(SignalKind::hangup())?,
        );
        let interrupts = Self {
            first: CancellationToken::new(),
            second: CancellationToken::new(),
            last: Arc::new(AtomicU8::new(0)),
        };
        let Self {
            first,
            second,
            last,
        } = interrupts.clone();
        drop(env.spawn("signals", async move {
            loop {
                let number = next(&mut term, &mut int, &mut hup).await;
                last.store(number, Ordering::Relaxed);
                if first.is_cancelled() {
                    second.cancel();
                    tracing::warn!(signal = number, "stopping_at_once");
                } else {
                    first.cancel();
                    tracing::info!(signal = number, "stopping");
                }
            }
        }));
        Ok(interrupts)
    }

    /// The exit of a process that a signal ended before it was done.
    pub(super) fn exit(&self) -> Exit {
        Exit::Signal(self.last.load(Ordering::Relaxed))
    }
}

/// The number of the next signal.
async fn next(term: &mut Signal, int: &mut Signal, hup: &mut Signal) -> u8 {
    tokio::select! {
        _ = term.recv() => 15,
        _ = int.recv() => 2,
        _ = hup.recv() => 1,
    }
}
