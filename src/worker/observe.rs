//! What a worker tells of its doings: to an observer while it works, and in a summary at its end.

use std::fmt;

use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, Outcome};
use crate::record::TaskMessage;

/// A task is about to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStarted {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The task.
    pub task: TaskName,
    /// The attempt.
    pub attempt_no: Attempt,
}

/// The end of an attempt was posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEnded {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The task.
    pub task: TaskName,
    /// The attempt.
    pub attempt_no: Attempt,
    /// How it ended.
    pub outcome: Outcome,
}

impl TaskStarted {
    pub(super) fn of(task: &TaskMessage) -> Self {
        Self {
            workflow_id: task.workflow_id.clone(),
            task: task.task.clone(),
            attempt_no: task.attempt_no,
        }
    }
}

impl TaskEnded {
    pub(super) fn of(task: &TaskMessage, outcome: &Outcome) -> Self {
        Self {
            workflow_id: task.workflow_id.clone(),
            task: task.task.clone(),
            attempt_no: task.attempt_no,
            outcome: outcome.clone(),
        }
    }

    /// The word for how it ended.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed(_) => "failed",
            Outcome::Cancelled(_) => "cancelled",
        }
    }
}

/// Hears what a worker does. Called between two steps of the work: must return at once.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A task is about to run.
    fn started(&self, _task: &TaskStarted) {}
    /// The end of an attempt was posted.
    fn ended(&self, _task: &TaskEnded) {}
    /// The main loop has turned, or waits and means to.
    fn turned(&self) {}
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// What a worker did in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Attempts posted as succeeded.
    pub succeeded: u64,
    /// Attempts posted as failed.
    pub failed: u64,
    /// Attempts posted as cancelled.
    pub cancelled: u64,
    /// Attempts interrupted and given back.
    pub interrupted: u64,
    /// Messages given back without a start.
    pub given_back: u64,
    /// Messages removed as old news.
    pub old_news: u64,
    /// Messages left to come back by themselves.
    pub left: u64,
    /// Messages moved to a poison queue.
    pub poison: u64,
}

impl Summary {
    pub(super) const fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Succeeded => self.succeeded += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Cancelled(_) => self.cancelled += 1,
        }
    }
}
