//! Tasks that should run and do not: no worker takes their queue, or their message is gone.
//!
//! Invariants:
//! 1. A task waits since the last end of what it depends on, of its own last attempt, or since its workflow was activated or
//!    retried: times of the machines that wrote them, so that a wrong clock makes an age wrong by as much.
//! 2. On a queue that is served (a live claim, or an attempt that ended lately) a task may wait in line for any time.
//! 3. A message is called gone without any clock: the queue was empty after the task was stored as sent, no result waits, and the
//!    task is stored as sent still.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::Patient;
use super::coordinator::ago;
use crate::definition::{Definition, QueueName, TaskName, WorkflowId};
use crate::engine::{Attempt, TaskState};
use crate::protocol::{FoundClaim, list_claims, read_runtime, readable_claim};
use crate::record::{ControlAction, RuntimeRecord, TaskDetail};
use crate::store::{Blob, Kind, Queue, Result};

/// How long a task may wait before somebody should look.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(300);

/// A workflow that could be read.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) definition: &'a Definition,
    pub(super) runtime: &'a RuntimeRecord,
    /// One for each task of the definition.
    pub(super) states: &'a [TaskState],
    /// What `runtime` was read from.
    pub(super) blob: &'a Blob,
}

impl Seen<'_> {
    pub(super) fn queue(&self, at: usize) -> &QueueName {
        let task = &self.definition.tasks[at];
        task.queue
            .as_ref()
            .unwrap_or(&self.definition.default_queue)
    }

    fn age(&self, at: Timestamp) -> Duration {
        Duration::try_from(self.blob.read_at.duration_since(at)).unwrap_or_default()
    }
}

/// A task that has waited for long.
#[derive(Debug)]
struct Waiting {
    id: WorkflowId,
    at: usize,
    task: TaskName,
    /// The attempt whose message was sent; none if none was.
    sent: Option<Attempt>,
    age: Duration,
}

/// What is found over all unfinished workflows.
#[derive(Debug, Default)]
pub(super) struct Waits {
    served: BTreeSet<QueueName>,
    waiting: BTreeMap<QueueName, Vec<Waiting>>,
}

/// The verdict, as sentences about workflows.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// On queues where no worker was seen.
    pub(super) unserved: Vec<String>,
    /// Without a message.
    pub(super) lost: Vec<String>,
}

impl Waits {
    /// Adds the tasks of one workflow.
    pub(super) async fn add(&mut self, patient: &Patient, seen: &Seen<'_>) -> Result<()> {
        let is_out = |state: &TaskState| matches!(state, TaskState::Ready | TaskState::Dispatched);
        if !seen.states.iter().any(is_out) {
            return Ok(());
        }
        let claimed = claimed(patient, &seen.runtime.workflow_id).await?;
        let mut details: Vec<Option<&TaskDetail>> = vec![None; seen.states.len()];
        for detail in &seen.runtime.tasks {
            if let Some(place) = details.get_mut(detail.place.at()) {
                *place = Some(detail);
            }
        }
        let since = Since::new(seen, &details);
        for (at, state) in seen.states.iter().enumerate() {
            let task = &seen.definition.tasks[at].name;
            let ended = details[at].and_then(|detail| detail.report.as_ref());
            let ended_lately = ended.is_some_and(|report| seen.age(report.ended_at) <= WAIT_MAX);
            let is_claimed = claimed.contains(task);
            if is_claimed || ended_lately {
                self.served.insert(seen.queue(at).clone());
            }
            let attempt = details[at].map_or(Attempt::NONE, |detail| detail.attempt_no);
            let sent = match state {
                TaskState::Dispatched => Some(attempt),
                // What runs beside it may be what it has to wait for.
                TaskState::Ready
                    if claimed.is_empty() && seen.age(seen.blob.changed_at) > WAIT_MAX =>
                {
                    None
                }
                TaskState::Ready
                | TaskState::Pending
                | TaskState::Completed
                | TaskState::Failed
                | TaskState::UpstreamFailed
                | TaskState::Skipped
                | TaskState::Cancelled => continue,
            };
            let age = seen.age(since.released(at));
            if !is_claimed && age > WAIT_MAX {
                let waiting = Waiting {
                    id: seen.runtime.workflow_id.clone(),
                    at,
                    task: task.clone(),
                    sent,
                    age,
                };
                let queue = seen.queue(at).clone();
                self.waiting.entry(queue).or_default().push(waiting);
            }
        }
        Ok(())
    }

    /// Judges what waits.
    pub(super) async fn judge(self, patient: &Patient) -> Result<Verdicts> {
        let mut verdicts = Verdicts::default();
        for (queue, waiting) in self.waiting {
            let lost = lost(patient, &queue, &waiting).await?;
            let (gone, rest): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .partition(|waiting| lost.contains(&(waiting.id.clone(), waiting.at)));
            verdicts.lost.extend(sentences(&queue, &gone));
            if !self.served.contains(&queue) {
                verdicts.unserved.extend(sentences(&queue, &rest));
            }
        }
        Ok(verdicts)
    }
}

