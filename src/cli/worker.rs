//! `workflow worker`

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::args::{address, queue_name};
use super::error::CliError;
use super::exit::Exit;
use super::health::Probe;
use super::open::{self, Opened};
use super::seconds::{seconds, some_seconds};
use super::signals::Interrupts;
use super::{Context, Outcome};
use crate::definition::QueueName;
use crate::env::real::{open_files_limit, process_name};
use crate::env::{Env, Pulse};
use crate::protocol::Layout;
use crate::store::Store;
use crate::store::layers::health::Health;
use crate::worker::{self, Config, Observer, ProcessExecutor, RESULTS_PER_MESSAGE, Stop};

/// Arguments of `worker`. Each can be given as `WORKFLOW_WORKER_…` too.
#[derive(Debug, clap::Args)]
pub(super) struct WorkerArgs {
    /// A queue to take tasks from; may be given several times, in the variable with commas between
    #[arg(
        long,
        env = "WORKFLOW_WORKER_QUEUE",
        value_name = "QUEUE",
        default_value = "default",
        value_delimiter = ',',
        value_parser = queue_name
    )]
    queue: Vec<QueueName>,
    /// Tasks run at once
    #[arg(long, env = "WORKFLOW_WORKER_SLOTS", value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..))]
    slots: u16,
    /// How long a task stays hidden from other workers without a heartbeat, in seconds
    #[arg(long, env = "WORKFLOW_WORKER_VISIBILITY_TIMEOUT_S", value_name = "S", default_value = "60",
        value_parser = some_seconds)]
    visibility_timeout_s: Duration,
    /// The pause between heartbeats, in seconds; below half the visibility time-out
    #[arg(long, env = "WORKFLOW_WORKER_HEARTBEAT_INTERVAL_S", value_name = "S", default_value = "20",
        value_parser = some_seconds)]
    heartbeat_interval_s: Duration,
    /// How often the cancel flag of a workflow is read, in seconds
    #[arg(long, env = "WORKFLOW_WORKER_CANCEL_POLL_INTERVAL_S", value_name = "S", default_value = "30",
        value_parser = some_seconds)]
    cancel_poll_interval_s: Duration,
    /// Tries to post how a task ended before its message is left to come back; 0: for ever
    #[arg(
        long,
        env = "WORKFLOW_WORKER_COMPLETION_SEND_MAX_ATTEMPTS",
        value_name = "N",
        default_value_t = 60
    )]
    completion_send_max_attempts: u32,
    /// Starts of one attempt before it fails for good; at least 2, since what was delivered before counts as started before
    #[arg(long, env = "WORKFLOW_WORKER_MAX_DELIVERIES", value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(2..))]
    max_deliveries: u32,
    /// Interruptions of one attempt before it fails
    #[arg(
        long,
        env = "WORKFLOW_WORKER_MAX_INTERRUPTIONS",
        value_name = "N",
        default_value_t = 50
    )]
    max_interruptions: u32,
    /// How long running tasks may go on after the first signal, in seconds
    #[arg(long, env = "WORKFLOW_WORKER_DRAIN_TIMEOUT_S", value_name = "S", default_value = "30",
        value_parser = seconds)]
    drain_timeout_s: Duration,
    /// The time between SIGTERM and SIGKILL for a task, in seconds
    #[arg(long, env = "WORKFLOW_WORKER_KILL_GRACE_S", value_name = "S", default_value = "10",
        value_parser = seconds)]
    kill_grace_s: Duration,
    /// The longest pause between two looks at empty queues, in seconds, at most 30
    #[arg(long, env = "WORKFLOW_WORKER_MAX_IDLE_BACKOFF_S", value_name = "S", default_value = "5",
        value_parser = some_seconds)]
    max_idle_backoff_s: Duration,
    /// End after so long without a task, in seconds; none: never
    #[arg(long, env = "WORKFLOW_WORKER_IDLE_TIMEOUT_S", value_name = "S", value_parser = seconds)]
    idle_timeout_s: Option<Duration>,
    /// A variable that tasks see although it would be kept from them; may be given several times, in the variable with commas
    /// between
    #[arg(
        long,
        env = "WORKFLOW_WORKER_PASS_ENV",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pass_env: Vec<String>,
    /// Answer `/health/live` and `/health/ready` over HTTP at this address, as `127.0.0.1:8080`; port 0: any
    #[arg(long, env = "WORKFLOW_WORKER_LISTEN", value_name = "ADDR:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
}

