//! The client against a store in memory, with the coordinator's part played by hand.

mod purging;

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
use crate::protocol::{Layout, read_definition, read_row, write_claim};
use crate::record::{
    ClaimRecord, CompletionRecord, ControlAction, ControlResult, ControlSeq, Epoch, Record,
    Revision, RuntimeRecord, Stamp, Token, decode_message, encode,
};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::memory::MemoryStore;
use crate::store::{Expect, Fields, Kind, Store, Value};

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

async fn states(client: &Client, of: &WorkflowId) -> Vec<(TaskWord, Option<String>)> {
    let view = client.read(of).await.unwrap();
    view.tasks
        .into_iter()
        .map(|task| (task.state, task.reason))
        .collect()
}

#[tokio::test]
async fn a_submit_sets_up_the_prefix_and_stores_definition_row_and_message() {
    let client = client();
    let submitted = client.submit(&id("w"), &chain()).await.unwrap();
    assert!(submitted.is_new);
    let row = read_row(&client.store, &client.layout, &id("w"))
        .await
        .unwrap()
        .unwrap();
    assert!(row.is_open());
    assert_eq!((row.record.status, row.record.total), (Status::Pending, 2));
    assert_eq!(row.record.run_id, submitted.run_id);
    let sent = messages(&client).await;
    let control = sent[0].control.as_ref().unwrap();
    assert_eq!(
        (control.action, control.run_id),
        (ControlAction::Submit, submitted.run_id)
    );
}

#[tokio::test]
async fn a_repeated_submit_is_the_same_run_and_another_definition_a_conflict() {
    let client = client();
    let first = client.submit(&id("w"), &chain()).await.unwrap();
    let again = client.submit(&id("w"), &chain()).await.unwrap();
    assert_eq!((again.run_id, again.is_new), (first.run_id, false));
    let mut other = chain();
    other.description = Some("another".to_owned());
    let error = client.submit(&id("w"), &other).await.unwrap_err();
    assert_eq!(error, ClientError::Taken(id("w")));
}

#[tokio::test]
async fn a_submit_interrupted_at_any_request_is_completed_by_the_next() {
    // Each request in turn is the last that the first submit gets to make.
    for nth in 1.. {
        let store = MemoryStore::open(real::env());
        let client = client_on(store.clone());
        client.layout.create(&store).await.unwrap();
        let count = std::sync::atomic::AtomicU64::new(0);
        let (faulty, injector) = Faults::script()
            .hook(move |_: &Op, path: &str| {
                let at = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                // The journal may be lost: no action fails by it.
                (at >= nth && !path.contains("Journal")).then_some(Fault::RequestLost)
            })
            .wrap(store.clone(), real::env());
        let first = client_on(faulty).submit(&id("w"), &chain()).await;
        let second = client.submit(&id("w"), &chain()).await.unwrap();
        let row = read_row(&store, &client.layout, &id("w"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(row.record.run_id, second.run_id, "{nth}");
        assert!(!messages(&client).await.is_empty(), "{nth}");
        if injector.happened() == 0 {
            assert!(first.is_ok() && nth > 3, "{nth}");
            return;
        }
        assert!(first.is_err(), "{nth}");
    }
}

#[tokio::test]
async fn a_submit_whose_replies_are_lost_still_succeeds_once() {
    for op in [Op::BlobPut, Op::RowWrite, Op::QueueSend] {
        let store = MemoryStore::open(real::env());
        client_on(store.clone())
            .layout
            .create(&store)
            .await
            .unwrap();
        let (faulty, injector) = Faults::script()
            .on(op, 1, Fault::ReplyLost)
            .wrap(store.clone(), real::env());
        let submitted = client_on(faulty).submit(&id("w"), &chain()).await.unwrap();
        assert!(submitted.is_new, "{op:?}");
        assert_eq!(injector.happened(), 1, "{op:?}");
    }
}

#[tokio::test]
async fn a_submit_leaves_the_row_of_a_workflow_that_ended() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let row = read_row(&client.store, &client.layout, &id("w"))
        .await
        .unwrap()
        .unwrap();
    let mut done = row.record.clone();
    done.status = Status::Completed;
    let table = client.layout.index();
    let key = client.layout.done_row(&id("w"));
    let fields = crate::protocol::fields_of(&done);
    client
        .store
        .rows
        .write(table, &key, &fields, &Expect::Absent)
        .await
        .unwrap();
    client
        .store
        .rows
        .delete(table, &row.row.key, &row.row.etag)
        .await
        .unwrap();
    client.submit(&id("w"), &chain()).await.unwrap();
    let row = read_row(&client.store, &client.layout, &id("w"))
        .await
        .unwrap()
        .unwrap();
    assert!(!row.is_open());
}

#[tokio::test]
async fn before_a_coordinator_runs_all_tasks_are_pending() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let view = client.read(&id("w")).await.unwrap();
    assert_eq!(view.summary.status, Status::Pending);
    assert_eq!(view.summary.counts.of(TaskWord::Pending), 2);
}

