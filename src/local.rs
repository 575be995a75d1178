//! Runs one workflow in this process: the same coordinator and worker code over a store in memory.
//!
//! Invariants:
//! 1. When [`run`] returns, nothing that it started runs any more.
//! 2. The first stop cancels the workflow, as a person would; only the second ends it by force.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, pending};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::client::{Answer, Client, ClientError, Log, Running, TaskWord, Update, WorkflowView};
use crate::coordinator;
use crate::definition::{Definition, QueueName, TaskName, WorkflowId};
use crate::env::real::process_name;
use crate::env::{Env, Joined, Pulse};
use crate::protocol::Layout;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::worker::{self, Observer, ProcessExecutor, TaskEnded, TaskStarted};

/// The prefix in the store in memory.
const PREFIX: &str = "local";
/// How often the state is looked at while it changes.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Failed tasks whose log is kept.
const LOGS_MAX: usize = 5;

/// How long the services may take to stop.
const STOP_MAX: Duration = Duration::from_secs(15);

/// How to run it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its id; a new one without it.
    pub id: Option<WorkflowId>,
    /// Tasks run at once.
    pub slots: NonZeroU16,
    /// Cancels the workflow.
    pub stop: CancellationToken,
    /// Ends everything by force.
    pub kill: CancellationToken,
}

/// A workflow that has ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How it ended.
    pub view: WorkflowView,
    /// What the first failed tasks printed; the store that holds it is gone with the process.
    pub failed_logs: Vec<(TaskName, Bytes)>,
}

/// Why it came to no end.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It could not be submitted or read.
    #[error(transparent)]
    Client(ClientError),
    /// The coordinator or the worker ended too soon.
    #[error("{0}")]
    Service(String),
    /// It was ended by force.
    #[error("ended by force")]
    Killed,
}

/// Runs `definition` to its end and gives each change to `on_update`. While that waits, changes gather; stops are heard all the same.
///
/// # Errors
/// [`LocalError`]; the end of a workflow that failed is none.
///
/// # Cancel safety
/// Dropping it leaves tasks to the operating system: end it by [`Options::kill`].
pub async fn run(
    env: &Env,
    definition: &Definition,
    options: Options,
    on_update: impl AsyncFnMut(Arc<Update>),
) -> Result<Ended, LocalError> {
    let store = MemoryStore::open(env.clone());
    let layout = Layout::new(PREFIX).expect("a legal prefix");
    let client = Client::new(env.clone(), store.clone(), layout.clone(), "workflow run");
    create(&store, &layout, definition)
        .await
        .map_err(|error| LocalError::Client(error.into()))?;
    let id = options.id.clone().unwrap_or_else(|| client.new_id());
    // Before anybody leads, who would find the definition before its row and wonder.
    let submitted = client.submit(&id, definition).await;
    submitted.map_err(LocalError::Client)?;
    let mut services = Services::start(env, &store, &layout, definition, &options);
    let runs = services.running();
    let followed = tokio::select! {
        followed = follow(&client, &id, &options, runs, on_update) => followed,
        what = services.failure() => Err(LocalError::Service(what)),
        () = options.kill.cancelled() => Err(LocalError::Killed),
    };
    services.stop(followed.is_err()).await;
    followed
}

/// Makes all that the workflow needs, its queues too.
async fn create(
    store: &Store,
    layout: &Layout,
    definition: &Definition,
) -> crate::store::Result<()> {
    layout.create(store).await?;
    for queue in queues(definition) {
        store
            .queues
            .create_queue(&layout.task_queue(&queue))
            .await?;
    }
    Ok(())
}

/// Follows the workflow to its end; the first stop cancels it.
async fn follow(
    client: &Client,
    id: &WorkflowId,
    options: &Options,
    runs: Running,
    mut on_update: impl AsyncFnMut(Arc<Update>),
) -> Result<Ended, LocalError> {
    let watch = client.watch(id, None).await.map_err(LocalError::Client)?;
    let mut watch = watch.nearby(LOOK_EVERY, runs);
    let shown = async {
        let mut last = None;
        while let Some(update) = watch.next().await? {
            let update = Arc::new(update);
            on_update(Arc::clone(&update)).await;
            last = Some(update);
        }
        Ok(last.expect("a watch shows something before it ends"))
    };
    // Beside the showing, which may wait for whoever reads.
    let cancelled = async {
        options.stop.cancelled().await;
        match client.cancel(id, Duration::ZERO).await {
            // It ended at the same moment.
            Ok(Answer::Applied | Answer::Underway | Answer::Stored)
            | Err(ClientError::Refused { .. }) => pending().await,
            Err(error) => error,
        }
    };
    let last = tokio::select! {
        shown = shown => shown,
        error = cancelled => Err(error),
    };
    let view = Arc::unwrap_or_clone(last.map_err(LocalError::Client)?).view;
    let mut failed_logs = Vec::new();
    let failed = view
        .tasks
        .iter()
        .filter(|task| task.state == TaskWord::Failed);
    for task in failed.take(LOGS_MAX) {
        let log = client.logs(id, task.name.as_str()).await;
        // A task that failed without ever running has no log.
        if let Ok(Log {
            bytes: Some(bytes), ..
        }) = log
        {
            failed_logs.push((task.name.clone(), bytes));
        }
    }
    Ok(Ended { view, failed_logs })
}

