//! Builds the view of one workflow from its definition, its state and the claims on its tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::view::{Counts, Summary, TaskView, TaskWord, WorkflowView};
use crate::client::{Client, ClientError, Result};
use crate::definition::{TaskName, WorkflowId};
use crate::engine::{AttemptReport, Outcome, Status, TaskIx, TaskState};
use crate::protocol::{
    FoundClaim, Kept, ReadError, list_claims, read_definition, read_head, read_row,
    read_state_again, readable_claim,
};
use crate::record::{
    ClaimRecord, DecodeError, DefinitionRecord, Record as _, Revision, RuntimeRecord, StateRecord,
    TaskDetail,
};
use crate::store::Kind;

/// How far a workflow has come in storage.
#[derive(Debug, Clone)]
pub struct Stage {
    /// What was submitted.
    pub definition: Arc<DefinitionRecord>,
    /// Its state, once a coordinator has taken it up.
    pub runtime: Option<RuntimeRecord>,
}

impl Client {
    /// Reads a workflow with all its tasks.
    ///
    /// # Errors
    /// [`ClientError::NoWorkflow`], [`ClientError::Purging`], or what keeps it from being read.
    pub async fn read(&self, id: &WorkflowId) -> Result<WorkflowView> {
        let stage = self.stage(id).await?;
        self.view(&stage).await
    }

    /// Reads what is stored of a workflow, without the claims.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn stage(&self, id: &WorkflowId) -> Result<Stage> {
        let definition = self.definition(id).await?;
        let runtime = self.runtime(&definition).await?;
        Ok(Stage {
            definition,
            runtime,
        })
    }

    pub(super) async fn definition(&self, id: &WorkflowId) -> Result<Arc<DefinitionRecord>> {
        let found = read_definition(&self.store, &self.layout, id).await?;
        let found = found.ok_or_else(|| ClientError::NoWorkflow(id.clone()))?;
        Ok(Arc::new(found.record))
    }

    /// The state that belongs to this life of the id; none before a coordinator has taken it up.
    pub(super) async fn runtime(&self, of: &DefinitionRecord) -> Result<Option<RuntimeRecord>> {
        self.runtime_again(of, &Kept::default()).await
    }

    /// As [`Client::runtime`], for who looks again and again.
    pub(super) async fn runtime_again(
        &self,
        of: &DefinitionRecord,
        kept: &Kept,
    ) -> Result<Option<RuntimeRecord>> {
        let id = &of.workflow_id;
        let found = read_state_again(&self.store, &self.layout, id, kept).await?;
        if found.is_none()
            && let Some(gone) = self.gone(of).await?
        {
            return Err(gone.into());
        }
        let runtime = match found.map(|stored| stored.record) {
            Some(StateRecord::Live(runtime)) if runtime.run_id == of.run_id => Some(runtime),
            // What is left of it is being removed.
            Some(StateRecord::Purged(tombstone)) if tombstone.run_id == of.run_id => {
                return Err(ClientError::Purging(of.workflow_id.clone()));
            }
            Some(StateRecord::Live(_) | StateRecord::Purged(_)) | None => None,
        };
        if let Some(runtime) = &runtime {
            check_places(runtime, of.definition.tasks.len()).map_err(|source| {
                ReadError::Decode {
                    place: self.layout.runtime(&of.workflow_id).to_string(),
                    source,
                }
            })?;
        }
        Ok(runtime)
    }

    /// What is wrong where no state was found: it had been there, if the row knows a revision of this run.
    pub(super) async fn gone(&self, of: &DefinitionRecord) -> Result<Option<ReadError>> {
        let id = &of.workflow_id;
        let row = read_row(&self.store, &self.layout, id).await?;
        let row = row.map(|found| found.record);
        let row = row.filter(|row| row.run_id == of.run_id && row.revision > Revision::new(0));
        let Some(row) = row else { return Ok(None) };
        // It may have been taken up between the two looks.
        let found = read_head(&self.store, &self.layout, id).await?;
        Ok(found.is_none().then(|| ReadError::Decode {
            place: self.layout.runtime(id).to_string(),
            source: DecodeError::Nonsense {
                what: RuntimeRecord::WHAT,
                why: format!("it is gone, though its row shows revision {}", row.revision),
            },
        }))
    }

    pub(super) async fn view(&self, stage: &Stage) -> Result<WorkflowView> {
        let claims = match &stage.runtime {
            Some(runtime) if !runtime.status.is_final() && runtime.states.contains('d') => {
                self.live_claims(runtime).await?
            }
            Some(_) | None => BTreeMap::new(),
        };
        view(stage, &claims).map_err(|source| {
            ReadError::Decode {
                place: self
                    .layout
                    .runtime(&stage.definition.workflow_id)
                    .to_string(),
                source,
            }
            .into()
        })
    }

    /// The claims of workers that are at work now, by task.
    async fn live_claims(
        &self,
        runtime: &RuntimeRecord,
    ) -> Result<BTreeMap<TaskName, ClaimRecord>> {
        let id = &runtime.workflow_id;
        let mut claims = BTreeMap::new();
        let mut after = None;
        loop {
            let page = list_claims(&self.store, &self.layout, id, after.as_ref());
            let page = match page.await {
                Ok(page) => page,
                Err(error) if error.kind == Kind::NoResource => return Ok(claims),
                Err(error) => return Err(error.into()),
            };
            // A row that cannot be read claims nothing.
            let found = page.items.into_iter().filter_map(readable_claim);
            let live = found.filter(FoundClaim::is_live).map(|claim| claim.record);
            let ours = live.filter(|claim| {
                claim.run_id == runtime.run_id && claim.generation == runtime.generation
            });
            claims.extend(ours.map(|claim| (claim.task.clone(), claim)));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(claims),
            }
        }
    }
}

