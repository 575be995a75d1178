//! The worker: takes task messages, keeps them hidden while it works on them, runs their commands, and posts how they ended.
//!
//! Invariants:
//! 1. Every message leaves by exactly one way (P21): end posted, then claim and message removed; given back; left; removed as old
//!    news; moved to poison.
//! 2. What counts is stored before it is told: output and log before the completion, the completion before the message goes.
//! 3. A worker that may have lost an attempt stops its command and posts nothing (P20).

mod accept;
mod cancel;
mod capture;
mod config;
mod ends;
mod environment;
mod executor;
mod files;
mod handle;
mod heartbeat;
mod key;
mod load;
mod observe;
mod persist;
mod post;
mod process;
mod pull;
mod report;
mod suspect;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::definition::QueueName;
use crate::env::{Env, Mono};
use crate::protocol::Layout;
use crate::record::{ClaimRecord, Record, TaskMessage, Token};
use crate::store::{Message, Queue, Receipt, Store};

pub use config::{Config, ConfigError, RESULTS_PER_MESSAGE};
pub use executor::{End, Execution, Executor, Job, OUTPUT_BYTES_MAX, Signals, Written};
pub use observe::{NoObserver, Observer, Summary, TaskEnded, TaskStarted};
pub use process::ProcessExecutor;

/// How a worker is told to end.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// The first signal: take nothing new, let running tasks end for the drain time, give the rest back.
    pub drain: CancellationToken,
    /// The second signal: kill what runs and return at once.
    pub kill: CancellationToken,
}

/// Why a worker did not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// It was told something it cannot keep.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A task message in hand.
#[derive(Debug)]
struct Delivery {
    queue_name: QueueName,
    queue: Queue,
    message: Message,
    task: TaskMessage,
    /// When it was asked for: it is hidden from then on, at the least.
    received_at: Mono,
}

impl Delivery {
    /// What entitles to the message by now; none if that was lost.
    fn receipt<'a>(&'a self, held: Option<&'a heartbeat::Held>) -> Option<&'a Receipt> {
        held.map_or(Some(&self.message.receipt), |held| held.receipt.as_ref())
    }
}

/// What all handlers share.
#[derive(Debug)]
struct Worker {
    env: Env,
    store: Store,
    layout: Layout,
    config: Config,
    executor: Arc<dyn Executor>,
    observer: Arc<dyn Observer>,
    stop: Stop,
    /// The drain time is over.
    evict: CancellationToken,
    workflows: cancel::Workflows,
    places: suspect::Places,
    trouble: persist::Trouble,
    ends: ends::Ends,
    poster: Arc<post::Poster>,
    undecodable: accept::Undecodable,
    summary: Mutex<Summary>,
}

impl Worker {
    fn count(&self, change: impl FnOnce(&mut Summary)) {
        if let Ok(mut summary) = self.summary.lock() {
            change(&mut summary);
        }
    }

    fn note(&self, delivery: &Delivery, way: handle::Way) {
        use handle::Way;
        self.count(|summary| match way {
            // Counted by its outcome.
            Way::Posted => {}
            Way::GivenBack(_) => summary.given_back += 1,
            Way::Interrupted => summary.interrupted += 1,
            Way::OldNews => summary.old_news += 1,
            Way::Left => summary.left += 1,
        });
        let TaskMessage {
            workflow_id,
            task,
            attempt_no,
            ..
        } = &delivery.task;
        tracing::debug!(%workflow_id, %task, %attempt_no, ?way, "message_left_hands");
    }

    /// The claim on an attempt, as a new execution of it would make it.
    fn claim_of(&self, delivery: &Delivery) -> ClaimRecord {
        let task = &delivery.task;
        ClaimRecord {
            schema: ClaimRecord::SCHEMA,
            workflow_id: task.workflow_id.clone(),
            run_id: task.run_id,
            generation: task.generation,
            task: task.task.clone(),
            attempt_no: task.attempt_no,
            token: Token::new(self.env.uuid()),
            worker: self.config.name.to_string(),
            host: self.config.name.host.clone(),
            started_at: self.env.wall(),
            visibility_s: u32::try_from(self.config.visibility.as_secs()).unwrap_or(u32::MAX),
            // A message that was delivered before was probably started before, by a worker that made no claim.
            starts: if delivery.message.deliveries > 1 {
                2
            } else {
                1
            },
            interruptions: 0,
            freed: false,
        }
    }
}

/// Works until it is told to stop or has had nothing to do for its idle time-out. Errors of the store never end it.
///
/// # Errors
/// [`WorkerError::Config`]: settings that contradict each other.
///
/// # Cancel safety
/// Not to be dropped: handlers would go on without anybody waiting for them. Use `stop`.
pub async fn run(
    env: Env,
    store: Store,
    layout: Layout,
    config: Config,
    executor: Arc<dyn Executor>,
    stop: Stop,
    observer: Arc<dyn Observer>,
) -> Result<Summary, WorkerError> {
    config.validate()?;
    let interval = config.cancel_poll_interval;
    let workflows = cancel::Workflows::new(env.clone(), store.clone(), layout.clone(), interval);
    let poster = post::Poster::new(&env, &store, &layout, config.results_per_message);
    let worker = Arc::new(Worker {
        poster,
        env,
        store,
        layout,
        config,
        executor,
        observer,
        stop,
        evict: CancellationToken::new(),
        workflows,
        places: suspect::Places::default(),
        trouble: persist::Trouble::default(),
        ends: ends::Ends::default(),
        undecodable: accept::Undecodable::default(),
        summary: Mutex::default(),
    });
    info!(worker = %worker.config.name, slots = worker.config.slots, "worker_started");
    tokio::select! {
        biased;
        () = pull::pull(&worker) => {}
        () = worker.workflows.poll() => {}
        never = pull::evict_in_time(&worker) => match never {},
    }
    let summary = worker
        .summary
        .lock()
        .map_or_else(|held| *held.into_inner(), |held| *held);
    info!(?summary, "worker_ended");
    Ok(summary)
}

/// Completes at `deadline`, soon also if the machine slept meanwhile: one long sleep would not see that.
async fn sleep_until(env: &Env, deadline: Mono) {
    const PIECE: Duration = Duration::from_secs(5);
    loop {
        let left = deadline.since(env.mono());
        if left.is_zero() {
            return;
        }
        env.sleep(left.min(PIECE)).await;
    }
}
