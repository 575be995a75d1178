//! Tries until something is stored: uploads and completions outlast an outage (P21).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tracing::{info, warn};

use super::Worker;
use super::heartbeat::{BeatError, Keeper};
use crate::protocol::ReadError;
use crate::store::{Kind, StoreError};

/// The first pause, which doubles.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How often access is denied before that counts as lasting.
const DENIED_MAX: u32 = 8;

/// How trying ended.
#[derive(Debug)]
#[must_use]
pub(super) enum Persisted {
    /// It is stored.
    Stored,
    /// It will never be.
    Refused(StoreError),
    /// The attempt is another's by now.
    Lost,
    /// Not for now: out of tries, or the worker must go.
    GivenUp,
}

/// How many things this worker fails to store at the moment; while there are any, it takes no new task.
#[derive(Debug, Default)]
pub(super) struct Trouble(AtomicUsize);

impl Trouble {
    pub(super) fn is_there(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    fn enter(&self) -> InTrouble<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        InTrouble(self)
    }
}

#[derive(Debug)]
struct InTrouble<'a>(&'a Trouble);

impl Drop for InTrouble<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Worker {
    /// Tries `store` until it succeeds, each time with the message well in hand.
    pub(super) async fn persist<F>(
        &self,
        keeper: &Keeper<'_>,
        what: &'static str,
        store: impl Fn() -> F + Sync,
    ) -> Persisted
    where
        F: Future<Output = Result<(), StoreError>> + Send,
    {
        let (mut tries, mut denied, mut pause) = (0_u32, 0_u32, PAUSE_FIRST);
        let mut trouble = None;
        loop {
            if keeper.lost.is_cancelled() {
                return Persisted::Lost;
            }
            let error = match async {
                keeper.renew().await?;
                Ok(store().await?)
            }
            .await
            {
                Ok(()) => {
                    if trouble.is_some() {
                        info!(what, tries, "stored_after_all");
                    }
                    return Persisted::Stored;
                }
                Err(BeatError::Lost) => return Persisted::Lost,
                Err(BeatError::Failed(error)) => error,
            };
            let mut asked = None;
            if let ReadError::Store(error) = &error {
                asked = error.retry_after;
                denied = if error.kind == Kind::Denied {
                    denied + 1
                } else {
                    0
                };
                if error.kind == Kind::Invalid || denied >= DENIED_MAX {
                    return Persisted::Refused(error.clone());
                }
            }
            tries += 1;
            warn!(what, tries, %error, "not_stored");
            let limit = self.config.completion_send_max_attempts;
            if self.evict.is_cancelled() || (limit != 0 && tries >= limit) {
                return Persisted::GivenUp;
            }
            trouble.get_or_insert_with(|| self.trouble.enter());
            let jittered = pause / 2 + self.env.jitter(pause / 2);
            let asked = asked.unwrap_or_default().min(PAUSE_MAX);
            self.pause(keeper, jittered.max(asked)).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// Waits; ends at once when the worker is told to stop, and from then on does not wait long.
    async fn pause(&self, keeper: &Keeper<'_>, pause: Duration) {
        let draining = self.stop.drain.is_cancelled();
        let pause = if draining {
            pause.min(PAUSE_FIRST)
        } else {
            pause
        };
        tokio::select! {
            biased;
            () = self.stop.kill.cancelled() => {}
            () = self.evict.cancelled() => {}
            () = keeper.lost.cancelled() => {}
            () = self.stop.drain.cancelled(), if !draining => {}
            () = self.env.sleep(pause) => {}
        }
    }
}
