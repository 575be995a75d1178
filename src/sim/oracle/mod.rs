//! What must never be seen, looked for at every write, message and start, at the moment when the service carries it out.
//!
//! Invariants it watches (the clauses are those of `docs/protocol.md`):
//! 1. Epochs, revisions, generations and attempts in states never go back; ended tasks change only with a new generation (P1, P12).
//! 2. What is sent or started was issued by a stored state (P4); what is acknowledged is in a stored state (P6).
//! 3. After the write that applies a cancel nothing of its generation is sent; after the flag and an interval nothing starts (P30). The
//!    same holds of a stop, but for the tasks that survive it (P17).
//! 4. Nothing is sent or written by a leader after another was stored in the sentinel (P14), unless its lease was broken.
//! 5. A claim that is live is taken by nobody (P19). A task message is deleted only when its end was posted or is old news (P21).
//! 6. A row is final only after its state, and open before its state leaves a final one; it never goes back (P16).

mod messages;
mod rows;
mod states;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uuid::Uuid;

use super::faults::Swarm;
use super::scheduler::{ProcessId, Scheduler, hold};
use super::workload::Workload;
use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, Generation, TaskIx, TaskState};
use crate::protocol::Layout;
use crate::record::{ClaimRecord, Epoch, IndexRecord, RuntimeRecord};
use crate::store::{Queue, RowKey};
use crate::worker::Job;

/// A flag is seen by workers within their interval (30 s); a request may take its time-out, a few of them in a row.
const START_AFTER_FLAG_MAX: Duration = Duration::from_secs(75);

/// When a request was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) at: Duration,
}

/// One attempt of one task.
type AttemptKey = (WorkflowId, TaskIx, Attempt);

#[derive(Debug, Default)]
struct Inside {
    violations: Vec<String>,
    /// The newest state of each workflow.
    states: BTreeMap<WorkflowId, RuntimeRecord>,
    /// Every attempt that a stored state has issued.
    issued: BTreeMap<AttemptKey, Generation>,
    /// When a state with a cancel was first stored.
    cancelled_at: BTreeMap<(WorkflowId, Generation), Duration>,
    /// When a state with a stop was first stored.
    stopped_at: BTreeMap<(WorkflowId, Generation), Duration>,
    /// When a row was first stored that shows a stop.
    stop_shown_at: BTreeMap<(WorkflowId, Generation), Duration>,
    /// When the flag was first stored.
    flagged_at: BTreeMap<(WorkflowId, Generation), Duration>,
    /// Every request that a stored state has answered.
    answered: BTreeSet<Uuid>,
    /// The leader in the sentinel, and since when.
    leader: Option<(Epoch, Option<Uuid>, Duration)>,
    rows: BTreeMap<RowKey, IndexRecord>,
    claims: BTreeMap<RowKey, (ClaimRecord, Duration)>,
    bodies: BTreeMap<(Queue, String), String>,
    poisoned: BTreeSet<String>,
    posted: BTreeSet<AttemptKey>,
    outputs: BTreeSet<String>,
    tokens: BTreeSet<String>,
    running: BTreeMap<AttemptKey, BTreeSet<String>>,
    starts: u64,
    poison_tasks: u64,
}

/// The oracle of one run.
#[derive(Debug)]
pub(super) struct Oracle {
    scheduler: Scheduler,
    layout: Layout,
    workloads: Arc<Vec<Workload>>,
    swarm: Swarm,
    inside: Mutex<Inside>,
}

impl Oracle {
    pub(super) fn new(
        scheduler: &Scheduler,
        layout: &Layout,
        workloads: &Arc<Vec<Workload>>,
        swarm: Swarm,
    ) -> Self {
        Self {
            scheduler: scheduler.clone(),
            layout: layout.clone(),
            workloads: Arc::clone(workloads),
            swarm,
            inside: Mutex::default(),
        }
    }

    /// Notes that a rule was broken.
    pub(super) fn broken(&self, what: impl Into<String>) {
        self.note(&mut hold(&self.inside), &what.into());
    }

    fn note(&self, inside: &mut Inside, what: &str) {
        let at = self.scheduler.now();
        self.scheduler
            .trace
            .event(at, "ORACLE", &format!("BROKEN: {what}"));
        inside
            .violations
            .push(format!("at {:.3} s: {what}", at.as_secs_f64()));
    }

    /// What was broken so far.
    pub(super) fn violations(&self) -> Vec<String> {
        hold(&self.inside).violations.clone()
    }

    /// Whether anything was broken so far.
    pub(super) fn is_broken(&self) -> bool {
        !hold(&self.inside).violations.is_empty()
    }

    /// How many executions were started.
    pub(super) fn starts(&self) -> u64 {
        hold(&self.inside).starts
    }

    /// Whether `generation` was ever cancelled, or any before it.
    pub(super) fn was_cancelled(&self, id: &WorkflowId) -> bool {
        let inside = hold(&self.inside);
        inside.cancelled_at.keys().any(|(of, _)| of == id)
    }

