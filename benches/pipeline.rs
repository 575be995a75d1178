//! What a whole pipeline costs: requests per task, and how fast the coordinator takes completions.
//!
//! `cargo bench --bench pipeline`. Starts an emulator of its own (needs Node 20); the commands of the tasks do nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints what it measures, and one that cannot go on fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dagaz::client::Client;
use dagaz::coordinator::{self, MAX_OUTSTANDING_EMULATOR};
use dagaz::definition::{Definition, QueueName, Source, WorkflowId, parse};
use dagaz::engine::{AttemptReport, Outcome};
use dagaz::env::{Env, Pulse, TaskHandle, real};
use dagaz::protocol::{Layout, read_row};
use dagaz::record::{
    CompletionRecord, CompletionResult, TaskMessage, decode_message, encode_message,
};
use dagaz::store::azure::{AzureConfig, AzureStore};
use dagaz::store::layers::Op;
use dagaz::store::layers::meter::{Count, Meter};
use dagaz::store::memory::MemoryStore;
use dagaz::store::{Queue, Store};
use dagaz::worker::{self, End, Execution, Executor, Job, NoObserver, Signals, Written};
use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

#[path = "../tests/support/azurite.rs"]
#[expect(dead_code, reason = "tests use more of it")]
mod azurite;

/// Tasks of the measured flat workflow, beside its join.
const FLAT: usize = 500;
/// Completions waiting for the coordinator.
const PRELOADED: usize = 998;
/// Rounds of which the median is told.
const ROUNDS: usize = 5;

/// One prefix of one store.
#[derive(Clone)]
struct Place {
    env: Env,
    store: Store,
    layout: Layout,
}

/// Ends a job at once and well.
#[derive(Debug)]
struct Instant(Env);

#[async_trait]
impl Executor for Instant {
    async fn run(&self, _: &Job, _: &Signals) -> Execution {
        Execution {
            end: End::Exited(0),
            started_at: Some(self.0.wall()),
            written: Written::Nothing,
            log: Bytes::new(),
            stderr_tail: Vec::new(),
        }
    }
}

/// `count` tasks below `root`, if there is one, and a join of them all.
fn workflow(root: bool, count: usize) -> Definition {
    let leaves: Vec<_> = (0..count).map(|place| format!("t{place}")).collect();
    let mut yaml = "tasks:\n".to_owned();
    let mut task = |name: &str, parents: &str| {
        let line = format!("  - {{name: {name}, cmd: 'true', depends_on: [{parents}]}}\n");
        yaml.push_str(&line);
    };
    if root {
        task("root", "");
    }
    for leaf in &leaves {
        task(leaf, if root { "root" } else { "" });
    }
    task("join", &leaves.join(", "));
    parse(&Source::new("bench.yaml", yaml)).unwrap().definition
}

impl Place {
    async fn new(store: Store, env: &Env, prefix: &str) -> Self {
        let layout = Layout::new(prefix).unwrap();
        layout.create(&store).await.unwrap();
        let place = Self {
            env: env.clone(),
            store,
            layout,
        };
        place
            .store
            .queues
            .create_queue(&place.queue())
            .await
            .unwrap();
        place
    }

    fn queue(&self) -> Queue {
        self.layout.task_queue(&QueueName::new("default").unwrap())
    }

    async fn submit(&self, definition: &Definition) -> WorkflowId {
        let id = WorkflowId::new("bench").unwrap();
        let client = Client::new(
            self.env.clone(),
            self.store.clone(),
            self.layout.clone(),
            "bench",
        );
        client.submit(&id, definition).await.unwrap();
        id
    }

    fn coordinator(
        &self,
        store: Store,
        outstanding: Option<u32>,
        stop: &CancellationToken,
    ) -> TaskHandle {
        let config = coordinator::Config {
            holder: "bench/1".to_owned(),
            max_outstanding: outstanding,
            ..coordinator::Config::default()
        };
        let run = coordinator::run(
            self.env.clone(),
            store,
            self.layout.clone(),
            config,
            Arc::new(Pulse::new(&self.env, "leadership")),
            stop.clone(),
        );
        self.env
            .spawn("coordinator", async move { run.await.unwrap() })
    }

    fn worker(&self, store: Store, slots: u16, stop: &worker::Stop) -> TaskHandle {
        let config = worker::Config {
            slots,
            ..worker::Config::default()
        };
        let (env, executor) = (self.env.clone(), Arc::new(Instant(self.env.clone())));
        let (layout, stop) = (self.layout.clone(), stop.clone());
        let run = worker::run(
            env,
            store,
            layout,
            config,
            executor,
            stop,
            Arc::new(NoObserver),
        );
        self.env.spawn("worker", async move {
            run.await.unwrap();
        })
    }

