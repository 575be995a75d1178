//! What the benchmarks share: a prefix of a store with coordinator and worker in this process, workflows, and completions made by hand.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dagaz::client::Client;
use dagaz::coordinator;
use dagaz::definition::{Definition, QueueName, Source, TaskName, WorkflowId, parse};
use dagaz::env::{Env, Pulse, TaskHandle};
use dagaz::protocol::Layout;
use dagaz::store::{Queue, Store};
use dagaz::worker::{self, End, Execution, Executor, Job, NoObserver, Signals, Written};
use tokio_util::sync::CancellationToken;

#[path = "../../tests/support/azurite.rs"]
#[expect(dead_code, reason = "tests use more of it")]
pub(crate) mod azurite;

/// One prefix of one store.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) env: Env,
    pub(crate) store: Store,
    pub(crate) layout: Layout,
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

/// `count` tasks, each of which waits for the places given by `parents`.
pub(crate) fn shape(count: usize, parents: impl Fn(usize) -> Vec<usize>) -> Definition {
    let source = Source::new("bench.yaml", "tasks: [{name: a, cmd: 'true'}]");
    let template = parse(&source).unwrap().definition;
    let named = |place: usize| TaskName::new(format!("t{place}")).unwrap();
    let task = |place: usize| {
        let mut task = template.tasks[0].clone();
        task.name = named(place);
        task.depends_on = parents(place).into_iter().map(named).collect();
        task
    };
    Definition {
        tasks: (0..count).map(task).collect(),
        ..template.clone()
    }
}

/// `count` tasks and a join of them all.
pub(crate) fn with_a_join(count: usize) -> Definition {
    shape(count + 1, |place| {
        if place == count {
            (0..count).collect()
        } else {
            vec![]
        }
    })
}

impl Place {
    pub(crate) async fn new(store: Store, env: &Env, prefix: &str) -> Self {
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

    pub(crate) fn queue(&self) -> Queue {
        self.layout.task_queue(&QueueName::new("default").unwrap())
    }

    pub(crate) async fn submit(&self, name: &str, definition: &Definition) -> WorkflowId {
        let id = WorkflowId::new(name).unwrap();
        let client = Client::new(
            self.env.clone(),
            self.store.clone(),
            self.layout.clone(),
            "bench",
        );
        client.submit(&id, definition).await.unwrap();
        id
    }

    pub(crate) fn coordinator(
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

    pub(crate) fn worker(&self, store: Store, slots: u16, stop: &worker::Stop) -> TaskHandle {
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
}

/// What a process has used: seconds of processor time, and the most memory in MiB, as Linux tells.
pub(crate) fn used(process: &str) -> (f64, f64) {
    let proc = Path::new("/proc").join(process);
    let stat = std::fs::read_to_string(proc.join("stat")).unwrap();
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    let status = std::fs::read_to_string(proc.join("status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak = peak.trim().trim_end_matches(" kB").parse::<f64>().unwrap();
    (ticks / 100.0, peak / 1024.0)
}
