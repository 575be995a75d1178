//! Coordinator, worker and client together over the store in memory, with faults put in the way of the coordinator or of its documents.

mod documents;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dagaz::client::{Answer, Client};
use dagaz::coordinator;
use dagaz::definition::{Source, WorkflowId, parse};
use dagaz::engine::{AttemptReport, Failure, FailureKind, Outcome};
use dagaz::env::{Entropy, Env, Pulse, TaskHandle, real};
use dagaz::protocol::{Layout, leader, read_row, read_runtime};
use dagaz::record::{
    CompletionRecord, CompletionResult, RuntimeRecord, TaskMessage, decode_message, encode_message,
};
use dagaz::store::layers::Op;
use dagaz::store::layers::fault::{Fault, Faults};
use dagaz::store::memory::MemoryStore;
use dagaz::store::{Expect, Store};
use dagaz::worker::{self, End, Execution, Executor, Job, NoObserver, Signals, Stop};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(30);

const CHAIN: &str = "tasks: [{name: a, cmd: x}, {name: b, cmd: x, depends_on: [a]}]";
const DIAMOND: &str = "
tasks:
  - {name: a, cmd: x}
  - {name: b, cmd: x, depends_on: [a]}
  - {name: c, cmd: x, depends_on: [a]}
  - {name: d, cmd: x, depends_on: [b, c]}
";

/// What a task does: its exit code.
type Act = Arc<dyn Fn(Job) -> BoxFuture<'static, i32> + Send + Sync>;

/// Runs functions of the test in place of commands.
struct Scripted {
    act: Act,
    ran: Arc<Mutex<Vec<String>>>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

#[async_trait]
impl Executor for Scripted {
    async fn run(&self, job: &Job, _signals: &Signals) -> Execution {
        self.ran
            .lock()
            .unwrap()
            .push(format!("{}{}", job.task, job.attempt));
        let code = (self.act)(job.clone()).await;
        Execution::not_started(End::Exited(code))
    }
}

struct World {
    env: Env,
    store: Store,
    layout: Layout,
    client: Client,
    stop: CancellationToken,
    ran: Arc<Mutex<Vec<String>>>,
}

impl World {
    async fn new() -> Self {
        Self::with(real::env()).await
    }

    async fn with(env: Env) -> Self {
        let store = MemoryStore::open(env.clone());
        let layout = Layout::new("faults").unwrap();
        layout.create(&store).await.unwrap();
        Self {
            client: Client::new(env.clone(), store.clone(), layout.clone(), "test"),
            env,
            store,
            layout,
            stop: CancellationToken::new(),
            ran: Arc::default(),
        }
    }

    fn coordinator(&self, store: &Store) -> TaskHandle {
        let config = coordinator::Config {
            idle_sleep: Duration::from_millis(20),
            // What was received by a request whose reply is lost comes back after this time.
            visibility_timeout: Duration::from_secs(2),
            activation_sweep_interval: Duration::from_millis(100),
            cancel_poll_interval: Duration::from_millis(50),
            ..coordinator::Config::default()
        };
        let (env, layout, stop) = (self.env.clone(), self.layout.clone(), self.stop.clone());
        let pulse = Arc::new(Pulse::new(&env, "leadership"));
        let (store, spawner) = (store.clone(), self.env.clone());
        spawner.spawn("coordinator", async move {
            coordinator::run(env, store, layout, config, pulse, stop)
                .await
                .unwrap();
        })
    }

    fn worker(&self, queues: &[&str], act: Act) {
        let config = worker::Config {
            queues: queues.iter().map(|name| name.parse().unwrap()).collect(),
            slots: 8,
            ..worker::Config::default()
        };
        let executor = Arc::new(Scripted {
            act,
            ran: Arc::clone(&self.ran),
        });
        let (env, store, layout) = (self.env.clone(), self.store.clone(), self.layout.clone());
        let stop = Stop {
            drain: self.stop.clone(),
            kill: CancellationToken::new(),
        };
        drop(self.env.spawn("worker", async move {
            let observer = Arc::new(NoObserver);
            worker::run(env, store, layout, config, executor, stop, observer)
                .await
                .unwrap();
        }));
    }

    async fn submit(&self, id: &str, yaml: &str) -> WorkflowId {
        let id = WorkflowId::new(id).unwrap();
        let parsed = parse(&Source::new("test.yaml", yaml)).unwrap();
        self.client.submit(&id, &parsed.definition).await.unwrap();
        id
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
        let found = read_runtime(&self.store, &self.layout, id).await.unwrap();
        found.map(|stored| stored.record)
    }

