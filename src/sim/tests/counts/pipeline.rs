//! One coordinator and one worker over a whole workflow in virtual time, every request of which is counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::coordinator::{self, MAX_OUTSTANDING_EMULATOR};
use crate::definition::{
    Command, Definition, DepPolicy, OnFailure, ResultPolicy, Task, TaskName, WorkflowId,
};
use crate::env::real::ProcessName;
use crate::env::{Clock as _, Mono, Pulse};
use crate::protocol::{Layout, read_row};
use crate::sim::dice::Dice;
use crate::sim::process::Process;
use crate::sim::scheduler::{Scheduler, hold};
use crate::sim::trace::Trace;
use crate::store::Store;
use crate::store::layers::Op;
use crate::store::layers::fault::Faults;
use crate::store::layers::meter::{Count, Meter};
use crate::store::layers::remote::{Remote, Service};
use crate::store::memory::MemoryStore;
use crate::worker::{self, End, Execution, Executor, Job, NoObserver, Signals, Written};

/// How long both run before there is work: the coordinator leads by then.
const BEFORE: Duration = Duration::from_secs(1);
/// How often the end is looked for, which nobody counts.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is run, and where.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) service: Service,
    pub(super) definition: Definition,
    /// So many of it, submitted at once.
    pub(super) workflows: usize,
    pub(super) worker: worker::Config,
    /// What each command takes.
    pub(super) takes: Duration,
    /// Of chance, and of the order of what happens at once.
    pub(super) seed: u64,
}

impl Plan {
    /// Commands that end at once, and a worker of so many slots.
    pub(super) fn new(service: Service, definition: Definition, slots: u16) -> Self {
        Self {
            service,
            definition,
            workflows: 1,
            worker: worker::Config {
                slots,
                name: ProcessName {
                    host: "worker".to_owned(),
                    pid: 1,
                },
                ..worker::Config::default()
            },
            takes: Duration::ZERO,
            seed: 1,
        }
    }
}

/// `count` tasks, each of which waits for the places given by `parents`.
fn shape(count: usize, parents: impl Fn(usize) -> Vec<usize>) -> Definition {
    let named = |place: usize| TaskName::new(format!("t{place}")).unwrap();
    let task = |place: usize| Task {
        name: named(place),
        cmd: Command::Shell("counted".to_owned()),
        env: BTreeMap::new(),
        cwd: None,
        depends_on: parents(place).into_iter().map(named).collect(),
        queue: None,
        dep_policy: DepPolicy::All,
        num_retries: 0,
        timeout_s: None,
        idempotency_key: None,
    };
    Definition {
        name: None,
        description: None,
        default_queue: worker::Config::default().queues[0].clone(),
        max_parallelism: None,
        result_policy: ResultPolicy::AllSinksSucceed,
        on_failure: OnFailure::Continue,
        env: BTreeMap::new(),
        tasks: (0..count).map(task).collect(),
    }
}

/// `count` tasks and a join of them all.
pub(super) fn flat(count: usize) -> Definition {
    shape(count + 1, |place| {
        if place == count {
            (0..count).collect()
        } else {
            vec![]
        }
    })
}

/// `count` tasks, one after the other.
pub(super) fn chain(count: usize) -> Definition {
    shape(count, |place| place.checked_sub(1).into_iter().collect())
}

/// What one process has asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Side {
    counts: BTreeMap<Op, Count>,
    /// Requests to the table of claims.
    pub(super) claims: u64,
}

impl Side {
    fn count(&self, op: Op) -> Count {
        self.counts.get(&op).copied().unwrap_or_default()
    }

    pub(super) fn of(&self, op: Op) -> u64 {
        self.count(op).requests
    }

    pub(super) fn sum(&self) -> u64 {
        self.counts.values().map(|count| count.requests).sum()
    }

    /// Receives that found something.
    pub(super) fn finds(&self) -> u64 {
        self.count(Op::QueueReceive).found
    }

    /// Receives that found nothing.
    pub(super) fn polls(&self) -> u64 {
        self.of(Op::QueueReceive) - self.finds()
    }
}

/// What a workflow has cost, from its submission to its final row.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    pub(super) coordinator: Side,
    pub(super) worker: Side,
    pub(super) took: Duration,
    /// When each command began and ended, in the order of their ends.
    pub(super) runs: Vec<(Mono, Mono)>,
}

impl Counted {
    pub(super) fn tasks(&self) -> u64 {
        self.runs.len() as u64
    }

    pub(super) fn per_task(&self) -> f64 {
        (self.coordinator.sum() + self.worker.sum()) as f64 / self.tasks() as f64
    }

    /// The times from the end of a command to the start of the next.
    pub(super) fn hops(&self) -> Vec<Duration> {
        let hops = self.runs.windows(2).map(|two| two[1].0.since(two[0].1));
        hops.collect()
    }
}

/// As a table, for whoever looks into a limit that was passed.
impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.per_task();
        writeln!(f, "{each:.3} requests a task, {:?} in all", self.took)?;
        for (name, side) in [("coordinator", &self.coordinator), ("worker", &self.worker)] {
            writeln!(
                f,
                "  {name}: {}, of them {} polls",
                side.sum(),
                side.polls()
            )?;
            for op in side.counts.keys() {
                let (words, count) = (op.to_string(), side.of(*op));
                let each = count as f64 / self.tasks() as f64;
                writeln!(f, "    {words:<20} {count:>6} {each:>7.3}")?;
            }
        }
        Ok(())
    }
}

/// Ends commands well after their time.
struct Timed {
    process: Process,
    takes: Duration,
    runs: Mutex<Vec<(Mono, Mono)>>,
}