    async fn until(&self, what: &str, pause_ms: u64, mut reached: impl AsyncFnMut() -> bool) {
        let deadline = self.env.mono().plus(Duration::from_secs(300));
        while !reached().await {
            assert!(self.env.mono() < deadline, "waited too long for {what}");
            self.env.sleep(Duration::from_millis(pause_ms)).await;
        }
    }
}

/// Requests per task of a flat workflow with a join, with one worker of `slots`.
async fn requests_per_task(place: &Place, slots: u16) {
    let (coordinator_store, coordinator_meter) = Meter::wrap(place.store.clone());
    let (worker_store, worker_meter) = Meter::wrap(place.store.clone());
    let definition = workflow(false, FLAT);
    let (stop, worker_stop) = (CancellationToken::new(), worker::Stop::default());
    let coordinator = place.coordinator(coordinator_store, Some(MAX_OUTSTANDING_EMULATOR), &stop);
    let worker = place.worker(worker_store, slots, &worker_stop);
    // What both do before there is work is not counted.
    place.env.sleep(Duration::from_secs(1)).await;
    let (before, _) = (coordinator_meter.take(), worker_meter.take());
    assert!(before.contains_key(&Op::LeaseAcquire), "it leads");
    let began = place.env.mono();
    let id = place.submit(&definition).await;
    place
        .until("the end", 50, async || {
            let row = read_row(&place.store, &place.layout, &id).await.unwrap();
            row.is_some_and(|row| row.record.status.is_final())
        })
        .await;
    let took = place.env.mono().since(began).as_secs_f64();
    let counts = [coordinator_meter.snapshot(), worker_meter.snapshot()];
    stop.cancel();
    worker_stop.drain.cancel();
    coordinator.join().await;
    worker.join().await;
    print_requests(slots, took, &counts);
}

fn print_requests(slots: u16, took: f64, counts: &[BTreeMap<Op, Count>; 2]) {
    let tasks = (FLAT + 1) as f64;
    println!(
        "\nrequests per task, {FLAT} tasks + join, {slots} slots: {took:.1} s, {:.0} tasks/s",
        tasks / took
    );
    println!("{:<24} {:>12} {:>8}", "", "coordinator", "worker");
    let ops: BTreeSet<Op> = counts
        .iter()
        .flat_map(|counts| counts.keys().copied())
        .collect();
    let per_task = |counts: &BTreeMap<Op, Count>, op: &Op| {
        counts.get(op).map_or(0, |count| count.requests) as f64 / tasks
    };
    for op in ops {
        let [coordinator, worker] = [0, 1].map(|side| per_task(&counts[side], &op));
        println!("{:<24} {coordinator:>12.3} {worker:>8.3}", op.to_string());
    }
    let [coordinator, worker] = [0, 1].map(|side: usize| {
        counts[side]
            .keys()
            .map(|op| per_task(&counts[side], op))
            .sum::<f64>()
    });
    println!(
        "{:<24} {coordinator:>12.3} {worker:>8.3}  together {:.3}",
        "sum",
        coordinator + worker
    );
}

/// Answers every message of the task queue, until `wanted` are answered.
async fn answer(place: &Place, wanted: usize) {
    let mut answered = 0;
    while answered < wanted {
        let messages = place
            .store
            .queues
            .receive(&place.queue(), 32, Duration::from_secs(600))
            .await
            .unwrap();
        if messages.is_empty() {
            place.env.sleep(Duration::from_millis(20)).await;
        }
        let count = messages.len();
        let posts = messages.into_iter().map(|message| async move {
            let task: TaskMessage = decode_message(&message.body).unwrap();
            let text = completion(task, place.env.wall());
            let completions = place.layout.completions();
            place
                .store
                .queues
                .send(completions, &text, Duration::ZERO)
                .await
                .unwrap();
            place
                .store
                .queues
                .delete(&place.queue(), &message.receipt)
                .await
                .unwrap();
        });
        futures::stream::iter(posts)
            .buffer_unordered(8)
            .collect::<()>()
            .await;
        answered += count;
    }
}

fn completion(task: TaskMessage, now: dagaz::env::Timestamp) -> String {
    let report = AttemptReport {
        outcome: Outcome::Succeeded,
        token: "0123456789abcdef0123456789abcdef".to_owned(),
        worker: "worker-17/4242".to_owned(),
        started_at: Some(now),
        ended_at: now,
        exit_code: Some(0),
        output: None,
        has_log: false,
        stderr_tail: None,
        reused_from: None,
    };
    encode_message(&CompletionRecord::of_results(vec![CompletionResult {
        workflow_id: task.workflow_id,
        run_id: task.run_id,
        generation: task.generation,
        task: task.task,
        attempt_no: task.attempt_no,
        report,
    }]))
}

