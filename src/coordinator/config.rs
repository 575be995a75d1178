//! What can be set about a coordinator.

use std::time::Duration;

use crate::env::PAUSE_MAX;
use crate::record::Limits;

/// Settings of a coordinator. The command line fills it; [`Config::default`] holds the documented defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Its name for people, as `host/pid`.
    pub holder: String,
    /// Who started it, for the journal, as `user@host`.
    pub actor: String,
    /// Most messages of one receive (1–32).
    pub batch_size: u8,
    /// How long a received completion stays invisible to others.
    pub visibility_timeout: Duration,
    /// The wait after a receive that found nothing.
    pub idle_sleep: Duration,
    /// How often cancel requests on rows are looked for while workflows are held.
    pub cancel_poll_interval: Duration,
    /// How long a cancel waits for workers to answer.
    pub cancel_grace: Duration,
    /// How often unfinished workflows that are not held are looked for.
    pub activation_sweep_interval: Duration,
    /// How often a state write that met a rival is tried again after the first try.
    pub flush_retry_limit: u32,
    /// How often ready tasks are looked over.
    pub ready_sweep_interval: Duration,
    /// How long a ready task may go unsent before it is sent again.
    pub ready_repair_threshold: Duration,
    /// How long everything must speak for a task message being gone before its task is sent again; doubles with each time.
    pub lost_dispatch_threshold: Duration,
    /// Most messages sent and unfinished per task queue; none: no limit.
    pub max_outstanding: Option<u32>,
    /// Length of the lease (15–60 s).
    pub lease_duration: Duration,
    /// Whether to take the lease from whoever holds it, once.
    pub break_lease: bool,
    /// Whether to wait while another leads.
    pub standby: bool,
    /// How often statistics are logged.
    pub stats_interval: Duration,
    /// Where the layout of a state changes.
    pub state_limits: Limits,
}

/// Most messages sent and unfinished per queue where nothing is set, on the emulator: its cost per request grows with them.
pub const MAX_OUTSTANDING_EMULATOR: u32 = 256;
/// The same on Azure.
pub const MAX_OUTSTANDING_AZURE: u32 = 20_000;

impl Default for Config {
    fn default() -> Self {
        Self {
            holder: "unnamed".to_owned(),
            actor: "unnamed".to_owned(),
            batch_size: 32,
            visibility_timeout: Duration::from_secs(60),
            idle_sleep: Duration::from_millis(500),
            cancel_poll_interval: Duration::from_secs(1),
            cancel_grace: Duration::from_secs(90),
            activation_sweep_interval: Duration::from_secs(10),
            flush_retry_limit: 2,
            ready_sweep_interval: Duration::from_secs(60),
            ready_repair_threshold: Duration::from_secs(300),
            lost_dispatch_threshold: Duration::from_secs(300),
            max_outstanding: None,
            lease_duration: Duration::from_secs(60),
            break_lease: false,
            standby: false,
            stats_interval: Duration::from_secs(10),
            state_limits: Limits::default(),
        }
    }
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`--{flag}` {rule}")]
pub struct ConfigError {
    /// The flag, without dashes.
    pub flag: &'static str,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl Config {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let second = Duration::from_secs(1);
        let lease = Duration::from_secs(15)..=Duration::from_secs(60);
        let rules = [
            (
                (1..=32).contains(&self.batch_size),
                "batch-size",
                "must be from 1 to 32",
            ),
            (
                self.visibility_timeout >= second,
                "visibility-timeout-s",
                "must be at least 1",
            ),
            (
                lease.contains(&self.lease_duration),
                "lease-duration-s",
                "must be from 15 to 60",
            ),
            (
                self.lease_duration.subsec_nanos() == 0,
                "lease-duration-s",
                "must be a whole number of seconds",
            ),
            (
                !self.idle_sleep.is_zero() && self.idle_sleep <= PAUSE_MAX,
                "idle-sleep-s",
                "must be more than 0 and at most 30",
            ),
            (
                !self.cancel_poll_interval.is_zero(),
                "cancel-poll-interval-s",
                "must be more than 0",
            ),
            (
                !self.activation_sweep_interval.is_zero(),
                "activation-sweep-interval-s",
                "must be more than 0",
            ),
            (
                !self.ready_sweep_interval.is_zero(),
                "ready-sweep-interval-s",
                "must be more than 0",
            ),
            (
                !self.lost_dispatch_threshold.is_zero(),
                "lost-dispatch-threshold-s",
                "must be more than 0",
            ),
            (
                !self.stats_interval.is_zero(),
                "stats-interval-s",
                "must be more than 0",
            ),
        ];
        match rules.into_iter().find(|(kept, _, _)| !kept) {
            Some((_, flag, rule)) => Err(ConfigError { flag, rule }),
            None => Ok(()),
        }
    }
}
