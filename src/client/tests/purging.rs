//! Purges and the journal.

use super::*;
use crate::record::{JournalRecord, TombstoneRecord};

/// Puts a tombstone in the place of a state, as a coordinator would.
async fn bury(client: &Client, of: &WorkflowId, request_id: uuid::Uuid) {
    let path = client.layout.runtime(of);
    let stage = client.stage(of).await.unwrap();
    let found = client.store.blobs.get(&path).await.unwrap().unwrap();
    let tombstone = TombstoneRecord {
        schema: 1,
        workflow_id: of.clone(),
        run_id: stage.definition.run_id,
        epoch: Epoch::new(1),
        holder: "host/1".to_owned(),
        stamp: Stamp::new(client.env.uuid()),
        request_id,
        purged_by: "me@here".to_owned(),
        purged_at: client.env.wall(),
    };
    let body = encode(&tombstone).into();
    let expect = Expect::Version(found.etag);
    let put = client.store.blobs.put(&path, body, &expect, None);
    put.await.unwrap();
}

async fn forget_definition(client: &Client, of: &WorkflowId) {
    let path = client.layout.definition(of);
    let found = client.store.blobs.get(&path).await.unwrap().unwrap();
    client.store.blobs.delete(&path, &found.etag).await.unwrap();
}

