//! Workers over the memory store, with real processes and a clock that moves only when a test moves it.

mod dying;
mod idle;
mod keeping;
mod keys;
mod outputs;
mod stopping;
mod storing;
mod suspects;
mod ways;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::definition::{
    Command, Definition, DepPolicy, OnFailure, ResultPolicy, Task, TaskName, WorkflowId,
};
use crate::engine::{Attempt, Generation, Outcome, Status, StopAfter, TaskIx};
use crate::env::{Timestamp, real};
use crate::protocol::{FoundClaim, fields_of, read_claim};
use crate::record::{
    CompletionRecord, CompletionResult, ControlSeq, DefinitionRecord, Epoch, IndexRecord, Inputs,
    Revision, RunId, RuntimeRecord, Stamp, TaskBody, TaskDetail, TaskSpec, decode_message, encode,
    encode_message,
};
use crate::store::memory::MemoryStore;
use crate::store::memory::manual::ManualClock;
use crate::store::{BlobPath, Expect, Fields, Value};

/// One account with one workflow `w` whose tasks `a`, `b`, `c` and `d` were sent as attempt 1, and a folder for its commands.
pub(super) struct Bench {
    pub(super) clock: Arc<ManualClock>,
    pub(super) env: Env,
    pub(super) store: Store,
    pub(super) layout: Layout,
    pub(super) queue: Queue,
    pub(super) run: RunId,
    pub(super) folder: tempfile::TempDir,
}

/// A worker at work.
pub(super) struct Running {
    pub(super) stop: Stop,
    done: crate::env::TaskHandle,
    summary: Arc<Mutex<Option<Summary>>>,
}

impl Running {
    pub(super) fn is_over(&self) -> bool {
        self.summary.lock().unwrap().is_some()
    }

    /// Lets it drain, and waits for its end.
    pub(super) async fn drained(self) -> Summary {
        self.stop.drain.cancel();
        self.over().await
    }

    /// Waits for the end.
    pub(super) async fn over(self) -> Summary {
        self.done.join().await;
        self.summary.lock().unwrap().take().expect("it has ended")
    }
}

pub(super) fn id() -> WorkflowId {
    WorkflowId::new("w").unwrap()
}

pub(super) fn name(task: &str) -> TaskName {
    TaskName::new(task).unwrap()
}

pub(super) const TASKS: [&str; 4] = ["a", "b", "c", "d"];

impl Bench {
    pub(super) async fn new() -> Self {
        let clock = ManualClock::still();
        let env = Env {
            entropy: real::env().entropy,
            ..clock.env()
        };
        let store = MemoryStore::open(env.clone());
        let layout = Layout::new("test").unwrap();
        layout.create(&store).await.unwrap();
        let queue = layout.task_queue(&Config::default().queues[0]);
        store.queues.create_queue(&queue).await.unwrap();
        let run = RunId::new(env.uuid());
        let folder = tempfile::tempdir().unwrap();
        let bench = Self {
            clock,
            env,
            store,
            layout,
            queue,
            run,
            folder,
        };
        bench
            .put(&bench.layout.definition(&id()), encode(&bench.definition()))
            .await;
        bench.set_states("dddd").await;
        bench.write_row(&bench.row()).await;
        bench
    }

    fn definition(&self) -> DefinitionRecord {
        let task = |task: &str| Task {
            name: name(task),
            cmd: Command::Shell("true".to_owned()),
            env: BTreeMap::new(),
            cwd: None,
            depends_on: Vec::new(),
            queue: None,
            dep_policy: DepPolicy::All,
            num_retries: 0,
            timeout_s: None,
            idempotency_key: None,
        };
        DefinitionRecord {
            schema: 1,
            workflow_id: id(),
            run_id: self.run,
            submitted_at: Timestamp::UNIX_EPOCH,
            submitted_by: "test".to_owned(),
            definition: Definition {
                name: None,
                description: None,
                default_queue: Config::default().queues[0].clone(),
                max_parallelism: None,
                result_policy: ResultPolicy::AllSinksSucceed,
                on_failure: OnFailure::Continue,
                env: BTreeMap::new(),
                tasks: TASKS.map(task).into(),
            },
        }
    }

    pub(super) async fn put(&self, path: &BlobPath, body: impl Into<Bytes>) {
        let expect = match self.store.blobs.get(path).await.unwrap() {
            Some(blob) => Expect::Version(blob.etag),
            None => Expect::Absent,
        };
        let put = self.store.blobs.put(path, body.into(), &expect, None);
        put.await.unwrap();
    }

    /// Stores the state of the workflow: one letter a task, each at attempt 1.
    pub(super) async fn set_states(&self, states: &str) {
        self.set_stopped(states, None).await;
    }

