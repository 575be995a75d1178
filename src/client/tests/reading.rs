//! What is shown: states in the words of people, lists, watches, logs and outputs.

use super::*;

async fn states(client: &Client, of: &WorkflowId) -> Vec<(TaskWord, Option<String>)> {
    let view = client.read(of).await.unwrap();
    view.tasks
        .into_iter()
        .map(|task| (task.state, task.reason))
        .collect()
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
    let mut hand = Hand::start(&client, &id("w")).await;
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
    let mut hand = Hand::start(&client, &id("w")).await;
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
async fn outputs_and_logs_are_of_the_attempt_that_counts() {
    let client = client();
    let mut hand = Hand::start(&client, &id("w")).await;
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
    end_row(&client, &id("old"), |done| {
        done.status = Status::Failed;
        done.counts = [("failed".to_owned(), 1), ("dispatched".to_owned(), 1)].into();
    })
    .await;
    let nonsense = Fields::from([("schema".to_owned(), Value::Int(1))]);
    make_row(&client, &client.layout.open_row(&id("damaged")), &nonsense).await;
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

/// Else it would be shown as one that waits to be taken up, and watched for ever.
#[tokio::test]
async fn a_state_that_is_gone_is_told_from_one_that_was_never_there() {
    let (client, w, etag) = with_a_state().await;
    let path = client.layout.runtime(&w);
    client.store.blobs.delete(&path, &etag).await.unwrap();
    assert_eq!(
        client.read(&w).await.unwrap().summary.status,
        Status::Pending
    );
    for is_final in [false, true] {
        end_row(&client, &w, |row| {
            row.revision = Revision::new(1);
            row.status = if is_final {
                Status::Failed
            } else {
                Status::Running
            };
        })
        .await;
        let read = client.read(&w).await.map(drop);
        let retry = client.retry(&w, NO_WAIT).await.map(drop);
        let purge = client.purge(&w, NO_WAIT).await.map(drop);
        let refused = if is_final {
            vec![read, retry]
        } else {
            vec![read, retry, purge]
        };
        for answer in refused {
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("w.json"), "{error}");
            assert!(
                error.contains("it is gone, though its row shows revision 1"),
                "{error}"
            );
        }
        let done = row_of(&client, &w).await;
        make_row(&client, &client.layout.open_row(&w), &done.row.fields).await;
        remove_row(&client, &done).await;
    }
}
