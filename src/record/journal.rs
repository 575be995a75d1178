//! The journal: who asked for what, and what came of it. A help to people, never read by a decision.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ControlAction, Record};
use crate::definition::WorkflowId;

/// What somebody did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalAction {
    /// Submitted a workflow.
    Submit,
    /// Asked for its end.
    Cancel,
    /// Asked to run again what failed.
    Retry,
    /// Asked to remove it.
    Purge,
    /// Took the lease from whoever held it.
    BreakLease,
    /// Had made what was missing.
    DoctorFix,
}

impl JournalAction {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Purge => "purge",
            Self::BreakLease => "break_lease",
            Self::DoctorFix => "doctor_fix",
        }
    }
}

impl From<ControlAction> for JournalAction {
    fn from(action: ControlAction) -> Self {
        match action {
            ControlAction::Submit => Self::Submit,
            ControlAction::Cancel => Self::Cancel,
            ControlAction::Retry => Self::Retry,
            ControlAction::Purge => Self::Purge,
        }
    }
}

/// What came of it, as far as its writer knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalResult {
    /// The request was sent; its answer has an entry of its own.
    Asked,
    /// It was done.
    Applied,
    /// It was refused.
    Refused,
}

impl JournalResult {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Applied => "applied",
            Self::Refused => "refused",
        }
    }
}

/// A row of the journal table, schema 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// 1.
    pub schema: u32,
    /// When, by the writer's clock.
    pub at: Timestamp,
    /// Who acted, as `user@host`.
    pub actor: String,
    /// What was done.
    pub action: JournalAction,
    /// To which workflow, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// The request, where there is one: its entries share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Uuid>,
    /// What came of it.
    pub result: JournalResult,
    /// Why it was refused, or whose lease was broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Record for JournalRecord {
    const WHAT: &'static str = "journal entry";
    const SCHEMA: u32 = 1;
}