    /// Whether a failure has stopped any generation.
    pub(super) fn was_stopped(&self, id: &WorkflowId) -> bool {
        let inside = hold(&self.inside);
        inside.stopped_at.keys().any(|(of, _)| of == id)
    }

    /// Whether a failure has stopped this generation.
    pub(super) fn is_stopped(&self, of: &(WorkflowId, Generation)) -> bool {
        hold(&self.inside).stopped_at.contains_key(of)
    }

    /// Whether a cancel of this generation was applied.
    pub(super) fn is_cancelled(&self, of: &(WorkflowId, Generation)) -> bool {
        hold(&self.inside).cancelled_at.contains_key(of)
    }

    /// Whether the flag of this generation was stored.
    pub(super) fn is_flagged(&self, of: &(WorkflowId, Generation)) -> bool {
        hold(&self.inside).flagged_at.contains_key(of)
    }

    /// Whether the state is final and its row shows that, among those of final workflows and there only.
    pub(super) fn is_shown_final(&self, id: &WorkflowId) -> bool {
        let inside = hold(&self.inside);
        let Some(state) = inside.states.get(id) else {
            return false;
        };
        let (open, done) = (self.layout.open_row(id), self.layout.done_row(id));
        let shown = inside.rows.get(&done);
        let is_shown = shown
            .is_some_and(|row| (row.status, row.generation) == (state.status, state.generation));
        state.status.is_final() && is_shown && !inside.rows.contains_key(&open)
    }

    /// The newest state stored.
    pub(super) fn state(&self, id: &WorkflowId) -> Option<RuntimeRecord> {
        hold(&self.inside).states.get(id).cloned()
    }

    /// Whether a stop leaves the task alone.
    fn survives_stop(&self, id: &WorkflowId, task: &TaskName) -> bool {
        let mut workloads = self.workloads.iter();
        workloads.any(|workload| workload.id == *id && workload.survives_stop(task))
    }

    fn place(&self, id: &WorkflowId, task: &TaskName) -> Option<TaskIx> {
        let workload = self.workloads.iter().find(|workload| workload.id == *id)?;
        let mut tasks = workload.definition.tasks.iter();
        let place = tasks.position(|found| found.name == *task)?;
        Some(TaskIx::new(u32::try_from(place).ok()?))
    }

    fn key(&self, id: &WorkflowId, task: &TaskName, attempt: Attempt) -> Option<AttemptKey> {
        Some((id.clone(), self.place(id, task)?, attempt))
    }

    /// A job begins.
    pub(super) fn execution_started(&self, by: ProcessId, job: &Job) {
        let now = self.scheduler.now();
        let name = format!("{}/{}/{}", job.workflow_id, job.task, job.attempt);
        self.scheduler
            .trace
            .event(now, "EXECUTOR", &format!("start {name} on {}", by.0));
        let mut inside = hold(&self.inside);
        inside.starts += 1;
        inside.tokens.insert(job.token.to_string());
        let key = self.key(&job.workflow_id, &job.task, job.attempt);
        let Some((key, generation)) =
            key.and_then(|key| inside.issued.get(&key).map(|at| (key.clone(), *at)))
        else {
            return self.note(&mut inside, &format!("{name} starts without being issued"));
        };
        let of = (key.0.clone(), generation);
        let flagged = inside.flagged_at.get(&of);
        let stopped = inside.stop_shown_at.get(&of);
        let stopped = stopped.filter(|_| !self.survives_stop(&job.workflow_id, &job.task));
        let mut told = flagged.into_iter().chain(stopped);
        let late = told.any(|at| now > *at + START_AFTER_FLAG_MAX);
        if late && !self.swarm.pauses {
            self.note(
                &mut inside,
                &format!("{name} starts long after its workflow was cancelled or stopped"),
            );
        }
        let running = inside.running.entry(key).or_default();
        running.insert(job.token.to_string());
        if running.len() > 1 && self.swarm.forbids_overlap() {
            self.note(&mut inside, &format!("{name} runs twice at once"));
        }
    }

    /// A job has ended, or its worker has died.
    pub(super) fn execution_ended(&self, job: &Job) {
        let mut inside = hold(&self.inside);
        let key = self.key(&job.workflow_id, &job.task, job.attempt);
        if let Some(running) = key.and_then(|key| inside.running.get_mut(&key)) {
            running.remove(&job.token.to_string());
        }
    }
}

/// The state of a task and the last attempt issued of it, as stored.
fn standing(state: &RuntimeRecord, place: TaskIx) -> Option<(TaskState, Attempt)> {
    let states = state.task_states().ok()?;
    let found = state
        .tasks
        .binary_search_by_key(&place, |detail| detail.place);
    let attempt = found.map_or(Attempt::NONE, |at| state.tasks[at].attempt_no);
    Some((*states.get(place.at())?, attempt))
}
