//! What this worker knows of the workflows whose tasks it runs: their rows, read once per workflow and interval, not per task (P30).
//!
//! Invariants:
//! 1. A view is at most an interval old when a task is started by it, so nothing starts later than that after a cancel.
//! 2. A cancel or a stop is acted on only where it names the generation at hand, a stop by tasks that do not survive it (P17).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::definition::WorkflowId;
use crate::engine::{Generation, Status};
use crate::env::{Env, Mono};
use crate::protocol::{Layout, ReadError, read_row};
use crate::record::{Epoch, RunId, TaskMessage};
use crate::store::Store;

/// Rows read at once.
const READS_AT_ONCE: usize = 8;

/// What a row says that matters to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    pub(super) run_id: RunId,
    pub(super) generation: Generation,
    pub(super) epoch: Epoch,
    pub(super) status: Status,
    pub(super) cancel_requested: Option<Generation>,
    pub(super) stopping: Option<Generation>,
}

impl View {
    /// Whether a task of exactly this life and generation is to end: a cancel was asked for, or a failure stops it.
    fn ends(&self, run_id: RunId, generation: Generation, survives_stop: bool) -> bool {
        let cancelled = self.cancel_requested == Some(generation);
        let stopped = self.stopping == Some(generation) && !survives_stop;
        self.run_id == run_id && (cancelled || stopped)
    }

    /// What the row says of a message.
    pub(super) fn of(&self, message: &TaskMessage) -> Standing {
        let same = (self.run_id, self.generation) == (message.run_id, message.generation);
        let ends = self.ends(message.run_id, message.generation, message.survives_stop);
        if ends && !self.status.is_final() {
            Standing::Cancelled
        } else if same && self.status.is_final() {
            // A row is final only after its state is (P16), in which every task has ended.
            Standing::OldNews
        } else if self.run_id != message.run_id
            || message.generation < self.generation
            || message.epoch < self.epoch
        {
            Standing::Suspect
        } else {
            Standing::Current
        }
    }

    /// Whether the message may know more than this view: then it is not to be judged by an old reading.
    fn is_behind(&self, message: &TaskMessage) -> bool {
        self.run_id != message.run_id || self.generation < message.generation
    }
}

/// What a row says of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Standing {
    /// Nothing against it.
    Current,
    /// It may be out of date: ask the state (P18).
    Suspect,
    /// Its workflow is to be cancelled, or stopped without it.
    Cancelled,
    /// Its workflow has ended.
    OldNews,
}

#[derive(Debug)]
struct Running {
    number: u64,
    run_id: RunId,
    generation: Generation,
    survives_stop: bool,
    cancelled: CancellationToken,
}

/// What was read of a row, and when that was begun.
type Reading = (Mono, Option<View>);

#[derive(Debug, Default)]
struct Known {
    /// The last reading. A reader holds the lock, so that others share what it reads.
    reading: Arc<tokio::sync::Mutex<Option<Reading>>>,
    running: Vec<Running>,
}

/// The workflows known to this worker.
#[derive(Debug)]
pub(super) struct Workflows {
    env: Env,
    store: Store,
    layout: Layout,
    interval: Duration,
    known: Mutex<(u64, BTreeMap<WorkflowId, Known>)>,
}

/// A running task, registered so that a cancel reaches it; dropping it takes it from the register.
#[derive(Debug)]
pub(super) struct Watched<'a> {
    workflows: &'a Workflows,
    workflow_id: &'a WorkflowId,
    number: u64,
    pub(super) cancelled: CancellationToken,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if let Some(known) = self.workflows.lock().1.get_mut(self.workflow_id) {
            known.running.retain(|task| task.number != self.number);
        }
    }
}