#[tokio::test]
async fn a_purge_is_over_when_the_definition_is_gone() {
    let client = client();
    client.layout.create(&client.store).await.unwrap();
    let w = id("w");
    let none = client.purge(&w, NO_WAIT).await.unwrap_err();
    assert_eq!(none, ClientError::NoWorkflow(w.clone()));
    client.submit(&w, &chain()).await.unwrap();
    let early = client.purge(&w, NO_WAIT).await.unwrap_err();
    assert!(early.to_string().contains("has not started"), "{early}");
    drop(Hand::failed(&client, &id("w2")).await);
    let w = id("w2");
    assert_eq!(client.purge(&w, NO_WAIT).await, Ok(Answer::Stored));
    let asked = messages(&client).await.pop().unwrap().control.unwrap();
    assert_eq!(asked.action, ControlAction::Purge);
    bury(&client, &w, asked.request_id).await;
    assert_eq!(client.purge(&w, NO_WAIT).await, Ok(Answer::Underway));
    // It is not shown any more, and its id is taken until it is gone, whatever is submitted.
    let going = Err(ClientError::Purging(w.clone()));
    assert_eq!(client.read(&w).await.map(drop), going);
    assert_eq!(client.retry(&w, NO_WAIT).await.map(drop), going);
    assert_eq!(client.cancel(&w, NO_WAIT).await.map(drop), going);
    assert_eq!(client.submit(&w, &chain()).await.map(drop), going);
    let other = definition("tasks: [{name: other, cmd: x}]");
    assert_eq!(client.submit(&w, &other).await.map(drop), going);
    let ask = Ask {
        action: ControlAction::Purge,
        run_id: asked.run_id,
        generation: asked.generation,
        control_seq: asked.control_seq,
    };
    forget_definition(&client, &w).await;
    let answer = client.answer(&w, &ask, asked.request_id, NO_WAIT, |_| Seen::Open);
    assert_eq!(answer.await, Ok(Answer::Applied));
    let late = Ask {
        action: ControlAction::Retry,
        ..ask
    };
    let answer = client.answer(&w, &late, asked.request_id, NO_WAIT, |_| Seen::Open);
    let refused = answer.await.unwrap_err();
    assert!(
        refused.to_string().contains("purged meanwhile"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_id_is_taken_from_the_tombstone_on_also_where_the_row_is_gone() {
    let client = client();
    let w = id("w");
    drop(Hand::failed(&client, &w).await);
    bury(&client, &w, uuid::Uuid::from_u128(1)).await;
    let row = row_of(&client, &w).await;
    assert!(row.is_open());
    remove_row(&client, &row).await;
    let taken = client.submit(&w, &chain()).await.unwrap_err();
    assert_eq!(taken, ClientError::Purging(w.clone()));
    let none = client.cancel(&w, NO_WAIT).await.unwrap_err();
    assert_eq!(none, ClientError::Purging(w.clone()));
    let made = read_row(&client.store, &client.layout, &w).await;
    assert!(made.unwrap().is_none());
    forget_definition(&client, &w).await;
    assert!(client.submit(&w, &chain()).await.unwrap().is_new);
    // Its first state is still to come; that of the old life is not shown.
    let view = client.read(&w).await.unwrap();
    assert_eq!(view.summary.status, Status::Pending);
    // Nor does its tombstone answer for the new one.
    assert_eq!(client.cancel(&w, NO_WAIT).await, Ok(Answer::Stored));
}

#[tokio::test]
async fn what_ended_long_ago_is_told_by_its_row() {
    let client = client();
    for (name, status, age_h) in [
        ("old", Status::Failed, 48),
        ("older", Status::Completed, 72),
        ("new", Status::Completed, 1),
    ] {
        client.submit(&id(name), &chain()).await.unwrap();
        let mut row = row_of(&client, &id(name)).await.record;
        row.status = status;
        row.updated_at = client.env.wall() - jiff::SignedDuration::from_hours(age_h);
        let key = client.layout.done_row(&id(name));
        make_row(&client, &key, &fields_of(&row)).await;
    }
    client.submit(&id("open"), &chain()).await.unwrap();
    let before = async |hours| {
        let age = jiff::SignedDuration::from_hours(hours);
        client.ended_before(age).await.unwrap()
    };
    assert_eq!(before(24).await, [id("older"), id("old")]);
    assert_eq!(before(0).await.len(), 3);
    assert_eq!(before(24 * 365 * 100).await, []);
}

#[tokio::test]
async fn the_journal_tells_who_did_what_the_newest_first() {
    let client = client();
    let week = jiff::SignedDuration::from_hours(7 * 24);
    let missing = client.journal(None, week, 50).await.unwrap_err();
    assert!(missing.is_kind(Kind::NoResource), "nothing is made");
    client.submit(&id("v"), &chain()).await.unwrap();
    drop(Hand::failed(&client, &id("w")).await);
    assert_eq!(client.retry(&id("w"), NO_WAIT).await, Ok(Answer::Stored));
    let words = |entries: &[JournalRecord]| -> Vec<String> {
        let word = |entry: &JournalRecord| {
            let of = entry.workflow_id.as_ref().unwrap();
            format!(
                "{of} {} {} {}",
                entry.action.word(),
                entry.result.word(),
                entry.actor
            )
        };
        entries.iter().map(word).collect()
    };
    let all = client.journal(None, week, 50).await.unwrap();
    let want = [
        "w retry asked me@here",
        "w submit applied me@here",
        "v submit applied me@here",
    ];
    assert_eq!(words(&all), want);
    let asked = messages(&client).await.pop().unwrap().control.unwrap();
    assert_eq!(all[0].request_id, Some(asked.request_id));
    let of_v = client.journal(Some(&id("v")), week, 50).await.unwrap();
    assert_eq!(words(&of_v), want[2..]);
    assert_eq!(client.journal(None, week, 1).await.unwrap(), all[..1]);
    // Entries of other days are in partitions of their own, and found as far back as is asked for.
    let mut old = all[2].clone();
    old.at = client.env.wall() - jiff::SignedDuration::from_hours(5 * 24);
    crate::protocol::note(&client.env, &client.store, &client.layout, &old).await;
    let all = client.journal(None, week, 50).await.unwrap();
    assert_eq!((all.len(), &all[3]), (4, &old));
    let days = jiff::SignedDuration::from_hours(2 * 24);
    assert_eq!(client.journal(None, days, 50).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_journal_that_takes_nothing_stops_no_action() {
    let store = MemoryStore::open(real::env());
    client_on(store.clone())
        .layout
        .create(&store)
        .await
        .unwrap();
    for fault in [Fault::RequestLost, Fault::ReplyLost] {
        let (deaf, injector) = Faults::script()
            .hook(move |_: &Op, path: &str| path.contains("Journal").then_some(fault))
            .wrap(store.clone(), real::env());
        let name = id(&format!("w{}", fault == Fault::ReplyLost));
        client_on(deaf).submit(&name, &chain()).await.unwrap();
        assert_eq!(injector.happened(), 1, "one try");
    }
}

#[tokio::test]
async fn a_purge_of_what_cannot_be_read_is_asked_for_if_the_row_says_that_it_has_ended() {
    for damage in [None, Some(&b"damaged"[..])] {
        let (client, w, etag) = with_a_state().await;
        let (blobs, path) = (&client.store.blobs, client.layout.runtime(&w));
        if let Some(body) = damage {
            let expect = Expect::Version(etag);
            let put = blobs.put(&path, body.into(), &expect, None).await;
            put.unwrap();
        } else {
            blobs.delete(&path, &etag).await.unwrap();
        }
        drop(messages(&client).await);
        let error = client.purge(&w, NO_WAIT).await.unwrap_err().to_string();
        let why = damage.map_or("has not started", |_| "is no runtime blob");
        assert!(error.contains(why), "{error}");
        assert_eq!(messages(&client).await, [], "nothing is asked");
        end_row(&client, &w, |done| {
            done.status = Status::Failed;
            done.control_seq = ControlSeq::default().next();
        })
        .await;
        assert_eq!(client.purge(&w, NO_WAIT).await, Ok(Answer::Stored));
        let asked = messages(&client).await.pop().unwrap().control.unwrap();
        let row = row_of(&client, &w).await.record;
        assert_eq!(
            (
                asked.action,
                asked.run_id,
                asked.generation,
                asked.control_seq
            ),
            (
                ControlAction::Purge,
                row.run_id,
                row.generation,
                row.control_seq
            )
        );
    }
}
