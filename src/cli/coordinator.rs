//! `workflow coordinator`

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::args::{address, switch};
use super::error::CliError;
use super::exit::Exit;
use super::health::Probe;
use super::open::{self, Opened};
use super::seconds::{seconds, some_seconds};
use super::signals::Interrupts;
use super::{Context, Outcome};
use crate::coordinator::{
    self, Config, CoordinatorError, MAX_OUTSTANDING_AZURE, MAX_OUTSTANDING_EMULATOR,
};
use crate::env::Pulse;
use crate::env::real::{actor, process_name};
use crate::store::layers::health::Health;

/// Arguments of `coordinator`. Each can be given as `WORKFLOW_COORDINATOR_…` too.
#[derive(Debug, clap::Args)]
pub(super) struct CoordinatorArgs {
    /// Most messages of one receive
    #[arg(long, env = "WORKFLOW_COORDINATOR_BATCH_SIZE", value_name = "N", default_value_t = 32,
        value_parser = clap::value_parser!(u8).range(1..=32))]
    batch_size: u8,
    /// How long a received completion stays hidden from others, in seconds
    #[arg(long, env = "WORKFLOW_COORDINATOR_VISIBILITY_TIMEOUT_S", value_name = "S", default_value = "60",
        value_parser = some_seconds)]
    visibility_timeout_s: Duration,
    /// The wait after a receive that found nothing, in seconds, at most 30
    #[arg(long, env = "WORKFLOW_COORDINATOR_IDLE_SLEEP_S", value_name = "S", default_value = "0.5",
        value_parser = some_seconds)]
    idle_sleep_s: Duration,
    /// How often cancel requests on index rows are looked for, in seconds
    #[arg(long, env = "WORKFLOW_COORDINATOR_CANCEL_POLL_INTERVAL_S", value_name = "S", default_value = "1",
        value_parser = some_seconds)]
    cancel_poll_interval_s: Duration,
    /// How long a cancel, or a stop after a failure, waits for workers to answer, in seconds
    #[arg(long, env = "WORKFLOW_COORDINATOR_CANCEL_GRACE_S", value_name = "S", default_value = "90",
        value_parser = seconds)]
    cancel_grace_s: Duration,
    /// How often new workflows are looked for, besides being told of them, in seconds
    #[arg(long, env = "WORKFLOW_COORDINATOR_ACTIVATION_SWEEP_INTERVAL_S", value_name = "S", default_value = "10",
        value_parser = some_seconds)]
    activation_sweep_interval_s: Duration,
    /// How often a state write that met a rival is tried again after the first try
    #[arg(
        long,
        env = "WORKFLOW_COORDINATOR_FLUSH_RETRY_LIMIT",
        value_name = "N",
        default_value_t = 2
    )]
    flush_retry_limit: u32,
    /// How often ready tasks are looked over, in seconds
    #[arg(long, env = "WORKFLOW_COORDINATOR_READY_SWEEP_INTERVAL_S", value_name = "S", default_value = "60",
        value_parser = some_seconds)]
    ready_sweep_interval_s: Duration,
    /// How long a ready task may go unsent before it is sent again, in seconds
    #[arg(long, env = "WORKFLOW_COORDINATOR_READY_REPAIR_THRESHOLD_S", value_name = "S", default_value = "300",
        value_parser = some_seconds)]
    ready_repair_threshold_s: Duration,
    /// How long everything must speak for a task message being gone before its task is sent again, in seconds
    #[arg(long, env = "WORKFLOW_COORDINATOR_LOST_DISPATCH_THRESHOLD_S", value_name = "S", default_value = "300",
        value_parser = some_seconds)]
    lost_dispatch_threshold_s: Duration,
    /// Most messages sent and unfinished for each task queue; 0: no limit [default: 256 on the emulator, 20000 on Azure]
    #[arg(long, env = "WORKFLOW_COORDINATOR_MAX_OUTSTANDING", value_name = "N")]
    max_outstanding: Option<u32>,
    /// The length of the lease, 15 to 60 seconds
    #[arg(long, env = "WORKFLOW_COORDINATOR_LEASE_DURATION_S", value_name = "S", default_value = "60",
        value_parser = some_seconds)]
    lease_duration_s: Duration,
    /// Take the lease from whoever holds it, once
    #[arg(long, env = "WORKFLOW_COORDINATOR_BREAK_LEASE", value_parser = switch())]
    break_lease: bool,
    /// Wait while another coordinator leads, and take over when it is gone
    #[arg(long, env = "WORKFLOW_COORDINATOR_STANDBY", value_parser = switch())]
    standby: bool,
    /// How often statistics are logged, in seconds
    #[arg(long, env = "WORKFLOW_COORDINATOR_STATS_INTERVAL_S", value_name = "S", default_value = "10",
        value_parser = some_seconds)]
    stats_interval_s: Duration,
    /// Answer `/health/live` and `/health/ready` over HTTP at this address, as `127.0.0.1:8080`; port 0: any
    #[arg(long, env = "WORKFLOW_COORDINATOR_LISTEN", value_name = "ADDR:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
}

