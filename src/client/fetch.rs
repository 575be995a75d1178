//! What a task wrote and printed, of the attempt that counts.

use bytes::Bytes;

use crate::client::read::{Stage, report_of_end};
use crate::client::{Client, ClientError, Result};
use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, AttemptReport, Origin, Output, TaskState};
use crate::record::TaskDetail;
use crate::store::BlobPath;

/// The output of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOutput {
    /// The attempt that counts.
    pub attempt_no: Attempt,
    /// The JSON as it wrote it; none if it wrote none.
    pub json: Option<Bytes>,
}

/// What a task printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The attempt it is of: the last that reported.
    pub attempt_no: Attempt,
    /// The bytes as printed; none if it printed nothing.
    pub bytes: Option<Bytes>,
    /// Whose success it ended with, if it did not run.
    pub reused_from: Option<Origin>,
}

/// One task of a stage.
struct Found<'a> {
    name: &'a TaskName,
    state: TaskState,
    detail: Option<&'a TaskDetail>,
}

impl Client {
    /// Reads the output of a task that has completed.
    ///
    /// # Errors
    /// [`ClientError::Nothing`] if it has not completed.
    pub async fn output(&self, id: &WorkflowId, task: &str) -> Result<TaskOutput> {
        let stage = self.stage(id).await?;
        let found = self.find(&stage, task)?;
        let Some((attempt_no, report)) = found
            .detail
            .filter(|_| found.state == TaskState::Completed)
            .and_then(last_report(found.state))
        else {
            return Err(ClientError::Nothing {
                id: id.clone(),
                task: task.to_owned(),
                why: format!(
                    "has no output: it is `{}`",
                    crate::client::TaskWord::of(found.state)
                ),
            });
        };
        let json = match &report.output {
            None => None,
            Some(Output::Inline(json)) => Some(Bytes::copy_from_slice(json.get().as_bytes())),
            Some(Output::Blob(_)) => {
                let run = stage.definition.run_id;
                let of = self
                    .layout
                    .execution(id, run, found.name, attempt_no, &report.token);
                Some(self.fetch(id, task, &of.output()).await?)
            }
        };
        Ok(TaskOutput { attempt_no, json })
    }

    /// Reads what the last attempt that reported has printed.
    ///
    /// # Errors
    /// [`ClientError::Nothing`] if no attempt has reported.
    pub async fn logs(&self, id: &WorkflowId, task: &str) -> Result<Log> {
        let stage = self.stage(id).await?;
        let found = self.find(&stage, task)?;
        let Some((attempt_no, report)) = found.detail.and_then(last_report(found.state)) else {
            return Err(ClientError::Nothing {
                id: id.clone(),
                task: task.to_owned(),
                why: format!(
                    "has no log: it is `{}`, and no attempt of it has ended",
                    crate::client::TaskWord::of(found.state)
                ),
            });
        };
        let bytes = if report.has_log {
            let run = stage.definition.run_id;
            let of = self
                .layout
                .execution(id, run, found.name, attempt_no, &report.token);
            Some(self.fetch(id, task, &of.log()).await?)
        } else {
            None
        };
        Ok(Log {
            attempt_no,
            bytes,
            reused_from: report.reused_from.clone(),
        })
    }

    fn find<'a>(&self, stage: &'a Stage, task: &str) -> Result<Found<'a>> {
        let id = &stage.definition.workflow_id;
        let tasks = &stage.definition.definition.tasks;
        let Some(at) = tasks.iter().position(|found| found.name.as_str() == task) else {
            let names = tasks.iter().map(|found| found.name.as_str());
            return Err(ClientError::NoTask {
                id: id.clone(),
                task: task.to_owned(),
                nearest: nearest(task, names),
            });
        };
        let (now, detail) = match &stage.runtime {
            None => (TaskState::Pending, None),
            Some(runtime) => {
                let states =
                    runtime
                        .task_states()
                        .map_err(|source| crate::protocol::ReadError::Decode {
                            place: self.layout.runtime(id).to_string(),
                            source,
                        })?;
                let detail = runtime.tasks.iter().find(|detail| detail.place.at() == at);
                (states[at], detail)
            }
        };
        Ok(Found {
            name: &tasks[at].name,
            state: now,
            detail,
        })
    }

    async fn fetch(&self, id: &WorkflowId, task: &str, path: &BlobPath) -> Result<Bytes> {
        let blob = self.store.blobs.get(path).await?;
        let blob = blob.ok_or_else(|| ClientError::Nothing {
            id: id.clone(),
            task: task.to_owned(),
            why: format!("had written `{path}`, which is gone"),
        })?;
        Ok(blob.body)
    }
}

/// The last report and its attempt: that of the end, or else of the attempt before the one just issued.
fn last_report(state: TaskState) -> impl Fn(&TaskDetail) -> Option<(Attempt, &AttemptReport)> {
    move |detail| {
        if let Some(report) = report_of_end(state, detail) {
            return Some((detail.attempt_no, report));
        }
        let before = Attempt::new(detail.attempt_no.number().saturating_sub(1));
        detail.report.as_deref().map(|report| (before, report))
    }
}

/// The name most like `name`, if one is like it at all.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let rated = names.map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    let best = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.8).then(|| best.1.to_owned())
}