/// The coordinator and the worker.
struct Services {
    env: Env,
    coordinator: BoxFuture<'static, Result<(), String>>,
    worker: BoxFuture<'static, Result<(), String>>,
    coordinator_stop: CancellationToken,
    worker_stop: worker::Stop,
    observer: Arc<RunningTasks>,
}

impl Services {
    fn start(
        env: &Env,
        store: &Store,
        layout: &Layout,
        definition: &Definition,
        options: &Options,
    ) -> Self {
        let observer = Arc::new(RunningTasks::default());
        let coordinator_stop = CancellationToken::new();
        let worker_stop = worker::Stop {
            drain: CancellationToken::new(),
            kill: options.kill.clone(),
        };
        let coordinator = {
            let config = coordinator::Config {
                holder: process_name().to_string(),
                activation_sweep_interval: Duration::from_secs(1),
                ..coordinator::Config::default()
            };
            let (env, store, layout) = (env.clone(), store.clone(), layout.clone());
            let stop = coordinator_stop.clone();
            async move {
                let pulse = Arc::new(Pulse::new(&env, "leadership"));
                let ended = coordinator::run(env, store, layout, config, pulse, stop).await;
                ended
                    .map(drop)
                    .map_err(|error| format!("the coordinator: {error}"))
            }
        };
        let worker = {
            let config = worker::Config {
                queues: queues(definition),
                slots: options.slots.get(),
                cancel_poll_interval: Duration::from_secs(1),
                drain_timeout: Duration::ZERO,
                ..worker::Config::default()
            };
            let executor = Arc::new(ProcessExecutor::new(env.clone(), &config.pass_env));
            let (env, store, layout) = (env.clone(), store.clone(), layout.clone());
            let (stop, observer) = (worker_stop.clone(), Arc::clone(&observer));
            async move {
                let ended = worker::run(env, store, layout, config, executor, stop, observer).await;
                ended
                    .map(drop)
                    .map_err(|error| format!("the worker: {error}"))
            }
        };
        Self {
            coordinator: start(env, "coordinator", coordinator),
            worker: start(env, "worker", worker),
            env: env.clone(),
            coordinator_stop,
            worker_stop,
            observer,
        }
    }

    /// Tells which tasks run.
    fn running(&self) -> Running {
        let observer = Arc::clone(&self.observer);
        Running(Arc::new(move |name| observer.names().contains(name)))
    }

    /// Completes if a service ends by itself, which none should.
    async fn failure(&mut self) -> String {
        let ended = tokio::select! {
            ended = &mut self.coordinator => ended,
            ended = &mut self.worker => ended,
        };
        ended
            .err()
            .unwrap_or_else(|| "a service ended by itself".to_owned())
    }

    /// Ends both; a worker that has nothing to do, or is forced, ends at once.
    async fn stop(self, force: bool) {
        self.worker_stop.drain.cancel();
        if force {
            self.worker_stop.kill.cancel();
        }
        self.coordinator_stop.cancel();
        let both = async { tokio::join!(self.worker, self.coordinator) };
        if self.env.timeout(STOP_MAX, both).await.is_err() {
            tracing::warn!("services_did_not_stop");
        }
    }
}

/// Starts a service; the future completes when it has ended.
fn start(
    env: &Env,
    name: &'static str,
    service: impl Future<Output = Result<(), String>> + Send + 'static,
) -> BoxFuture<'static, Result<(), String>> {
    let (sender, receiver) = oneshot::channel();
    let handle = env.spawn(name, async move {
        // Nobody waits any more: nobody needs to know.
        drop(sender.send(service.await));
    });
    async move {
        match handle.join().await {
            Joined::Done => receiver.await.unwrap_or(Ok(())),
            Joined::Aborted => Err(format!("the {name} was aborted")),
            Joined::Panicked(what) => Err(format!("the {name} panicked: {what}")),
        }
    }
    .boxed()
}

/// All queues that the tasks use.
fn queues(definition: &Definition) -> Vec<QueueName> {
    let own = definition
        .tasks
        .iter()
        .filter_map(|task| task.queue.as_ref());
    let all: BTreeSet<&QueueName> = own.chain([&definition.default_queue]).collect();
    all.into_iter().cloned().collect()
}

/// The tasks that the worker runs now.
#[derive(Debug, Default)]
struct RunningTasks(Mutex<BTreeSet<TaskName>>);

impl RunningTasks {
    fn names(&self) -> std::sync::MutexGuard<'_, BTreeSet<TaskName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for RunningTasks {
    fn started(&self, task: &TaskStarted) {
        self.names().insert(task.task.clone());
    }

    fn ended(&self, task: &TaskEnded) {
        self.names().remove(&task.task);
    }
}