impl WorkerArgs {
    fn config(self) -> Config {
        Config {
            queues: self.queue,
            slots: self.slots,
            visibility: self.visibility_timeout_s,
            heartbeat_interval: self.heartbeat_interval_s,
            cancel_poll_interval: self.cancel_poll_interval_s,
            completion_send_max_attempts: self.completion_send_max_attempts,
            results_per_message: RESULTS_PER_MESSAGE,
            max_deliveries: self.max_deliveries,
            max_interruptions: self.max_interruptions,
            drain_timeout: self.drain_timeout_s,
            kill_grace: self.kill_grace_s,
            max_idle_backoff: self.max_idle_backoff_s,
            idle_timeout: self.idle_timeout_s,
            pass_env: self.pass_env,
            name: process_name(),
        }
    }
}

/// What a worker did, as a value.
#[derive(Debug, Serialize)]
struct SummaryJson {
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    interrupted: u64,
}

/// Says at once, and not at the first task, that none can run here.
pub(super) async fn check(executor: &ProcessExecutor) -> Result<(), CliError> {
    executor.check().await.map_err(|why| {
        CliError::usage(format!("tasks need a temporary folder: {why}"))
            .help("point `TMPDIR` to a folder that can be written")
    })
}

/// Works until a signal, or until it was idle for long: the first signal ends it in order, the second at once.
pub(super) async fn worker(context: &mut Context, args: WorkerArgs) -> Outcome {
    let listen = args.listen;
    let config = args.config();
    config
        .validate()
        .map_err(|error| CliError::usage(error.to_string()).help("see `workflow worker --help`"))?;
    let executor = Arc::new(ProcessExecutor::new(context.env.clone(), &config.pass_env));
    check(&executor).await?;
    let Opened {
        store,
        layout,
        config: azure,
    } = open::open(context)?;
    open::warn_of_end(context, &azure);
    warn_of_few_files(config.slots);
    let env = context.env.clone();
    let interrupts = Interrupts::listen(&env)?;
    let (store, health) = Health::wrap(store, env.clone());
    let pulse = Arc::new(Pulse::new(&env, "starting"));
    let probe = Probe {
        env: env.clone(),
        pulse: pulse.clone(),
        store: health,
        stopping: interrupts.first.clone(),
    };
    probe.listen(listen).await?;
    let stop = Stop {
        drain: interrupts.first.clone(),
        kill: interrupts.second.clone(),
    };
    let patient = open::patient(context, &store);
    tokio::select! {
        made = pulse.wait(&env, create(&patient, &layout, &config.queues)) => made?,
        // Nothing has begun, so it ends in order.
        () = interrupts.first.cancelled() => return Ok(Exit::Ok),
    }
    pulse.lacks_nothing();
    let observer = Arc::new(Turns {
        env: env.clone(),
        pulse,
    });
    let summary = worker::run(env, store, layout, config, executor, stop, observer).await;
    let summary = summary.map_err(|error| CliError::internal(error.to_string()))?;
    if context.is_json() {
        context.printer.json(&SummaryJson {
            succeeded: summary.succeeded,
            failed: summary.failed,
            cancelled: summary.cancelled,
            interrupted: summary.interrupted,
        })?;
    }
    if interrupts.second.is_cancelled() {
        return Ok(interrupts.exit());
    }
    Ok(Exit::Ok)
}

/// Passes on the turns of the worker's loop.
#[derive(Debug)]
struct Turns {
    env: Env,
    pulse: Arc<Pulse>,
}

impl Observer for Turns {
    fn turned(&self) {
        self.pulse.turn(&self.env);
    }
}

/// Files that a worker has open without a task, and more with each: pipes, both their ends while a process starts, its output, sockets.
const FILES_OF_WORKER: u64 = 32;
const FILES_OF_TASK: u64 = 8;

/// Says at the start what would otherwise come up as tasks that cannot be started.
fn warn_of_few_files(slots: u16) {
    let needed = FILES_OF_WORKER + FILES_OF_TASK * u64::from(slots);
    if let Some(limit) = open_files_limit().filter(|limit| *limit < needed) {
        tracing::warn!(
            limit,
            needed,
            slots,
            "few_open_files: raise the limit (`ulimit -n`) or lower `--slots`"
        );
    }
}

/// Makes what every service needs, and the queues of this worker.
async fn create(store: &Store, layout: &Layout, queues: &[QueueName]) -> crate::store::Result<()> {
    layout.create(store).await?;
    for queue in queues {
        store.queues.create_queue(&layout.task_queue(queue)).await?;
    }
    Ok(())
}
