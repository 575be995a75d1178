//! Heartbeats, claims, and what happens when they fail (P19, P20).

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::protocol::{delete_claim, write_claim};
use crate::record::Token;
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};

#[tokio::test]
async fn a_long_task_is_kept_by_its_heartbeats_and_delivered_once() {
    let bench = Bench::new().await;
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start();
    let second = bench.start();
    bench.until_started(1).await;
    assert_eq!(
        bench.claim("a").await,
        None,
        "no claim before the first heartbeat"
    );
    let end = bench.env.mono().plus(Duration::from_secs(400));
    bench
        .until_later(|| async {
            let now = bench.env.mono();
            if now.since(Mono::new(Duration::ZERO)) > Duration::from_secs(10) {
                assert!(bench.claim("a").await.unwrap().is_live());
            }
            now >= end
        })
        .await;
    let claim = bench.claim("a").await.unwrap();
    assert_eq!((claim.record.starts, claim.record.freed), (1, false));
    assert_eq!(bench.starts(), 1);
    bench.go();
    second.stop.drain.cancel();
    let results = bench.results(running, 1).await;
    assert_eq!(results.len(), 1);
    assert_eq!(second.over().await, Summary::default());
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_lost_receipt_with_the_own_claim_in_place_loses_nothing() {
    let bench = Bench::new().await;
    // The reply that brings the new receipt is lost, and with it every later heartbeat on the message.
    let faults = Faults::script().on(Op::QueueExtend, 2, Fault::ReplyLost);
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start_with(&store, Config::default());
    bench.until_started(1).await;
    // The message comes back meanwhile, to a worker that must not start it.
    let second = bench.start();
    let end = bench.env.mono().plus(Duration::from_secs(300));
    bench
        .until_later(|| async { bench.env.mono() >= end })
        .await;
    assert_eq!(injector.happened(), 1);
    assert!(bench.claim("a").await.unwrap().is_live());
    assert_eq!(bench.starts(), 1);
    bench.set_states("cddd").await;
    bench.go();
    bench
        .until_later(|| async { bench.depth(&bench.queue).await == 0 })
        .await;
    let seen = second.drained().await;
    assert_eq!(seen.succeeded, 0);
    assert!(seen.given_back >= 1);
    let results = bench.results(running, 1).await;
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].report.outcome, Outcome::Succeeded);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_worker_that_was_cut_off_until_another_finished_its_task_posts_nothing_and_leaves_no_claim()
 {
    let bench = Bench::new().await;
    let cut = Arc::new(AtomicBool::new(false));
    let is_cut = Arc::clone(&cut);
    let faults = Faults::script()
        .hook(move |_, _| is_cut.load(Ordering::SeqCst).then_some(Fault::RequestLost));
    let (store, _) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", &bench.waiting()).await;
    let first = bench.start_with(&store, Config::default());
    bench.until_started(1).await;
    // The command ends before its first heartbeat, so there is no claim when the message comes back to another.
    cut.store(true, Ordering::SeqCst);
    bench.go();
    let second = bench.start();
    bench
        .until_later(|| async { bench.depth(&bench.queue).await == 0 })
        .await;
    assert_eq!(second.drained().await.succeeded, 1);
    cut.store(false, Ordering::SeqCst);
    first.stop.drain.cancel();
    bench.until_later(|| async { first.is_over() }).await;
    assert_eq!(bench.starts(), 2);
    assert_eq!(bench.posted().await.len(), 1);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_task_without_a_good_heartbeat_is_stopped_before_its_claim_runs_out() {
    let bench = Bench::new().await;
    let cut = Arc::new(AtomicBool::new(false));
    let is_cut = Arc::clone(&cut);
    let faults = Faults::script()
        .hook(move |_, _| is_cut.load(Ordering::SeqCst).then_some(Fault::RequestLost));
    let (store, _) = faults.wrap(bench.store.clone(), bench.env.clone());
    let term = bench.file("term");
    let command = format!(
        "trap 'touch {}; exit' TERM; {}",
        term.display(),
        bench.waiting()
    );
    bench.send_task("a", &command).await;
    let config = Config::default();
    let (visibility, grace) = (config.visibility, config.kill_grace);
    let running = bench.start_with(&store, config);
    bench
        .until_later(|| async { bench.claim("a").await.is_some() })
        .await;
    cut.store(true, Ordering::SeqCst);
    // Another may start it when the claim has run out: by then this one's grace must be over.
    let end = bench.env.mono().plus(visibility.saturating_sub(grace));
    bench
        .until_later(|| async { bench.env.mono() >= end })
        .await;
    bench.until(|| async { term.exists() }).await;
    cut.store(false, Ordering::SeqCst);
    running.stop.drain.cancel();
    bench.until_later(|| async { running.is_over() }).await;
    assert_eq!(bench.posted().await, []);
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_recognised_as_the_own() {
    let bench = Bench::new().await;
    let faults = Faults::script().on(Op::RowWrite, 1, Fault::ReplyLost).on(
        Op::RowWrite,
        4,
        Fault::ReplyLost,
    );
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start_with(&store, Config::default());
    bench.until_started(1).await;
    let end = bench.env.mono().plus(Duration::from_secs(200));
    bench
        .until_later(|| async { bench.env.mono() >= end })
        .await;
    assert_eq!(injector.happened(), 2);
    assert_eq!(bench.starts(), 1);
    bench.go();
    let results = bench.results(running, 1).await;
    assert_eq!(results[0].report.outcome, Outcome::Succeeded);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn an_end_that_waited_for_a_slow_heartbeat_is_posted_after_a_fresh_one() {
    let bench = Bench::new().await;
    let ops = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ops);
    let faults = Faults::script().hook(move |op, _| {
        let mut seen = seen.lock().unwrap();
        let is_first = *op == Op::RowWrite && !seen.contains(op);
        seen.push(*op);
        is_first.then_some(Fault::ReplyLate(Duration::from_secs(30)))
    });
    let (store, _) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start_with(&store, Config::default());
    bench.until_started(1).await;
    let is_seen = |op| ops.lock().unwrap().contains(&op);
    bench.until_later(|| async { is_seen(Op::RowWrite) }).await;
    bench.go();
    bench
        .until_later(|| async { bench.depth(&bench.queue).await == 0 })
        .await;
    bench.results(running, 1).await;
    // By the time the post is due the claim is as old as its slow reply.
    let ops = ops.lock().unwrap();
    let before = ops.iter().take_while(|op| **op != Op::QueueSend);
    let claims = before.filter(|op| **op == Op::RowWrite).count();
    assert!(claims >= 2, "{ops:?}");
}

/// Has another execution take the claim on task `a`.
async fn steal_claim(bench: &Bench) -> Token {
    let found = bench.claim("a").await.unwrap();
    let token = Token::new(bench.env.uuid());
    let theirs = ClaimRecord {
        token,
        ..found.record
    };
    let expect = Expect::Version(found.etag);
    write_claim(&bench.store, &bench.layout, &theirs, &expect)
        .await
        .unwrap();
    token
}

#[tokio::test]
async fn a_task_whose_claim_another_took_is_stopped_and_posts_nothing() {
    let bench = Bench::new().await;
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start();
    bench
        .until_later(|| async { bench.claim("a").await.is_some() })
        .await;
    let theirs = steal_claim(&bench).await;
    // It waits for a file that never comes: only a stop ends it.
    running.stop.drain.cancel();
    bench.until_later(|| async { running.is_over() }).await;
    let summary = running.over().await;
    assert_eq!((summary.left, summary.interrupted), (1, 0));
    assert_eq!(bench.posted().await, []);
    assert_eq!(bench.claim("a").await.unwrap().record.token, theirs);
}

#[tokio::test]
async fn a_task_that_is_lost_while_it_is_stopped_is_not_given_back() {
    let bench = Bench::new().await;
    let [term, go, starts] = ["term", "go", "starts"].map(|file| bench.file(file));
    let command = format!(
        "trap 'touch {}; until test -e {}; do sleep 0.02; done; exit' TERM; echo x >> {}; while :; do sleep 0.02; done",
        term.display(),
        go.display(),
        starts.display()
    );
    bench.send_task("a", &command).await;
    let config = Config {
        visibility: Duration::from_secs(5000),
        kill_grace: Duration::from_secs(4000),
        heartbeat_interval: Duration::from_secs(5),
        ..Config::default()
    };
    let running = bench.start_with(&bench.store, config);
    bench.until_started(1).await;
    running.stop.drain.cancel();
    bench.until_later(|| async { term.exists() }).await;
    steal_claim(&bench).await;
    let end = bench.env.mono().plus(Duration::from_secs(20));
    bench
        .until_later(|| async { bench.env.mono() >= end })
        .await;
    bench.go();
    bench.until_later(|| async { running.is_over() }).await;
    let summary = running.over().await;
    assert_eq!((summary.left, summary.interrupted), (1, 0));
}

#[tokio::test]
async fn a_task_whose_claim_was_removed_as_old_news_is_stopped_and_posts_nothing() {
    let bench = Bench::new().await;
    bench
        .send_task(
            "a",
            &format!(
                "{}; touch {}",
                bench.waiting(),
                bench.file("late").display()
            ),
        )
        .await;
    let running = bench.start();
    bench
        .until_later(|| async { bench.claim("a").await.is_some() })
        .await;
    let etag = bench.claim("a").await.unwrap().etag;
    delete_claim(&bench.store, &bench.layout, &id(), &name("a"), &etag)
        .await
        .unwrap();
    // The one slot is free again only when the first task was stopped.
    bench.until_a_slot_is_free().await;
    bench.go();
    let results = bench.results(running, 1).await;
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].task, name("b"));
    assert!(!bench.file("late").exists());
}

#[tokio::test]
async fn a_worker_that_was_paused_past_its_time_stops_its_task_and_posts_nothing() {
    let bench = Bench::new().await;
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start();
    bench.until_started(1).await;
    // As after a pause: all this time is over before any heartbeat could be sent.
    bench.clock.advance(Duration::from_secs(600));
    running.stop.drain.cancel();
    // Its processes need a moment to go.
    bench.until_later(|| async { running.is_over() }).await;
    assert_eq!(running.over().await.left, 1);
    assert_eq!(bench.posted().await, []);
    assert_eq!(bench.claim("a").await, None);
    assert_eq!(bench.depth(&bench.queue).await, 1);
}
