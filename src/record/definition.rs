//! The definition blob: what was submitted, immutable.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Record;
use super::id::RunId;
use crate::definition::{Command, Definition, WorkflowId};

/// The definition blob, schema 2; 1 where no task is a merge, which is all that 2 adds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefinitionRecord {
    /// As [`DefinitionRecord::schema_of`] what it runs.
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
    const SCHEMA: u32 = 2;
}

impl DefinitionRecord {
    /// The schema of the record of a definition: the oldest that can say it.
    #[must_use]
    pub fn schema_of(definition: &Definition) -> u32 {
        let has_merge = definition
            .tasks
            .iter()
            .any(|task| task.cmd == Command::Merge);
        if has_merge { Self::SCHEMA } else { 1 }
    }
}
