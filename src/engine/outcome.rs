//! How attempts end, as workers report it and as the state keeps it. These shapes are part of the stored forms.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::task::{Attempt, Generation};
use crate::definition::{TaskName, WorkflowId};
use jiff::Timestamp;

/// How one attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The command ended well and its output is in place.
    Succeeded,
    /// It did not.
    Failed(Failure),
    /// A cancel of this generation ended it, or kept it from starting.
    Cancelled(Generation),
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The kind, for programs.
    pub kind: FailureKind,
    /// One sentence for people, without the task's name: `exit code 3`.
    pub message: String,
    /// Whether it is final whatever `num_retries` says.
    pub is_final: bool,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The command ended with another exit code than zero.
    Exit,
    /// A signal ended the command.
    Signal,
    /// The command ran longer than its `timeout_s`.
    Timeout,
    /// The command could not be started.
    Spawn,
    /// The output was not JSON, or too large.
    Output,
    /// Output or log could not be stored, and never will be.
    Upload,
    /// It was started too often without ending: it may kill its workers.
    Deliveries,
    /// It was interrupted too often.
    Interruptions,
    /// Its message could not be sent, and never will be.
    Send,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Timeout => "timeout",
            Self::Spawn => "spawn",
            Self::Output => "output",
            Self::Upload => "upload",
            Self::Deliveries => "deliveries",
            Self::Interruptions => "interruptions",
            Self::Send => "send",
        })
    }
}

/// The output of a successful attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Output {
    /// Small: the JSON itself.
    Inline(Box<RawValue>),
    /// Large: a blob beside the log, of this many bytes.
    Blob(u64),
}

impl PartialEq for Output {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inline(a), Self::Inline(b)) => a.get() == b.get(),
            (Self::Blob(a), Self::Blob(b)) => a == b,
            (Self::Inline(_), Self::Blob(_)) | (Self::Blob(_), Self::Inline(_)) => false,
        }
    }
}

impl Eq for Output {}

/// The execution whose success, stored under an idempotency key, stood for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Its task.
    pub task: TaskName,
    /// Its attempt.
    pub attempt_no: Attempt,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workflow_id,
            task,
            attempt_no,
        } = self;
        write!(
            f,
            "result reused from attempt {attempt_no} of task `{task}` of workflow `{workflow_id}`"
        )
    }
}

/// What is kept of an attempt that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptReport {
    /// How it ended.
    pub outcome: Outcome,
    /// Names this execution in the paths of output and log.
    pub token: String,
    /// The worker that ran it, as `host/pid`.
    pub worker: String,
    /// When the command started, by the worker's clock; none if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended, by the worker's clock.
    pub ended_at: Timestamp,
    /// The exit code of the command; none if it never started or a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The output, if one was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// Whether there is a log blob.
    pub has_log: bool,
    /// The end of standard error of a failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_tail: Option<String>,
    /// Whose success this is, if nothing ran because one was stored under the task's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<Origin>,
}