    /// The letters of its tasks, once the row is among the final ones.
    async fn ended(&self, id: &WorkflowId) -> String {
        self.until("the end", async || {
            let row = read_row(&self.store, &self.layout, id).await.unwrap()?;
            (!row.is_open()).then_some(())
        })
        .await;
        self.state(id).await.unwrap().states
    }

    async fn depth(&self, queue: &str) -> u64 {
        let queue = self.layout.task_queue(&queue.parse().unwrap());
        self.store.queues.depth(&queue).await.unwrap_or(0)
    }

    async fn completions(&self) -> u64 {
        self.store
            .queues
            .depth(self.layout.completions())
            .await
            .unwrap()
    }

    fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }

    /// Receives `count` task messages, without a worker.
    async fn take(&self, count: usize) -> Vec<TaskMessage> {
        let queue = self.layout.task_queue(&"default".parse().unwrap());
        let mut taken = Vec::new();
        self.until("task messages", async || {
            for message in self
                .store
                .queues
                .receive(&queue, 32, PATIENCE)
                .await
                .unwrap_or_default()
            {
                taken.push(decode_message(&message.body).unwrap());
                self.store
                    .queues
                    .delete(&queue, &message.receipt)
                    .await
                    .unwrap();
            }
            (taken.len() >= count).then_some(())
        })
        .await;
        taken
    }

    async fn post(&self, results: Vec<CompletionResult>) {
        let text = encode_message(&CompletionRecord::of_results(results));
        let queue = self.layout.completions();
        self.store
            .queues
            .send(queue, &text, Duration::ZERO)
            .await
            .unwrap();
    }