fn check_places(runtime: &RuntimeRecord, tasks: usize) -> std::result::Result<(), DecodeError> {
    let fits = |place: TaskIx| place.at() < tasks;
    let details_fit = runtime
        .tasks
        .iter()
        .all(|detail| fits(detail.place) && detail.root_cause.is_none_or(fits));
    if runtime.states.len() == tasks && details_fit {
        return Ok(());
    }
    Err(DecodeError::Nonsense {
        what: "runtime blob of its definition",
        why: format!(
            "it holds {} tasks, the definition {tasks}",
            runtime.states.len()
        ),
    })
}

fn view(
    stage: &Stage,
    claims: &BTreeMap<TaskName, ClaimRecord>,
) -> std::result::Result<WorkflowView, DecodeError> {
    let Stage {
        definition,
        runtime,
    } = stage;
    let names = definition.definition.tasks.iter().map(|task| &task.name);
    let tasks: Vec<TaskView> = match runtime {
        None => names.map(pending).collect(),
        Some(runtime) => {
            let names: Vec<&TaskName> = names.collect();
            let states = runtime.task_states()?;
            let mut details = runtime.tasks.iter().peekable();
            let views = states.into_iter().enumerate().map(|(at, state)| {
                let detail = details.next_if(|detail| detail.place.at() == at);
                task_view(names[at], state, detail, &names, claims)
            });
            views.collect()
        }
    };
    let mut tasks = tasks;
    let why = why_unsent(stage);
    let ready = tasks
        .iter_mut()
        .filter(|task| task.state == TaskWord::Ready);
    ready.for_each(|task| task.reason = Some(why.clone()));
    let counts: Counts = tasks.iter().map(|task| task.state).collect();
    let name = definition.definition.name.clone();
    let summary = Summary {
        workflow_id: definition.workflow_id.clone(),
        name: name.unwrap_or_else(|| definition.workflow_id.to_string()),
        status: runtime
            .as_ref()
            .map_or(Status::Pending, |runtime| runtime.status),
        total: u64::try_from(tasks.len()).unwrap_or(u64::MAX),
        counts,
        created_at: definition.submitted_at,
        updated_at: runtime
            .as_ref()
            .map_or(definition.submitted_at, |runtime| runtime.updated_at),
        reason: runtime.as_ref().and_then(workflow_reason),
    };
    Ok(WorkflowView { summary, tasks })
}

