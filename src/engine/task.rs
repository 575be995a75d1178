//! One task: its place, its attempts, its states, and the arrows between them.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The largest number of an attempt or a generation that is read; more is damage, as with the counters of the stored forms.
pub const NUMBER_MAX: u32 = 1 << 30;

fn counted<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from)?;
    if number > NUMBER_MAX {
        let why = format!("{number} is no counter, they end at {NUMBER_MAX}");
        return Err(D::Error::custom(why));
    }
    Ok(number)
}

/// The place of a task in its definition, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskIx(u32);

impl TaskIx {
    /// The task at `place`.
    #[must_use]
    pub const fn new(place: u32) -> Self {
        Self(place)
    }

    /// The place as an index.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

/// The number of an attempt: 1, 2, …; zero before the first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Attempt(#[serde(deserialize_with = "counted")] u32);

impl Attempt {
    /// No attempt was issued yet.
    pub const NONE: Self = Self(0);

    /// The attempt `number`.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The attempt after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a run of the workflow: 1, raised by each `workflow retry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(#[serde(deserialize_with = "counted")] u32);

impl Generation {
    /// The first.
    pub const FIRST: Self = Self(1);

    /// The generation `number`.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The generation after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a task stands, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Waits for its dependencies.
    Pending,
    /// The state promises to send it.
    Ready,
    /// Its message was sent.
    Dispatched,
    /// Succeeded.
    Completed,
    /// Failed with no attempt left.
    Failed,
    /// Its dependencies can no longer be what it asks for.
    UpstreamFailed,
    /// Not needed.
    Skipped,
    /// Ended by a cancel.
    Cancelled,
}

impl TaskState {
    /// All states, in the order of a task's life.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Ready,
        Self::Dispatched,
        Self::Completed,
        Self::Failed,
        Self::UpstreamFailed,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// Whether the task has ended.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Ready | Self::Dispatched => false,
            Self::Completed
            | Self::Failed
            | Self::UpstreamFailed
            | Self::Skipped
            | Self::Cancelled => true,
        }
    }

    /// Whether it satisfies what depends on it.
    #[must_use]
    pub const fn satisfies(self) -> bool {
        matches!(self, Self::Completed | Self::Skipped)
    }

    /// Whether it counts as a failed dependency.
    #[must_use]
    pub const fn is_dep_failed(self) -> bool {
        matches!(self, Self::Failed | Self::UpstreamFailed | Self::Cancelled)
    }

    /// The state after `cause`; none where no arrow is drawn.
    #[must_use]
    pub fn after(self, cause: Cause) -> Option<Self> {
        TRANSITIONS
            .iter()
            .find(|(from, by, _)| *from == self && *by == cause)
            .map(|(_, _, to)| *to)
    }

    /// The word for it in stored forms and messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Dispatched => "dispatched",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::UpstreamFailed => "upstream_failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Why a task changes its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Its dependencies are what it asks for.
    Released,
    /// Its dependencies can no longer be what it asks for.
    Blocked,
    /// It is not needed.
    Unneeded,
    /// Its dependencies are what it asks for, and there is nothing to run.
    Merged,
    /// Its message was sent, or must be taken for sent.
    Sent,
    /// Its message was refused for good.
    Refused,
    /// An attempt succeeded.
    Succeeded,
    /// An attempt failed and another is allowed.
    FailedOnce,
    /// An attempt failed and none is left.
    FailedForGood,
    /// A cancel ended it.
    Cancelled,
    /// A retry of the workflow runs it again.
    Rerun,
}

/// Every arrow there is: from, why, to.
pub const TRANSITIONS: &[(TaskState, Cause, TaskState)] = &[
    (TaskState::Pending, Cause::Released, TaskState::Ready),
    (
        TaskState::Pending,
        Cause::Blocked,
        TaskState::UpstreamFailed,
    ),
    (TaskState::Pending, Cause::Unneeded, TaskState::Skipped),
    (TaskState::Pending, Cause::Merged, TaskState::Completed),
    (TaskState::Pending, Cause::Cancelled, TaskState::Cancelled),
    (TaskState::Ready, Cause::Sent, TaskState::Dispatched),
    (TaskState::Ready, Cause::Refused, TaskState::Failed),
    (TaskState::Ready, Cause::Cancelled, TaskState::Cancelled),
    // A result may come before the mark "sent" is stored: the leader that sent may be gone.
    (TaskState::Ready, Cause::Succeeded, TaskState::Completed),
    (TaskState::Ready, Cause::FailedOnce, TaskState::Ready),
    (TaskState::Ready, Cause::FailedForGood, TaskState::Failed),
    (
        TaskState::Dispatched,
        Cause::Succeeded,
        TaskState::Completed,
    ),
    (TaskState::Dispatched, Cause::FailedOnce, TaskState::Ready),
    (
        TaskState::Dispatched,
        Cause::FailedForGood,
        TaskState::Failed,
    ),
    (
        TaskState::Dispatched,
        Cause::Cancelled,
        TaskState::Cancelled,
    ),
    (TaskState::Completed, Cause::Rerun, TaskState::Pending),
    (TaskState::Failed, Cause::Rerun, TaskState::Pending),
    (TaskState::UpstreamFailed, Cause::Rerun, TaskState::Pending),
    (TaskState::Skipped, Cause::Rerun, TaskState::Pending),
    (TaskState::Cancelled, Cause::Rerun, TaskState::Pending),
];