    fn result(&self, task: &TaskMessage, succeeds: bool) -> CompletionResult {
        let failure = Failure {
            kind: FailureKind::Exit,
            message: "exit code 1".to_owned(),
            is_final: false,
        };
        CompletionResult {
            workflow_id: task.workflow_id.clone(),
            run_id: task.run_id,
            generation: task.generation,
            task: task.task.clone(),
            attempt_no: task.attempt_no,
            report: AttemptReport {
                outcome: if succeeds {
                    Outcome::Succeeded
                } else {
                    Outcome::Failed(failure)
                },
                token: "t".to_owned(),
                worker: "test/1".to_owned(),
                started_at: None,
                ended_at: self.env.wall(),
                exit_code: None,
                output: None,
                has_log: false,
                stderr_tail: None,
                reused_from: None,
            },
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn exit(code: i32) -> Act {
    Arc::new(move |_| Box::pin(std::future::ready(code)))
}

// On one thread the whole message reaches the actor before it takes a turn.
#[tokio::test]
async fn completions_that_come_together_share_a_write() {
    let world = World::new().await;
    drop(world.coordinator(&world.store));
    let leaves: Vec<_> = (0..20)
        .map(|n| format!("  - {{name: t{n}, cmd: x}}\n"))
        .collect();
    let leaves = leaves.concat();
    let id = world.submit("wide", &format!("tasks:\n{leaves}")).await;
    let tasks = world.take(20).await;
    let marked = world
        .until("the marks", async || {
            let state = world.state(&id).await?;
            (state.states == "d".repeat(20)).then_some(state.revision.number())
        })
        .await;
    let results = tasks.iter().map(|task| world.result(task, true)).collect();
    world.post(results).await;
    assert_eq!(world.ended(&id).await, "c".repeat(20));
    let revision = world.state(&id).await.unwrap().revision.number();
    assert_eq!(revision, marked + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_delivered_again_late_and_after_a_retry_change_nothing() {
    let world = World::new().await;
    drop(world.coordinator(&world.store));
    let id = world.submit("twice", DIAMOND).await;
    let mut told = Vec::new();
    for (count, fails) in [(1, ""), (2, ""), (1, "d")] {
        for task in world.take(count).await {
            told.push(world.result(&task, task.task.as_str() != fails));
        }
        // Everything so far once more, the newest first.
        for result in told.iter().rev() {
            world.post(vec![result.clone()]).await;
            world.post(vec![result.clone(), result.clone()]).await;
        }
    }
    assert_eq!(world.ended(&id).await, "cccf");
    let quiet = async || (world.completions().await == 0).then_some(());
    world.until("all to be acknowledged", quiet).await;
    let before = world.state(&id).await.unwrap().revision;
    world.post(told.clone()).await;
    world.until("old news to be acknowledged", quiet).await;
    assert_eq!(world.state(&id).await.unwrap().revision, before);

    assert_eq!(
        world.client.retry(&id, PATIENCE).await.unwrap(),
        Answer::Applied
    );
    let again = world.take(1).await.remove(0);
    assert_eq!(
        (again.task.as_str(), again.attempt_no.number()),
        ("d", 2),
        "the rest keeps its result"
    );
    world.post(told).await;
    world.until("old news to be acknowledged", quiet).await;
    assert!(world.state(&id).await.unwrap().states.starts_with("ccc"));
    world.post(vec![world.result(&again, true)]).await;
    assert_eq!(world.ended(&id).await, "cccc");
    let poison = world.layout.completions_poison();
    assert_eq!(world.store.queues.depth(poison).await.unwrap(), 0);
    assert_eq!(world.depth("default").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_cannot_receive_for_a_while_goes_on_after_it() {
    let world = World::new().await;
    let faults = Faults::script()
        .on(Op::QueueReceive, 2, Fault::RequestLost)
        .on(
            Op::QueueReceive,
            3,
            Fault::Throttled(Some(Duration::from_millis(50))),
        )
        .on(Op::QueueReceive, 4, Fault::ReplyLost);
    let (store, injector) = faults.wrap(world.store.clone(), world.env.clone());
    drop(world.coordinator(&store));
    world.worker(&["default"], exit(0));
    let id = world.submit("through", DIAMOND).await;
    assert_eq!(world.ended(&id).await, "cccc");
    assert_eq!(injector.happened(), 3);
    assert_eq!(world.ran().len(), 4, "{:?}", world.ran());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_cannot_be_sent_steps_aside_and_delays_nobody() {
    let world = World::new().await;
    let closed = Arc::new(AtomicBool::new(true));
    let is_closed = Arc::clone(&closed);
    let faults = Faults::script().hook(move |op, path| {
        let slow = *op == Op::QueueSend && path.ends_with("q-slow");
        (slow && is_closed.load(Ordering::SeqCst)).then_some(Fault::RequestLost)
    });
    let (store, _injector) = faults.wrap(world.store.clone(), world.env.clone());
    drop(world.coordinator(&store));
    world.worker(&["default", "slow"], exit(0));
    let yaml = "
tasks:
  - {name: s, cmd: x, queue: slow}
  - {name: a, cmd: x}
  - {name: b, cmd: x, depends_on: [a]}
";
    let id = world.submit("aside", yaml).await;
    world
        .until("the others to end", async || {
            let state = world.state(&id).await?;
            (state.states == "rcc").then_some(())
        })
        .await;
    closed.store(false, Ordering::SeqCst);
    let opened = world.env.mono();
    assert_eq!(world.ended(&id).await, "ccc");
    // Nothing was sent before, so it is no second copy that a worker lets lie for a heartbeat.
    assert!(world.env.mono().since(opened) < Duration::from_secs(15));
    assert_eq!(
        world
            .ran()
            .iter()
            .filter(|name| name.as_str() == "s1")
            .count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_always_fails_runs_exactly_as_often_as_allowed() {
    let world = World::new().await;
    drop(world.coordinator(&world.store));
    world.worker(&["default"], exit(1));
    let yaml = "tasks: [{name: a, cmd: x, num_retries: 2}, {name: b, cmd: x, depends_on: [a]}]";
    let id = world.submit("failing", yaml).await;
    assert_eq!(world.ended(&id).await, "fu");
    assert_eq!(world.ran(), ["a1", "a2", "a3"]);
}

/// Chance for everything but pauses, which are as long as they may be, up to four seconds.
#[derive(Debug)]
struct Slow(Arc<dyn Entropy>);

impl Entropy for Slow {
    fn fill(&self, bytes: &mut [u8]) {
        if let Ok(number) = <&mut [u8; 8]>::try_from(&mut *bytes) {
            *number = 4_000_000_u64.to_le_bytes();
        } else {
            self.0.fill(bytes);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_task_that_waits_for_its_retry() {
    let env = real::env();
    let entropy = Arc::new(Slow(env.entropy.clone()));
    let world = World::with(Env { entropy, ..env }).await;
    drop(world.coordinator(&world.store));
    world.worker(&["default"], exit(1));
    let id = world
        .submit("waiting", "tasks: [{name: a, cmd: x, num_retries: 9}]")
        .await;
    world
        .until("the third failure", async || {
            let state = world.state(&id).await?;
            (state.states == "r" && state.tasks[0].failures == 3).then_some(())
        })
        .await;
    let answer = world.client.cancel(&id, PATIENCE).await.unwrap();
    assert_eq!(answer, Answer::Applied);
    assert_eq!(world.ended(&id).await, "x");
    assert_eq!(world.ran(), ["a1", "a2", "a3"]);
}
