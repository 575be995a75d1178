//! Messages that could be second copies (P18), and tasks that kill their workers (P23).

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::engine::FailureKind;
use crate::protocol::write_claim;
use crate::record::{Token, TombstoneRecord};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};

/// A claim of another worker on task `a`.
async fn claimed_by_another(bench: &Bench, starts: u32) -> ClaimRecord {
    let record = ClaimRecord {
        schema: 1,
        workflow_id: id(),
        run_id: bench.run,
        generation: Generation::FIRST,
        task: name("a"),
        attempt_no: Attempt::new(1),
        token: Token::new(bench.env.uuid()),
        worker: "other/1".to_owned(),
        host: "other".to_owned(),
        started_at: Timestamp::UNIX_EPOCH,
        visibility_s: 60,
        starts,
        interruptions: 0,
        freed: false,
    };
    write_claim(&bench.store, &bench.layout, &record, &Expect::Absent)
        .await
        .unwrap();
    record
}

/// Sends task `a` and has it delivered once, to a worker that vanished.
async fn sent_and_taken(bench: &Bench, command: &str) {
    bench.send_task("a", command).await;
    let queues = &bench.store.queues;
    let taken = queues
        .receive(&bench.queue, 1, Duration::from_secs(1))
        .await
        .unwrap();
    let receipt = &taken[0].receipt;
    queues
        .extend(&bench.queue, receipt, Duration::ZERO)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_second_delivery_is_started_only_under_a_claim_written_before() {
    let bench = Bench::new().await;
    sent_and_taken(&bench, &bench.waiting()).await;
    let running = bench.start();
    bench.until_started(1).await;
    let claim = bench.claim("a").await.expect("written before the start");
    assert_eq!(claim.record.starts, 2);
    bench.finish_one(running).await;
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_suspect_whose_claim_lost_its_reply_is_started_at_once() {
    let bench = Bench::new().await;
    sent_and_taken(&bench, &bench.waiting()).await;
    let faults = Faults::script().on(Op::RowWrite, 1, Fault::ReplyLost);
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    let running = bench.start_with(&store, Config::default());
    bench.until_started(1).await;
    assert_eq!(injector.happened(), 1);
    let claim = bench.claim("a").await.expect("written before the start");
    assert_eq!((claim.record.starts, claim.record.freed), (2, false));
    assert!(claim.is_live(), "no other claim had to run out");
    bench.finish_one(running).await;
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_suspect_that_a_busy_store_keeps_from_being_judged_is_judged_again_soon() {
    let bench = Bench::new().await;
    sent_and_taken(&bench, &bench.waiting()).await;
    let busy = Fault::Throttled(None);
    let faults = Faults::script()
        .on(Op::RowGet, 1, busy)
        .on(Op::BlobGet, 1, busy)
        .on(Op::RowWrite, 1, busy);
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    let running = bench.start_with(&store, Config::default());
    bench
        .until_later(|| async { injector.happened() == 3 })
        .await;
    assert!(
        bench.passed() < Duration::from_secs(8),
        "it was not given back for 4 s and 8 s"
    );
    bench.until_later(|| async { bench.starts() == 1 }).await;
    bench.finish_one(running).await;
    bench.assert_tidy().await;
}

/// Another may have finished it meanwhile, and nobody would meet the claim again.
#[tokio::test]
async fn a_suspect_that_is_judged_too_late_is_given_back_unclaimed() {
    let bench = Bench::new().await;
    sent_and_taken(&bench, &bench.waiting()).await;
    let late = AtomicBool::new(true);
    let faults = Faults::script().hook(move |op, path| {
        let is_first = *op == Op::RowGet && path.contains("Claims/") && late.swap(false, SeqCst);
        is_first.then_some(Fault::ReplyLate(Duration::from_secs(31)))
    });
    let (store, _) = faults.wrap(bench.store.clone(), bench.env.clone());
    let running = bench.start_with(&store, Config::default());
    bench.until_later(|| async { bench.starts() == 1 }).await;
    bench.go();
    bench.until_posted(1).await;
    assert_eq!(running.drained().await.given_back, 1);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_second_copy_waits_while_the_first_is_claimed_and_takes_over_when_its_worker_is_gone() {
    let bench = Bench::new().await;
    let theirs = claimed_by_another(&bench, 1).await;
    sent_and_taken(&bench, &bench.waiting()).await;
    let running = bench.start();
    let queues = &bench.store.queues;
    bench
        .until(|| async { queues.peek(&bench.queue, 1).await.unwrap().is_empty() })
        .await;
    bench
        .until_later(|| async { bench.claim("a").await.unwrap().record.token != theirs.token })
        .await;
    let since = bench.passed();
    assert!(
        since >= Duration::from_secs(65),
        "taken while it was live: {since:?}"
    );
    assert!(since < Duration::from_secs(90), "{since:?}");
    let claim = bench.claim("a").await.unwrap();
    assert_eq!(claim.record.starts, 2);
    bench.finish_one(running).await;
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_marked_message_waits_one_heartbeat_for_the_claim_of_another_copy() {
    let bench = Bench::new().await;
    let mut message = bench.message("a", Bench::spec(&bench.waiting()));
    message.again = true;
    bench.send(&message).await;
    let running = bench.start();
    bench.until_later(|| async { bench.starts() == 1 }).await;
    let since = bench.passed();
    assert!(since >= Duration::from_secs(20), "{since:?}");
    assert!(bench.claim("a").await.is_some());
    bench.finish_one(running).await;
}

#[tokio::test]
async fn a_message_of_an_earlier_leader_is_checked_before_it_starts() {
    let bench = Bench::new().await;
    bench.set_states("cddd").await;
    let mut row = bench.row();
    row.epoch = Epoch::new(2);
    bench.write_row(&row).await;
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start();
    bench
        .until_later(|| async { bench.depth(&bench.queue).await == 0 })
        .await;
    assert_eq!(running.drained().await.old_news, 1);
    assert_eq!(bench.starts(), 0);
    assert_eq!(bench.posted().await, []);
}

#[tokio::test]
async fn old_news_is_removed_with_its_claim() {
    let bench = Bench::new().await;
    bench.set_states("cddd").await;
    claimed_by_another(&bench, 1).await;
    sent_and_taken(&bench, &bench.waiting()).await;
    let running = bench.start();
    bench
        .until(|| async { bench.depth(&bench.queue).await == 0 })
        .await;
    assert_eq!(running.drained().await.old_news, 1);
    assert_eq!(bench.starts(), 0);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_message_of_another_run_or_of_no_workflow_at_all_is_removed() {
    let bench = Bench::new().await;
    let mut of_another_run = bench.message("a", Bench::spec(&bench.waiting()));
    of_another_run.run_id = RunId::new(bench.env.uuid());
    bench.send(&of_another_run).await;
    let mut of_none = bench.message("a", Bench::spec(&bench.waiting()));
    of_none.workflow_id = WorkflowId::new("gone").unwrap();
    bench.send(&of_none).await;
    let running = bench.start();
    bench
        .until_later(|| async { bench.depth(&bench.queue).await == 0 })
        .await;
    assert_eq!(running.drained().await.old_news, 2);
    assert_eq!(bench.starts(), 0);
}

#[tokio::test]
async fn a_message_of_a_purged_run_is_removed() {
    let bench = Bench::new().await;
    let mut late = bench.message("a", Bench::spec(&bench.waiting()));
    late.workflow_id = WorkflowId::new("purged").unwrap();
    let tombstone = TombstoneRecord {
        schema: 1,
        workflow_id: late.workflow_id.clone(),
        run_id: late.run_id,
        epoch: Epoch::new(1),
        holder: "host/1".to_owned(),
        stamp: Stamp::new(bench.env.uuid()),
        request_id: bench.env.uuid(),
        purged_by: "me@here".to_owned(),
        purged_at: bench.env.wall(),
    };
    let path = bench.layout.runtime(&late.workflow_id);
    let body = encode(&tombstone).into();
    let put = bench.store.blobs.put(&path, body, &Expect::Absent, None);
    put.await.unwrap();
    bench.send(&late).await;
    let running = bench.start();
    bench
        .until_later(|| async { bench.depth(&bench.queue).await == 0 })
        .await;
    assert_eq!(running.drained().await.old_news, 1);
    assert_eq!((bench.starts(), bench.posted().await.len()), (0, 0));
}

#[tokio::test]
async fn messages_of_a_finished_workflow_are_removed_without_a_look_at_its_state() {
    let bench = Bench::new().await;
    let mut row = bench.row();
    row.status = Status::Cancelled;
    row.cancel_requested = Some(Generation::FIRST);
    bench.write_row(&row).await;
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start();
    bench
        .until(|| async { bench.depth(&bench.queue).await == 0 })
        .await;
    assert_eq!(running.drained().await.old_news, 1);
    assert_eq!((bench.starts(), bench.posted().await.len()), (0, 0));
}

#[tokio::test]
async fn a_task_that_kills_its_workers_is_started_five_times_and_then_fails_for_good() {
    let bench = Bench::new().await;
    bench.send_task("a", &bench.waiting()).await;
    for starts in 1..=5 {
        let running = bench.start();
        bench
            .until_later(|| async { bench.starts() == starts })
            .await;
        // Killed: nothing is given back, nothing posted.
        running.stop.drain.cancel();
        running.stop.kill.cancel();
        bench.until(|| async { running.is_over() }).await;
    }
    let running = bench.start();
    bench.until_posted(1).await;
    let results = bench.results(running, 1).await;
    let failure = failure_of(&results[0]);
    assert_eq!(
        (failure.kind, failure.is_final),
        (FailureKind::Deliveries, true)
    );
    assert!(failure.message.contains("5 times"), "{}", failure.message);
    assert_eq!(bench.starts(), 5);
    let poison = bench.layout.task_poison(&Config::default().queues[0]);
    assert_eq!(bench.depth(&poison).await, 1);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn the_claim_of_an_earlier_attempt_stands_in_nobodys_way() {
    let bench = Bench::new().await;
    claimed_by_another(&bench, 3).await;
    let mut message = bench.message("a", Bench::spec(&bench.waiting()));
    message.attempt_no = Attempt::new(2);
    bench.send(&message).await;
    let running = bench.start();
    bench.until_started(1).await;
    bench
        .until_later(|| async {
            bench.claim("a").await.unwrap().record.attempt_no == Attempt::new(2)
        })
        .await;
    assert_eq!(bench.claim("a").await.unwrap().record.starts, 1);
    bench.finish_one(running).await;
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_damaged_claim_is_waited_out_and_taken_over_as_one_start() {
    let bench = Bench::new().await;
    bench.spoil_claim("junk", 1).await;
    sent_and_taken(&bench, &bench.waiting()).await;
    let running = bench.start();
    bench.until_later(|| async { bench.starts() == 1 }).await;
    let since = bench.passed();
    assert!(
        since >= Duration::from_secs(65),
        "taken while it could be live: {since:?}"
    );
    assert!(since < Duration::from_secs(90), "{since:?}");
    let claim = bench.claim("a").await.expect("written before the start");
    assert_eq!(claim.record.starts, 2);
    bench.finish_one(running).await;
    bench.assert_tidy().await;
}

#[tokio::test]
async fn an_old_damaged_claim_is_taken_over_by_the_first_heartbeat_and_a_young_one_stops_the_task()
{
    for (age, starts) in [(66, 1), (0, 2)] {
        let bench = Bench::new().await;
        bench.spoil_claim("junk", 1).await;
        bench.clock.advance(Duration::from_secs(age));
        bench.send_task("a", &bench.waiting()).await;
        let running = bench.start();
        bench
            .until_later(|| async {
                let key = bench.layout.claim(&id(), &name("a"));
                let row = bench.store.rows.get(bench.layout.claims(), &key).await;
                let fields = row.unwrap().expect("never removed").fields;
                bench.starts() == starts && fields.get("starts") == Some(&Value::Int(2))
            })
            .await;
        bench.go();
        bench.until_posted(1).await;
        assert_eq!(running.drained().await.left, starts as u64 - 1);
        bench.assert_tidy().await;
    }
}

#[tokio::test]
async fn a_claim_of_a_newer_version_is_left_alone_and_its_message_given_back() {
    let bench = Bench::new().await;
    bench.spoil_claim("schema", 2).await;
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start();
    // It was started before it could know, is stopped at the first heartbeat, and comes back as a suspect.
    bench.until_a_slot_is_free().await;
    assert!(bench.passed() < Duration::from_secs(20), "the slot is free");
    let later = bench.env.mono().plus(Duration::from_secs(300));
    bench
        .until_later(|| async { bench.env.mono() >= later })
        .await;
    assert_eq!(bench.starts(), 1);
    bench.go();
    let summary = running.drained().await;
    assert_eq!((summary.left, summary.succeeded), (1, 1));
    assert!(summary.given_back > 0);
    let key = bench.layout.claim(&id(), &name("a"));
    let row = bench.store.rows.get(bench.layout.claims(), &key).await;
    let fields = row.unwrap().expect("left alone").fields;
    assert_eq!(fields, Fields::from([("schema".to_owned(), Value::Int(2))]));
}
