//! What must hold at the end of a run: every workflow final, every queue empty, rows as states say, ends as the reference says.

use std::time::Duration;

use super::reference::{Standing, end_of};
use super::run::World;
use super::servers::Role;
use super::workload::{Ending, Workload, queues};
use crate::engine::{Attempt, FailureKind, Generation, Outcome, Status, TaskState};
use crate::protocol::{read_row, read_state};
use crate::record::{IndexRecord, RunId, RuntimeRecord, StateRecord};

/// A stopped leader is followed by another at once, which looks for lost rows first.
const REBUILT_WITHIN: Duration = Duration::from_secs(120);

/// How far a run is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Of each workflow its revision, the states of its tasks, and whether state and row are final, or gone.
    states: Vec<Option<(u64, String, bool)>>,
    /// Messages in each queue.
    queues: Vec<u64>,
    starts: u64,
}

impl Progress {
    pub(super) async fn look(world: &World) -> Self {
        let state = |workload: &Workload| {
            let state = world.oracle.state(&workload.id)?;
            let is_over = world.oracle.is_over(&workload.id);
            Some((state.revision.number(), state.states, is_over))
        };
        let mut depths = Vec::new();
        let mut looked_at = vec![world.layout.completions().clone()];
        looked_at.extend(queues().map(|name| world.layout.task_queue(&name)));
        for queue in looked_at {
            let depth = world.network.store.queues.depth(&queue).await;
            depths.push(depth.expect("the store itself has no faults"));
        }
        Self {
            states: world.workloads.iter().map(state).collect(),
            queues: depths,
            starts: world.oracle.starts(),
        }
    }

    /// Whether all is done.
    pub(super) fn is_over(&self) -> bool {
        let is_final = |state: &Option<(u64, String, bool)>| {
            state.as_ref().is_some_and(|(_, _, is_final)| *is_final)
        };
        self.states.iter().all(is_final) && self.queues.iter().all(|depth| *depth == 0)
    }
}

/// Unfinished workflows whose flag for the present generation is stored: they must be cancelled in the end.
pub(super) fn flagged(world: &World) -> Vec<(RunId, Generation)> {
    let mut found = Vec::new();
    for workload in world.workloads.iter() {
        if let Some(state) = world.oracle.state(&workload.id) {
            let of = (state.run_id, state.generation);
            if !state.status.is_final() && world.oracle.is_flagged(&of) {
                found.push(of);
            }
        }
    }
    found
}

/// Checks the end.
pub(super) async fn final_words(world: &World, flagged: &[(RunId, Generation)]) {
    for of in flagged {
        // A stopped workflow may end before its leader has read the flag, and so may one of which nothing was left to be started.
        let is_met = world.oracle.is_cancelled(of) || world.oracle.is_stopped(of);
        if !is_met && world.oracle.went_on_after_flag(of) {
            world
                .oracle
                .broken(format!("the cancel of run {} is lost", of.0));
        }
    }
    let store = &world.network.store;
    for workload in world.workloads.iter() {
        let id = &workload.id;
        let state = read_state(store, &world.layout, id).await;
        let state = match state.map(|found| found.map(|found| found.record)) {
            Ok(Some(StateRecord::Live(state))) => state,
            Ok(Some(StateRecord::Purged(_))) if world.oracle.is_purged(id) => {
                // Who runs it beside another may store something at any time.
                let left = world.oracle.leftovers(id);
                if world.swarm.forbids_repeats() && !left.is_empty() {
                    let what = format!("{id} is purged, but for {left:?}");
                    world.oracle.broken(what);
                }
                continue;
            }
            _ => {
                world.oracle.broken(format!("{id} has no readable state"));
                continue;
            }
        };
        // A claim outlives its message where the request to remove it was lost, or one to write it landed late (P21); or where another had
        // a message too early and finished it, while the first was paused.
        let left = world.oracle.claims_left(id);
        let may_outlive = world.swarm.early > 0 && world.swarm.pauses;
        if left > 0 && world.swarm.has_whole_network() && !may_outlive {
            let what = format!("{id} has ended, but {left} claims are left");
            world.oracle.broken(what);
        }
        for wrong in wrong_end(world, workload, &state) {
            world.oracle.broken(format!("{id}: {wrong}"));
        }
        match read_row(store, &world.layout, id).await {
            Ok(Some(found)) if !found.is_open() => {
                if let Some(wrong) = wrong_row(&found.record, &state) {
                    world.oracle.broken(format!("{id}: {wrong}"));
                }
            }
            other => world
                .oracle
                .broken(format!("{id} has no final row: {other:?}")),
        }
    }
}

