//! The claim: a worker's lease on one attempt, beside the message (P19).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Record;
use super::id::{RunId, Token};
use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, Generation};

/// A row of the claims table, schema 1. One a task; it is live while the row is younger than `visibility_s` + 5 s by service time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// 1.
    pub schema: u32,
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
    /// The execution that holds it.
    pub token: Token,
    /// The worker, as `host/pid`.
    pub worker: String,
    /// Its host.
    pub host: String,
    /// When the command started, by the worker's clock.
    pub started_at: Timestamp,
    /// The visibility time-out that the worker keeps up, in seconds.
    pub visibility_s: u32,
    /// How often this attempt was started.
    pub starts: u32,
    /// How often it was interrupted and given back.
    pub interruptions: u32,
    /// Whether its worker gave it back: nobody holds it.
    pub freed: bool,
}

impl Record for ClaimRecord {
    const WHAT: &'static str = "claim";
    const SCHEMA: u32 = 1;
}
