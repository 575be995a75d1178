//! Requests of people, which travel as messages so that the coordinator stays the only writer of state (P29).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::id::{ControlSeq, RunId};
use crate::definition::WorkflowId;
use crate::engine::Generation;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAction {
    /// Take the workflow up now rather than at the next sweep.
    Submit,
    /// End it.
    Cancel,
    /// Run again what failed.
    Retry,
    /// Remove what is left of it.
    Purge,
}

impl ControlAction {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Purge => "purge",
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlRecord {
    /// Names the request, for its answer.
    pub request_id: Uuid,
    /// What is asked for.
    pub action: ControlAction,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The life of the id that the asker saw.
    pub run_id: RunId,
    /// The generation that the asker saw.
    pub generation: Generation,
    /// How many requests had been applied when the asker looked.
    pub control_seq: ControlSeq,
    /// Who asks, as `user@host`.
    pub actor: String,
    /// When, by the asker's clock.
    pub requested_at: Timestamp,
}

/// The answer to a request, kept in the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlResult {
    /// The request.
    pub request_id: Uuid,
    /// What was asked for.
    pub action: ControlAction,
    /// Who asked.
    pub actor: String,
    /// When it was answered, by the leader's clock.
    pub answered_at: Timestamp,
    /// Why it was refused; none if it was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
