//! Writes of the state under lost replies and rivals.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::{Generation, Status};
use crate::record::{
    ControlSeq, Epoch, Limits, Revision, RunId, RuntimeRecord, Stamp, TombstoneRecord,
};
use crate::store::Expect;
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};

pub(super) fn state(env: &Env, revision: u64) -> RuntimeRecord {
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
        packed: None,
    }
}

/// What takes the place of a state that is purged.
pub(super) fn tombstone(env: &Env) -> TombstoneRecord {
    TombstoneRecord {
        schema: 1,
        workflow_id: id(),
        run_id: RunId::new(uuid::Uuid::nil()),
        epoch: Epoch::new(1),
        holder: "h/1".to_owned(),
        stamp: Stamp::new(env.uuid()),
        request_id: env.uuid(),
        purged_by: "a@b".to_owned(),
        purged_at: env.wall(),
    }
}

/// A cell over a store with these faults, its first state stored.
async fn cell_with(faults: Faults) -> (Env, Store, Cell, CancellationToken) {
    let env = env_of(&ManualClock::eager());
    let plain = memory(&env).await;
    let hurry = CancellationToken::new();
    let mut first = Cell::new(
        env.clone(),
        plain.clone(),
        layout(),
        id(),
        Limits::default(),
    );
    let stored = first
        .swap(&state(&env, 1), &mut 0, &hurry)
        .await
        .expect("memory");
    assert_eq!(stored, Swap::Stored);
    let (store, _) = faults.wrap(plain.clone(), env.clone());
    let mut cell = Cell::new(env.clone(), store, layout(), id(), Limits::default());
    cell.load(&hurry).await.expect("memory").expect("stored");
    (env, plain, cell, hurry)
}

async fn revision(store: &Store) -> u64 {
    let stored = read_runtime(store, &layout(), &id()).await.expect("memory");
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
    let mut rival = Cell::new(
        env.clone(),
        store.clone(),
        layout(),
        id(),
        Limits::default(),
    );
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
        let mut cell = Cell::new(
            env.clone(),
            store.clone(),
            layout(),
            id(),
            Limits::default(),
        );
        outcomes.push(
            cell.swap(&state(&env, revision), &mut 0, &hurry)
                .await
                .expect("memory"),
        );
    }
    assert_eq!(outcomes, [Swap::Stored, Swap::Rival]);
}

#[tokio::test]
async fn what_cannot_be_read_is_replaced_by_the_version_that_was_seen() {
    for fault in [Fault::ReplyLost, Fault::RequestLost] {
        for is_met in [false, true] {
            let (env, store, mut cell, hurry) =
                cell_with(Faults::script().on(Op::BlobPut, 1, fault)).await;
            let path = layout().runtime(&id());
            let damage = async |body: &'static [u8]| {
                let found = store.blobs.get(&path).await;
                let expect = Expect::Version(found.expect("memory").expect("stored").etag);
                let put = store.blobs.put(&path, body.into(), &expect, None);
                drop(put.await.expect("current"));
            };
            damage(b"damaged").await;
            assert!(cell.load(&hurry).await.is_err());
            let seen = cell.look(&hurry).await.expect("memory").expect("stored");
            assert_eq!(&seen.body[..], b"damaged");
            if is_met {
                damage(b"another").await;
            }
            let tombstone = tombstone(&env);
            let expected = if is_met { Swap::Rival } else { Swap::Stored };
            assert_eq!(cell.bury(&tombstone, &hurry).await, Ok(expected));
            let read = read_state(&store, &layout(), &id()).await;
            assert_eq!(read.is_ok(), !is_met, "{read:?}");
        }
    }
}
