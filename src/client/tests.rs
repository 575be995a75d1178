//! The client against a store in memory, with the coordinator's part played by hand.

mod asking;
mod purging;
mod reading;
mod submitting;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::client::control::{Ask, Seen};
use crate::client::{Answer, Client, ClientError, TaskWord};
use crate::definition::{Definition, Source, TaskName, WorkflowId, parse};
use crate::engine::{
    Applied, AttemptId, AttemptReport, Changes, Failure, FailureKind, Generation, Graph, Outcome,
    Output, RetryAfter, Runtime, Status,
};
use crate::env::real;
use crate::protocol::{FoundRow, Layout, fields_of, read_definition, read_row, write_claim};
use crate::record::{
    ClaimRecord, CompletionRecord, ControlAction, ControlResult, ControlSeq, Epoch, IndexRecord,
    Record, Revision, RuntimeRecord, Stamp, Token, decode_message, encode,
};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::memory::MemoryStore;
use crate::store::{Expect, Fields, Kind, Row, RowKey, Store, Value};

const NO_WAIT: Duration = Duration::ZERO;

fn definition(text: &str) -> Definition {
    parse(&Source::new("w.yaml", text)).unwrap().definition
}

fn chain() -> Definition {
    definition(
        "name: chain\ndefault_queue: q\ntasks:\n  - {name: a, cmd: 'true', num_retries: 1}\n  - {name: b, cmd: 'true', depends_on: [a]}\n",
    )
}

fn id(text: &str) -> WorkflowId {
    WorkflowId::new(text).unwrap()
}

fn client_on(store: Store) -> Client {
    Client::new(real::env(), store, Layout::new("abc").unwrap(), "me@here")
}

fn client() -> Client {
    client_on(MemoryStore::open(real::env()))
}

/// A state machine for a submitted workflow, whose steps are stored as a coordinator would.
struct Hand<'a> {
    client: &'a Client,
    id: WorkflowId,
    runtime: Runtime,
    changes: Changes,
    results: Vec<ControlResult>,
}

impl<'a> Hand<'a> {
    /// Submits a chain and takes it up.
    async fn start(client: &'a Client, id: &WorkflowId) -> Self {
        client.submit(id, &chain()).await.unwrap();
        Self::take_up(client, id).await
    }

    /// A chain that has failed.
    async fn failed(client: &'a Client, id: &WorkflowId) -> Self {
        let mut hand = Self::start(client, id).await;
        for _ in 0..2 {
            hand.send("a");
            hand.report("a", failure(), None);
        }
        hand.store().await;
        hand
    }

    async fn take_up(client: &'a Client, id: &WorkflowId) -> Self {
        let definition = read_definition(&client.store, &client.layout, id)
            .await
            .unwrap()
            .unwrap();
        let graph = Arc::new(Graph::new(&definition.record.definition).unwrap());
        let mut changes = Changes::default();
        let runtime = Runtime::start(graph, &mut changes);
        let hand = Self {
            client,
            id: id.clone(),
            runtime,
            changes,
            results: Vec::new(),
        };
        hand.store().await;
        hand
    }

    async fn store(&self) {
        let Client {
            store, layout, env, ..
        } = self.client;
        let definition = read_definition(store, layout, &self.id)
            .await
            .unwrap()
            .unwrap()
            .record;
        let path = layout.runtime(&self.id);
        let found = store.blobs.get(&path).await.unwrap();
        let expect = found.map_or(Expect::Absent, |blob| Expect::Version(blob.etag));
        let (states, tasks) = RuntimeRecord::tasks_of(&self.runtime);
        let record = RuntimeRecord {
            schema: 1,
            workflow_id: self.id.clone(),
            run_id: definition.run_id,
            generation: self.runtime.generation(),
            epoch: Epoch::new(1),
            holder: "host/1".to_owned(),
            stamp: Stamp::new(env.uuid()),
            revision: Revision::new(1),
            status: self.runtime.status(),
            reason: self.runtime.first_failure().map(str::to_owned),
            control_seq: ControlSeq::default(),
            control_results: self.results.clone(),
            cancel: self.runtime.cancel_applied().copied(),
            stop: self.runtime.stop_in_force().copied(),
            created_at: env.wall(),
            updated_at: env.wall(),
            states,
            tasks,
            packed: None,
        };
        store
            .blobs
            .put(&path, encode(&record).into(), &expect, None)
            .await
            .unwrap();
    }

