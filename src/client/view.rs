//! A workflow as people see it. The JSON of these types is stable: fields keep their names, order and meaning.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, Status, TaskState};

/// The state of a task in the words people see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskWord {
    /// Waits for its dependencies.
    Pending,
    /// May run; not sent yet.
    Ready,
    /// Failed, and waits to be tried again.
    Retrying,
    /// Sent; no worker has said yet that it runs.
    Queued,
    /// A worker runs it. Workers say so after some seconds: shorter tasks go from `queued` to their end.
    Running,
    /// Succeeded.
    Completed,
    /// Failed with no attempt left.
    Failed,
    /// Cannot run because of what it depends on.
    UpstreamFailed,
    /// Not needed.
    Skipped,
    /// Ended by a cancel.
    Cancelled,
}

impl TaskWord {
    /// All words, in the order of a task's life.
    pub const ALL: [Self; 10] = [
        Self::Pending,
        Self::Ready,
        Self::Retrying,
        Self::Queued,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::UpstreamFailed,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Retrying => "retrying",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::UpstreamFailed => "upstream_failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// What the stored state alone says.
    #[must_use]
    pub const fn of(state: TaskState) -> Self {
        match state {
            TaskState::Pending => Self::Pending,
            TaskState::Ready => Self::Ready,
            TaskState::Dispatched => Self::Queued,
            TaskState::Completed => Self::Completed,
            TaskState::Failed => Self::Failed,
            TaskState::UpstreamFailed => Self::UpstreamFailed,
            TaskState::Skipped => Self::Skipped,
            TaskState::Cancelled => Self::Cancelled,
        }
    }

    /// Whether the task has ended.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Pending | Self::Ready | Self::Retrying | Self::Queued | Self::Running => false,
            Self::Completed
            | Self::Failed
            | Self::UpstreamFailed
            | Self::Skipped
            | Self::Cancelled => true,
        }
    }
}

impl fmt::Display for TaskWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl std::str::FromStr for TaskWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|word| word.word() == text);
        found.ok_or_else(|| {
            let all = Self::ALL.map(Self::word).join(", ");
            format!("`{text}` is no state of a task; there are {all}")
        })
    }
}

impl Serialize for TaskWord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// How many tasks are in each state; states without tasks are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<TaskWord, u64>);

impl Counts {
    /// Tasks in the state `word`.
    #[must_use]
    pub fn of(&self, word: TaskWord) -> u64 {
        self.0.get(&word).copied().unwrap_or(0)
    }

    /// Tasks that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        let ended = self.iter().filter(|(word, _)| word.is_ended());
        ended.map(|(_, n)| n).sum()
    }

    /// States with tasks, in the order of a task's life.
    pub fn iter(&self) -> impl Iterator<Item = (TaskWord, u64)> + '_ {
        self.0.iter().map(|(word, n)| (*word, *n))
    }

    /// Adds `n` tasks in the state `word`.
    pub(super) fn add(&mut self, word: TaskWord, n: u64) {
        if n > 0 {
            *self.0.entry(word).or_default() += n;
        }
    }
}

impl FromIterator<TaskWord> for Counts {
    fn from_iter<I: IntoIterator<Item = TaskWord>>(words: I) -> Self {
        let mut counts = Self::default();
        for word in words {
            counts.add(word, 1);
        }
        counts
    }
}

/// A workflow in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// What people call it.
    pub name: String,
    /// Where it stands.
    pub status: Status,
    /// How many tasks it has.
    pub total: u64,
    /// How many are in each state. A listing reads no claims: what runs counts as `queued` there, what waits for a retry as `ready`.
    pub counts: Counts,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When its state last changed.
    pub updated_at: Timestamp,
    /// Why it failed or was cancelled, as a sentence.
    pub reason: Option<String>,
}

/// A workflow with its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkflowView {
    /// All but the tasks.
    #[serde(flatten)]
    pub summary: Summary,
    /// The tasks, in the order of the definition.
    pub tasks: Vec<TaskView>,
}

/// A task as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskView {
    /// Its name.
    pub name: TaskName,
    /// Its state.
    pub state: TaskWord,
    /// The last attempt issued; 0 before the first.
    pub attempt_no: Attempt,
    /// Why it is in this state, as a sentence, where that needs one.
    pub reason: Option<String>,
    /// When the attempt started, by its worker's clock.
    pub started_at: Option<Timestamp>,
    /// When it ended, by its worker's clock.
    pub ended_at: Option<Timestamp>,
    /// The exit code of its command.
    pub exit_code: Option<i32>,
    /// The worker, as `host/pid`.
    pub worker: Option<String>,
}

impl WorkflowView {
    /// Shows queued tasks of which `runs` is true as running.
    pub(super) fn mark_running(&mut self, runs: impl Fn(&TaskName) -> bool) {
        for task in &mut self.tasks {
            if task.state == TaskWord::Queued && runs(&task.name) {
                task.state = TaskWord::Running;
            }
        }
        self.summary.counts = self.tasks.iter().map(|task| task.state).collect();
    }
}
