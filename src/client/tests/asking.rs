//! Cancels and retries.

use super::*;

#[tokio::test]
async fn a_cancel_sets_the_flag_alone_and_asks_the_coordinator() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let before = row_of(&client, &id("w")).await;
    let answer = client.cancel(&id("w"), NO_WAIT).await.unwrap();
    assert_eq!(answer, Answer::Stored);
    let after = row_of(&client, &id("w")).await;
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
    let row = row_of(&client, &id("w")).await;
    assert_eq!(row.record.cancel_requested, Some(Generation::FIRST));
}

#[tokio::test]
async fn a_cancel_repairs_a_submit_that_left_no_row() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    let row = row_of(&client, &id("w")).await;
    remove_row(&client, &row).await;
    assert_eq!(
        client.cancel(&id("w"), NO_WAIT).await.unwrap(),
        Answer::Stored
    );
    let row = row_of(&client, &id("w")).await;
    assert_eq!(row.record.cancel_requested, Some(Generation::FIRST));
}

#[tokio::test]
async fn a_cancel_that_was_applied_is_answered_and_one_of_an_ended_workflow_refused() {
    let client = client();
    let mut hand = Hand::start(&client, &id("w")).await;
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
    let mut hand = Hand::failed(&client, &id("w")).await;
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
    let mut hand = Hand::failed(&client, &id("w")).await;
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
    let mut hand = Hand::failed(&client, &id("w")).await;
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
