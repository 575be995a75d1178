//! Posts results: those that end while one is on its way share the next message (P24).
//!
//! Invariants:
//! 1. Each result is in exactly one message on its way; its handler learns how that one ended, and no handler waits for the result of
//!    another to be judged: what the service refuses as a whole is sent one by one.
//! 2. Nobody's result waits longer than [`LINGER`] plus [`SLOW`] before it is on its way.
//! 3. A result whose attempt was lost meanwhile is not sent (P20).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::env::Env;
use crate::protocol::{Layout, send};
use crate::record::{CompletionRecord, CompletionResult, encode_message};
use crate::store::{Kind, MESSAGE_BYTES_MAX, Result as StoreResult, Store, StoreError};

/// Bytes of JSON that a message takes: base64 adds a third.
const JSON_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 4 * 3;
/// Bytes of a message around its results.
const AROUND: usize = 64;
/// The longest wait for others that end just now: as long as a message takes, only after one that was shared, and not where those in line
/// fill a message.
const LINGER: Duration = Duration::from_millis(20);
/// A message that is on its way for longer holds up no other.
const SLOW: Duration = Duration::from_secs(1);

/// A result that waits to be posted.
#[derive(Debug)]
struct Waiting {
    result: CompletionResult,
    /// Its JSON with the comma behind it.
    bytes: usize,
    lost: CancellationToken,
    told: oneshot::Sender<StoreResult<()>>,
}

#[derive(Debug, Default)]
struct Inside {
    line: Vec<Waiting>,
    /// Somebody takes what stands in line.
    is_served: bool,
    /// The last message carried several results.
    was_shared: bool,
    /// What the last message took.
    took: Duration,
}

impl Inside {
    /// How many of those in line fit into one message, and whether that leaves it no room.
    fn fits(&self, results_max: usize) -> (usize, bool) {
        let mut bytes = AROUND;
        let mut fits = 0;
        for waiting in self.line.iter().take(results_max) {
            bytes += waiting.bytes;
            if bytes > JSON_BYTES_MAX && fits > 0 {
                break;
            }
            fits += 1;
        }
        (fits, fits == results_max || fits < self.line.len())
    }

    fn linger(&self, results_max: usize) -> Duration {
        let (_, is_full) = self.fits(results_max);
        if self.was_shared && !is_full {
            LINGER.min(self.took)
        } else {
            Duration::ZERO
        }
    }
}

/// Posts the results of one worker.
#[derive(Debug)]
pub(super) struct Poster {
    env: Env,
    store: Store,
    layout: Layout,
    results_max: usize,
    inside: Mutex<Inside>,
    /// Those in line fill a message.
    filled: Notify,
}

impl Poster {
    pub(super) fn new(env: &Env, store: &Store, layout: &Layout, results_max: usize) -> Arc<Self> {
        Arc::new(Self {
            env: env.clone(),
            store: store.clone(),
            layout: layout.clone(),
            results_max,
            inside: Mutex::default(),
            filled: Notify::new(),
        })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a result, unless `lost` is set before it is on its way.
    ///
    /// # Errors
    /// As [`send`]; [`Kind::Unavailable`] too for what was not sent.
    pub(super) async fn post(
        self: &Arc<Self>,
        result: CompletionResult,
        lost: &CancellationToken,
    ) -> StoreResult<()> {
        let bytes = serde_json::to_vec(&result).map_or(JSON_BYTES_MAX, |json| json.len() + 1);
        let (told, answer) = oneshot::channel();
        let lost = lost.clone();
        let begins = self.stand(Waiting {
            result,
            bytes,
            lost,
            told,
        });
        if begins {
            let poster = Arc::clone(self);
            drop(
                self.env
                    .spawn("poster", async move { poster.serve().await }),
            );
        }
        // Without an answer it is not known what became of it.
        answer
            .await
            .unwrap_or_else(|_dropped| Err(self.error(Kind::Ambiguous, "no answer")))
    }

    /// Stands in line; true where nobody serves it yet.
    fn stand(&self, waiting: Waiting) -> bool {
        let mut inside = self.inside();
        inside.line.push(waiting);
        if inside.fits(self.results_max).1 {
            self.filled.notify_waiters();
        }
        !std::mem::replace(&mut inside.is_served, true)
    }

    fn error(&self, kind: Kind, why: &str) -> StoreError {
        let what = format!("send to {}", self.layout.completions());
        StoreError::new(kind, what, why)
    }

    /// Sends what stands in line, until nothing does.
    async fn serve(self: Arc<Self>) {
        loop {
            // From here on no word is missed.
            let filled = self.filled.notified();
            let linger = self.inside().linger(self.results_max);
            if !linger.is_zero() {
                tokio::select! {
                    biased;
                    () = filled => {}
                    () = self.env.sleep(linger) => {}
                }
            }
            let Some((batch, is_full)) = self.next_batch() else {
                return;
            };
            let poster = Arc::clone(&self);
            let sending = self
                .env
                .spawn("post", async move { poster.send(batch).await });
            // Who waits shares the next message, which a full one need not be waited for. It goes on where this does not wait for its end.
            if !is_full {
                let began = self.env.mono();
                self.env.timeout(SLOW, sending.join()).await.ok();
                self.inside().took = self.env.mono().since(began);
            }
        }
    }

    /// Takes from the line what fits into one message, and tells whether that is full; none, and nobody serves any more, where the line is
    /// empty.
    fn next_batch(&self) -> Option<(Vec<Waiting>, bool)> {
        let mut inside = self.inside();
        let (gone, line) = std::mem::take(&mut inside.line)
            .into_iter()
            .partition::<Vec<_>, _>(|waiting| waiting.lost.is_cancelled());
        inside.line = line;
        let (fits, is_full) = inside.fits(self.results_max);
        let batch: Vec<_> = inside.line.drain(..fits).collect();
        inside.was_shared = batch.len() > 1;
        inside.is_served = !batch.is_empty();
        drop(inside);
        for Waiting { told, .. } in gone {
            told.send(Err(self.error(Kind::Unavailable, "lost meanwhile")))
                .ok();
        }
        (!batch.is_empty()).then_some((batch, is_full))
    }

    async fn send(&self, batch: Vec<Waiting>) {
        let results = batch.iter().map(|waiting| waiting.result.clone());
        let sent = self.send_results(results.collect()).await;
        let is_refused = sent
            .as_ref()
            .is_err_and(|error| error.kind == Kind::Invalid);
        let is_shared = batch.len() > 1;
        for Waiting { result, told, .. } in batch {
            let sent = if is_refused && is_shared {
                self.send_results(vec![result]).await
            } else {
                sent.clone()
            };
            // Whoever waits no more was told to go.
            told.send(sent).ok();
        }
    }

    async fn send_results(&self, results: Vec<CompletionResult>) -> StoreResult<()> {
        let count = results.len();
        let body = encode_message(&CompletionRecord::of_results(results));
        debug!(count, bytes = body.len(), "posting");
        send(
            &self.store,
            self.layout.completions(),
            &body,
            Duration::ZERO,
        )
        .await
    }
}

#[cfg(test)]
mod tests;