#[tokio::test]
async fn tasks_are_shown_in_the_words_of_people() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let mut hand = Hand::take_up(&client, &id("w")).await;
    let (word, why) = states(&client, &id("w")).await.remove(0);
    assert_eq!(word, TaskWord::Ready);
    assert!(why.unwrap().contains("--max-outstanding"));
    hand.send("a");
    hand.store().await;
    assert_eq!(states(&client, &id("w")).await[0], (TaskWord::Queued, None));
    let submitted = client.submit(&id("w"), &chain()).await.unwrap();
    let claim = ClaimRecord {
        schema: ClaimRecord::SCHEMA,
        workflow_id: id("w"),
        run_id: submitted.run_id,
        generation: Generation::FIRST,
        task: TaskName::new("a").unwrap(),
        attempt_no: crate::engine::Attempt::new(1),
        token: Token::new(uuid::Uuid::nil()),
        worker: "host/9".to_owned(),
        host: "host".to_owned(),
        started_at: Timestamp::UNIX_EPOCH,
        visibility_s: 60,
        starts: 1,
        interruptions: 0,
        freed: false,
    };
    write_claim(&client.store, &client.layout, &claim, &Expect::Absent)
        .await
        .unwrap();
    let view = client.read(&id("w")).await.unwrap();
    assert_eq!(view.tasks[0].state, TaskWord::Running);
    assert_eq!(view.tasks[0].worker.as_deref(), Some("host/9"));
    hand.report("a", failure(), None);
    hand.store().await;
    let words = states(&client, &id("w")).await;
    let reason = Some("attempt 1 failed: exit code 3".to_owned());
    assert_eq!(words[0], (TaskWord::Retrying, reason));
    hand.report("a", failure(), None);
    hand.store().await;
    let words = states(&client, &id("w")).await;
    assert_eq!(words[0], (TaskWord::Failed, Some("exit code 3".to_owned())));
    let (word, reason) = &words[1];
    assert_eq!(*word, TaskWord::UpstreamFailed);
    assert!(reason.as_ref().unwrap().contains("task `a`"));
}

#[tokio::test]
async fn the_json_of_a_workflow_keeps_its_fields_and_their_order() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let mut hand = Hand::take_up(&client, &id("w")).await;
    hand.send("a");
    hand.report("a", Outcome::Succeeded, None);
    hand.store().await;
    let mut view = client.read(&id("w")).await.unwrap();
    view.summary.created_at = Timestamp::UNIX_EPOCH;
    view.summary.updated_at = Timestamp::UNIX_EPOCH;
    let text = serde_json::to_string(&view).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"workflow_id":"w","name":"chain","status":"running","total":2,"counts":{"ready":1,"completed":1},"#,
            r#""created_at":"1970-01-01T00:00:00Z","updated_at":"1970-01-01T00:00:00Z","reason":null,"tasks":["#,
            r#"{"name":"a","state":"completed","attempt_no":1,"reason":null,"started_at":"1970-01-01T00:00:00Z","#,
            r#""ended_at":"1970-01-01T00:00:00Z","exit_code":0,"worker":"host/7"},"#,
            r#"{"name":"b","state":"ready","attempt_no":1,"reason":"waits to be sent: for long only where the coordinator's "#,
            r#"`--max-outstanding` is reached","started_at":null,"ended_at":null,"#,
            r#""exit_code":null,"worker":null}]}"#
        )
    );
}