/// Loses all rows: the next leader makes them again, and they show what they showed (P16).
pub(super) async fn lose_rows(world: &World) {
    let rows = &world.network.store.rows;
    let table = world.layout.index();
    for workload in world.workloads.iter() {
        let key = world.layout.done_row(&workload.id);
        let row = rows.get(table, &key).await;
        let row = row.expect("the store itself has no faults");
        // That of what was purged is for the leader to remove.
        if let Some(row) = row
            && !world.oracle.is_ghost(&workload.id)
        {
            let deleted = rows.delete(table, &key, &row.etag).await;
            deleted.expect("the store itself has no faults");
        }
    }
    world.oracle.rows_lost();
    for server in &world.servers {
        if server.role == Role::Coordinator {
            server.stop();
        }
    }
    let env = world.operator.env();
    let until = world.scheduler.now() + REBUILT_WITHIN;
    let shown = |workload: &Workload| {
        world.oracle.is_over(&workload.id) && !world.oracle.is_ghost(&workload.id)
    };
    while !world.workloads.iter().all(shown) {
        env.sleep(Duration::from_secs(1)).await;
        if world.scheduler.now() > until {
            world.oracle.broken("lost rows are not made again");
            return;
        }
    }
    final_words(world, &[]).await;
}

fn wrong_end(world: &World, workload: &Workload, state: &RuntimeRecord) -> Vec<String> {
    let states = state.task_states().expect("watched at each write");
    let mut wrong = Vec::new();
    let mut standings: Vec<(TaskState, Attempt)> = Vec::new();
    // Who is stopped depends on who is first, and so does what a retry runs again.
    let disturbed = world.oracle.was_disturbed(state.run_id);
    for (place, (task, ended)) in workload.definition.tasks.iter().zip(states).enumerate() {
        let mut details = state.tasks.iter();
        let detail = details.find(|detail| detail.place.at() == place);
        let attempt = detail.map_or(Attempt::NONE, |detail| detail.attempt_no);
        standings.push((ended, attempt));
        let Some(report) = detail.and_then(|detail| detail.report.as_deref()) else {
            continue;
        };
        let ending = workload.ending(&task.name, attempt.number());
        let told = match &report.outcome {
            Outcome::Succeeded => matches!(ending, Ending::Succeeds { .. }),
            Outcome::Failed(failure) => match failure.kind {
                FailureKind::Exit => ending == Ending::Fails,
                FailureKind::Signal => ending == Ending::IsKilled,
                FailureKind::Timeout => ending == Ending::TimesOut,
                FailureKind::Spawn => ending == Ending::CannotStart,
                FailureKind::Output => ending == Ending::WritesNonsense,
                // Its workers died too often.
                FailureKind::Deliveries => true,
                // Nothing here refuses what a job leaves, nor interrupts one so often.
                FailureKind::Upload | FailureKind::Send | FailureKind::Interruptions => false,
            },
            Outcome::Cancelled(_) => true,
        };
        if ended.is_terminal() && ended != TaskState::Cancelled && !told {
            wrong.push(format!(
                "`{}` ended with {:?}, not as it ran",
                task.name, report.outcome
            ));
        }
    }
    if state.stop.is_some() && state.cancel.is_none() && state.status != Status::Failed {
        wrong.push(format!("was stopped and is `{}`", state.status));
    }
    if disturbed {
        return wrong;
    }
    let should = end_of(workload, state.generation);
    let is = Standing {
        status: state.status,
        tasks: standings,
    };
    if is != should {
        wrong.push(format!("ended with {is:?} instead of {should:?}"));
    }
    wrong
}

fn wrong_row(row: &IndexRecord, state: &RuntimeRecord) -> Option<String> {
    // The answer to a request that changed nothing makes a revision which a row may never show.
    let shown = (row.status, row.generation, row.control_seq);
    let is = (state.status, state.generation, state.control_seq);
    let states = state.task_states().expect("watched at each write");
    let count = |word: &str| states.iter().filter(|found| found.word() == word).count() as u64;
    let counted = row.counts.iter().all(|(word, n)| count(word) == *n);
    if shown == is && counted && row.run_id == state.run_id {
        return None;
    }
    Some(format!(
        "its row shows {shown:?} {:?}, its state is {is:?}",
        row.counts
    ))
}
