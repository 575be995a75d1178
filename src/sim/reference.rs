//! Where a workflow must come to, whatever happened on the way: the engine alone, one attempt after the other.

use std::sync::Arc;
use std::time::Duration;

use super::workload::{Ending, Workload};
use crate::engine::{
    Attempt, AttemptId, AttemptReport, Changes, Failure, FailureKind, Generation, Graph, Outcome,
    RetryAfter, Runtime, Status, TaskState,
};
use crate::env::Timestamp;

/// How a workflow stands at its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) status: Status,
    pub(super) tasks: Vec<(TaskState, Attempt)>,
}

/// The end of `generation` of a workflow that nobody cancelled.
pub(super) fn end_of(workload: &Workload, generation: Generation) -> Standing {
    let graph = Graph::new(&workload.definition).expect("drawn without loops");
    let mut changes = Changes::default();
    let mut runtime = Runtime::start(Arc::new(graph), &mut changes);
    loop {
        // Any order will do.
        while let Some(task) = changes.ready.pop() {
            let attempt = runtime.task(task).attempt;
            let name = runtime.graph().name(task).clone();
            let id = AttemptId {
                task,
                generation: runtime.generation(),
                attempt,
            };
            let retry = RetryAfter {
                now: Timestamp::UNIX_EPOCH,
                delay: Duration::ZERO,
            };
            let report = report(workload.ending(&name, attempt.number()));
            // An attempt just issued is news, nothing else.
            let _changed = runtime.apply_report(id, report, retry, |_, _| true, &mut changes);
        }
        if runtime.generation() >= generation {
            break;
        }
        // A retry of what has nothing to run again is refused, and so never gets here.
        let _changed = runtime.rerun(&mut changes);
    }
    Standing {
        status: runtime.status(),
        tasks: runtime
            .tasks()
            .iter()
            .map(|task| (task.state, task.attempt))
            .collect(),
    }
}

fn report(ending: Ending) -> AttemptReport {
    let failed = |kind| {
        Outcome::Failed(Failure {
            kind,
            message: String::new(),
            is_final: false,
        })
    };
    let outcome = match ending {
        Ending::Succeeds { .. } => Outcome::Succeeded,
        Ending::Fails => failed(FailureKind::Exit),
        Ending::IsKilled => failed(FailureKind::Signal),
        Ending::TimesOut => failed(FailureKind::Timeout),
        Ending::CannotStart => failed(FailureKind::Spawn),
        Ending::WritesNonsense => failed(FailureKind::Output),
    };
    AttemptReport {
        outcome,
        token: String::new(),
        worker: String::new(),
        started_at: None,
        ended_at: Timestamp::UNIX_EPOCH,
        exit_code: None,
        output: None,
        has_log: false,
        stderr_tail: None,
        reused_from: None,
    }
}