#[tokio::test]
async fn a_cancel_sets_the_flag_alone_and_asks_the_coordinator() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let before = read_row(&client.store, &client.layout, &id("w"))
        .await
        .unwrap()
        .unwrap();
    let answer = client.cancel(&id("w"), NO_WAIT).await.unwrap();
    assert_eq!(answer, Answer::Stored);
    let after = read_row(&client.store, &client.layout, &id("w"))
        .await
        .unwrap()
        .unwrap();
    let mut expected = before.row.fields;
    expected.insert("cancel_requested".to_owned(), Value::Int(1));
    assert_eq!(after.row.fields, expected);
    let actions: Vec<_> = messages(&client)
        .await
        .into_iter()
        .map(|m| m.control.unwrap().action)
        .collect();
    assert_eq!(actions, [ControlAction::Submit, ControlAction::Cancel]);
}

#[tokio::test]
async fn a_cancel_survives_a_row_that_changes_under_it() {
    let store = MemoryStore::open(real::env());
    let client = client_on(store.clone());
    client.submit(&id("w"), &chain()).await.unwrap();
    let (faulty, _) = Faults::script()
        .on(Op::RowWrite, 1, Fault::ReplyLost)
        .wrap(store.clone(), real::env());
    // What the lost reply hides is found out by reading the row again.
    let answer = client_on(faulty).cancel(&id("w"), NO_WAIT).await.unwrap();
    assert_eq!(answer, Answer::Stored);
    let row = read_row(&store, &client.layout, &id("w"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.record.cancel_requested, Some(Generation::FIRST));
}

#[tokio::test]
async fn a_cancel_repairs_a_submit_that_left_no_row() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let row = read_row(&client.store, &client.layout, &id("w"))
        .await
        .unwrap()
        .unwrap();
    client
        .store
        .rows
        .delete(client.layout.index(), &row.row.key, &row.row.etag)
        .await
        .unwrap();
    assert_eq!(
        client.cancel(&id("w"), NO_WAIT).await.unwrap(),
        Answer::Stored
    );
    let row = read_row(&client.store, &client.layout, &id("w"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.record.cancel_requested, Some(Generation::FIRST));
}

#[tokio::test]
async fn a_cancel_that_was_applied_is_answered_and_one_of_an_ended_workflow_refused() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let mut hand = Hand::take_up(&client, &id("w")).await;
    hand.send("a");
    let applied = hand
        .runtime
        .cancel(Timestamp::UNIX_EPOCH, |_, _| false, &mut hand.changes);
    assert_eq!(applied, Applied::Changed);
    hand.store().await;
    assert_eq!(
        client.cancel(&id("w"), NO_WAIT).await.unwrap(),
        Answer::Applied
    );
    hand.report("a", Outcome::Cancelled(Generation::FIRST), None);
    hand.store().await;
    let error = client.cancel(&id("w"), NO_WAIT).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_retry_is_refused_unless_it_ended_with_something_to_run_again() {
    let client = client();
    let refusal = async || match client.retry(&id("w"), NO_WAIT).await.unwrap_err() {
        ClientError::Refused { why, .. } => why,
        other => other.to_string(),
    };
    client.submit(&id("w"), &chain()).await.unwrap();
    assert!(refusal().await.contains("not started"));
    let mut hand = Hand::take_up(&client, &id("w")).await;
    assert!(refusal().await.contains("not ended"));
    for task in ["a", "b"] {
        hand.send(task);
        hand.report(task, Outcome::Succeeded, None);
    }
    hand.store().await;
    assert!(refusal().await.contains("nothing to run again"));
}

#[tokio::test]
async fn a_retry_names_the_state_it_saw_and_tells_the_answer() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let mut hand = Hand::take_up(&client, &id("w")).await;
    for _ in 0..2 {
        hand.send("a");
        hand.report("a", failure(), None);
    }
    hand.store().await;
    assert_eq!(
        client.retry(&id("w"), NO_WAIT).await.unwrap(),
        Answer::Stored
    );
    let asked = messages(&client).await.pop().unwrap().control.unwrap();
    assert_eq!(
        (asked.action, asked.generation),
        (ControlAction::Retry, Generation::FIRST)
    );
    let answer = |refused: Option<&str>| ControlResult {
        request_id: asked.request_id,
        action: ControlAction::Retry,
        actor: "me@here".to_owned(),
        answered_at: Timestamp::UNIX_EPOCH,
        refused: refused.map(str::to_owned),
    };
    let met = |_: &RuntimeRecord| Seen::Open;
    let ask = Ask {
        action: asked.action,
        run_id: asked.run_id,
        generation: asked.generation,
        control_seq: asked.control_seq,
    };
    hand.results = vec![answer(None)];
    hand.store().await;
    let applied = client
        .answer(&id("w"), &ask, asked.request_id, NO_WAIT, met)
        .await
        .unwrap();
    assert_eq!(applied, Answer::Applied);
    hand.results = vec![answer(Some("another was faster"))];
    hand.store().await;
    let refused = client
        .answer(&id("w"), &ask, asked.request_id, NO_WAIT, met)
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "workflow `w` was left as it is: another was faster"
    );
}

