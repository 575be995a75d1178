//! What a worker is told at its start. The command line's flags fill it in.

use std::time::Duration;

use crate::definition::QueueName;
use crate::env::PAUSE_MAX;
use crate::env::real::{ProcessName, process_name};

/// Time kept between the end of a stopped process and the end of its message's visibility.
const SAFETY_MARGIN: Duration = Duration::from_secs(15);
/// With fewer, what was delivered twice and never started would fail.
const DELIVERIES_MIN: u32 = 2;
/// Most results that share a message.
pub const RESULTS_PER_MESSAGE: usize = 64;

/// The settings of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `--queue`: the queues it takes tasks from, fairly. At least one.
    pub queues: Vec<QueueName>,
    /// `--slots`: tasks run at once. At least one.
    pub slots: u16,
    /// `--visibility-timeout-s`: how long a message stays hidden without a heartbeat.
    pub visibility: Duration,
    /// `--heartbeat-interval-s`: the pause between heartbeats; the first comes after 5 s at most.
    pub heartbeat_interval: Duration,
    /// `--cancel-poll-interval-s`: how often the cancel flag of a workflow is read.
    pub cancel_poll_interval: Duration,
    /// `--completion-send-max-attempts`: tries to post a completion before its message is left to come back; 0 for ever.
    pub completion_send_max_attempts: u32,
    /// Most results that share a message: [`RESULTS_PER_MESSAGE`].
    pub results_per_message: usize,
    /// `--max-deliveries`: starts of one attempt before it fails for good. At least 2: a message that was delivered before counts as started
    /// before, though nobody may have come to that.
    pub max_deliveries: u32,
    /// `--max-interruptions`: how often one attempt may be interrupted before it fails.
    pub max_interruptions: u32,
    /// `--drain-timeout-s`: how long running tasks may go on after the first signal.
    pub drain_timeout: Duration,
    /// `--kill-grace-s`: the time a task has between the request to end and the force.
    pub kill_grace: Duration,
    /// `--max-idle-backoff-s`: the longest pause between two looks at empty queues.
    pub max_idle_backoff: Duration,
    /// `--idle-timeout-s`: ends the worker when it had nothing to do for so long.
    pub idle_timeout: Option<Duration>,
    /// `--pass-env`: variables of the worker's environment that tasks see although they would be kept back.
    pub pass_env: Vec<String>,
    /// What names this worker in claims and results.
    pub name: ProcessName,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queues: vec![QueueName::new("default").expect("a legal name")],
            slots: 1,
            visibility: Duration::from_secs(60),
            heartbeat_interval: Duration::from_secs(20),
            cancel_poll_interval: Duration::from_secs(30),
            completion_send_max_attempts: 60,
            results_per_message: RESULTS_PER_MESSAGE,
            max_deliveries: 5,
            max_interruptions: 50,
            drain_timeout: Duration::from_secs(30),
            kill_grace: Duration::from_secs(10),
            max_idle_backoff: Duration::from_secs(5),
            idle_timeout: None,
            pass_env: Vec::new(),
            name: process_name(),
        }
    }
}

/// A setting that a worker cannot keep its promises with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{flag}` {rule}")]
pub struct ConfigError {
    /// The flag to change.
    pub flag: &'static str,
    /// The rule it breaks, with the values at hand.
    pub rule: String,
}

impl Config {
    /// Checks what settings demand of each other.
    ///
    /// # Errors
    /// The first flag that breaks a rule.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let secs = Duration::as_secs_f64;
        let (beat, hidden) = (self.heartbeat_interval, self.visibility);
        let latest = hidden.saturating_sub(self.kill_grace + SAFETY_MARGIN);
        let week = crate::store::VISIBILITY_MAX;
        let refuse = |flag, rule: String| Err(ConfigError { flag, rule });
        if self.queues.is_empty() {
            return refuse("--queue", "must name at least one queue".to_owned());
        }
        if self.slots == 0 {
            return refuse("--slots", "must be at least 1".to_owned());
        }
        if hidden.subsec_nanos() != 0 || hidden.is_zero() || hidden > week {
            let rule = "must be whole seconds, from 1 s to 7 days".to_owned();
            return refuse("--visibility-timeout-s", rule);
        }
        if beat.is_zero() || beat >= hidden / 2 {
            let rule = format!(
                "must be above 0 and below half of `--visibility-timeout-s`: {} s is not below {} s",
                secs(&beat),
                secs(&(hidden / 2)),
            );
            return refuse("--heartbeat-interval-s", rule);
        }
        if beat >= latest {
            let rule = format!(
                "must be below `--visibility-timeout-s` less `--kill-grace-s` less {} s: {} s is not below {} s",
                SAFETY_MARGIN.as_secs(),
                secs(&beat),
                secs(&latest),
            );
            return refuse("--heartbeat-interval-s", rule);
        }
        if self.cancel_poll_interval.is_zero() {
            return refuse("--cancel-poll-interval-s", "must be above 0".to_owned());
        }
        if self.max_deliveries < DELIVERIES_MIN {
            let rule = format!("must be at least {DELIVERIES_MIN}");
            return refuse("--max-deliveries", rule);
        }
        if self.max_idle_backoff.is_zero() || self.max_idle_backoff > PAUSE_MAX {
            let rule = format!("must be above 0 and at most {}", PAUSE_MAX.as_secs());
            return refuse("--max-idle-backoff-s", rule);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.validate().expect_err("breaks a rule").to_string()
    }

    #[test]
    fn the_defaults_keep_every_rule() {
        Config::default().validate().expect("legal");
    }

    #[test]
    fn a_heartbeat_that_could_come_too_late_is_refused_with_flag_and_rule() {
        let half = refused(|config| config.heartbeat_interval = Duration::from_secs(30));
        assert!(half.contains("--heartbeat-interval-s") && half.contains("half"));
        let grace = refused(|config| config.kill_grace = Duration::from_secs(25));
        assert!(grace.contains("--kill-grace-s") && grace.contains("20 s is not below 20 s"));
    }

    #[test]
    fn settings_that_mean_nothing_are_refused() {
        assert!(refused(|config| config.queues.clear()).contains("--queue"));
        assert!(refused(|config| config.slots = 0).contains("--slots"));
        let pause = |config: &mut Config| config.max_idle_backoff = Duration::from_secs(31);
        assert!(refused(pause).contains("at most 30"));
    }

    #[test]
    fn a_limit_of_starts_that_fails_what_never_started_is_refused() {
        for few in [0, 1] {
            let refused = refused(|config| config.max_deliveries = few);
            assert!(refused.contains("`--max-deliveries` must be at least 2"));
        }
        let two = Config {
            max_deliveries: 2,
            ..Config::default()
        };
        two.validate().expect("legal");
    }
}
