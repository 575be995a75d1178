//! The task message: what a worker needs to run one attempt, and what it needs to doubt it (P18).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Record;
use super::id::{Epoch, RunId};
use crate::definition::{Command, TaskName, WorkflowId};
use crate::engine::{Attempt, Generation, TaskState};

/// A task message, schema 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskMessage {
    /// 1.
    pub schema: u32,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// This life of the id.
    pub run_id: RunId,
    /// The generation.
    pub generation: Generation,
    /// The leader that sent it.
    pub epoch: Epoch,
    /// The task.
    pub task: TaskName,
    /// The attempt.
    pub attempt_no: Attempt,
    /// Whether another copy may be under way: the worker looks before it starts.
    pub again: bool,
    /// Whether it runs also when a failure has stopped the rest of its workflow (`on_failure: cancel`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub survives_stop: bool,
    /// What to run.
    pub body: TaskBody,
}

impl Record for TaskMessage {
    const WHAT: &'static str = "task message";
    const SCHEMA: u32 = 1;
}

/// What to run, or where that is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskBody {
    /// The message carries it.
    Inline(TaskSpec),
    /// Too large for a message: the name of a blob in the outputs container that holds it as a [`TaskSpec`].
    Blob(String),
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// 1; the number is repeated because the spec may stand alone in a blob.
    pub schema: u32,
    /// The command.
    pub cmd: Command,
    /// Environment variables: the workflow's, overlaid by the task's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Longest run in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// A success stored under this key stands for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How the dependencies ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: Inputs,
}

impl Record for TaskSpec {
    const WHAT: &'static str = "task spec";
    const SCHEMA: u32 = 1;
}

/// The dependencies that had ended when the task was made ready, by name.
pub type Inputs = BTreeMap<TaskName, Input>;

/// How one dependency ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its state.
    pub state: TaskState,
    /// What it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<InputOutput>,
}

/// What a dependency wrote, or where it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum InputOutput {
    /// The JSON itself.
    Inline(Box<RawValue>),
    /// The name of a blob in the outputs container that holds the JSON.
    Blob(String),
}

impl PartialEq for InputOutput {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inline(a), Self::Inline(b)) => a.get() == b.get(),
            (Self::Blob(a), Self::Blob(b)) => a == b,
            (Self::Inline(_), Self::Blob(_)) | (Self::Blob(_), Self::Inline(_)) => false,
        }
    }
}
