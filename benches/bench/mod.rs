//! What the benchmarks share: a prefix of a store, a coordinator and a worker on it, shapes of workflows, and what is told of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dagaz::client::Client;
use dagaz::coordinator::{self, MAX_OUTSTANDING_EMULATOR};
use dagaz::definition::{Definition, QueueName, WorkflowId};
use dagaz::engine::Status;
use dagaz::env::{Env, Joined, Pulse, TaskHandle, real};
use dagaz::protocol::{Layout, read_row};
use dagaz::store::azure::{AzureConfig, AzureStore};
use dagaz::store::layers::meter::Meter;
use dagaz::store::memory::MemoryStore;
use dagaz::store::{Queue, Store};
use dagaz::worker::{
    self, End, Execution, Executor, Job, NoObserver, ProcessExecutor, Signals, Written,
};
use futures::StreamExt as _;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

pub(crate) mod bare;
pub(crate) mod figures;
pub(crate) mod shapes;

#[path = "../../tests/support/azurite.rs"]
#[expect(dead_code, reason = "tests use more of it")]
pub(crate) mod azurite;

/// The word on the command line that says which cases are wanted; empty: all. Flags there are Cargo's.
pub(crate) fn wanted() -> String {
    let mut words = std::env::args().skip(1);
    let word = words.find(|word| !word.starts_with('-') && word.parse::<f64>().is_err());
    word.unwrap_or_default()
}

/// A store to measure on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Memory,
    /// One emulator for all of a benchmark; needs Node 20.
    Emulator,
}

impl On {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Emulator => "emulator",
        }
    }

    fn open(self) -> Store {
        let env = real::env();
        match self {
            Self::Memory => MemoryStore::open(env),
            Self::Emulator => {
                let connection = azurite::azurite().connection_string();
                let (config, _) = AzureConfig::resolve("bench", Some(&connection)).unwrap();
                AzureStore::open(&config, env).unwrap()
            }
        }
    }

    /// What the command line limits a coordinator to.
    pub(crate) fn outstanding(self) -> Option<u32> {
        (self == Self::Emulator).then_some(MAX_OUTSTANDING_EMULATOR)
    }
}

/// One prefix of one store.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) env: Env,
    pub(crate) store: Store,
    pub(crate) layout: Layout,
    on: On,
}

impl Place {
    pub(crate) async fn new(on: On, prefix: &str) -> Self {
        let place = Self {
            env: real::env(),
            store: on.open(),
            layout: Layout::new(prefix).unwrap(),
            on,
        };
        place.create().await;
        place
    }

    /// The same place as `store` shows it.
    pub(crate) async fn seen_through(&self, store: Store) -> Self {
        let place = Self {
            store,
            ..self.clone()
        };
        place.create().await;
        place
    }

    async fn create(&self) {
        self.layout.create(&self.store).await.unwrap();
        let queues = &self.store.queues;
        queues.create_queue(&self.queue()).await.unwrap();
    }

    /// The store for another runtime: connections belong to the runtime that made them.
    pub(crate) fn store_again(&self) -> Store {
        match self.on {
            On::Memory => self.store.clone(),
            On::Emulator => self.on.open(),
        }
    }

    pub(crate) fn queue(&self) -> Queue {
        self.layout.task_queue(&QueueName::new("default").unwrap())
    }

    pub(crate) fn client(&self, store: Store) -> Client {
        Client::new(self.env.clone(), store, self.layout.clone(), "bench")
    }

    pub(crate) async fn submit(&self, name: &str, definition: &Definition) -> WorkflowId {
        let id = WorkflowId::new(name).unwrap();
        let client = self.client(self.store.clone());
        client.submit(&id, definition).await.unwrap();
        id
    }

    /// Submits so many equal workflows, a few at once.
    pub(crate) async fn submit_all(
        &self,
        name: &str,
        count: usize,
        definition: &Definition,
    ) -> Vec<WorkflowId> {
        let names = (0..count).map(|number| format!("{name}-{number}"));
        let submits = names.map(|name| async move { self.submit(&name, definition).await });
        let submitted = futures::stream::iter(submits).buffer_unordered(16);
        submitted.collect().await
    }

