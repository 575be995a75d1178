//! What must never be seen, looked for at every write, message and start, at the moment when the service carries it out.
//!
//! Invariants it watches (the clauses are those of `docs/protocol.md`):
//! 1. Epochs, revisions, generations and attempts in states never go back; ended tasks change only with a new generation (P1, P12).
//! 2. What is sent or started was issued by a stored state (P4); what is acknowledged is in a stored state (P6), in one step once. An attempt is sent
//!    unmarked at most once, and not again by a leader that knows of its sending (P8, P18); not before the row shows its leader, nor
//!    before an end that waits is received (P12).
//! 3. After the write that applies a cancel nothing of its generation is sent; after the flag and an interval nothing starts (P30). The
//!    same holds of a stop, but for the tasks that survive it (P17).
//! 4. Nothing is sent or written by a leader after another was stored in the sentinel (P14), unless its lease was broken.
//! 5. A claim that is live is taken by nobody (P19), and who has lost its claim neither runs nor posts (P20). A suspect starts under a
//!    claim only, and never after its end (P18). Starts are counted (P23). A task message is deleted only when its end was posted or is
//!    old news (P21).
//! 6. A row is final only after its state, and open before its state leaves a final one; it never goes back (P16), nor loses a
//!    flag (P17).
//! 7. A request is applied once, to what its asker saw (P29).
//! 8. Only what has ended is purged; nothing of its run is stored, sent or started from then on, and its definition goes last (P31).
//!
//! All of it is kept by run, not by workflow: what comes late of a purged run is judged by what that run was.

mod executions;
mod messages;
mod purges;
mod rows;
mod states;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use self::executions::{Executions, ROW_KNOWN_AFTER};
use super::faults::Swarm;
use super::scheduler::{ProcessId, Scheduler, hold};
use super::workload::Workload;
use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, Generation, TaskIx, TaskState};
use crate::protocol::Layout;
use crate::record::{ControlRecord, Epoch, IndexRecord, RunId, RuntimeRecord};
use crate::store::{BlobPath, Queue, RowKey};

/// When a request was sent, by whom, and whether the sender learns that it was carried out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) at: Duration,
    pub(super) by: ProcessId,
    pub(super) is_answered: bool,
}

/// What a row has shown, and since when.
type RowPlace = (Duration, Generation, Epoch);

/// One attempt of one task.
type AttemptKey = (RunId, TaskIx, Attempt);

#[derive(Debug, Default)]
struct Inside {
    violations: Vec<String>,
    /// The newest state of each run.
    states: BTreeMap<RunId, RuntimeRecord>,
    /// The run whose state was stored last.
    lives: BTreeMap<WorkflowId, RunId>,
    /// The run of the definition that is stored.
    defined: BTreeMap<WorkflowId, RunId>,
    /// When a tombstone was stored.
    purged: BTreeMap<RunId, Duration>,
    /// Every attempt that a stored state has issued.
    issued: BTreeMap<AttemptKey, Generation>,
    /// When a state with a cancel was first stored.
    cancelled_at: BTreeMap<(RunId, Generation), Duration>,
    /// When a state with a stop was first stored.
    stopped_at: BTreeMap<(RunId, Generation), Duration>,
    /// Runs in which an attempt failed because its workers died too often.
    worn: BTreeSet<RunId>,
    /// When a row was first stored that shows a stop.
    stop_shown_at: BTreeMap<(RunId, Generation), Duration>,
    /// When the flag was first stored.
    flagged_at: BTreeMap<(RunId, Generation), Duration>,
    /// Every request that a stored state has answered.
    answered: BTreeSet<Uuid>,
    /// The leader in the sentinel, and since when.
    leader: Option<(Epoch, Option<Uuid>, Duration)>,
    /// The process that wrote the sentinel last.
    leads: Option<ProcessId>,
    rows: BTreeMap<RowKey, IndexRecord>,
    /// Generations and epochs that rows have shown, and since when.
    row_places: BTreeMap<RunId, Vec<RowPlace>>,
    executions: Executions,
    /// Attempts that were sent without the mark `again`.
    unmarked: BTreeSet<AttemptKey>,
    /// Attempts whose sending its leader knows of, and when that was.
    known_sent: BTreeMap<(AttemptKey, Epoch), Duration>,
    /// From when on an end of the attempt can be received, and when one was received last.
    arrived: BTreeMap<AttemptKey, Duration>,
    seen: BTreeMap<AttemptKey, Duration>,
    /// Requests by their names.
    asked: BTreeMap<Uuid, ControlRecord>,
    bodies: BTreeMap<(Queue, String), String>,
    poisoned: BTreeSet<String>,
    posted: BTreeSet<AttemptKey>,
    /// Executions whose end a stored state has taken up.
    told: BTreeSet<String>,
    /// What is stored beside states.
    sides: BTreeMap<BlobPath, Bytes>,
    /// Outputs, logs and what is beside states, and when they were stored.
    blobs: BTreeMap<BlobPath, Duration>,
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

    /// Whether any generation of any run of the workflow was cancelled.
    pub(super) fn was_cancelled(&self, id: &WorkflowId) -> bool {
        let inside = hold(&self.inside);
        let mut runs = inside.cancelled_at.keys().map(|(run, _)| run);
        runs.any(|run| inside.states[run].workflow_id == *id)
    }

    /// Whether any generation of the run was cancelled, or stopped by a failure, or lost an attempt to dying workers.
    pub(super) fn was_disturbed(&self, run: RunId) -> bool {
        let inside = hold(&self.inside);
        let mut ended = inside.cancelled_at.keys().chain(inside.stopped_at.keys());
        ended.any(|(of, _)| *of == run) || inside.worn.contains(&run)
    }