impl CoordinatorArgs {
    fn config(&self, on_emulator: bool) -> Config {
        let usual = if on_emulator {
            MAX_OUTSTANDING_EMULATOR
        } else {
            MAX_OUTSTANDING_AZURE
        };
        let max_outstanding = self.max_outstanding.unwrap_or(usual);
        Config {
            holder: process_name().to_string(),
            actor: actor(),
            batch_size: self.batch_size,
            visibility_timeout: self.visibility_timeout_s,
            idle_sleep: self.idle_sleep_s,
            cancel_poll_interval: self.cancel_poll_interval_s,
            cancel_grace: self.cancel_grace_s,
            activation_sweep_interval: self.activation_sweep_interval_s,
            flush_retry_limit: self.flush_retry_limit,
            ready_sweep_interval: self.ready_sweep_interval_s,
            ready_repair_threshold: self.ready_repair_threshold_s,
            lost_dispatch_threshold: self.lost_dispatch_threshold_s,
            max_outstanding: (max_outstanding > 0).then_some(max_outstanding),
            lease_duration: self.lease_duration_s,
            break_lease: self.break_lease,
            standby: self.standby,
            stats_interval: self.stats_interval_s,
            ..Config::default()
        }
    }
}

/// Coordinates until a signal: the first ends it in order, the second at once.
pub(super) async fn coordinator(context: &mut Context, args: CoordinatorArgs) -> Outcome {
    let Opened {
        store,
        layout,
        config: azure,
    } = open::open(context)?;
    let config = args.config(azure.is_emulator());
    config.validate().map_err(|error| {
        CliError::usage(error.to_string()).help("see `workflow coordinator --help`")
    })?;
    open::warn_of_end(context, &azure);
    let interrupts = Interrupts::listen(&context.env)?;
    let env = context.env.clone();
    let stop = interrupts.first.clone();
    let (store, health) = Health::wrap(store, env.clone());
    let pulse = Arc::new(Pulse::new(&env, "leadership: not taken yet"));
    let probe = Probe {
        env: env.clone(),
        pulse: pulse.clone(),
        store: health,
        stopping: stop.clone(),
    };
    probe.listen(args.listen).await?;
    let patient = open::patient(context, &store);
    tokio::select! {
        made = pulse.wait(&env, layout.create(&patient)) => made?,
        // Nothing has begun, so it ends in order.
        () = stop.cancelled() => return Ok(Exit::Ok),
    }
    let ended = tokio::select! {
        ended = coordinator::run(env.clone(), store, layout, config, pulse.clone(), stop) => ended,
        () = interrupts.second.cancelled() => return Ok(interrupts.exit()),
    };
    ended.map_err(told)?;
    Ok(Exit::Ok)
}

fn told(error: CoordinatorError) -> CliError {
    let message = error.to_string();
    match error {
        CoordinatorError::Config(_) => CliError::usage(message),
        CoordinatorError::Held(_) => CliError::new(Exit::OtherLeader, message)
            .help("wait for its end with `--standby`, or take over with `--break-lease`"),
        CoordinatorError::Superseded(_) => {
            CliError::new(Exit::OtherLeader, message).help("run `workflow doctor` to see who leads")
        }
        CoordinatorError::Stalled => {
            CliError::internal(message).help("start it again; its log tells what it waited for")
        }
        CoordinatorError::Read(error) => error.into(),
    }
}