    pub(crate) async fn until(
        &self,
        what: &str,
        pause_ms: u64,
        mut reached: impl AsyncFnMut() -> bool,
    ) {
        let deadline = self.env.mono().plus(Duration::from_secs(3600));
        while !reached().await {
            assert!(self.env.mono() < deadline, "waited too long for {what}");
            self.env.sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// The pause between two looks for the end of so many workflows: short beside their time, and little work.
    pub(crate) fn pause_ms(&self, workflows: usize) -> u64 {
        match (self.on, workflows) {
            (On::Memory, ..=100) => 5,
            (On::Memory, _) | (On::Emulator, ..=100) => 20,
            (On::Emulator, ..=1_000) => 200,
            (On::Emulator, _) => 10_000,
        }
    }

    /// Whether no workflow is unfinished.
    pub(crate) async fn all_ended(&self) -> bool {
        let (rows, index) = (&self.store.rows, self.layout.index());
        let open = rows.query(index, Layout::OPEN, None).await.unwrap();
        open.items.is_empty()
    }

    /// Fails unless these workflows have ended well.
    pub(crate) async fn check(&self, ids: &[WorkflowId]) {
        for id in ids {
            let row = read_row(&self.store, &self.layout, id).await.unwrap();
            let status = row.map(|row| row.record.status);
            assert_eq!(status, Some(Status::Completed), "{id}");
        }
    }
}

/// The name of the threads of coordinators.
const COORDINATOR: &str = "coordinator";

/// A coordinator in a runtime of its own, so that its processor time can be told from that of others. The store in memory works
/// on its caller's thread.
pub(crate) struct Coordinator {
    pub(crate) meter: Arc<Meter>,
    runtime: Runtime,
    handle: TaskHandle,
    stop: CancellationToken,
}

impl Coordinator {
    /// Starts one over `store`, which no other runtime may have used, with so many messages outstanding.
    pub(crate) fn start(place: &Place, store: Store, outstanding: Option<u32>) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(COORDINATOR)
            .enable_all()
            .build()
            .unwrap();
        let (store, meter) = Meter::wrap(store);
        let config = coordinator::Config {
            holder: "bench/1".to_owned(),
            max_outstanding: outstanding,
            ..coordinator::Config::default()
        };
        let stop = CancellationToken::new();
        let run = coordinator::run(
            place.env.clone(),
            store,
            place.layout.clone(),
            config,
            Arc::new(Pulse::new(&place.env, "leadership")),
            stop.clone(),
        );
        let inside = runtime.enter();
        let handle = place
            .env
            .spawn(COORDINATOR, async move { run.await.unwrap() });
        drop(inside);
        Self {
            meter,
            runtime,
            handle,
            stop,
        }
    }

    /// Starts one as the command line would.
    pub(crate) fn usual(place: &Place) -> Self {
        Self::start(place, place.store_again(), place.on.outstanding())
    }

    /// The processor time of all coordinators that have not ended, in seconds.
    pub(crate) fn cpu() -> f64 {
        figures::cpu_of_threads(|name| name == COORDINATOR)
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        assert_eq!(self.handle.join().await, Joined::Done);
        self.runtime.shutdown_background();
    }
}

/// How a worker runs commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Not at all: each ends at once and well.
    Nothing,
    /// Not at all, and each result goes by a message of its own.
    Singly,
    /// As real processes.
    Processes,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no-op",
            Self::Singly => "no-op, singly",
            Self::Processes => "processes",
        }
    }
}

/// Counts jobs and ends each at once and well.
#[derive(Debug)]
struct Instant(Env, Arc<AtomicU64>);

#[async_trait]
impl Executor for Instant {
    async fn run(&self, _: &Job, _: &Signals) -> Execution {
        self.1.fetch_add(1, Ordering::Relaxed);
        Execution {
            end: End::Exited(0),
            started_at: Some(self.0.wall()),
            written: Written::Nothing,
            log: Bytes::new(),
            stderr_tail: Vec::new(),
        }
    }
}

/// A worker in this runtime.
pub(crate) struct Worker {
    pub(crate) meter: Arc<Meter>,
    ran: Arc<AtomicU64>,
    handle: TaskHandle,
    stop: worker::Stop,
}

impl Worker {
    pub(crate) fn start(place: &Place, slots: u16, work: Work) -> Self {
        let config = worker::Config {
            slots,
            results_per_message: match work {
                Work::Singly => 1,
                Work::Nothing | Work::Processes => worker::RESULTS_PER_MESSAGE,
            },
            ..worker::Config::default()
        };
        let (store, meter) = Meter::wrap(place.store.clone());
        let (env, ran) = (place.env.clone(), Arc::default());
        let executor: Arc<dyn Executor> = match work {
            Work::Nothing | Work::Singly => Arc::new(Instant(env.clone(), Arc::clone(&ran))),
            Work::Processes => Arc::new(ProcessExecutor::new(env.clone(), &[])),
        };
        let (layout, stop) = (place.layout.clone(), worker::Stop::default());
        let observer = Arc::new(NoObserver);
        let told = stop.clone();
        let run = worker::run(env, store, layout, config, executor, told, observer);
        let run = async move {
            run.await.unwrap();
        };
        Self {
            meter,
            ran,
            handle: place.env.spawn("worker", run),
            stop,
        }
    }

    /// Commands run so far, real processes left out.
    pub(crate) fn ran(&self) -> u64 {
        self.ran.load(Ordering::Relaxed)
    }

    /// Ends it; what runs is killed.
    pub(crate) async fn end(self) {
        self.stop.drain.cancel();
        self.stop.kill.cancel();
        assert_eq!(self.handle.join().await, Joined::Done);
    }
}
