//! The completion message: how attempts ended, a list from its first version on (P24). It shares its queue with control messages.

use serde::{Deserialize, Serialize};

use super::Record;
use super::control::ControlRecord;
use super::id::RunId;
use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, AttemptReport, Generation};

/// A message on the completion queue, schema 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionRecord {
    /// 1.
    pub schema: u32,
    /// How attempts ended; of any workflows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<CompletionResult>,
    /// A request by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlRecord>,
}

impl Record for CompletionRecord {
    const WHAT: &'static str = "completion message";
    const SCHEMA: u32 = 1;
}

impl CompletionRecord {
    /// A message with one request.
    #[must_use]
    pub const fn of_control(control: ControlRecord) -> Self {
        Self {
            schema: Self::SCHEMA,
            results: Vec::new(),
            control: Some(control),
        }
    }

    /// A message with results.
    #[must_use]
    pub const fn of_results(results: Vec<CompletionResult>) -> Self {
        Self {
            schema: Self::SCHEMA,
            results,
            control: None,
        }
    }
}

/// How one attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionResult {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// This life of the id.
    pub run_id: RunId,
    /// The generation.
    pub generation: Generation,
    /// The task.
    pub task: TaskName,
    /// The attempt.
    pub attempt_no: Attempt,
    /// How it ended.
    pub report: AttemptReport,
}