    /// As [`Self::set_states`], of a workflow that may be stopped.
    pub(super) async fn set_stopped(&self, states: &str, stop: Option<StopAfter>) {
        let detail = |place| TaskDetail {
            place: TaskIx::new(place),
            attempt_no: Attempt::new(1),
            failures: 0,
            due: None,
            inputs: None,
            root_cause: None,
            report: None,
            reason: None,
        };
        let record = RuntimeRecord {
            schema: 1,
            workflow_id: id(),
            run_id: self.run,
            generation: Generation::FIRST,
            epoch: Epoch::new(1),
            holder: "test/1".to_owned(),
            stamp: Stamp::new(self.env.uuid()),
            revision: Revision::new(1),
            status: Status::Running,
            reason: None,
            control_seq: ControlSeq::default(),
            control_results: Vec::new(),
            cancel: None,
            stop,
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
            states: states.to_owned(),
            tasks: (0..4).map(detail).collect(),
            packed: None,
        };
        self.put(&self.layout.runtime(&id()), encode(&record)).await;
    }

    pub(super) fn row(&self) -> IndexRecord {
        IndexRecord {
            schema: 1,
            workflow_id: id(),
            name: "w".to_owned(),
            run_id: self.run,
            generation: Generation::FIRST,
            epoch: Epoch::new(1),
            revision: Revision::new(1),
            status: Status::Running,
            reason: String::new(),
            total: 4,
            counts: BTreeMap::new(),
            control_seq: ControlSeq::default(),
            cancel_requested: None,
            stopping: None,
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
        }
    }

    pub(super) async fn write_row(&self, row: &IndexRecord) {
        self.merge_row(&fields_of(row)).await;
    }

    async fn merge_row(&self, fields: &Fields) {
        let key = self.layout.open_row(&id());
        let rows = &self.store.rows;
        let found = rows.get(self.layout.index(), &key).await.unwrap();
        let expect = found.map_or(Expect::Absent, |row| Expect::Version(row.etag));
        let write = rows.write(self.layout.index(), &key, fields, &expect);
        write.await.unwrap();
    }

    pub(super) async fn request_cancel(&self) {
        let field = ("cancel_requested".to_owned(), Value::Int(1));
        self.merge_row(&Fields::from([field])).await;
    }

    /// Shows in the row that a failure stops the workflow.
    pub(super) async fn show_stop(&self) {
        let field = ("stopping".to_owned(), Value::Int(1));
        self.merge_row(&Fields::from([field])).await;
    }

    pub(super) fn spec(command: &str) -> TaskSpec {
        TaskSpec {
            schema: 1,
            cmd: Command::Shell(command.to_owned()),
            env: BTreeMap::new(),
            cwd: None,
            timeout_s: None,
            idempotency_key: None,
            inputs: Inputs::new(),
        }
    }

    pub(super) fn message(&self, task: &str, spec: TaskSpec) -> TaskMessage {
        TaskMessage {
            schema: 1,
            workflow_id: id(),
            run_id: self.run,
            generation: Generation::FIRST,
            epoch: Epoch::new(1),
            task: name(task),
            attempt_no: Attempt::new(1),
            again: false,
            survives_stop: false,
            body: TaskBody::Inline(spec),
        }
    }

    pub(super) async fn send(&self, message: &TaskMessage) {
        self.send_text(&encode_message(message)).await;
    }

    pub(super) async fn send_text(&self, body: &str) {
        let send = self.store.queues.send(&self.queue, body, Duration::ZERO);
        send.await.unwrap();
    }

    /// Sends task `task` with this command.
    pub(super) async fn send_task(&self, task: &str, command: &str) {
        self.send(&self.message(task, Self::spec(command))).await;
    }

    /// A file of the commands' folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command that marks its start and ends well when the file `go` is there.
    pub(super) fn waiting(&self) -> String {
        let folder = self.folder.path().display();
        format!("echo x >> {folder}/starts; until test -e {folder}/go; do sleep 0.02; done")
    }

    pub(super) fn starts(&self) -> usize {
        std::fs::read_to_string(self.file("starts")).map_or(0, |text| text.lines().count())
    }

    pub(super) fn go(&self) {
        std::fs::write(self.file("go"), "").unwrap();
    }

    pub(super) fn start(&self) -> Running {
        self.start_with(&self.store, Config::default())
    }

    pub(super) fn start_with(&self, store: &Store, config: Config) -> Running {
        let stop = Stop::default();
        let summary = Arc::new(Mutex::new(None));
        let executor = Arc::new(ProcessExecutor::new(self.env.clone(), &config.pass_env));
        let work = run(
            self.env.clone(),
            store.clone(),
            self.layout.clone(),
            config,
            executor,
            stop.clone(),
            Arc::new(NoObserver),
        );
        let told = summary.clone();
        let done = self.env.spawn("worker", async move {
            let ended = work.await.expect("legal settings");
            *told.lock().unwrap() = Some(ended);
        });
        Running {
            stop,
            done,
            summary,
        }
    }

