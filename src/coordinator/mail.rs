//! What reaches the actor of one workflow.

use crate::definition::{QueueName, TaskName};
use crate::engine::{Attempt, Generation};
use crate::protocol::Delivery;
use crate::record::{CompletionResult, ControlRecord, RunId};

/// One piece of news or work for a workflow.
#[derive(Debug)]
pub(super) enum Mail {
    /// An attempt ended.
    Result(Box<CompletionResult>, Delivery),
    /// Somebody asks for something.
    Control(Box<ControlRecord>, Delivery),
    /// It is unfinished and held by nobody.
    TakeUp,
    /// Its row asks for a cancel of this generation of this run.
    CancelRequested(RunId, Generation),
    /// Its row is gone.
    Unlisted,
    /// Slots of a task queue came free.
    Slots {
        /// The queue.
        queue: QueueName,
        /// How many.
        count: u32,
    },
    /// The completion queue was drained once since this leader took over.
    Drained,
    /// Look over what is ready.
    Repair,
    /// The messages of these attempts are gone.
    Lost(Vec<(TaskName, Attempt)>),
}
