//! The lease, the fence and the epoch under lost renewals, rivals and clocks that go on.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::record::Epoch;
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::{Expect, Kind};

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

/// Who met it closed has given up what it did: a renewal whose reply was late must not let the rest go on without it.
#[tokio::test]
async fn a_fence_that_was_met_closed_stays_closed() {
    let clock = ManualClock::still();
    let env = env_of(&clock);
    let store = memory(&env).await;
    let leadership = lead(&env, &store, "one/1").await;
    let fence = leadership.fence();
    clock.advance(Duration::from_secs(40));
    let sent_at = env.mono();
    clock.advance(Duration::from_secs(10));
    assert!(!fence.is_open());
    fence.renewed(sent_at);
    assert!(!fence.is_open());
    assert!(fence.closed().is_cancelled());
    assert_eq!(fence.loss(), Some(Loss::Lapsed));
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