/// What holds ready tasks back (P28), as far as the stored state tells.
fn why_unsent(stage: &Stage) -> String {
    let sent = stage.runtime.as_ref().map_or(0, |runtime| {
        let sent = |state: &TaskState| *state == TaskState::Dispatched;
        let states = runtime.task_states().unwrap_or_default();
        states.iter().filter(|state| sent(state)).count()
    });
    match stage.definition.definition.max_parallelism {
        Some(max) if sent >= max as usize => {
            format!("waits for one of {sent} tasks to end: `max_parallelism` is {max}")
        }
        Some(_) | None => {
            "waits to be sent: for long only where the coordinator's `--max-outstanding` is reached"
                .to_owned()
        }
    }
}

/// As the index row tells it.
fn workflow_reason(runtime: &RuntimeRecord) -> Option<String> {
    let failure = runtime.reason.as_deref();
    RuntimeRecord::why(runtime.status, &runtime.control_results, failure)
}

fn pending(name: &TaskName) -> TaskView {
    TaskView {
        name: name.clone(),
        state: TaskWord::Pending,
        attempt_no: crate::engine::Attempt::NONE,
        reason: None,
        started_at: None,
        ended_at: None,
        exit_code: None,
        worker: None,
    }
}

fn task_view(
    name: &TaskName,
    state: TaskState,
    detail: Option<&TaskDetail>,
    names: &[&TaskName],
    claims: &BTreeMap<TaskName, ClaimRecord>,
) -> TaskView {
    let mut view = pending(name);
    view.state = TaskWord::of(state);
    let Some(detail) = detail else {
        return view;
    };
    view.attempt_no = detail.attempt_no;
    if let Some(report) = report_of_end(state, detail) {
        view.started_at = report.started_at;
        view.ended_at = Some(report.ended_at);
        view.exit_code = report.exit_code;
        view.worker = Some(report.worker.clone());
    }
    let claim = claims
        .get(name)
        .filter(|claim| claim.attempt_no == detail.attempt_no);
    match state {
        TaskState::Dispatched => {
            if let Some(claim) = claim {
                view.state = TaskWord::Running;
                view.started_at = Some(claim.started_at);
                view.worker = Some(claim.worker.clone());
            }
        }
        TaskState::Ready if detail.due.is_some() => view.state = TaskWord::Retrying,
        TaskState::Pending
        | TaskState::Ready
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::UpstreamFailed
        | TaskState::Skipped
        | TaskState::Cancelled => {}
    }
    view.reason = task_reason(view.state, detail, names);
    view
}

/// The report of the attempt that ended the task; a report of an earlier attempt is not about its end.
pub(super) fn report_of_end(state: TaskState, detail: &TaskDetail) -> Option<&AttemptReport> {
    let report = detail.report.as_deref()?;
    let fits = match &report.outcome {
        Outcome::Succeeded => state == TaskState::Completed,
        Outcome::Failed(_) => state == TaskState::Failed,
        Outcome::Cancelled(_) => state == TaskState::Cancelled,
    };
    fits.then_some(report)
}

fn task_reason(word: TaskWord, detail: &TaskDetail, names: &[&TaskName]) -> Option<String> {
    let failure = detail
        .report
        .as_deref()
        .and_then(|report| match &report.outcome {
            Outcome::Failed(failure) => Some(failure.message.clone()),
            Outcome::Succeeded | Outcome::Cancelled(_) => None,
        });
    let reason = detail.reason.clone();
    let reused = || detail.report.as_deref()?.reused_from.as_ref();
    match word {
        TaskWord::Completed => reason.or_else(|| reused().map(ToString::to_string)),
        TaskWord::Failed => reason.or(failure),
        TaskWord::Retrying => {
            failure.map(|failure| format!("attempt {} failed: {failure}", last_reported(detail)))
        }
        TaskWord::UpstreamFailed => reason.or_else(|| {
            let root = names[detail.root_cause?.at()];
            Some(format!(
                "task `{root}`, on which it depends, did not succeed"
            ))
        }),
        TaskWord::Pending
        | TaskWord::Ready
        | TaskWord::Queued
        | TaskWord::Running
        | TaskWord::Skipped
        | TaskWord::Cancelled => reason,
    }
}

/// The attempt before the one just issued: the last that can have reported.
fn last_reported(detail: &TaskDetail) -> u32 {
    detail.attempt_no.number().saturating_sub(1)
}