    fn send(&mut self, task: &str) {
        let at = self
            .runtime
            .graph()
            .find(&TaskName::new(task).unwrap())
            .unwrap();
        let attempt = self.runtime.task(at).attempt;
        assert_eq!(self.runtime.mark_sent(at, attempt), Applied::Changed);
    }

    fn report(&mut self, task: &str, outcome: Outcome, output: Option<Output>) {
        let at = self
            .runtime
            .graph()
            .find(&TaskName::new(task).unwrap())
            .unwrap();
        let exit_code = match &outcome {
            Outcome::Succeeded => Some(0),
            Outcome::Failed(_) => Some(3),
            Outcome::Cancelled(_) => None,
        };
        let report = AttemptReport {
            outcome,
            token: "tok".to_owned(),
            worker: "host/7".to_owned(),
            started_at: Some(Timestamp::UNIX_EPOCH),
            ended_at: Timestamp::UNIX_EPOCH,
            exit_code,
            output,
            has_log: true,
            stderr_tail: None,
            reused_from: None,
        };
        let attempt = AttemptId {
            task: at,
            generation: self.runtime.generation(),
            attempt: self.runtime.task(at).attempt,
        };
        let retry = RetryAfter {
            now: Timestamp::UNIX_EPOCH,
            delay: Duration::from_secs(1),
        };
        let applied =
            self.runtime
                .apply_report(attempt, report, retry, |_, _| true, &mut self.changes);
        assert_eq!(applied, Applied::Changed);
    }
}

fn failure() -> Outcome {
    Outcome::Failed(Failure {
        kind: FailureKind::Exit,
        message: "exit code 3".to_owned(),
        is_final: false,
    })
}

async fn messages(client: &Client) -> Vec<CompletionRecord> {
    let received = client
        .store
        .queues
        .receive(client.layout.completions(), 32, Duration::from_secs(1))
        .await
        .unwrap();
    received
        .iter()
        .map(|message| decode_message(&message.body).unwrap())
        .collect()
}

async fn row_of(client: &Client, of: &WorkflowId) -> FoundRow {
    let row = read_row(&client.store, &client.layout, of).await;
    row.unwrap().unwrap()
}

async fn make_row(client: &Client, key: &RowKey, fields: &Fields) {
    let (rows, table) = (&client.store.rows, client.layout.index());
    let made = rows.write(table, key, fields, &Expect::Absent).await;
    made.unwrap();
}

async fn remove_row(client: &Client, row: &FoundRow) {
    let (rows, table) = (&client.store.rows, client.layout.index());
    let Row { key, etag, .. } = &row.row;
    rows.delete(table, key, etag).await.unwrap();
}

/// A workflow that has failed by its state, and the version of that.
async fn with_a_state() -> (Client, WorkflowId, crate::store::ETag) {
    let client = client();
    client.layout.create(&client.store).await.unwrap();
    let w = id("w");
    drop(Hand::failed(&client, &w).await);
    let state = client.store.blobs.get(&client.layout.runtime(&w)).await;
    let etag = state.unwrap().unwrap().etag;
    (client, w, etag)
}

/// Moves a row among those of ended workflows, as a coordinator would.
async fn end_row(client: &Client, of: &WorkflowId, change: impl FnOnce(&mut IndexRecord)) {
    let found = row_of(client, of).await;
    let mut done = found.record.clone();
    change(&mut done);
    make_row(client, &client.layout.done_row(of), &fields_of(&done)).await;
    remove_row(client, &found).await;
}