/// When tasks were released to run.
struct Since<'a> {
    seen: &'a Seen<'a>,
    details: &'a [Option<&'a TaskDetail>],
    places: BTreeMap<&'a TaskName, usize>,
    /// Before this nothing of the workflow can have been released.
    floor: Timestamp,
    /// The last end of any attempt.
    latest: Timestamp,
}

impl<'a> Since<'a> {
    fn new(seen: &'a Seen<'a>, details: &'a [Option<&'a TaskDetail>]) -> Self {
        let runtime = seen.runtime;
        let retries = runtime
            .control_results
            .iter()
            .filter(|result| result.action == ControlAction::Retry && result.refused.is_none());
        let floor = retries
            .map(|result| result.answered_at)
            .fold(runtime.created_at, Timestamp::max);
        let reports = runtime.tasks.iter().filter_map(|task| task.report.as_ref());
        let latest = reports
            .map(|report| report.ended_at)
            .fold(floor, Timestamp::max);
        let names = seen.definition.tasks.iter().enumerate();
        Self {
            seen,
            details,
            places: names.map(|(at, task)| (&task.name, at)).collect(),
            floor,
            latest,
        }
    }

    fn released(&self, at: usize) -> Timestamp {
        let ended = |at: usize| Some(self.details[at]?.report.as_ref()?.ended_at);
        let due = self.details[at].and_then(|detail| detail.due);
        let own = [ended(at), due.map(|due| due.at)];
        let task = &self.seen.definition.tasks[at];
        let parents = task.depends_on.iter().filter_map(|name| {
            let parent = *self.places.get(name)?;
            let has_ended = self.seen.states[parent].is_terminal();
            // One that never ran was ended by others.
            has_ended.then(|| ended(parent).unwrap_or(self.latest))
        });
        own.into_iter()
            .flatten()
            .chain(parents)
            .fold(self.floor, Timestamp::max)
    }
}

/// The tasks of a workflow that workers hold.
async fn claimed(patient: &Patient, id: &WorkflowId) -> Result<BTreeSet<TaskName>> {
    let mut names = BTreeSet::new();
    let mut after = None;
    loop {
        let page = match list_claims(&patient.store, &patient.layout, id, after.as_ref()).await {
            Ok(page) => page,
            // That the table is missing is told elsewhere.
            Err(error) if error.kind == Kind::NoResource => return Ok(names),
            Err(error) => return Err(error),
        };
        let claims = page.items.into_iter();
        let claims = claims.filter_map(readable_claim);
        let live = claims.filter(FoundClaim::is_live);
        names.extend(live.map(|claim| claim.record.task));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(names),
        }
    }
}

/// Those of `waiting` whose message is gone (invariant 3).
async fn lost(
    patient: &Patient,
    queue: &QueueName,
    waiting: &[Waiting],
) -> Result<BTreeSet<(WorkflowId, usize)>> {
    let mut lost = BTreeSet::new();
    let sent: Vec<&Waiting> = waiting.iter().filter(|task| task.sent.is_some()).collect();
    if sent.is_empty()
        || !is_empty(patient, &patient.layout.task_queue(queue)).await?
        || !is_empty(patient, patient.layout.completions()).await?
    {
        return Ok(lost);
    }
    let ids: BTreeSet<&WorkflowId> = sent.iter().map(|task| &task.id).collect();
    for id in ids {
        let Ok(Some(found)) = read_runtime(&patient.store, &patient.layout, id).await else {
            continue;
        };
        let Ok(states) = found.record.task_states() else {
            continue;
        };
        let attempts: BTreeMap<usize, Attempt> = found
            .record
            .tasks
            .iter()
            .map(|detail| (detail.place.at(), detail.attempt_no))
            .collect();
        let still = sent.iter().filter(|task| {
            task.id == *id
                && states.get(task.at) == Some(&TaskState::Dispatched)
                && attempts.get(&task.at).copied() == task.sent
        });
        lost.extend(still.map(|task| (task.id.clone(), task.at)));
    }
    Ok(lost)
}

async fn is_empty(patient: &Patient, queue: &Queue) -> Result<bool> {
    match patient.store.queues.depth(queue).await {
        Ok(depth) => Ok(depth == 0),
        Err(error) if error.kind == Kind::NoResource => Ok(true),
        Err(error) => Err(error),
    }
}

/// One sentence for each workflow.
fn sentences(queue: &QueueName, waiting: &[Waiting]) -> Vec<String> {
    let mut by_id: BTreeMap<&WorkflowId, Vec<&Waiting>> = BTreeMap::new();
    for task in waiting {
        by_id.entry(&task.id).or_default().push(task);
    }
    let sentence = |(id, tasks): (&WorkflowId, Vec<&Waiting>)| {
        let oldest = tasks.iter().max_by_key(|task| task.age)?;
        let count = match tasks.len() {
            1 => "1 task".to_owned(),
            n => format!("{n} tasks"),
        };
        Some(format!(
            "`{id}`: {count} on queue `{queue}`, `{}` for {}",
            oldest.task,
            ago(oldest.age)
        ))
    };
    by_id.into_iter().filter_map(sentence).collect()
}
