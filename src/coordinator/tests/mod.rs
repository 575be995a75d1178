//! The coordinator over the memory store, with a worker of a few lines that answers by a script.

mod doubt;
mod dying;
mod idle;
mod late;
mod leading;
mod lost;
mod many;
mod purging;
mod removed;
mod running;
mod still;
mod stopping;
mod troubles;
mod unread;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::{Config, CoordinatorError, run};
use crate::definition::{Source, WorkflowId, parse};
use crate::engine::{
    Attempt, AttemptReport, Failure, FailureKind, Generation, Outcome, Output, Status, TaskState,
};
use crate::env::{Env, Pulse, TaskHandle, real};
use crate::protocol::{Layout, fields_of, read_row, read_runtime};
use crate::record::{
    CompletionRecord, CompletionResult, ControlAction, ControlRecord, ControlSeq, DefinitionRecord,
    Epoch, IndexRecord, Revision, RunId, RuntimeRecord, TaskBody, TaskMessage, TaskSpec, decode,
    decode_message, encode, encode_message,
};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults, Injector};
use crate::store::memory::MemoryStore;
use crate::store::memory::manual::ManualClock;
use crate::store::{Expect, Kind, Queue, Store};

/// How the script answers an attempt: none means never.
type Script = Arc<dyn Fn(&TaskMessage) -> Option<Outcome> + Send + Sync>;

/// How a coordinator ended, once it has.
type Ended = Arc<Mutex<Option<Result<(), CoordinatorError>>>>;

struct World {
    env: Env,
    store: Store,
    layout: Layout,
    stop: CancellationToken,
    executed: Arc<Mutex<BTreeMap<(String, u32), u32>>>,
}

const PATIENCE: Duration = Duration::from_secs(20);

impl World {
    fn over(store: Store, env: Env) -> Self {
        let layout = Layout::new("test").expect("legal");
        Self {
            env,
            store,
            layout,
            stop: CancellationToken::new(),
            executed: Arc::default(),
        }
    }

    async fn new() -> Self {
        let env = real::env();
        let world = Self::over(MemoryStore::open(env.clone()), env);
        world.layout.create(&world.store).await.expect("memory");
        world
    }

    /// One whose store has these faults from the start, for everyone.
    async fn with(faults: Faults) -> (Self, Arc<Injector>) {
        let env = real::env();
        let (store, injector) = faults.wrap(MemoryStore::open(env.clone()), env.clone());
        let world = Self::over(store, env);
        let made = world.layout.create(&world.store).await;
        made.expect("no fault there");
        (world, injector)
    }

    fn config() -> Config {
        Config {
            holder: "test/1".to_owned(),
            idle_sleep: Duration::from_millis(20),
            activation_sweep_interval: Duration::from_millis(100),
            cancel_poll_interval: Duration::from_millis(50),
            lease_duration: Duration::from_secs(15),
            ..Config::default()
        }
    }

    fn coordinator(&self, config: Config) -> (TaskHandle, Ended) {
        self.coordinator_over(&self.store, config)
    }

