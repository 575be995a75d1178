//! Submits: what they store, and what becomes of one that was interrupted or is made again.

use super::*;

#[tokio::test]
async fn a_submit_sets_up_the_prefix_and_stores_definition_row_and_message() {
    let client = client();
    let submitted = client.submit(&id("w"), &chain()).await.unwrap();
    assert!(submitted.is_new);
    let row = row_of(&client, &id("w")).await;
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
        let row = row_of(&client, &id("w")).await;
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
async fn a_store_that_loses_every_reply_is_not_taken_for_somebody_else() {
    for op in [Op::BlobPut, Op::RowWrite] {
        let store = MemoryStore::open(real::env());
        let client = client_on(store.clone());
        client.submit(&id("there"), &chain()).await.unwrap();
        let (faulty, _) = Faults::script()
            .hook(move |met, _| (*met == op).then_some(Fault::Hang(Duration::from_millis(1))))
            .wrap(store, real::env());
        let client = client_on(faulty);
        let mut errors = vec![client.submit(&id("w"), &chain()).await.unwrap_err()];
        if op == Op::RowWrite {
            errors.push(client.cancel(&id("there"), NO_WAIT).await.unwrap_err());
        }
        for error in errors {
            assert!(error.is_kind(Kind::Ambiguous), "{op:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_submit_leaves_the_row_of_a_workflow_that_ended() {
    let client = client();
    client.submit(&id("w"), &chain()).await.unwrap();
    end_row(&client, &id("w"), |done| done.status = Status::Completed).await;
    client.submit(&id("w"), &chain()).await.unwrap();
    let row = row_of(&client, &id("w")).await;
    assert!(!row.is_open());
}