    /// Whether any run of the workflow was purged.
    pub(super) fn was_purged(&self, id: &WorkflowId) -> bool {
        let inside = hold(&self.inside);
        let mut runs = inside.purged.keys();
        runs.any(|run| {
            inside
                .states
                .get(run)
                .is_some_and(|state| state.workflow_id == *id)
        })
    }

    /// Whether a failure has stopped this generation.
    pub(super) fn is_stopped(&self, of: &(RunId, Generation)) -> bool {
        hold(&self.inside).stopped_at.contains_key(of)
    }

    /// Whether a job of the run was started after every worker could know that it is to be cancelled.
    pub(super) fn went_on_after_flag(&self, of: &(RunId, Generation)) -> bool {
        let inside = hold(&self.inside);
        let Some(flagged) = inside.flagged_at.get(of) else {
            return false;
        };
        let Executions {
            started, tokens, ..
        } = &inside.executions;
        let mut starts = tokens.iter().filter(|(_, key)| key.0 == of.0);
        starts.any(|(token, _)| {
            started
                .get(token)
                .is_some_and(|at| *at > *flagged + ROW_KNOWN_AFTER)
        })
    }

    /// Whether a cancel of this generation was applied.
    pub(super) fn is_cancelled(&self, of: &(RunId, Generation)) -> bool {
        hold(&self.inside).cancelled_at.contains_key(of)
    }

    /// Whether the flag of this generation was stored.
    pub(super) fn is_flagged(&self, of: &(RunId, Generation)) -> bool {
        hold(&self.inside).flagged_at.contains_key(of)
    }

    /// Whether the state is final and its row shows that, among those of final workflows and there only; or whether all is purged.
    pub(super) fn is_over(&self, id: &WorkflowId) -> bool {
        let inside = hold(&self.inside);
        let life = inside.lives.get(id);
        let Some(state) = life.and_then(|run| inside.states.get(run)) else {
            return false;
        };
        let (open, done) = (self.layout.open_row(id), self.layout.done_row(id));
        let shown = inside.rows.get(&done);
        let is_open = inside.rows.contains_key(&open);
        if inside.purged.contains_key(&state.run_id) {
            return !inside.defined.contains_key(id) && !is_open;
        }
        let is = |row: &IndexRecord| (row.run_id, row.status, row.generation);
        let is_shown =
            shown.is_some_and(|row| is(row) == (state.run_id, state.status, state.generation));
        state.status.is_final() && is_shown && !is_open
    }

    /// Whether a purged workflow has a final row: one that was written late stays until a leader compares rows with definitions.
    pub(super) fn is_ghost(&self, id: &WorkflowId) -> bool {
        let inside = hold(&self.inside);
        let row = inside.rows.get(&self.layout.done_row(id));
        row.is_some_and(|row| inside.purged.contains_key(&row.run_id))
    }

    /// Whether there is a definition and no row of its run.
    pub(super) fn is_orphan(&self, id: &WorkflowId) -> bool {
        let inside = hold(&self.inside);
        let rows = [self.layout.open_row(id), self.layout.done_row(id)];
        let of_run = |run| {
            let mut shown = rows.iter().filter_map(|key| inside.rows.get(key));
            shown.any(|row| row.run_id == run)
        };
        inside.defined.get(id).is_some_and(|run| !of_run(*run))
    }

    /// Whether a definition is stored.
    #[cfg(test)]
    pub(super) fn is_defined(&self, id: &WorkflowId) -> bool {
        hold(&self.inside).defined.contains_key(id)
    }

    /// Whether the newest run was purged.
    pub(super) fn is_purged(&self, id: &WorkflowId) -> bool {
        let inside = hold(&self.inside);
        let life = inside.lives.get(id);
        life.is_some_and(|run| inside.purged.contains_key(run))
    }

    /// Claims, outputs and logs that are left of a purged run.
    pub(super) fn leftovers(&self, id: &WorkflowId) -> Vec<String> {
        let inside = hold(&self.inside);
        let runs = inside.purged.keys();
        runs.flat_map(|run| self.left_of(&inside, id, *run, Duration::MAX))
            .collect()
    }

    /// What is left of what was stored before `until` of a run.
    fn left_of(
        &self,
        inside: &Inside,
        id: &WorkflowId,
        run: RunId,
        until: Duration,
    ) -> Vec<String> {
        let folder = self.layout.run_folder(id, run);
        let blobs = inside.blobs.iter();
        let blobs = blobs.filter(|(path, at)| path.name().starts_with(&folder) && **at < until);
        let claims = inside.executions.claims.iter();
        let claims = claims.filter(|(_, (claim, at, _))| claim.run_id == run && *at < until);
        let blobs = blobs.map(|(path, _)| path.to_string());
        blobs
            .chain(claims.map(|(key, _)| key.to_string()))
            .collect()
    }

    /// The process that leads, or led last.
    pub(super) fn leads(&self) -> Option<ProcessId> {
        hold(&self.inside).leads
    }

    /// The newest state stored, that of a purged run also.
    pub(super) fn state(&self, id: &WorkflowId) -> Option<RuntimeRecord> {
        let inside = hold(&self.inside);
        let life = inside.lives.get(id)?;
        inside.states.get(life).cloned()
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

    fn key(
        &self,
        id: &WorkflowId,
        run: RunId,
        task: &TaskName,
        attempt: Attempt,
    ) -> Option<AttemptKey> {
        Some((run, self.place(id, task)?, attempt))
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
