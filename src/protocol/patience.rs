//! Waiting out what passes by itself: throttling and outages.

use std::future::Future;
use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::store::StoreError;

/// The longest pause between two tries.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Growing pauses with chance in them, never above [`PAUSE_MAX`].
#[derive(Debug)]
pub struct Pauses {
    curve: ExponentialBackoff,
}

impl Pauses {
    /// Pauses that begin at `first` and double.
    #[must_use]
    pub fn from(first: Duration) -> Self {
        // The chance comes from `Env`, so that a seed replays it; and there is no end: what ends the tries is the caller's affair.
        let curve = ExponentialBackoff {
            current_interval: first,
            initial_interval: first,
            randomization_factor: 0.0,
            multiplier: 2.0,
            max_interval: PAUSE_MAX,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        Self { curve }
    }

    /// The next pause: at least what the service asked for (up to [`PAUSE_MAX`]), else half to all of the curve's value.
    pub fn next(&mut self, env: &Env, asked: Option<Duration>) -> Duration {
        let full = self.curve.next_backoff().unwrap_or(PAUSE_MAX);
        let drawn = full / 2 + env.jitter(full / 2);
        drawn.max(asked.unwrap_or_default()).min(PAUSE_MAX)
    }

    /// Begins again with the first pause.
    pub fn reset(&mut self) {
        self.curve.reset();
    }
}

/// Runs `operation` until it succeeds, fails for another reason than a passing one, or `hurry` is set.
///
/// # Errors
/// The last error.
pub async fn patiently<T, F>(
    env: &Env,
    hurry: &CancellationToken,
    mut operation: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pauses = Pauses::from(Duration::from_millis(200));
    loop {
        match operation().await {
            Err(error) if error.is_transient() && !hurry.is_cancelled() => {
                let pause = pauses.next(env, error.retry_after);
                tracing::debug!(error = %error, pause_ms = pause.as_millis(), "store_busy");
                tokio::select! {
                    biased;
                    () = env.sleep(pause) => {}
                    () = hurry.cancelled() => {}
                }
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::real;

    #[test]
    fn a_pause_is_what_the_service_asks_for_up_to_half_a_minute() {
        let (env, first) = (real::env(), Duration::from_millis(100));
        for (asked_s, pause_s) in [(20, 20), (86_400, 30)] {
            let asked = Some(Duration::from_secs(asked_s));
            let pause = Pauses::from(first).next(&env, asked);
            assert_eq!(pause, Duration::from_secs(pause_s));
        }
        let pause = Pauses::from(first).next(&env, None);
        assert!((first / 2..=first).contains(&pause), "{pause:?}");
    }
}
