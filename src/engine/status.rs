//! Where a workflow stands, and how many of its tasks are in each state.

use serde::{Deserialize, Serialize};

use super::task::TaskState;

/// Where a workflow stands, as the state tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Submitted; no state yet.
    Pending,
    /// Some task has not ended.
    Running,
    /// A cancel was applied; some task has not ended.
    Cancelling,
    /// Ended well.
    Completed,
    /// Ended with a failure that counts.
    Failed,
    /// Ended by a cancel.
    Cancelled,
}

impl Status {
    /// Whether the workflow has ended.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Cancelling => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// How many tasks are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([usize; TaskState::ALL.len()]);

impl Counts {
    /// Tasks in `state`.
    #[must_use]
    pub const fn of(&self, state: TaskState) -> usize {
        self.0[state as usize]
    }

    /// Counts one more task in `state`.
    pub(super) const fn add(&mut self, state: TaskState) {
        self.0[state as usize] += 1;
    }

    /// Moves one task.
    pub(super) const fn shift(&mut self, from: TaskState, to: TaskState) {
        self.0[from as usize] -= 1;
        self.0[to as usize] += 1;
    }

    /// Tasks that have not ended.
    #[must_use]
    pub const fn unfinished(&self) -> usize {
        self.of(TaskState::Pending) + self.of(TaskState::Ready) + self.of(TaskState::Dispatched)
    }
}
