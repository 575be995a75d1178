//! Index rows under cancels that are asked for, leaders that follow and replies that are lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::{Generation, Status};
use crate::record::{ControlSeq, Epoch, IndexRecord, Revision, RunId};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::layers::meter::Meter;
use crate::store::{Expect, Fields, Kind, Value};

fn index(status: Status, epoch: u64) -> IndexRecord {
    IndexRecord {
        schema: 1,
        workflow_id: id(),
        name: "w".to_owned(),
        run_id: RunId::new(uuid::Uuid::nil()),
        generation: Generation::FIRST,
        epoch: Epoch::new(epoch),
        revision: Revision::new(1),
        status,
        reason: String::new(),
        total: 1,
        counts: BTreeMap::new(),
        control_seq: ControlSeq::new(0),
        cancel_requested: None,
        stopping: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        updated_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

async fn row_of(store: &Store) -> FoundRow {
    let row = read_row(store, &layout(), &id()).await;
    row.expect("memory").expect("there")
}

async fn request_cancel(store: &Store) {
    let row = row_of(store).await.row;
    let fields = Fields::from([("cancel_requested".to_owned(), Value::Int(1))]);
    let expect = Expect::Version(row.etag);
    store
        .rows
        .write(layout().index(), &row.key, &fields, &expect)
        .await
        .expect("current");
}

#[tokio::test]
async fn a_cancel_request_survives_every_projection() {
    let env = real::env();
    let store = memory(&env).await;
    let hurry = CancellationToken::new();
    let mut row = Projection::new(env.clone(), store.clone(), layout(), id());
    let running = index(Status::Running, 1);
    assert_eq!(
        row.show(&running, &hurry).await.expect("memory"),
        Shown::Yes
    );
    // The projection knows a version that the request has just replaced.
    request_cancel(&store).await;
    assert_eq!(
        row.show(&running, &hurry).await.expect("memory"),
        Shown::Yes
    );
    assert_eq!(row.cancel_requested(), Some(Generation::FIRST));
    assert_eq!(
        row.finish(&index(Status::Cancelled, 1), &hurry)
            .await
            .expect("memory"),
        Shown::Yes
    );
    let found = row_of(&store).await;
    assert_eq!(
        (found.is_open(), found.record.cancel_requested),
        (false, Some(Generation::FIRST))
    );
    assert_eq!(
        row.reopen(&running, &hurry).await.expect("memory"),
        Shown::Yes
    );
    let found = row_of(&store).await;
    assert_eq!(
        (found.is_open(), found.record.cancel_requested),
        (true, Some(Generation::FIRST))
    );
    let done = store
        .rows
        .get(layout().index(), &layout().done_row(&id()))
        .await
        .expect("memory");
    assert_eq!(done, None);
}

/// Asks for a cancel as a person does, and tells whether it is stored: not where the row is a final one already.
async fn ask_for_cancel(store: &Store) -> bool {
    let fields = Fields::from([("cancel_requested".to_owned(), Value::Int(1))]);
    loop {
        let found = row_of(store).await;
        if !found.is_open() {
            return false;
        }
        let expect = Expect::Version(found.row.etag);
        let rows = &store.rows;
        let index = layout().index().clone();
        let write = rows.write(&index, &found.row.key, &fields, &expect);
        match write.await {
            Ok(_) => return true,
            Err(error) => assert!(matches!(error.kind, Kind::Conflict | Kind::NotFound)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_meets_row_writes_survives_in_each_of_five_hundred_rounds() {
    let env = real::env();
    let mut stored = 0;
    for _ in 0..500 {
        let store = memory(&env).await;
        let hurry = CancellationToken::new();
        let mut row = Projection::new(env.clone(), store.clone(), layout(), id());
        let shown = row.show(&index(Status::Running, 1), &hurry).await;
        assert_eq!(shown.expect("memory"), Shown::Yes);
        let leader = env.spawn("leader", async move {
            for epoch in 2..5 {
                let running = index(Status::Running, epoch);
                let shown = row.show(&running, &hurry).await;
                assert_eq!(shown.expect("memory"), Shown::Yes);
            }
            let ended = index(Status::Cancelled, 5);
            let shown = row.finish(&ended, &hurry).await;
            assert_eq!(shown.expect("memory"), Shown::Yes);
        });
        let is_stored = ask_for_cancel(&store).await;
        assert_eq!(leader.join().await, crate::env::Joined::Done);
        let found = row_of(&store).await;
        assert!(!found.is_open());
        let expected = is_stored.then_some(Generation::FIRST);
        assert_eq!(found.record.cancel_requested, expected);
        stored += u32::from(is_stored);
    }
    assert!(stored > 0);
}

#[tokio::test]
async fn a_flag_of_an_earlier_life_of_the_id_does_not_reach_the_next() {
    let env = real::env();
    let store = memory(&env).await;
    let hurry = CancellationToken::new();
    let mut row = Projection::new(env.clone(), store.clone(), layout(), id());
    assert_eq!(
        row.show(&index(Status::Running, 1), &hurry)
            .await
            .expect("memory"),
        Shown::Yes
    );
    request_cancel(&store).await;
    let next_life = IndexRecord {
        run_id: RunId::new(uuid::Uuid::max()),
        ..index(Status::Running, 1)
    };
    row.forget();
    assert_eq!(
        row.show(&next_life, &hurry).await.expect("memory"),
        Shown::Yes
    );
    let found = row_of(&store).await;
    assert_eq!(found.record.cancel_requested, None);
}

#[tokio::test]
async fn a_row_that_moves_shows_the_stop_of_its_state_and_not_an_older_one() {
    let env = real::env();
    let store = memory(&env).await;
    let hurry = CancellationToken::new();
    let mut row = Projection::new(env.clone(), store.clone(), layout(), id());
    for (generation, stopping, shown) in [(1, Some(1), 1), (2, None, 1), (3, Some(3), 3)] {
        let state = |status| IndexRecord {
            generation: Generation::new(generation),
            stopping: stopping.map(Generation::new),
            ..index(status, 1)
        };
        let reopened = row.reopen(&state(Status::Running), &hurry).await;
        assert_eq!(reopened.expect("memory"), Shown::Yes);
        // The state with the stop is final before the row has shown it.
        let key = layout().open_row(&id());
        let open = store
            .rows
            .get(layout().index(), &key)
            .await
            .expect("memory");
        let older = Fields::from([("stopping".to_owned(), Value::Int(1))]);
        let expect = Expect::Version(open.expect("there").etag);
        store
            .rows
            .write(layout().index(), &key, &older, &expect)
            .await
            .expect("memory");
        let finished = row.finish(&state(Status::Failed), &hurry).await;
        assert_eq!(finished.expect("memory"), Shown::Yes);
        let found = row_of(&store).await.record;
        assert_eq!(found.stopping, Some(Generation::new(shown)));
    }
}

#[tokio::test]
async fn a_row_of_a_later_epoch_is_not_touched() {
    let env = real::env();
    let store = memory(&env).await;
    let hurry = CancellationToken::new();
    let later = index(Status::Running, 5);
    let key = layout().open_row(&id());
    let made = store
        .rows
        .write(layout().index(), &key, &fields_of(&later), &Expect::Absent)
        .await;
    let made = made.expect("new");
    for status in [Status::Running, Status::Completed] {
        let mut row = Projection::new(env.clone(), store.clone(), layout(), id());
        let older = index(status, 4);
        let shown = if status.is_final() {
            row.finish(&older, &hurry).await
        } else {
            row.show(&older, &hurry).await
        };
        assert_eq!(shown.expect("memory"), Shown::Met(Epoch::new(5)));
    }
    let now = store
        .rows
        .get(layout().index(), &key)
        .await
        .expect("memory")
        .expect("there");
    assert_eq!(now.etag, made);
}

#[tokio::test]
async fn a_final_row_that_a_later_leader_has_made_meanwhile_is_not_removed() {
    let env = real::env();
    let plain = memory(&env).await;
    let (later, key) = (index(Status::Completed, 5), layout().done_row(&id()));
    let (rival, of_rival) = (plain.clone(), key.clone());
    // The later leader finds the row open and moves it back, just before this one removes what it takes for the old final row.
    let is_first = AtomicBool::new(true);
    let faults = Faults::script().hook(move |op, path| {
        let removes = *op == Op::RowDelete && path.ends_with("done/w");
        if removes && is_first.swap(false, Ordering::SeqCst) {
            let (table, fields) = (layout().index().clone(), fields_of(&later));
            let row = rival.rows.get(&table, &of_rival).now_or_never()?;
            let expect = Expect::Version(row.ok()??.etag);
            let written = rival.rows.write(&table, &of_rival, &fields, &expect);
            written.now_or_never()?.ok()?;
        }
        None
    });
    let (store, _) = faults.wrap(plain.clone(), env.clone());
    let hurry = CancellationToken::new();
    let mut row = Projection::new(env, store, layout(), id());
    let finished = row.finish(&index(Status::Completed, 4), &hurry).await;
    assert_eq!(finished.expect("memory"), Shown::Yes);
    let reopened = row.reopen(&index(Status::Running, 4), &hurry).await;
    assert_eq!(reopened.expect("memory"), Shown::Met(Epoch::new(5)));
    let done = plain.rows.get(layout().index(), &key).await;
    assert!(done.expect("memory").is_some());
}

#[tokio::test]
async fn every_write_of_a_row_may_lose_its_reply() {
    let env = env_of(&ManualClock::eager());
    let plain = memory(&env).await;
    let faults = Faults::script()
        .on(Op::RowWrite, 1, Fault::ReplyLost)
        .on(Op::RowWrite, 2, Fault::ReplyLost)
        .on(Op::RowDelete, 1, Fault::ReplyLost);
    let (store, injector) = faults.wrap(plain.clone(), env.clone());
    let hurry = CancellationToken::new();
    let mut row = Projection::new(env.clone(), store, layout(), id());
    assert_eq!(
        row.show(&index(Status::Running, 1), &hurry)
            .await
            .expect("settled"),
        Shown::Yes
    );
    assert_eq!(
        row.finish(&index(Status::Completed, 1), &hurry)
            .await
            .expect("settled"),
        Shown::Yes
    );
    assert_eq!(injector.happened(), 3);
    let found = row_of(&plain).await;
    assert_eq!(
        (found.is_open(), found.record.status),
        (false, Status::Completed)
    );
}

#[tokio::test]
async fn a_cancel_that_is_asked_for_while_a_row_moves_stays_whatever_write_is_lost() {
    for lost in 1..=5 {
        let env = env_of(&ManualClock::eager());
        let plain = memory(&env).await;
        let hang = Fault::Hang(Duration::from_secs(1));
        let (store, injector) = Faults::script()
            .on(Op::RowWrite, lost, hang)
            .wrap(plain.clone(), env.clone());
        let hurry = CancellationToken::new();
        let mut row = Projection::new(env, store, layout(), id());
        let shown = row.show(&index(Status::Running, 1), &hurry).await;
        assert_eq!(shown.expect("settled"), Shown::Yes);
        // The projection knows a version that the request has just replaced: it finds so when it removes it.
        request_cancel(&plain).await;
        let finished = row.finish(&index(Status::Cancelled, 1), &hurry).await;
        assert_eq!(finished.expect("settled"), Shown::Yes);
        assert!(injector.happened() > 0 || lost == 5, "{lost}");
        let found = row_of(&plain).await;
        let flag = found.record.cancel_requested;
        assert_eq!((found.is_open(), flag), (false, Some(Generation::FIRST)));
    }
}

#[tokio::test]
async fn a_cancel_by_message_is_in_the_final_row() {
    let env = real::env();
    let store = memory(&env).await;
    let hurry = CancellationToken::new();
    let mut row = Projection::new(env, store.clone(), layout(), id());
    let shown = row.show(&index(Status::Running, 1), &hurry).await;
    assert_eq!(shown.expect("memory"), Shown::Yes);
    let (run, epoch) = (RunId::new(uuid::Uuid::nil()), Epoch::new(1));
    let asked = row.request_cancel(run, epoch, Generation::FIRST, &hurry);
    assert_eq!(asked.await.expect("memory"), Shown::Yes);
    let finished = row.finish(&index(Status::Cancelled, 1), &hurry).await;
    assert_eq!(finished.expect("memory"), Shown::Yes);
    let found = row_of(&store).await.record;
    assert_eq!(found.cancel_requested, Some(Generation::FIRST));
}

#[tokio::test]
async fn a_row_that_was_read_is_written_without_a_look_unless_it_is_of_another_run_or_a_later_leader()
 {
    let (own, other) = (index(Status::Running, 4), RunId::new(uuid::Uuid::max()));
    for (epoch, run, looks) in [(0, own.run_id, 1), (5, own.run_id, 3), (0, other, 4)] {
        let env = real::env();
        let plain = memory(&env).await;
        let (store, meter) = Meter::wrap(plain.clone());
        let hurry = CancellationToken::new();
        let there = IndexRecord {
            run_id: run,
            cancel_requested: Some(Generation::FIRST),
            ..index(Status::Pending, epoch)
        };
        let (index, key) = (layout().index().clone(), layout().open_row(&id()));
        let fields = fields_of(&there);
        let written = plain.rows.write(&index, &key, &fields, &Expect::Absent);
        written.await.expect("new");
        let mut row = Projection::new(env, store, layout(), id());
        let read = row.read(own.run_id, own.epoch, &hurry).await;
        assert_eq!(read.expect("memory"), Some(there));
        let shown = row.show(&own, &hurry).await.expect("memory");
        let is_later = epoch > own.epoch.number();
        let expected = if is_later {
            Shown::Met(Epoch::new(epoch))
        } else {
            Shown::Yes
        };
        assert_eq!(shown, expected);
        let found = row_of(&plain).await.record;
        let keeps_flag = run == own.run_id;
        assert_eq!(found.cancel_requested.is_some(), keeps_flag);
        let asked = meter
            .snapshot()
            .get(&Op::RowGet)
            .map(|count| count.requests);
        assert_eq!(asked, Some(looks), "{epoch} {run}");
    }
}

#[tokio::test]
async fn a_cancel_is_shown_in_no_row_of_a_later_leader_or_another_run() {
    let other = RunId::new(uuid::Uuid::max());
    let own = index(Status::Running, 4);
    for (epoch, run) in [(5, own.run_id), (4, other)] {
        let env = real::env();
        let store = memory(&env).await;
        let there = IndexRecord {
            run_id: run,
            ..index(Status::Running, epoch)
        };
        let (table, key) = (layout().index().clone(), layout().open_row(&id()));
        let fields = fields_of(&there);
        let made = store.rows.write(&table, &key, &fields, &Expect::Absent);
        let made = made.await.expect("new");
        let hurry = CancellationToken::new();
        let mut row = Projection::new(env, store.clone(), layout(), id());
        let asked = row.request_cancel(own.run_id, own.epoch, Generation::FIRST, &hurry);
        let asked = asked.await.expect("memory");
        let is_later = epoch > own.epoch.number();
        assert_eq!(asked == Shown::Met(Epoch::new(epoch)), is_later);
        assert_eq!(row_of(&store).await.row.etag, made);
    }
}