/// How fast one round went.
struct Round {
    /// From the start of the coordinator to its last acknowledgement.
    per_second: f64,
    /// Blob writes in between: the state, and becoming leader.
    writes: u64,
}

/// One coordinator over completions of one workflow that were there before it.
async fn preloaded(place: &Place) -> Round {
    let stop = CancellationToken::new();
    let first = place.coordinator(place.store.clone(), None, &stop);
    place.submit(&workflow(true, PRELOADED)).await;
    answer(place, 1).await;
    let queue = place.queue();
    place
        .until("all leaves to be sent", 50, async || {
            place.store.queues.depth(&queue).await.unwrap() == PRELOADED as u64
        })
        .await;
    stop.cancel();
    first.join().await;
    answer(place, PRELOADED).await;

    let (store, meter) = Meter::wrap(place.store.clone());
    let stop = CancellationToken::new();
    let requests = |op: Op| meter.snapshot().get(&op).map_or(0, |count| count.requests);
    let began = place.env.mono();
    let second = place.coordinator(store, None, &stop);
    place
        .until("the last acknowledgement", 1, async || {
            requests(Op::QueueDelete) >= PRELOADED as u64
        })
        .await;
    let took = place.env.mono().since(began).as_secs_f64();
    let writes = requests(Op::BlobPut);
    place
        .until("the join to be sent", 5, async || {
            place.store.queues.depth(&queue).await.unwrap() == 1
        })
        .await;
    stop.cancel();
    second.join().await;
    Round {
        per_second: PRELOADED as f64 / took,
        writes,
    }
}

/// Receives and deletes as many messages with nothing in between: what the store lets through, per second.
async fn bare(place: &Place) -> Round {
    let (queue, body) = (place.layout.completions(), "x".repeat(700));
    let queues = &place.store.queues;
    let sends = (0..PRELOADED).map(|_| queues.send(queue, &body, Duration::ZERO));
    let sent: Vec<_> = futures::stream::iter(sends)
        .buffer_unordered(8)
        .collect()
        .await;
    assert!(sent.iter().all(Result::is_ok));
    let began = place.env.mono();
    let mut left = PRELOADED;
    while left > 0 {
        let messages = queues
            .receive(queue, 32, Duration::from_secs(60))
            .await
            .unwrap();
        left -= messages.len();
        let deletes = messages
            .iter()
            .map(|message| queues.delete(queue, &message.receipt));
        let gone: Vec<_> = futures::stream::iter(deletes)
            .buffer_unordered(8)
            .collect()
            .await;
        assert!(gone.iter().all(Result::is_ok));
    }
    let took = place.env.mono().since(began).as_secs_f64();
    Round {
        per_second: PRELOADED as f64 / took,
        writes: 0,
    }
}

fn print_rounds(store: &str, mut rounds: Vec<Round>) {
    rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    let (least, most) = (rounds[0].per_second, rounds[rounds.len() - 1].per_second);
    let median = &rounds[rounds.len() / 2];
    println!(
        "\n{PRELOADED} preloaded completions, {store}: median {:.0}/s of {} rounds ({least:.0}–{most:.0}), {} blob writes",
        median.per_second,
        rounds.len(),
        median.writes
    );
}

#[tokio::main]
async fn main() {
    // Cargo hands its own flags on; none mean anything here.
    let env = real::env();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let place = Place::new(MemoryStore::open(env.clone()), &env, "bench").await;
        rounds.push(preloaded(&place).await);
    }
    print_rounds("store in memory", rounds);

    let connection = azurite::azurite().connection_string();
    let (config, _) = AzureConfig::resolve("bench", Some(&connection)).unwrap();
    let store = AzureStore::open(&config, env.clone()).unwrap();
    for slots in [1, 32] {
        let place = Place::new(store.clone(), &env, &format!("slots{slots}")).await;
        requests_per_task(&place, slots).await;
    }
    let (mut rounds, mut bare_rounds) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let place = Place::new(store.clone(), &env, &format!("round{round}")).await;
        rounds.push(preloaded(&place).await);
        bare_rounds.push(bare(&place).await);
    }
    print_rounds("emulator", rounds);
    print_rounds(
        "emulator, received and deleted without a coordinator",
        bare_rounds,
    );
}
