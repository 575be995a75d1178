//! The definition blob: what was submitted, immutable.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Record;
use super::id::RunId;
use crate::definition::{Definition, WorkflowId};

/// The definition blob, schema 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefinitionRecord {
    /// 1.
    pub schema: u32,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// This life of the id.
    pub run_id: RunId,
    /// When it was submitted, by the submitter's clock.
    pub submitted_at: Timestamp,
    /// Who submitted it, as `user@host`.
    pub submitted_by: String,
    /// What to run.
    pub definition: Definition,
}

impl Record for DefinitionRecord {
    const WHAT: &'static str = "definition blob";
    const SCHEMA: u32 = 1;
}