    fn coordinator_over(&self, store: &Store, config: Config) -> (TaskHandle, Ended) {
        let result = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&result);
        let (env, store, layout) = (self.env.clone(), store.clone(), self.layout.clone());
        let pulse = Arc::new(Pulse::new(&env, "leadership"));
        let stop = self.stop.clone();
        let task = self.env.spawn("coordinator", async move {
            let ended = run(env, store, layout, config, pulse, stop).await;
            *keep.lock().unwrap() = Some(ended);
        });
        (task, result)
    }

    fn worker(&self, queue: &str, script: Script) {
        let queue = self.layout.task_queue(&queue.parse().expect("legal"));
        let (env, store, layout) = (self.env.clone(), self.store.clone(), self.layout.clone());
        let (executed, stop) = (Arc::clone(&self.executed), self.stop.clone());
        drop(self.env.spawn("worker", async move {
            while !stop.is_cancelled() {
                if let Ok(messages) = store
                    .queues
                    .receive(&queue, 32, Duration::from_secs(60))
                    .await
                {
                    for message in messages {
                        let task: TaskMessage = decode_message(&message.body).expect("ours");
                        *executed
                            .lock()
                            .unwrap()
                            .entry((task.task.to_string(), task.attempt_no.number()))
                            .or_default() += 1;
                        if let Some(outcome) = script(&task) {
                            let text = completion(&task, outcome, env.wall());
                            store
                                .queues
                                .send(layout.completions(), &text, Duration::ZERO)
                                .await
                                .expect("memory");
                        }
                        store
                            .queues
                            .delete(&queue, &message.receipt)
                            .await
                            .expect("memory");
                    }
                }
                store.queues.wait(&queue, Duration::from_millis(20)).await;
            }
        }));
    }

    /// What submit does: definition, row, message.
    async fn submit(&self, id: &str, yaml: &str) -> WorkflowId {
        let id = WorkflowId::new(id).expect("legal");
        let parsed = parse(&Source::new("test.yaml", yaml)).expect("a legal definition");
        let record = DefinitionRecord {
            schema: 1,
            workflow_id: id.clone(),
            run_id: RunId::new(self.env.uuid()),
            submitted_at: self.env.wall(),
            submitted_by: "test".to_owned(),
            definition: parsed.definition,
        };
        self.put(&self.layout.definition(&id), encode(&record))
            .await;
        let row = IndexRecord {
            schema: 1,
            workflow_id: id.clone(),
            name: id.to_string(),
            run_id: record.run_id,
            generation: Generation::FIRST,
            epoch: Epoch::new(0),
            revision: Revision::new(0),
            status: Status::Pending,
            reason: String::new(),
            total: record.definition.tasks.len() as u64,
            counts: BTreeMap::new(),
            control_seq: ControlSeq::new(0),
            cancel_requested: None,
            stopping: None,
            created_at: self.env.wall(),
            updated_at: self.env.wall(),
        };
        let key = self.layout.open_row(&id);
        let fields = fields_of(&row);
        let rows = &self.store.rows;
        match rows
            .write(self.layout.index(), &key, &fields, &Expect::Absent)
            .await
        {
            Ok(_) => {}
            // The coordinator has found the definition already.
            Err(error) => assert_eq!(error.kind, Kind::Conflict),
        }
        id
    }

    async fn put(&self, path: &crate::store::BlobPath, body: Vec<u8>) {
        self.store
            .blobs
            .put(path, Bytes::from(body), &Expect::Absent, None)
            .await
            .expect("new");
    }

    async fn ask(&self, id: &WorkflowId, action: ControlAction) {
        let control = self.request(id, action).await;
        self.send(control).await;
    }

    /// A request by somebody who looks at the state now.
    async fn request(&self, id: &WorkflowId, action: ControlAction) -> ControlRecord {
        let state = self.state(id).await.expect("activated");
        ControlRecord {
            request_id: self.env.uuid(),
            action,
            workflow_id: id.clone(),
            run_id: state.run_id,
            generation: state.generation,
            control_seq: state.control_seq,
            actor: "test".to_owned(),
            requested_at: self.env.wall(),
        }
    }

    async fn send(&self, control: ControlRecord) {
        let text = encode_message(&CompletionRecord::of_control(control));
        self.store
            .queues
            .send(self.layout.completions(), &text, Duration::ZERO)
            .await
            .expect("memory");
    }

    /// The next task message of a queue, which stays hidden.
    async fn next_task(&self, queue: &str) -> TaskMessage {
        let queue = self.layout.task_queue(&queue.parse().expect("legal"));
        let message = self
            .until("a task message", async || {
                let received = self
                    .store
                    .queues
                    .receive(&queue, 1, Duration::from_secs(600))
                    .await;
                received.unwrap_or_default().pop()
            })
            .await;
        decode_message(&message.body).expect("ours")
    }

    /// The next two, by the names of their tasks.
    async fn next_two(&self, queue: &str) -> [TaskMessage; 2] {
        let mut two = [self.next_task(queue).await, self.next_task(queue).await];
        two.sort_by(|a, b| a.task.cmp(&b.task));
        two
    }

    async fn answer(&self, task: &TaskMessage, outcome: Outcome) {
        let text = completion(task, outcome, self.env.wall());
        self.store
            .queues
            .send(self.layout.completions(), &text, Duration::ZERO)
            .await
            .expect("memory");
    }

    async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let deadline = self.env.mono().plus(PATIENCE);
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(self.env.mono() < deadline, "waited too long for {what}");
            self.env.sleep(Duration::from_millis(5)).await;
        }
    }

    async fn state(&self, id: &WorkflowId) -> Option<RuntimeRecord> {
        read_runtime(&self.store, &self.layout, id)
            .await
            .expect("memory")
            .map(|stored| stored.record)
    }

    /// Waits until the state is like that.
    async fn until_state(
        &self,
        id: &WorkflowId,
        what: &str,
        is_so: impl Fn(&RuntimeRecord) -> bool,
    ) -> RuntimeRecord {
        self.until(what, async || self.state(id).await.filter(&is_so))
            .await
    }

    /// Waits until the tasks are in these states.
    async fn until_states(&self, id: &WorkflowId, states: &str) -> RuntimeRecord {
        self.until_state(id, states, |state| state.states == states)
            .await
    }

    /// Waits until the state says that the first task was sent.
    async fn marked(&self, id: &WorkflowId) {
        self.until_state(id, "the mark", |state| state.states.starts_with('d'))
            .await;
    }

    /// Waits until the row is among the final ones, and returns the state.
    async fn ended(&self, id: &WorkflowId) -> RuntimeRecord {
        self.until("the end", async || {
            let row = read_row(&self.store, &self.layout, id)
                .await
                .expect("memory")?;
            (!row.is_open()).then_some(())
        })
        .await;
        let state = self.state(id).await.expect("activated");
        let row = read_row(&self.store, &self.layout, id)
            .await
            .expect("memory")
            .expect("found above")
            .record;
        assert_eq!(
            (row.status, row.revision),
            (state.status, state.revision),
            "row and blob agree"
        );
        state
    }

    async fn depth(&self, queue: &Queue) -> u64 {
        self.store.queues.depth(queue).await.expect("memory")
    }

    async fn drained(&self) {
        self.until("the completion queue to be empty", async || {
            (self.depth(self.layout.completions()).await == 0).then_some(())
        })
        .await;
    }
}

