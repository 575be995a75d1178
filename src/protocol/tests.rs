//! State, leadership and rows under lost replies, rivals and late clocks, over the memory store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::{Candidate, Cell, Layout, Leadership, Loss, Projection, ReadError, Shown, Swap, Try};
use super::{break_lease, fields_of, read_row, try_to_lead};
use crate::definition::WorkflowId;
use crate::engine::{Generation, Status};
use crate::env::{Env, real};
use crate::record::{ControlSeq, Epoch, IndexRecord, Revision, RunId, RuntimeRecord, Stamp};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::memory::MemoryStore;
use crate::store::memory::manual::ManualClock;
use crate::store::{Expect, Fields, Kind, Store, Value};

fn id() -> WorkflowId {
    WorkflowId::new("w").expect("legal")
}

fn layout() -> Layout {
    Layout::new("test").expect("legal")
}

/// A clock that the test moves, with real dice.
fn env_of(clock: &Arc<ManualClock>) -> Env {
    Env {
        entropy: real::env().entropy,
        ..clock.env()
    }
}

async fn memory(env: &Env) -> Store {
    let store = MemoryStore::open(env.clone());
    layout().create(&store).await.expect("memory");
    store
}

fn state(env: &Env, revision: u64) -> RuntimeRecord {
    RuntimeRecord {
        schema: 1,
        workflow_id: id(),
        run_id: RunId::new(uuid::Uuid::nil()),
        generation: Generation::FIRST,
        epoch: Epoch::new(1),
        holder: "h/1".to_owned(),
        stamp: Stamp::new(env.uuid()),
        revision: Revision::new(revision),
        status: Status::Running,
        reason: None,
        control_seq: ControlSeq::new(0),
        control_results: Vec::new(),
        cancel: None,
        stop: None,
        created_at: env.wall(),
        updated_at: env.wall(),
        states: "r".to_owned(),
        tasks: Vec::new(),
    }
}

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

/// A cell over a store with these faults, its first state stored.
async fn cell_with(faults: Faults) -> (Env, Store, Cell, CancellationToken) {
    let env = env_of(&ManualClock::eager());
    let plain = memory(&env).await;
    let hurry = CancellationToken::new();
    let mut first = Cell::new(env.clone(), plain.clone(), layout(), id());
    let stored = first
        .swap(&state(&env, 1), &mut 0, &hurry)
        .await
        .expect("memory");
    assert_eq!(stored, Swap::Stored);
    let (store, _) = faults.wrap(plain.clone(), env.clone());
    let mut cell = Cell::new(env.clone(), store, layout(), id());
    cell.load(&hurry).await.expect("memory").expect("stored");
    (env, plain, cell, hurry)
}

async fn revision(store: &Store) -> u64 {
    let stored = super::read_runtime(store, &layout(), &id())
        .await
        .expect("memory");
    stored.expect("stored").record.revision.number()
}

#[tokio::test]
async fn a_write_whose_reply_was_lost_is_known_by_its_stamp() {
    let (env, store, mut cell, hurry) =
        cell_with(Faults::script().on(Op::BlobPut, 1, Fault::ReplyLost)).await;
    let record = state(&env, 2);
    assert_eq!(
        cell.swap(&record, &mut 0, &hurry).await.expect("settled"),
        Swap::Stored
    );
    assert_eq!(revision(&store).await, 2);
    let next = state(&env, 3);
    assert_eq!(
        cell.swap(&next, &mut 0, &hurry).await.expect("plain"),
        Swap::Stored
    );
}

#[tokio::test]
async fn a_write_that_was_never_carried_out_is_made_again() {
    let hang = Fault::Hang(Duration::from_secs(10));
    let (env, store, mut cell, hurry) = cell_with(Faults::script().on(Op::BlobPut, 1, hang)).await;
    let record = state(&env, 2);
    assert_eq!(
        cell.swap(&record, &mut 0, &hurry).await.expect("settled"),
        Swap::Stored
    );
    assert_eq!(revision(&store).await, 2);
}