#[tokio::test]
async fn a_retry_whose_answer_is_no_longer_kept_is_refused_once_the_state_has_moved_on() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let mut hand = Hand::take_up(&client, &id("w")).await;
    for _ in 0..2 {
        hand.send("a");
        hand.report("a", failure(), None);
    }
    hand.store().await;
    let stage = client.stage(&id("w")).await.unwrap();
    let before = stage.runtime.unwrap();
    let ask = Ask {
        action: ControlAction::Retry,
        run_id: before.run_id,
        generation: before.generation,
        control_seq: before.control_seq,
    };
    let answer = async || {
        let seen = |runtime: &RuntimeRecord| crate::client::retry::seen(&ask, runtime);
        client
            .answer(&id("w"), &ask, uuid::Uuid::from_u128(7), NO_WAIT, seen)
            .await
    };
    assert_eq!(answer().await, Ok(Answer::Stored));
    assert_eq!(hand.runtime.rerun(&mut hand.changes), Applied::Changed);
    hand.store().await;
    let error = answer().await.unwrap_err();
    assert!(
        error.to_string().contains("another request was served"),
        "{error}"
    );
}

#[tokio::test]
async fn a_cancel_of_what_ended_or_was_retried_meanwhile_is_refused_without_an_answer() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let mut hand = Hand::take_up(&client, &id("w")).await;
    for _ in 0..2 {
        hand.send("a");
        hand.report("a", failure(), None);
    }
    hand.store().await;
    let stage = client.stage(&id("w")).await.unwrap();
    let ended = stage.runtime.unwrap();
    let seen = crate::client::cancel::seen;
    let word = "it ended meanwhile";
    assert_eq!(seen(Generation::FIRST, &ended), Seen::Passed(word));
    assert_eq!(hand.runtime.rerun(&mut hand.changes), Applied::Changed);
    hand.store().await;
    let stage = client.stage(&id("w")).await.unwrap();
    let retried = stage.runtime.unwrap();
    let word = "it was retried meanwhile";
    assert_eq!(seen(Generation::FIRST, &retried), Seen::Passed(word));
    assert_eq!(seen(retried.generation, &retried), Seen::Open);
}

#[tokio::test]
async fn outputs_and_logs_are_of_the_attempt_that_counts() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let mut hand = Hand::take_up(&client, &id("w")).await;
    let nothing = client.logs(&id("w"), "a").await.unwrap_err();
    assert!(matches!(nothing, ClientError::Nothing { .. }), "{nothing}");
    hand.send("a");
    hand.report("a", failure(), None);
    hand.store().await;
    let run = client.stage(&id("w")).await.unwrap().definition.run_id;
    let of = |attempt| {
        let attempt = crate::engine::Attempt::new(attempt);
        let task = TaskName::new("a").unwrap();
        client
            .layout
            .execution(&id("w"), run, &task, attempt, "tok")
    };
    let put = async |path, body: &'static str| {
        client
            .store
            .blobs
            .put(&path, body.into(), &Expect::Absent, None)
            .await
            .unwrap();
    };
    put(of(1).log(), "first").await;
    put(of(2).log(), "second").await;
    put(of(2).output(), "{\"large\": 1}").await;
    let log = client.logs(&id("w"), "a").await.unwrap();
    assert_eq!(log.bytes.as_deref(), Some(&b"first"[..]));
    hand.send("a");
    hand.report("a", Outcome::Succeeded, Some(Output::Blob(12)));
    hand.store().await;
    let log = client.logs(&id("w"), "a").await.unwrap();
    assert_eq!(log.bytes.as_deref(), Some(&b"second"[..]));
    let output = client.output(&id("w"), "a").await.unwrap();
    assert_eq!(output.json.as_deref(), Some(&b"{\"large\": 1}"[..]));
    let inline = serde_json::value::to_raw_value(&json!(7)).unwrap();
    hand.send("b");
    hand.report("b", Outcome::Succeeded, Some(Output::Inline(inline)));
    hand.store().await;
    let output = client.output(&id("w"), "b").await.unwrap();
    assert_eq!(output.json.as_deref(), Some(&b"7"[..]));
    let error = client.output(&id("w"), "c").await.unwrap_err();
    assert!(matches!(error, ClientError::NoTask { .. }), "{error}");
}