impl Workflows {
    pub(super) fn new(env: Env, store: Store, layout: Layout, interval: Duration) -> Self {
        Self {
            env,
            store,
            layout,
            interval,
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<WorkflowId, Known>)> {
        self.known
            .lock()
            .expect("nothing panics while it holds the register")
    }

    /// What the row says of the message; none where there is no row. Reads it if the last reading is older than an interval, or
    /// older than the message.
    ///
    /// # Errors
    /// The row could not be read.
    pub(super) async fn standing(
        &self,
        message: &TaskMessage,
    ) -> Result<Option<Standing>, ReadError> {
        let id = &message.workflow_id;
        let reading = self.lock().1.entry(id.clone()).or_default().reading.clone();
        let mut reading = reading.lock().await;
        let fresh = reading.filter(|(at, view)| {
            self.env.mono().since(*at) < self.interval
                && view.is_some_and(|view| !view.is_behind(message))
        });
        let view = if let Some((_, view)) = fresh {
            view
        } else {
            let at = self.env.mono();
            let view = self.read(id).await?;
            *reading = Some((at, view));
            view
        };
        Ok(view.map(|view| view.of(message)))
    }

    async fn read(&self, id: &WorkflowId) -> Result<Option<View>, ReadError> {
        let found = read_row(&self.store, &self.layout, id).await?;
        Ok(found.map(|found| View {
            run_id: found.record.run_id,
            generation: found.record.generation,
            epoch: found.record.epoch,
            status: found.record.status,
            cancel_requested: found.record.cancel_requested,
            stopping: found.record.stopping,
        }))
    }

    /// Registers a running task.
    pub(super) fn watch<'a>(&'a self, message: &'a TaskMessage) -> Watched<'a> {
        let cancelled = CancellationToken::new();
        let mut known = self.lock();
        known.0 += 1;
        let number = known.0;
        let running = Running {
            number,
            run_id: message.run_id,
            generation: message.generation,
            survives_stop: message.survives_stop,
            cancelled: cancelled.clone(),
        };
        let workflow = known.1.entry(message.workflow_id.clone()).or_default();
        workflow.running.push(running);
        drop(known);
        Watched {
            workflows: self,
            workflow_id: &message.workflow_id,
            number,
            cancelled,
        }
    }

    /// Reads, each interval, the rows of all workflows with running tasks, and tells the tasks that are to end. Never ends.
    pub(super) async fn poll(&self) {
        loop {
            self.env.sleep(self.interval).await;
            let now = self.env.mono();
            let ids = {
                let mut known = self.lock();
                // What nothing runs of is forgotten; a later task reads anew.
                known.1.retain(|_, known| {
                    let in_use = Arc::strong_count(&known.reading) > 1;
                    let recent = known.reading.try_lock().is_ok_and(|reading| {
                        reading.is_some_and(|(at, _)| now.since(at) < self.interval)
                    });
                    in_use || recent || !known.running.is_empty()
                });
                let busy = known
                    .1
                    .iter()
                    .filter(|(_, known)| !known.running.is_empty());
                busy.map(|(id, _)| id.clone()).collect::<Vec<_>>()
            };
            let looks: Vec<_> = ids.iter().map(|id| self.look(id).boxed()).collect();
            let looked = stream::iter(looks).buffer_unordered(READS_AT_ONCE);
            looked.for_each(|()| std::future::ready(())).await;
        }
    }

    async fn look(&self, id: &WorkflowId) {
        if let Err(error) = self.read_again(id).await {
            warn!(workflow_id = %id, %error, "cancel_flag_not_read");
        }
    }

    async fn read_again(&self, id: &WorkflowId) -> Result<(), ReadError> {
        let Some(reading) = self.lock().1.get(id).map(|known| known.reading.clone()) else {
            return Ok(());
        };
        let mut reading = reading.lock().await;
        let at = self.env.mono();
        let view = self.read(id).await?;
        *reading = Some((at, view));
        let Some(view) = view else {
            debug!(workflow_id = %id, "row_is_gone");
            return Ok(());
        };
        if let Some(known) = self.lock().1.get(id) {
            for task in &known.running {
                if view.ends(task.run_id, task.generation, task.survives_stop) {
                    task.cancelled.cancel();
                }
            }
        }
        Ok(())
    }
}