#[tokio::test]
async fn a_rival_is_told_from_an_own_write() {
    let lost = Faults::script().on(Op::BlobPut, 1, Fault::RequestLost);
    let (env, store, mut cell, hurry) = cell_with(lost).await;
    let mut rival = Cell::new(env.clone(), store.clone(), layout(), id());
    rival.load(&hurry).await.expect("memory");
    assert_eq!(
        rival
            .swap(&state(&env, 7), &mut 0, &hurry)
            .await
            .expect("memory"),
        Swap::Stored
    );
    assert_eq!(
        cell.swap(&state(&env, 2), &mut 0, &hurry)
            .await
            .expect("settled"),
        Swap::Rival
    );
    assert_eq!(revision(&store).await, 7);
}

#[tokio::test]
async fn two_that_make_the_first_state_at_once_have_one_winner() {
    let env = env_of(&ManualClock::eager());
    let store = memory(&env).await;
    let hurry = CancellationToken::new();
    let mut outcomes = Vec::new();
    for revision in [1, 2] {
        let mut cell = Cell::new(env.clone(), store.clone(), layout(), id());
        outcomes.push(
            cell.swap(&state(&env, revision), &mut 0, &hurry)
                .await
                .expect("memory"),
        );
    }
    assert_eq!(outcomes, [Swap::Stored, Swap::Rival]);
}

async fn request_cancel(store: &Store) {
    let row = read_row(store, &layout(), &id())
        .await
        .expect("memory")
        .expect("there")
        .row;
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
    let found = read_row(&store, &layout(), &id())
        .await
        .expect("memory")
        .expect("there");
    assert_eq!(
        (found.is_open(), found.record.cancel_requested),
        (false, Some(Generation::FIRST))
    );
    assert_eq!(
        row.reopen(&running, &hurry).await.expect("memory"),
        Shown::Yes
    );
    let found = read_row(&store, &layout(), &id())
        .await
        .expect("memory")
        .expect("there");
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
        let found = read_row(store, &layout(), &id()).await.expect("memory");
        let found = found.expect("there");
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
        let found = read_row(&store, &layout(), &id()).await;
        let found = found.expect("memory").expect("there");
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
    let found = read_row(&store, &layout(), &id())
        .await
        .expect("memory")
        .expect("there");
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
        let found = read_row(&store, &layout(), &id()).await.expect("memory");
        let found = found.expect("there").record;
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
    let found = read_row(&plain, &layout(), &id())
        .await
        .expect("memory")
        .expect("there");
    assert_eq!(
        (found.is_open(), found.record.status),
        (false, Status::Completed)
    );
}

fn candidate(name: &str) -> Candidate {
    Candidate {
        holder: name.to_owned(),
        lease: Duration::from_secs(60),
    }
}

async fn stand(env: &Env, store: &Store, name: &str) -> Result<Try, ReadError> {
    try_to_lead(
        env,
        store,
        &layout(),
        &candidate(name),
        &CancellationToken::new(),
    )
    .await
}

async fn lead(env: &Env, store: &Store, name: &str) -> Leadership {
    match stand(env, store, name).await.expect("memory") {
        Try::Leads(leadership) => *leadership,
        Try::Held(leader) => panic!("held by {leader:?}"),
    }
}

#[tokio::test]
async fn each_leader_has_a_higher_epoch_and_the_refused_learn_who_leads_and_for_how_long() {
    let clock = ManualClock::still();
    let env = env_of(&clock);
    let store = memory(&env).await;
    let first = lead(&env, &store, "one/1").await;
    clock.advance(Duration::from_secs(10));
    let Try::Held(leader) = stand(&env, &store, "two/2").await.expect("memory") else {
        panic!("two lead");
    };
    assert_eq!(
        (leader.holder.as_deref(), leader.age),
        (Some("one/1"), Duration::from_secs(10))
    );
    first.release(BTreeMap::new()).await;
    let second = lead(&env, &store, "two/2").await;
    assert_eq!(
        (first.epoch(), second.epoch()),
        (Epoch::new(1), Epoch::new(2))
    );
    assert!(!first.still_leads().await.expect("memory"));
    assert!(second.still_leads().await.expect("memory"));
}