impl fmt::Debug for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timed").finish_non_exhaustive()
    }
}

#[async_trait]
impl Executor for Timed {
    async fn run(&self, _: &Job, _: &Signals) -> Execution {
        let started_at = Some(self.process.wall());
        let began = self.process.mono();
        if !self.takes.is_zero() {
            self.process.sleep(self.takes).await;
        }
        hold(&self.runs).push((began, self.process.mono()));
        Execution {
            end: End::Exited(0),
            started_at,
            written: Written::Nothing,
            log: Bytes::new(),
            stderr_tail: Vec::new(),
        }
    }
}

/// The way of one process to the service, with its counters.
struct Way {
    store: Store,
    meter: Arc<Meter>,
    claims: Arc<AtomicU64>,
}

impl Way {
    fn new(store: &Store, layout: &Layout, process: &Process, service: &Service) -> Self {
        let store = Remote::wrap(store.clone(), process.env(), service.clone());
        let claims = Arc::new(AtomicU64::new(0));
        let (seen, table) = (Arc::clone(&claims), layout.claims().to_string());
        let hook = move |_: &Op, path: &str| {
            let is_claim = path.starts_with(&table);
            seen.fetch_add(u64::from(is_claim), Ordering::SeqCst);
            None
        };
        let (store, _) = Faults::script().hook(hook).wrap(store, process.env());
        let (store, meter) = Meter::wrap(store);
        Self {
            store,
            meter,
            claims,
        }
    }

    /// Takes what was counted since the last time.
    fn take(&self) -> Side {
        Side {
            counts: self.meter.take(),
            claims: self.claims.swap(0, Ordering::SeqCst),
        }
    }
}

/// Runs the workflow of a plan to its end.
pub(super) fn count(plan: Plan) -> Counted {
    let scheduler = Scheduler::new(Dice::new(plan.seed), Arc::new(Trace::new(false)));
    let operator = Process::new(&scheduler, 0, "operator", 0);
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    let of_story = scheduler.clone();
    operator.start("run", async move {
        let counted = story(&of_story, &plan).await;
        *hold(&tell) = Some(counted);
    });
    while hold(&told).is_none() {
        assert!(scheduler.step(), "nothing is left to happen");
        let panics = scheduler.panics();
        assert!(panics.is_empty(), "{panics:?}");
    }
    scheduler.clear();
    let counted = hold(&told).take();
    counted.expect("told above")
}

/// Starts a coordinator with the defaults for the emulator.
fn start_coordinator(process: &Process, way: &Way, layout: &Layout) {
    let config = coordinator::Config {
        max_outstanding: Some(MAX_OUTSTANDING_EMULATOR),
        ..coordinator::Config::default()
    };
    let env = process.env();
    let pulse = Arc::new(Pulse::new(&env, "leadership"));
    let (store, layout, stop) = (way.store.clone(), layout.clone(), CancellationToken::new());
    let leads = coordinator::run(env, store, layout, config, pulse, stop);
    process.start("main", async move { leads.await.unwrap() });
}

/// Starts a worker.
fn start_worker(process: &Process, way: &Way, layout: &Layout, plan: &Plan) -> Arc<Timed> {
    let executor = Arc::new(Timed {
        process: process.clone(),
        takes: plan.takes,
        runs: Mutex::default(),
    });
    let (env, store, layout) = (process.env(), way.store.clone(), layout.clone());
    let (config, stop) = (plan.worker.clone(), worker::Stop::default());
    let (runs, observer) = (executor.clone(), Arc::new(NoObserver));
    let works = worker::run(env, store, layout, config, runs, stop, observer);
    process.start("main", async move {
        works.await.unwrap();
    });
    executor
}

async fn story(scheduler: &Scheduler, plan: &Plan) -> Counted {
    let of = |number, name| Process::new(scheduler, number, name, 0);
    let (leader, hand, service) = (of(1, "coordinator"), of(2, "worker"), of(3, "service"));
    let env = service.env();
    let store = MemoryStore::silent(env.clone());
    let layout = Layout::new("counts").unwrap();
    layout.create(&store).await.unwrap();
    let queue = layout.task_queue(&plan.definition.default_queue);
    store.queues.create_queue(&queue).await.unwrap();
    let way = |process| Way::new(&store, &layout, process, &plan.service);
    let (leaders_way, hands_way) = (way(&leader), way(&hand));
    start_coordinator(&leader, &leaders_way, &layout);
    let executor = start_worker(&hand, &hands_way, &layout, plan);

    env.sleep(BEFORE).await;
    let (before, _) = (leaders_way.take(), hands_way.take());
    assert_eq!(before.of(Op::LeaseAcquire), 1, "it leads");
    let began = env.mono();
    let client = Client::new(env.clone(), store.clone(), layout.clone(), "counts");
    let names = (0..plan.workflows).map(|number| format!("w{number}"));
    let ids: Vec<_> = names.map(|name| WorkflowId::new(name).unwrap()).collect();
    for id in &ids {
        client.submit(id, &plan.definition).await.unwrap();
    }
    for id in &ids {
        let is_over = async || {
            let row = read_row(&store, &layout, id).await.unwrap();
            row.is_some_and(|row| row.record.status.is_final())
        };
        while !is_over().await {
            env.sleep(LOOK_EVERY).await;
        }
    }
    let runs = hold(&executor.runs).clone();
    let tasks = plan.workflows * plan.definition.tasks.len();
    assert_eq!(runs.len(), tasks, "each ran once");
    Counted {
        coordinator: leaders_way.take(),
        worker: hands_way.take(),
        took: env.mono().since(began),
        runs,
    }
}
