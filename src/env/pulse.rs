//! Whether a service turns, and what keeps it from serving, for those who watch the process from outside.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Env, Mono};

/// The longest time between two turns of a loop that is alive.
pub const TURN_MAX: Duration = Duration::from_secs(60);
/// The longest pause that a loop which turns may be told to make: a turn waits for the store, too.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often a wait that is meant counts as a turn.
const WAIT_TURNS: Duration = Duration::from_secs(10);

/// The pulse of one service: its main loop marks each turn.
#[derive(Debug)]
pub struct Pulse(Mutex<Beat>);

#[derive(Debug)]
struct Beat {
    turned_at: Mono,
    lack: Option<String>,
}

impl Pulse {
    /// The pulse of a service that begins now and does not serve yet, for want of `lack`.
    #[must_use]
    pub fn new(env: &Env, lack: &str) -> Self {
        Self(Mutex::new(Beat {
            turned_at: env.mono(),
            lack: Some(lack.to_owned()),
        }))
    }

    fn beat(&self) -> MutexGuard<'_, Beat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop has turned.
    pub fn turn(&self, env: &Env) {
        self.beat().turned_at = env.mono();
    }

    /// Waits for `over`, however long: a wait that is meant is no standstill.
    pub async fn wait<T>(&self, env: &Env, over: impl Future<Output = T>) -> T {
        tokio::pin!(over);
        loop {
            self.turn(env);
            tokio::select! {
                biased;
                out = &mut over => return out,
                () = env.sleep(WAIT_TURNS) => {}
            }
        }
    }

    /// Whether the last turn is younger than [`TURN_MAX`].
    #[must_use]
    pub fn is_alive(&self, env: &Env) -> bool {
        env.mono().since(self.beat().turned_at) < TURN_MAX
    }

    /// The service does not serve, for want of `what`.
    pub fn lacks(&self, what: impl Into<String>) {
        self.beat().lack = Some(what.into());
    }

    /// The service serves.
    pub fn lacks_nothing(&self) {
        self.beat().lack = None;
    }

    /// What keeps the service from serving.
    #[must_use]
    pub fn lack(&self) -> Option<String> {
        self.beat().lack.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::manual::ManualClock;

    #[tokio::test]
    async fn a_loop_that_does_not_turn_is_not_alive_and_one_that_waits_is() {
        let clock = ManualClock::still();
        let env = clock.env();
        let pulse = Pulse::new(&env, "starting");
        assert_eq!(pulse.lack().as_deref(), Some("starting"));
        clock.advance(TURN_MAX);
        assert!(!pulse.is_alive(&env));
        let waits = pulse.wait(&env, env.sleep(3 * TURN_MAX));
        let watches = async {
            for _ in 0..18 {
                clock.advance(WAIT_TURNS);
                tokio::task::yield_now().await;
                assert!(pulse.is_alive(&env));
            }
        };
        tokio::join!(waits, watches);
    }
}