#[tokio::test]
async fn the_fence_closes_before_the_lease_can_have_ended() {
    let clock = ManualClock::still();
    let env = env_of(&clock);
    let store = memory(&env).await;
    let leadership = lead(&env, &store, "one/1").await;
    clock.advance(Duration::from_secs(44));
    assert!(leadership.fence().is_open());
    clock.advance(Duration::from_secs(1));
    assert!(!leadership.fence().is_open());
    assert!(
        matches!(
            stand(&env, &store, "two/2").await.expect("memory"),
            Try::Held(_)
        ),
        "the lease outlives the fence"
    );
}

#[tokio::test]
async fn one_lost_renewal_is_repeated_and_a_long_outage_closes_the_fence() {
    let clock = ManualClock::eager();
    let env = env_of(&clock);
    let plain = memory(&env).await;
    // Renewals 1, 3 and 4 are lost, then all from the sixth on.
    let faults = Faults::script().hook({
        let count = std::sync::atomic::AtomicU64::new(0);
        move |op, _| {
            if *op != Op::LeaseRenew {
                return None;
            }
            let nth = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            [1, 3, 4]
                .contains(&nth)
                .then_some(Fault::RequestLost)
                .or((nth >= 6).then_some(Fault::RequestLost))
        }
    });
    let (store, injector) = faults.wrap(plain, env.clone());
    let leadership = lead(&env, &store, "one/1").await;
    let began = env.mono();
    leadership.keep(|| true).await;
    assert_eq!(leadership.fence().loss(), Some(Loss::Lapsed));
    assert!(injector.happened() > 3, "it tried again and again");
    assert!(
        env.mono().since(began) > Duration::from_secs(60),
        "single losses did not end it"
    );
}

#[tokio::test]
async fn a_broken_lease_ends_leadership_at_the_next_renewal() {
    let clock = ManualClock::eager();
    let env = env_of(&clock);
    let store = memory(&env).await;
    let leadership = lead(&env, &store, "one/1").await;
    assert!(break_lease(&store, &layout()).await.expect("memory"));
    leadership.keep(|| true).await;
    assert_eq!(
        leadership.fence().loss(),
        Some(Loss::Superseded("the lease was broken".to_owned()))
    );
}

#[tokio::test]
async fn a_leader_whose_loop_stands_still_renews_no_more() {
    let clock = ManualClock::eager();
    let env = env_of(&clock);
    let store = memory(&env).await;
    let leadership = lead(&env, &store, "one/1").await;
    leadership.keep(|| false).await;
    assert_eq!(leadership.fence().loss(), Some(Loss::Stalled));
}

#[tokio::test]
async fn a_lost_reply_to_acquiring_or_to_the_epoch_is_settled() {
    let env = env_of(&ManualClock::eager());
    for (op, nth) in [(Op::LeaseAcquire, 1), (Op::BlobPut, 1), (Op::BlobPut, 2)] {
        let plain = memory(&env).await;
        let (store, injector) = Faults::script()
            .on(op, nth, Fault::ReplyLost)
            .wrap(plain, env.clone());
        let leadership = lead(&env, &store, "one/1").await;
        assert_eq!(injector.happened(), 1, "{op:?}");
        assert_eq!(leadership.epoch(), Epoch::new(1), "{op:?}");
        leadership
            .raise_epoch(Epoch::new(9), &CancellationToken::new())
            .await
            .expect("still its own");
        assert_eq!(leadership.epoch(), Epoch::new(10), "{op:?}");
    }
}

#[tokio::test]
async fn a_sentinel_that_is_no_record_is_reported_and_left() {
    let env = real::env();
    let store = memory(&env).await;
    let garbage = Bytes::from_static(b"x");
    store
        .blobs
        .put(&layout().sentinel(), garbage, &Expect::Absent, None)
        .await
        .expect("new");
    let error = stand(&env, &store, "one/1").await.expect_err("unreadable");
    assert!(matches!(error, ReadError::Decode { .. }), "{error}");
    let body = store
        .blobs
        .get(&layout().sentinel())
        .await
        .expect("memory")
        .expect("there")
        .body;
    assert_eq!(&body[..], b"x");
    assert_eq!(
        store
            .blobs
            .break_lease(&layout().sentinel())
            .await
            .expect_err("none held")
            .kind,
        Kind::Conflict
    );
}