    /// Waits, while time stands still, for what holds in the end.
    pub(super) async fn until<F: Future<Output = bool>>(&self, condition: impl Fn() -> F) {
        self.until_advancing(Duration::ZERO, condition).await;
    }

    /// Waits for what holds in the end while time goes on, half a second at a time.
    pub(super) async fn until_later<F: Future<Output = bool>>(&self, condition: impl Fn() -> F) {
        self.until_advancing(Duration::from_millis(500), condition)
            .await;
    }

    async fn until_advancing<F: Future<Output = bool>>(
        &self,
        step: Duration,
        condition: impl Fn() -> F,
    ) {
        let wait = async {
            while !condition().await {
                self.clock.advance(step);
                real::env().sleep(Duration::from_millis(4)).await;
            }
        };
        let limit = Duration::from_secs(20);
        real::env()
            .timeout(limit, wait)
            .await
            .expect("it holds in the end");
    }

    /// Waits, while time goes on, until so many completions were posted.
    pub(super) async fn until_posted(&self, count: usize) {
        self.until_later(|| async { self.results_there().await == count })
            .await;
    }

    /// Sends task `b` and waits until it has run, which takes a free slot.
    pub(super) async fn until_a_slot_is_free(&self) {
        let ran = self.file("b");
        self.send_task("b", &format!("touch {}", ran.display()))
            .await;
        self.until_later(|| async { ran.exists() }).await;
    }

    /// How many results wait in the queue.
    async fn results_there(&self) -> usize {
        let peeked = self.store.queues.peek(self.layout.completions(), 32).await;
        let results = |body: &String| {
            let record = decode_message::<CompletionRecord>(body).unwrap();
            record.results.len()
        };
        peeked.unwrap().iter().map(results).sum()
    }

    /// How long its clock has run.
    pub(super) fn passed(&self) -> Duration {
        self.env.mono().since(Mono::new(Duration::ZERO))
    }

    pub(super) async fn until_started(&self, starts: usize) {
        self.until(|| async { self.starts() >= starts }).await;
    }

    pub(super) async fn depth(&self, queue: &Queue) -> u64 {
        self.store.queues.depth(queue).await.unwrap()
    }

    /// Waits until so many completions were posted, and ends the worker.
    pub(super) async fn results(&self, running: Running, count: usize) -> Vec<CompletionResult> {
        // Results that end together wait a moment for each other.
        self.until_advancing(Duration::from_millis(1), || async {
            self.results_there().await >= count
        })
        .await;
        running.drained().await;
        self.posted().await
    }

    /// Lets the one command end, and its worker.
    pub(super) async fn finish_one(&self, running: Running) {
        self.go();
        assert_eq!(self.results(running, 1).await.len(), 1);
    }

    /// Takes what was posted.
    pub(super) async fn posted(&self) -> Vec<CompletionResult> {
        let queues = &self.store.queues;
        let received = queues.receive(self.layout.completions(), 32, Duration::from_secs(1));
        let received = received.await.unwrap();
        let decode = |body: &str| decode_message::<CompletionRecord>(body).unwrap().results;
        received
            .iter()
            .flat_map(|message| decode(&message.body))
            .collect()
    }

    /// Runs one command as task `a` to the end of its worker.
    pub(super) async fn run_one(&self, spec: TaskSpec) -> CompletionResult {
        self.send(&self.message("a", spec)).await;
        let mut results = self.results(self.start(), 1).await;
        assert_eq!(results.len(), 1);
        results.remove(0)
    }

    pub(super) async fn claim(&self, task: &str) -> Option<FoundClaim> {
        read_claim(&self.store, &self.layout, &id(), &name(task))
            .await
            .unwrap()
    }

    /// Puts a row that is no claim of this version in the place of the claim on task `a`.
    pub(super) async fn spoil_claim(&self, field: &str, value: i64) {
        let key = self.layout.claim(&id(), &name("a"));
        let rows = &self.store.rows;
        let found = rows.get(self.layout.claims(), &key).await.unwrap();
        let expect = found.map_or(Expect::Absent, |row| Expect::Version(row.etag));
        let fields = Fields::from([(field.to_owned(), Value::Int(value))]);
        let write = rows.write(self.layout.claims(), &key, &fields, &expect);
        write.await.unwrap();
    }

    /// Asserts that nothing of the attempts is left but what was posted.
    pub(super) async fn assert_tidy(&self) {
        assert_eq!(self.depth(&self.queue).await, 0);
        for task in TASKS {
            assert_eq!(self.claim(task).await, None);
        }
    }
}

/// What a failed attempt says.
pub(super) fn failure_of(result: &CompletionResult) -> crate::engine::Failure {
    match &result.report.outcome {
        Outcome::Failed(failure) => failure.clone(),
        other => panic!("{other:?}"),
    }
}
