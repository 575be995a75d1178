//! Our own retry loop, for callers that can wait.
//!
//! Invariants:
//! 1. Only what was certainly not carried out is sent again ([`StoreError::is_transient`]); an [`Kind::Ambiguous`](crate::store::Kind)
//!    write goes back to the caller, who looks before it repeats.
//! 2. No try starts later than [`Policy::limit`] after the first.
//! 3. The service's wish to wait is respected up to [`RETRY_AFTER_MAX`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff;
use futures::future::BoxFuture;

use super::{Call, Layer, Weight, wrap};
use crate::env::Env;
use crate::store::{Result, Store, StoreError};

/// The longest wait that a service can ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// How patient a caller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// About the first pause; each further one is twice as long. Half of each is chance.
    pub first: Duration,
    /// The longest pause of our own.
    pub longest: Duration,
    /// From the first try to the start of the last one.
    pub limit: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            longest: Duration::from_secs(10),
            limit: Duration::from_secs(60),
        }
    }
}

impl Policy {
    /// The default pauses, for `limit` in all.
    #[must_use]
    pub fn within(limit: Duration) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// The pauses of this policy, without chance and without end: time and chance come from [`Env`].
    fn pauses(self) -> ExponentialBackoff {
        ExponentialBackoff {
            current_interval: self.first,
            initial_interval: self.first,
            randomization_factor: 0.0,
            multiplier: 2.0,
            max_interval: self.longest,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        }
    }
}

/// Repeats requests that met a passing obstacle.
#[derive(Debug)]
pub struct Retry {
    env: Env,
    policy: Policy,
    /// Somebody was told that requests are repeated.
    is_told: AtomicBool,
}

impl Retry {
    /// `store`, whose requests are repeated as `policy` says.
    #[must_use]
    pub fn wrap(store: Store, env: Env, policy: Policy) -> Store {
        let is_told = AtomicBool::new(false);
        wrap(
            store,
            Arc::new(Self {
                env,
                policy,
                is_told,
            }),
        )
    }

    /// How long to wait after `error`.
    fn pause(&self, pauses: &mut ExponentialBackoff, error: &StoreError) -> Duration {
        let half = pauses.next_backoff().unwrap_or(self.policy.longest) / 2;
        let own = half + self.env.jitter(half);
        let asked = error.retry_after.unwrap_or_default();
        if asked > RETRY_AFTER_MAX {
            tracing::warn!(
                operation = error.operation,
                asked_s = asked.as_secs(),
                capped_s = RETRY_AFTER_MAX.as_secs(),
                "retry_after_capped"
            );
        }
        own.max(asked.min(RETRY_AFTER_MAX))
    }
}

impl Layer for Retry {
    async fn around<'a, T: Weight>(
        &'a self,
        _call: Call<'a>,
        send: impl Fn() -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    ) -> Result<T> {
        let start = self.env.mono();
        let mut pauses = None;
        loop {
            let error = match send().await {
                Err(error) if error.is_transient() => error,
                done => return done,
            };
            let pauses = pauses.get_or_insert_with(|| self.policy.pauses());
            let pause = self.pause(pauses, &error);
            let passed = self.env.mono().since(start);
            if passed + pause > self.policy.limit {
                return Err(error);
            }
            if self.is_told.swap(true, Ordering::Relaxed) {
                tracing::debug!(%error, pause_ms = pause.as_millis(), "request_repeated");
            } else {
                let limit_s = self.policy.limit.as_secs();
                tracing::warn!(%error, "not reachable, trying again for {limit_s} s");
            }
            self.env.sleep(pause).await;
        }
    }
}
