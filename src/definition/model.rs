//! The checked definition, as all other code sees it. Its JSON is the stored form inside the definition blob.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::name::{QueueName, TaskName};

/// A checked workflow definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// What people call it; a workflow without a name is called by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The queue of tasks that name none.
    pub default_queue: QueueName,
    /// Most tasks sent and unfinished at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallelism: Option<u32>,
    /// Which tasks decide the result.
    pub result_policy: ResultPolicy,
    /// What a failed task means for its neighbours.
    pub on_failure: OnFailure,
    /// Environment variables of every task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The tasks, in the order written. At least one.
    pub tasks: Vec<Task>,
}

impl Definition {
    /// One text for equal definitions, whatever the file looked like: keys in one order, defaults filled in.
    ///
    /// # Panics
    /// Never: keys are text and a number that JSON cannot hold is written as null.
    #[must_use]
    pub fn canonical_json(&self) -> String {
        serde_json::to_string(self).expect("all keys are text, so JSON can hold it")
    }
}

/// One task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its name, unique in the workflow.
    pub name: TaskName,
    /// What it runs.
    pub cmd: Command,
    /// Environment variables, over those of the workflow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory; the worker's own without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The tasks it waits for, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskName>,
    /// Its queue; the workflow's default without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// What it asks of its dependencies.
    pub dep_policy: DepPolicy,
    /// Failures that are tried again.
    pub num_retries: u32,
    /// Longest run of one attempt in seconds, more than zero (the workflow's default is already filled in); none: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// A success of another task with this key on the same queue stands for a run of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// What a task runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// A text for the shell.
    Shell(String),
    /// A program and its arguments, run directly. Not empty.
    Exec(Vec<String>),
    /// Nothing: the coordinator completes the task once all that it waits for has ended. No user writes this.
    Merge,
}

/// What a task asks of its dependencies before it runs. Satisfied: completed or skipped. Dep-failed: failed, upstream_failed or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DepPolicy {
    /// All satisfied.
    All,
    /// At least one satisfied.
    Any,
    /// All ended, at least one satisfied.
    AllSettled,
    /// All ended, whatever happened.
    Always,
    /// All ended, at least one dep-failed; with none it is skipped.
    OnFailure,
    /// At least this many satisfied (1 to the number of dependencies).
    AtLeast(u32),
}

impl DepPolicy {
    /// Whether it waits for all to end, however they do: cleanups and notifiers. They run also when a failure stops the rest, and a
    /// task that only they wait for is a sink.
    #[must_use]
    pub const fn waits_for_any_end(self) -> bool {
        match self {
            Self::Always | Self::OnFailure => true,
            Self::All | Self::Any | Self::AllSettled | Self::AtLeast(_) => false,
        }
    }
}

/// Which tasks decide the result of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultPolicy {
    /// Those that nothing depends on, but for `always` and `on_failure` tasks.
    AllSinksSucceed,
    /// All.
    AllTasksSucceed,
}

/// What a failed task means for tasks that do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// They go on.
    Continue,
    /// They are stopped, but for `always` and `on_failure` tasks.
    Cancel,
}
