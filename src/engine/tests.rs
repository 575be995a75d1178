//! What the state machine promises: named facts, random histories against a simple reference, and counted cost.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::definition::{Definition, Source, TaskName, WorkflowId, parse};
use crate::record::{
    ControlSeq, Epoch, Record, Revision, RunId, RuntimeRecord, Stamp, decode, encode,
};

mod cases;
mod cost;
mod facts;
mod fan_in;
mod random;
mod reference;
mod requests;
mod shelf;
mod stop;

const DIAMOND: &str = "tasks: [{name: a, cmd: x}, {name: b, cmd: x, depends_on: [a]}, {name: c, cmd: x, depends_on: [a]}, {name: d, cmd: x, depends_on: [b, c]}]";

fn definition(yaml: &str) -> Definition {
    parse(&Source::new("test.yaml", yaml))
        .unwrap_or_else(|problems| panic!("{problems}\n{yaml}"))
        .definition
}

fn graph(definition: &Definition) -> Arc<Graph> {
    Arc::new(Graph::new(definition).unwrap())
}

fn report(outcome: Outcome) -> AttemptReport {
    AttemptReport {
        exit_code: (outcome == Outcome::Succeeded).then_some(0),
        outcome,
        token: uuid::Uuid::from_u128(0x1f).simple().to_string(),
        worker: "test/1".to_owned(),
        started_at: Some(Timestamp::UNIX_EPOCH),
        ended_at: Timestamp::UNIX_EPOCH,
        output: None,
        has_log: false,
        stderr_tail: None,
        reused_from: None,
    }
}

fn failure(kind: FailureKind, is_final: bool) -> Failure {
    Failure {
        kind,
        message: "exit code 1".to_owned(),
        is_final,
    }
}

fn failed() -> Outcome {
    Outcome::Failed(failure(FailureKind::Exit, false))
}

/// The whole state, as who reads it sees it.
fn recorded(runtime: &Runtime) -> RuntimeRecord {
    let (states, tasks) = RuntimeRecord::tasks_of(runtime);
    RuntimeRecord {
        states,
        tasks,
        ..headed(runtime)
    }
}

/// All of it but the tasks.
fn headed(runtime: &Runtime) -> RuntimeRecord {
    RuntimeRecord {
        schema: RuntimeRecord::SCHEMA,
        workflow_id: WorkflowId::new("w").unwrap(),
        run_id: RunId::new(uuid::Uuid::nil()),
        generation: runtime.generation(),
        epoch: Epoch::new(1),
        holder: "test/1".to_owned(),
        stamp: Stamp::new(uuid::Uuid::nil()),
        revision: Revision::new(1),
        status: runtime.status(),
        reason: runtime.first_failure().map(ToOwned::to_owned),
        control_seq: ControlSeq::new(0),
        control_results: Vec::new(),
        cancel: runtime.cancel_applied().copied(),
        stop: runtime.stop_in_force().copied(),
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
        states: String::new(),
        tasks: Vec::new(),
        packed: None,
    }
}

/// The same as text.
fn stored(runtime: &Runtime) -> Vec<u8> {
    encode(&recorded(runtime))
}

/// A workflow whose tasks end when told.
struct World {
    runtime: Runtime,
    changes: Changes,
    now: Timestamp,
    /// Whether a ready task may be with a worker when a failure stops the workflow.
    maybe_sent: bool,
}

impl World {
    fn of(yaml: &str) -> Self {
        let mut changes = Changes::default();
        let runtime = Runtime::start(graph(&definition(yaml)), &mut changes);
        Self {
            runtime,
            changes,
            now: Timestamp::UNIX_EPOCH,
            maybe_sent: true,
        }
    }

    fn ix(&self, task: &str) -> TaskIx {
        self.runtime
            .graph()
            .find(&TaskName::new(task).unwrap())
            .unwrap()
    }

    fn task(&self, task: &str) -> &TaskRun {
        self.runtime.task(self.ix(task))
    }

    /// The attempt that is current now.
    fn id(&self, task: &str) -> AttemptId {
        AttemptId {
            task: self.ix(task),
            generation: self.runtime.generation(),
            attempt: self.task(task).attempt,
        }
    }

    fn apply(&mut self, id: AttemptId, outcome: Outcome) -> Applied {
        let retry = RetryAfter {
            now: self.now,
            delay: Duration::from_secs(5),
        };
        let maybe_sent = self.maybe_sent;
        self.event(|runtime, changes| {
            runtime.apply_report(id, report(outcome), retry, |_, _| maybe_sent, changes)
        })
    }

    /// One event, whose state is stored.
    fn event(&mut self, event: impl FnOnce(&mut Runtime, &mut Changes) -> Applied) -> Applied {
        let mut changes = Changes::default();
        let applied = event(&mut self.runtime, &mut changes);
        self.changes.ready.extend(changes.ready);
        self.changes.ended.extend(changes.ended);
        applied
    }

    /// The current attempt of `task` ends so.
    fn end(&mut self, task: &str, outcome: Outcome) {
        let id = self.id(task);
        assert_eq!(self.apply(id, outcome), Applied::Changed, "{task}");
    }

    fn succeed(&mut self, task: &str) {
        self.end(task, Outcome::Succeeded);
    }

    fn fail(&mut self, task: &str) {
        self.end(task, failed());
    }

    fn cancel(&mut self, maybe_sent: bool) -> Applied {
        let now = self.now;
        self.event(|runtime, changes| runtime.cancel(now, |_, _| maybe_sent, changes))
    }

    fn rerun(&mut self) -> Applied {
        self.runtime.rerun(&mut self.changes)
    }

    fn send(&mut self, task: &str) {
        let AttemptId { task, attempt, .. } = self.id(task);
        assert_eq!(self.runtime.mark_sent(task, attempt), Applied::Changed);
    }

    /// One letter a task, as stored.
    fn states(&self) -> String {
        RuntimeRecord::tasks_of(&self.runtime).0
    }

    fn status(&self) -> Status {
        self.runtime.status()
    }

    /// Names of the tasks made ready since last asked.
    fn made_ready(&mut self) -> Vec<String> {
        let graph = Arc::clone(self.runtime.graph());
        let ready = std::mem::take(&mut self.changes.ready).into_iter();
        ready.map(|task| graph.name(task).to_string()).collect()
    }
}
