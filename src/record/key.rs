//! What a success left under the idempotency key of its task, for others with that key.

use serde::{Deserialize, Serialize};

use super::Record;
use super::id::{RunId, Token};
use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, Output};

/// A blob of its own, schema 1. Workflow, run, task, attempt and token name the execution, and with it the place of a large output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// 1.
    pub schema: u32,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Its life.
    pub run_id: RunId,
    /// The task.
    pub task: TaskName,
    /// The attempt.
    pub attempt_no: Attempt,
    /// The execution.
    pub token: Token,
    /// The exit code of its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What it wrote, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
}

impl Record for KeyRecord {
    const WHAT: &'static str = "result stored under a key";
    const SCHEMA: u32 = 1;
}