fn completion(task: &TaskMessage, outcome: Outcome, now: jiff::Timestamp) -> String {
    let json =
        serde_json::value::RawValue::from_string(format!("\"{}\"", "o".repeat(98))).expect("JSON");
    let report = AttemptReport {
        output: (outcome == Outcome::Succeeded).then_some(Output::Inline(json)),
        outcome,
        token: "t".to_owned(),
        worker: "script/1".to_owned(),
        started_at: Some(now),
        ended_at: now,
        exit_code: Some(0),
        has_log: false,
        stderr_tail: None,
        reused_from: None,
    };
    encode_message(&CompletionRecord::of_results(vec![CompletionResult {
        workflow_id: task.workflow_id.clone(),
        run_id: task.run_id,
        generation: task.generation,
        task: task.task.clone(),
        attempt_no: task.attempt_no,
        report,
    }]))
}

fn failed() -> Outcome {
    let message = "exit code 1".to_owned();
    Outcome::Failed(Failure {
        kind: FailureKind::Exit,
        message,
        is_final: false,
    })
}

fn succeed() -> Script {
    Arc::new(|_| Some(Outcome::Succeeded))
}

/// A worker for which the tasks named fail.
fn failing(names: &'static [&'static str]) -> Script {
    Arc::new(|task| {
        Some(if names.contains(&task.task.as_str()) {
            failed()
        } else {
            Outcome::Succeeded
        })
    })
}

const DIAMOND: &str = "
tasks:
  - {name: a, cmd: 'true'}
  - {name: b, cmd: 'true', depends_on: [a]}
  - {name: c, cmd: 'true', depends_on: [a]}
  - {name: d, cmd: 'true', depends_on: [b, c]}
";

/// Kills a coordinator, and waits until it takes nothing more from a queue.
async fn killed(coordinator: TaskHandle) {
    coordinator.abort();
    coordinator.join().await;
}

/// Moves time and lets everything that this wakes come to its next wait.
async fn step(clock: &ManualClock, by: Duration) {
    clock.advance(by);
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
