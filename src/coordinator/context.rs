//! What all parts of one term of leadership share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::limit::{AtOnce, Inside};
use super::lost::Sendings;
use super::stats::Stats;
use super::window::Window;
use crate::definition::{Definition, QueueName, WorkflowId};
use crate::env::{Env, Mono};
use crate::protocol::{Layout, Leadership, Loss, ReadError, patiently};
use crate::record::Epoch;
use crate::store::{Store, StoreError};

/// Most workflows that take a turn at once.
const TURNS_AT_ONCE: u32 = 64;
/// Messages of all workflows on their way to one task queue at once.
const SENDS_PER_QUEUE: u32 = 32;
/// For each of this that the last receive took, a turn and a send count as one more. What a slow service is asked for at once only waits
/// there, where it keeps receives and renewals of the lease waiting, too.
const PROMPT: Duration = Duration::from_millis(250);

/// One term of leadership. Its store refuses everything once the fence is closed.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) env: Env,
    pub(super) store: Store,
    pub(super) layout: Layout,
    pub(super) config: Config,
    pub(super) leadership: Arc<Leadership>,
    pub(super) stats: Arc<Stats>,
    pub(super) window: Window,
    pub(super) sendings: Sendings,
    /// How many workflows may take a turn at once: bounds requests, sockets and memory of all together.
    turns: Arc<AtOnce>,
    /// The same for what is sent, by task queue: where one hangs, only its own tasks wait.
    sends: Mutex<BTreeMap<QueueName, Arc<AtOnce>>>,
    /// As how many each of both counts; as very many before the first receive.
    counts_as: AtomicU32,
    /// Set when the process is to stop: finish, do not wait.
    pub(super) stopping: CancellationToken,
    /// Whether a workflow was left with a state write of unknown outcome (P15).
    pub(super) in_doubt: AtomicBool,
    /// Task queues that are known to exist.
    pub(super) queues: Mutex<BTreeSet<QueueName>>,
    /// What was inserted into the completion queue before this moment was received (P12, P26); none before the first time.
    pub(super) received_to: Mutex<Option<Mono>>,
}

impl Context {
    /// What a term begins with.
    pub(super) fn new(
        env: &Env,
        layout: &Layout,
        config: &Config,
        leadership: Arc<Leadership>,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            env: env.clone(),
            store: leadership.store().clone(),
            layout: layout.clone(),
            config: config.clone(),
            leadership,
            stats: Arc::default(),
            window: Window::new(config.max_outstanding),
            sendings: Sendings::default(),
            turns: AtOnce::new(TURNS_AT_ONCE),
            sends: Mutex::default(),
            counts_as: AtomicU32::new(u32::MAX),
            stopping: stop.clone(),
            queues: Mutex::default(),
            received_to: Mutex::default(),
            in_doubt: AtomicBool::new(false),
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.leadership.epoch()
    }

    /// Whether the completion queue was drained once since the take-over (P12).
    pub(super) fn is_drained(&self) -> bool {
        self.received_to().is_some()
    }

    pub(super) fn received_to(&self) -> std::sync::MutexGuard<'_, Option<Mono>> {
        self.received_to
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how long a receive took.
    pub(super) fn note_receive(&self, took: Duration) {
        let counts_as = took.as_millis() / PROMPT.as_millis();
        let counts_as = u32::try_from(counts_as).unwrap_or(u32::MAX).max(1);
        let before = self.counts_as.swap(counts_as, Ordering::AcqRel);
        if counts_as < before {
            self.turns.changed();
            for places in self.sends().values() {
                places.changed();
            }
        }
    }

    /// Waits until a workflow may take a turn, for as long as what it gives is held; none where this process is to stop or leads no more.
    pub(super) async fn may_turn(&self) -> Option<Inside> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => None,
            () = self.leadership.fence().closed().cancelled() => None,
            turn = self.turns.enter(&self.counts_as) => Some(turn),
        }
    }

    /// Waits until a message may be sent to this queue, for as long as what it gives is held; none where the process is to stop first.
    pub(super) async fn may_send(&self, queue: &QueueName) -> Option<Inside> {
        let places = {
            let mut sends = self.sends();
            let new = || AtOnce::new(SENDS_PER_QUEUE);
            Arc::clone(sends.entry(queue.clone()).or_insert_with(new))
        };
        tokio::select! {
            biased;
            place = places.enter(&self.counts_as) => Some(place),
            () = self.stopping.cancelled() => None,
        }
    }

    fn sends(&self) -> std::sync::MutexGuard<'_, BTreeMap<QueueName, Arc<AtOnce>>> {
        self.sends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what an actor that is gone held for its workflow: places in line, slots, and what it has sent.
    pub(super) fn let_go(&self, id: &WorkflowId) {
        self.sendings.forget(id);
        self.window.forget(id);
    }

    /// Decides what a foreign epoch in a document means (P13): this leader stops for good, or epochs have gone back and its own is raised.
    pub(super) async fn met(&self, epoch: Epoch, whose: &str) -> Result<(), ReadError> {
        if self.leadership.still_leads().await? {
            tracing::warn!(met = %epoch, own = %self.epoch(), by = whose, "epoch_went_back");
            self.leadership.raise_epoch(epoch, &self.stopping).await?;
        } else {
            let what = format!("a document names epoch {epoch} of `{whose}`");
            self.leadership.fence().close(Loss::Superseded(what));
        }
        Ok(())
    }

    /// Makes the queues that a workflow needs, once a term.
    pub(super) async fn create_queues(&self, definition: &Definition) -> Result<(), StoreError> {
        let own = definition
            .tasks
            .iter()
            .filter_map(|task| task.queue.as_ref());
        let needed: BTreeSet<_> = own.chain([&definition.default_queue]).collect();
        for queue in needed {
            if self.known_queues().contains(queue) {
                continue;
            }
            let name = self.layout.task_queue(queue);
            let create = || self.store.queues.create_queue(&name);
            patiently(&self.env, &self.stopping, create).await?;
            self.known_queues().insert(queue.clone());
        }
        Ok(())
    }

    fn known_queues(&self) -> std::sync::MutexGuard<'_, BTreeSet<QueueName>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
