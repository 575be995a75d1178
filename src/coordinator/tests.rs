//! The coordinator over the memory store, with a worker of a few lines that answers by a script.

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
use crate::env::{Env, TaskHandle, real};
use crate::protocol::{Layout, fields_of, read_row, read_runtime};
use crate::record::{
    CompletionRecord, CompletionResult, ControlAction, ControlRecord, ControlSeq, DefinitionRecord,
    Epoch, IndexRecord, Revision, RunId, RuntimeRecord, TaskBody, TaskMessage, TaskSpec, decode,
    decode_message, encode, encode_message,
};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::memory::MemoryStore;
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
        let result = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&result);
        let (env, store, layout, stop) = (
            self.env.clone(),
            self.store.clone(),
            self.layout.clone(),
            self.stop.clone(),
        );
        let task = self.env.spawn("coordinator", async move {
            let ended = run(env, store, layout, config, stop).await;
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
        let state = read_runtime(&self.store, &self.layout, id)
            .await
            .expect("memory")
            .expect("activated")
            .record;
        let control = ControlRecord {
            request_id: self.env.uuid(),
            action,
            workflow_id: id.clone(),
            run_id: state.run_id,
            generation: state.generation,
            control_seq: state.control_seq,
            actor: "test".to_owned(),
            requested_at: self.env.wall(),
        };
        let text = encode_message(&CompletionRecord::of_control(control));
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
    let json = serde_json::value::RawValue::from_string("{\"n\":1}".to_owned()).expect("JSON");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_diamond_runs_each_task_once_and_ends_completed() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    let id = world.submit("diamond", DIAMOND).await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Completed, "cccc")
    );
    world.drained().await;
    let executed = world.executed.lock().unwrap().clone();
    assert_eq!(executed.len(), 4);
    assert!(executed.values().all(|times| *times == 1), "{executed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_blocks_what_depends_on_it_and_names_the_root_cause() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", failing(&["a"]));
    let id = world
        .submit(
            "train",
            "
tasks:
  - {name: a, cmd: 'false'}
  - {name: b, cmd: 'true', depends_on: [a]}
  - {name: c, cmd: 'true', depends_on: [b]}
  - {name: cleanup, cmd: 'true', depends_on: [c], dep_policy: always}
  - {name: sibling, cmd: 'true'}
",
        )
        .await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Failed, "fuucc")
    );
    assert_eq!(
        state.reason.as_deref(),
        Some("task `a` failed: exit code 1")
    );
    let causes: Vec<_> = state
        .tasks
        .iter()
        .filter_map(|task| task.root_cause)
        .map(crate::engine::TaskIx::at)
        .collect();
    assert_eq!(causes, [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transient_failure_is_tried_again() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker(
        "default",
        Arc::new(|task| {
            Some(if task.attempt_no.number() == 1 {
                failed()
            } else {
                Outcome::Succeeded
            })
        }),
    );
    let id = world
        .submit("flaky", "tasks: [{name: a, cmd: 'true', num_retries: 1}]")
        .await;
    let state = world.ended(&id).await;
    assert_eq!(state.status, Status::Completed);
    assert_eq!(state.tasks[0].attempt_no.number(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_workflow_runs_again_what_failed_and_keeps_the_rest() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let fixed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now_fixed = Arc::clone(&fixed);
    world.worker(
        "default",
        Arc::new(move |task| {
            let well = task.task.as_str() != "b" || fixed.load(std::sync::atomic::Ordering::SeqCst);
            Some(if well { Outcome::Succeeded } else { failed() })
        }),
    );
    let id = world.submit("again", DIAMOND).await;
    assert_eq!(world.ended(&id).await.states, "cfcu");
    now_fixed.store(true, std::sync::atomic::Ordering::SeqCst);
    world.ask(&id, ControlAction::Retry).await;
    let state = world
        .until("the second end", async || {
            world
                .state(&id)
                .await
                .filter(|state| state.status == Status::Completed)
        })
        .await;
    assert_eq!(state.generation.number(), 2);
    world.ended(&id).await;
    let executed = world.executed.lock().unwrap().clone();
    assert_eq!(executed.get(&("a".to_owned(), 1)), Some(&1));
    assert_eq!(executed.get(&("b".to_owned(), 2)), Some(&1));
    assert_eq!(executed.len(), 5, "{executed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_what_was_not_sent_at_once_and_the_rest_after_the_grace() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        cancel_grace: Duration::from_millis(300),
        ..World::config()
    });
    world.worker("default", Arc::new(|_| None));
    let id = world.submit("cancelled", DIAMOND).await;
    world
        .until("the mark of the first sending", async || {
            world
                .state(&id)
                .await
                .filter(|state| state.states.starts_with('d'))
        })
        .await;
    world.ask(&id, ControlAction::Cancel).await;
    world
        .until("the cancel to be applied", async || {
            world
                .state(&id)
                .await
                .filter(|state| state.states == "dxxx")
        })
        .await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Cancelled, "xxxx")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_write_whose_reply_is_lost_is_recognised_by_its_stamp() {
    let env = real::env();
    let faults = Faults::script().hook(|op, path| {
        (*op == Op::BlobPut && path.ends_with("lost.json")).then_some(Fault::ReplyLost)
    });
    let (store, _) = faults.wrap(MemoryStore::open(env.clone()), env.clone());
    let world = World::over(store, env);
    world
        .layout
        .create(&world.store)
        .await
        .expect("no fault there");
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    let id = world.submit("lost", DIAMOND).await;
    let state = world.ended(&id).await;
    assert_eq!(state.states, "cccc");
    assert!(
        world
            .executed
            .lock()
            .unwrap()
            .values()
            .all(|times| *times == 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_goes_to_the_poison_queue_and_a_newer_message_stays() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    let newer = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        r#"{"schema":2,"new":true}"#,
    );
    for body in ["hello", "bnVsbA==", newer.as_str()] {
        world
            .store
            .queues
            .send(world.layout.completions(), body, Duration::ZERO)
            .await
            .expect("memory");
    }
    let id = world.submit("beside", DIAMOND).await;
    assert_eq!(world.ended(&id).await.status, Status::Completed);
    assert_eq!(world.depth(world.layout.completions_poison()).await, 2);
    assert_eq!(world.depth(world.layout.completions()).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_coordinator_is_refused_and_a_broken_lease_stops_the_first() {
    let world = World::new().await;
    let (_first, first_ended) = world.coordinator(World::config());
    world
        .until("the lease", async || {
            world
                .store
                .blobs
                .get(&world.layout.sentinel())
                .await
                .expect("memory")
                .filter(|blob| blob.leased)
        })
        .await;
    let second = Config {
        holder: "test/2".to_owned(),
        ..World::config()
    };
    let (task, refused) = world.coordinator(second.clone());
    task.join().await;
    let refused = refused
        .lock()
        .unwrap()
        .take()
        .expect("ended")
        .expect_err("held");
    assert!(refused.to_string().contains("`test/1`"), "{refused}");
    let (_third, _) = world.coordinator(Config {
        break_lease: true,
        ..second
    });
    let ended = world
        .until("the first to stop", async || {
            first_ended.lock().unwrap().take()
        })
        .await;
    let error = ended.expect_err("superseded");
    assert!(matches!(error, CoordinatorError::Superseded(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_tasks_are_out_than_max_parallelism_allows() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let queue = world.layout.task_queue(&"default".parse().expect("legal"));
    let tasks: Vec<_> = (0..20)
        .map(|n| format!("  - {{name: t{n}, cmd: 'true'}}\n"))
        .collect();
    let tasks = tasks.concat();
    let id = world
        .submit("narrow", &format!("max_parallelism: 2\ntasks:\n{tasks}"))
        .await;
    world
        .store
        .queues
        .create_queue(&queue)
        .await
        .expect("memory");
    for _ in 0..20 {
        let depth = world
            .until("a task", async || {
                Some(world.depth(&queue).await).filter(|depth| *depth > 0)
            })
            .await;
        assert!(depth <= 2, "{depth} at once");
        let message = world
            .until("a message", async || {
                world
                    .store
                    .queues
                    .receive(&queue, 1, Duration::from_secs(60))
                    .await
                    .expect("memory")
                    .pop()
            })
            .await;
        let task: TaskMessage = decode_message(&message.body).expect("ours");
        world
            .store
            .queues
            .delete(&queue, &message.receipt)
            .await
            .expect("memory");
        let text = completion(&task, Outcome::Succeeded, world.env.wall());
        world
            .store
            .queues
            .send(world.layout.completions(), &text, Duration::ZERO)
            .await
            .expect("memory");
    }
    assert_eq!(world.ended(&id).await.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_takes_over_and_finishes_what_another_began() {
    let world = World::new().await;
    let (first, _) = world.coordinator(World::config());
    let id = world.submit("handed", DIAMOND).await;
    world
        .until("the first write", async || world.state(&id).await)
        .await;
    first.abort();
    let (_second, _) = world.coordinator(Config {
        holder: "test/2".to_owned(),
        break_lease: true,
        ..World::config()
    });
    world.worker("default", succeed());
    let state = world.ended(&id).await;
    assert_eq!((state.status, state.epoch.number()), (Status::Completed, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_coordinator_stores_its_marks_and_releases_the_lease() {
    let world = World::new().await;
    let (task, ended) = world.coordinator(World::config());
    let id = world.submit("marks", DIAMOND).await;
    let queue = world.layout.task_queue(&"default".parse().expect("legal"));
    world
        .store
        .queues
        .create_queue(&queue)
        .await
        .expect("memory");
    world
        .until("the sending", async || {
            (world.depth(&queue).await == 1).then_some(())
        })
        .await;
    world.stop.cancel();
    task.join().await;
    assert_eq!(ended.lock().unwrap().take(), Some(Ok(())));
    assert_eq!(world.state(&id).await.expect("activated").states, "dppp");
    let sentinel = world
        .store
        .blobs
        .get(&world.layout.sentinel())
        .await
        .expect("memory")
        .expect("made");
    assert!(!sentinel.leased);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_chain_whose_first_task_fails_settles_in_one_write() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", failing(&["t0"]));
    let tasks: String = (0..20_000)
        .map(|n| match n {
            0 => "  - {name: t0, cmd: 'false'}\n".to_owned(),
            n => format!(
                "  - {{name: t{n}, cmd: 'true', depends_on: [t{}]}}\n",
                n - 1
            ),
        })
        .collect();
    let id = world.submit("chain", &format!("tasks:\n{tasks}")).await;
    let state = world.ended(&id).await;
    assert_eq!(state.status, Status::Failed);
    assert_eq!(state.states.matches('u').count(), 19_999);
    // Activation, perhaps the mark of the sending, and the one that settles all.
    assert!(state.revision.number() <= 3, "{} writes", state.revision);
    assert_eq!(state.task_states().expect("ours")[0], TaskState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_of_five_thousand_parents_gets_all_their_outputs_by_a_blob() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        max_outstanding: Some(256),
        ..World::config()
    });
    let join = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&join);
    world.worker(
        "default",
        Arc::new(move |task| {
            if task.task.as_str() == "join" {
                *seen.lock().unwrap() = Some(task.body.clone());
            }
            Some(Outcome::Succeeded)
        }),
    );
    let names: Vec<_> = (0..5000).map(|n| format!("t{n}")).collect();
    let leaves: Vec<_> = names
        .iter()
        .map(|name| format!("  - {{name: {name}, cmd: 'true'}}\n"))
        .collect();
    let yaml = format!(
        "tasks:\n{}  - {{name: join, cmd: 'true', depends_on: [{}]}}\n",
        leaves.concat(),
        names.join(", ")
    );
    let id = world.submit("wide", &yaml).await;
    let state = world.ended(&id).await;
    assert_eq!(state.status, Status::Completed);
    let body = join.lock().unwrap().take().expect("sent");
    let TaskBody::Blob(name) = body else {
        panic!("too large for a message");
    };
    let path = world.layout.output_named(&name).expect("ours");
    let blob = world.store.blobs.get(&path).await.expect("memory");
    let spec: TaskSpec = decode(&blob.expect("written before it was sent").body).expect("ours");
    assert_eq!(spec.inputs.len(), 5000);
    assert!(spec.inputs.values().all(|input| input.output.is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_workflows_at_once_all_end() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        max_outstanding: Some(64),
        ..World::config()
    });
    world.worker("default", succeed());
    let mut ids = Vec::new();
    for n in 0..500 {
        ids.push(world.submit(&format!("w{n}"), DIAMOND).await);
    }
    for id in &ids {
        assert_eq!(world.ended(id).await.states, "cccc");
    }
    world.drained().await;
    let executed = world.executed.lock().unwrap().values().sum::<u32>();
    assert_eq!(executed, 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_without_a_row_is_found_and_gets_one() {
    let world = World::new().await;
    world.worker("default", succeed());
    let (unfinished, ended) = (
        world.submit("half", DIAMOND).await,
        world.submit("whole", DIAMOND).await,
    );
    {
        // One ends, then both rows are lost; of the other only the definition was ever written.
        let (task, _) = world.coordinator(World::config());
        world.ended(&ended).await;
        world.ended(&unfinished).await;
        task.abort();
    }
    let half = world.submit("later", DIAMOND).await;
    for (id, key) in [
        (&half, world.layout.open_row(&half)),
        (&ended, world.layout.done_row(&ended)),
    ] {
        let row = world
            .store
            .rows
            .get(world.layout.index(), &key)
            .await
            .expect("memory");
        let row = row.unwrap_or_else(|| panic!("{id} has a row"));
        world
            .store
            .rows
            .delete(world.layout.index(), &key, &row.etag)
            .await
            .expect("memory");
    }
    let (_next, _) = world.coordinator(Config {
        break_lease: true,
        ..World::config()
    });
    assert_eq!(world.ended(&half).await.status, Status::Completed);
    assert_eq!(world.ended(&ended).await.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_of_a_damaged_workflow_is_kept_in_the_poison_queue_after_ten_deliveries() {
    let world = World::new().await;
    let id = world.submit("damaged", DIAMOND).await;
    let state = world.layout.runtime(&id);
    world.put(&state, b"x".to_vec()).await;
    let task = TaskMessage {
        schema: 1,
        workflow_id: id.clone(),
        run_id: RunId::new(uuid::Uuid::nil()),
        generation: Generation::FIRST,
        epoch: Epoch::new(1),
        task: "a".parse().expect("legal"),
        attempt_no: Attempt::new(1),
        again: false,
        body: TaskBody::Blob("none".to_owned()),
    };
    let text = completion(&task, Outcome::Succeeded, world.env.wall());
    let queues = &world.store.queues;
    let queue = world.layout.completions();
    for deliveries in [3, 9] {
        queues
            .send(queue, &text, Duration::ZERO)
            .await
            .expect("memory");
        for _ in 0..deliveries {
            let found = queues
                .receive(queue, 1, Duration::from_secs(60))
                .await
                .expect("memory");
            let receipt = &found.first().expect("visible").receipt;
            queues
                .extend(queue, receipt, Duration::ZERO)
                .await
                .expect("held");
        }
        // Hidden, so that the other one is not met meanwhile.
        let found = queues
            .receive(queue, 1, Duration::from_secs(60))
            .await
            .expect("memory");
        let receipt = &found.first().expect("visible").receipt;
        queues
            .extend(queue, receipt, Duration::from_secs(1))
            .await
            .expect("held");
    }
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    world
        .until("the one that came often to be moved", async || {
            (world.depth(world.layout.completions_poison()).await == 1).then_some(())
        })
        .await;
    assert_eq!(world.depth(queue).await, 1, "the other one is left");
    let kept = queues
        .peek(world.layout.completions_poison(), 1)
        .await
        .expect("memory");
    assert_eq!(kept, [text], "as it was");
    let other = world.submit("other", DIAMOND).await;
    assert_eq!(world.ended(&other).await.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_whose_actor_panics_rests_and_goes_on_and_others_notice_nothing() {
    let env = real::env();
    let panics = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let seen = Arc::clone(&panics);
    let faults = Faults::script().hook(move |op, path| {
        let strikes = *op == Op::BlobGet && path.ends_with("/panics.json");
        let nth = if strikes {
            seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst)
        } else {
            9
        };
        assert!(nth >= 2, "a bug that strikes twice");
        None
    });
    let (store, _) = faults.wrap(MemoryStore::open(env.clone()), env.clone());
    let world = World::over(store, env);
    world
        .layout
        .create(&world.store)
        .await
        .expect("no fault there");
    let struck = world.submit("panics", DIAMOND).await;
    let fine = world.submit("fine", DIAMOND).await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    assert_eq!(world.ended(&fine).await.status, Status::Completed);
    world
        .until("the panics", async || {
            (panics.load(std::sync::atomic::Ordering::SeqCst) > 2).then_some(())
        })
        .await;
    assert_eq!(world.ended(&struck).await.status, Status::Completed);
}
