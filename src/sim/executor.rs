//! The simulated executor: jobs that take their time and end as the seed says, and a history of what started.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::oracle::Oracle;
use super::process::Process;
use super::workload::{Ending, Workload};
use crate::env::Clock as _;
use crate::worker::{End, Execution, Executor, Job, Signals, Written};

/// Runs the jobs of one worker.
pub(super) struct SimExecutor {
    process: Process,
    workloads: Arc<Vec<Workload>>,
    oracle: Arc<Oracle>,
}

impl fmt::Debug for SimExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimExecutor").finish_non_exhaustive()
    }
}

impl SimExecutor {
    pub(super) fn new(
        process: &Process,
        workloads: &Arc<Vec<Workload>>,
        oracle: &Arc<Oracle>,
    ) -> Self {
        Self {
            process: process.clone(),
            workloads: Arc::clone(workloads),
            oracle: Arc::clone(oracle),
        }
    }
}

/// Ends an execution in the history, also when its future is dropped.
struct Running<'a> {
    oracle: &'a Oracle,
    job: &'a Job,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.oracle.execution_ended(self.job);
    }
}

#[async_trait]
impl Executor for SimExecutor {
    async fn run(&self, job: &Job, signals: &Signals) -> Execution {
        let of = |workload: &&Workload| workload.id == job.workflow_id;
        let Some(workload) = self.workloads.iter().find(of) else {
            return Execution::not_started(End::Refused("nobody submitted it".to_owned()));
        };
        if workload.has_no_room(&job.token.to_string()) {
            return Execution::not_started(End::NoRoom("simulated".to_owned()));
        }
        let slot = workload.slot(&job.task);
        self.oracle.execution_started(self.process.id, job, slot);
        let _running = Running {
            oracle: &self.oracle,
            job,
        };
        let attempt = job.attempt.number();
        let started_at = Some(self.process.wall());
        let stopped = async {
            signals.stop.cancelled().await;
            if workload.is_stubborn(&job.task, attempt) {
                self.process.sleep(job.grace).await;
            }
        };
        let ended = tokio::select! {
            biased;
            () = signals.kill.cancelled() => false,
            () = stopped => false,
            () = self.process.sleep(workload.takes(&job.task, attempt)) => true,
        };
        if !ended {
            return Execution {
                started_at,
                ..Execution::not_started(End::Stopped)
            };
        }
        let (end, written) = match workload.ending(&job.task, attempt) {
            Ending::Fails => (End::Exited(3), Written::Nothing),
            Ending::IsKilled => (End::Signalled("SIGSEGV".to_owned()), Written::Nothing),
            Ending::TimesOut => (End::TimedOut, Written::Nothing),
            Ending::CannotStart => {
                let why = "no such program".to_owned();
                return Execution::not_started(End::Refused(why));
            }
            Ending::WritesNonsense => (
                End::Exited(0),
                Written::Bytes(Bytes::from_static(b"{\"not\": JSON")),
            ),
            Ending::Succeeds { output: 0 } => (End::Exited(0), Written::Nothing),
            Ending::Succeeds { output } => {
                let json = format!("\"{}\"", "o".repeat(output));
                (End::Exited(0), Written::Bytes(Bytes::from(json)))
            }
        };
        Execution {
            end,
            started_at,
            written,
            log: Bytes::from_static(b"simulated\n"),
            stderr_tail: Vec::new(),
        }
    }
}
