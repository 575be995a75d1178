//! The seam to what runs tasks: real processes, or a simulation of them.
//!
//! # Contract of [`Executor::run`]
//! - **E1** It returns in bounded time after [`Signals::stop`] (the job's grace and a little), at once after [`Signals::kill`].
//! - **E2** [`End::Stopped`] is told only of what was still running when it was asked to end.
//! - **E3** When it has returned, or its future was dropped, nothing of the job runs any more.
//! - **E4** Log and standard error are bounded, whatever the job prints.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::definition::{Command, TaskName, WorkflowId};
use crate::engine::Attempt;
use crate::env::Timestamp;
use crate::record::Token;

/// The largest output of a task.
pub const OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Job {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The task.
    pub task: TaskName,
    /// The attempt.
    pub attempt: Attempt,
    /// This execution of it.
    pub token: Token,
    /// The command.
    pub command: Command,
    /// Environment variables that the definition sets.
    pub env: BTreeMap<String, String>,
    /// The working directory, if not the worker's.
    pub cwd: Option<String>,
    /// The longest run, from the real start.
    pub time_limit: Option<Duration>,
    /// The time between the request to end and the force.
    pub grace: Duration,
    /// How the dependencies ended, as JSON.
    pub inputs: Bytes,
    /// A success stored under this key stands for running it.
    pub idempotency_key: Option<String>,
}

/// How the worker ends a job early.
#[derive(Debug, Clone)]
pub struct Signals {
    /// Asks it to end; it has its grace.
    pub stop: CancellationToken,
    /// Ends it now.
    pub kill: CancellationToken,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal that the worker did not send.
    Signalled(String),
    /// It ran into its time limit.
    TimedOut,
    /// The worker ended it.
    Stopped,
    /// It could not be started, for a reason of its own.
    Refused(String),
    /// It could not be started because this machine lacks something; another may do better.
    NoRoom(String),
}

/// What a job left as its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// Nothing.
    Nothing,
    /// These bytes, not checked yet.
    Bytes(Bytes),
    /// More than [`OUTPUT_BYTES_MAX`]: so many.
    TooLarge(u64),
    /// Something that cannot be read.
    Unreadable(String),
}

/// What became of a job.
#[derive(Debug, Clone)]
pub struct Execution {
    /// How it ended.
    pub end: End,
    /// When it really started; none if it did not.
    pub started_at: Option<Timestamp>,
    /// What it left as its output.
    pub written: Written,
    /// What it printed, cut in the middle with a mark; empty if nothing.
    pub log: Bytes,
    /// The last of what it printed to standard error.
    pub stderr_tail: Vec<u8>,
}

impl Execution {
    /// A job that never started.
    #[must_use]
    pub const fn not_started(end: End) -> Self {
        Self {
            end,
            started_at: None,
            written: Written::Nothing,
            log: Bytes::new(),
            stderr_tail: Vec::new(),
        }
    }
}

/// Runs jobs; the contract stands above.
#[async_trait]
pub trait Executor: fmt::Debug + Send + Sync {
    /// Runs `job` to its end.
    ///
    /// # Cancel safety
    /// Dropping the future ends the job by force (E3).
    async fn run(&self, job: &Job, signals: &Signals) -> Execution;
}