#[tokio::test]
async fn a_listing_shows_open_and_done_workflows_the_newest_first() {
    let client = client();
    let none = client.list(false).await.unwrap_err();
    assert!(none.is_kind(Kind::NoResource), "{none}");
    client.submit(&id("old"), &chain()).await.unwrap();
    client.submit(&id("new"), &chain()).await.unwrap();
    let row = read_row(&client.store, &client.layout, &id("old"))
        .await
        .unwrap()
        .unwrap();
    let mut done = row.record.clone();
    done.status = Status::Failed;
    done.counts = [("failed".to_owned(), 1), ("dispatched".to_owned(), 1)].into();
    let table = client.layout.index();
    let key = client.layout.done_row(&id("old"));
    let fields = crate::protocol::fields_of(&done);
    client
        .store
        .rows
        .write(table, &key, &fields, &Expect::Absent)
        .await
        .unwrap();
    client
        .store
        .rows
        .delete(table, &row.row.key, &row.row.etag)
        .await
        .unwrap();
    let key = client.layout.open_row(&id("damaged"));
    let nonsense = Fields::from([("schema".to_owned(), Value::Int(1))]);
    client
        .store
        .rows
        .write(table, &key, &nonsense, &Expect::Absent)
        .await
        .unwrap();
    let listing = client.list(false).await.unwrap();
    let ids: Vec<_> = listing
        .workflows
        .iter()
        .map(|w| w.workflow_id.as_str())
        .collect();
    assert_eq!(ids, ["new", "old"]);
    assert_eq!(listing.workflows[1].counts.of(TaskWord::Queued), 1);
    assert_eq!(listing.unreadable.len(), 1);
    assert_eq!(client.list(true).await.unwrap().workflows.len(), 1);
}

#[tokio::test]
async fn a_watch_shows_each_change_once_and_ends_with_the_workflow() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let mut watch = client.watch(&id("w"), None).await.unwrap();
    let first = watch.next().await.unwrap().unwrap();
    assert_eq!(
        (first.view.summary.status, first.changed.len()),
        (Status::Pending, 2)
    );
    let mut hand = Hand::take_up(&client, &id("w")).await;
    let second = watch.next().await.unwrap().unwrap();
    assert_eq!(second.changed, [0]);
    for task in ["a", "b"] {
        hand.send(task);
        hand.report(task, Outcome::Succeeded, None);
    }
    hand.store().await;
    let third = watch.next().await.unwrap().unwrap();
    assert_eq!(third.view.summary.status, Status::Completed);
    assert_eq!(watch.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_that_is_given_no_time_looks_once_and_times_out() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let mut watch = client.watch(&id("w"), Some(NO_WAIT)).await.unwrap();
    assert!(watch.next().await.unwrap().is_some());
    let error = watch.next().await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn a_watch_waits_for_a_store_that_does_not_answer() {
    let store = MemoryStore::open(real::env());
    client_on(store.clone())
        .submit(&id("w"), &chain())
        .await
        .unwrap();
    let (faulty, injector) = Faults::script()
        .on(Op::BlobGet, 2, Fault::RequestLost)
        .wrap(store, real::env());
    let mut watch = client_on(faulty).watch(&id("w"), None).await.unwrap();
    assert!(watch.next().await.unwrap().is_some());
    assert_eq!(injector.happened(), 1);
}

#[tokio::test]
async fn what_does_not_exist_is_told() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let missing = ClientError::NoWorkflow(id("x"));
    assert_eq!(client.read(&id("x")).await.unwrap_err(), missing);
    assert_eq!(client.cancel(&id("x"), NO_WAIT).await.unwrap_err(), missing);
    assert_eq!(client.retry(&id("x"), NO_WAIT).await.unwrap_err(), missing);
}
