//! Cancels, drains and kills.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults, Injector};
use crate::store::layers::meter::{Count, Meter};

/// Asserts that a task sent now is posted as cancelled and never starts.
async fn assert_ends_unstarted(bench: &Bench) {
    bench.send_task("a", &bench.waiting()).await;
    let results = bench.results(bench.start(), 1).await;
    assert_eq!(
        results[0].report.outcome,
        Outcome::Cancelled(Generation::FIRST)
    );
    assert_eq!((results[0].report.started_at, bench.starts()), (None, 0));
    bench.assert_tidy().await;
}

/// Asserts that a task of the second generation runs as if nothing had been asked.
async fn assert_the_next_generation_runs(bench: &Bench) {
    let mut message = bench.message("a", Bench::spec("true"));
    message.generation = Generation::new(2);
    let mut row = bench.row();
    row.generation = Generation::new(2);
    bench.write_row(&row).await;
    bench.send(&message).await;
    let results = bench.results(bench.start(), 1).await;
    assert_eq!(results[0].report.outcome, Outcome::Succeeded);
}

#[tokio::test]
async fn a_cancel_stops_the_running_tasks_of_its_workflow_alone_within_the_interval() {
    let bench = Bench::new().await;
    bench.send_task("a", "sleep 1000").await;
    let mut other = bench.message("a", Bench::spec(&bench.waiting()));
    other.workflow_id = WorkflowId::new("other").unwrap();
    let mut row = bench.row();
    row.workflow_id = other.workflow_id.clone();
    let key = bench.layout.open_row(&row.workflow_id);
    let fields = fields_of(&row);
    let rows = &bench.store.rows;
    let write = rows.write(bench.layout.index(), &key, &fields, &Expect::Absent);
    write.await.unwrap();
    bench.send(&other).await;
    let config = Config {
        slots: 4,
        ..Config::default()
    };
    let running = bench.start_with(&bench.store, config);
    bench.until_started(1).await;
    bench.request_cancel().await;
    bench.until_posted(1).await;
    let since = bench.passed();
    assert!(since < Duration::from_secs(90), "{since:?}");
    let cancelled = bench.posted().await.remove(0);
    assert_eq!(
        cancelled.report.outcome,
        Outcome::Cancelled(Generation::FIRST)
    );
    assert_eq!(cancelled.workflow_id, id());
    bench.go();
    let results = bench.results(running, 2).await;
    assert_eq!(results[0].report.outcome, Outcome::Succeeded);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn what_was_cancelled_before_its_start_is_posted_and_never_starts() {
    let bench = Bench::new().await;
    bench.request_cancel().await;
    assert_ends_unstarted(&bench).await;
}

#[tokio::test]
async fn a_cancel_of_an_earlier_generation_stops_nothing() {
    let bench = Bench::new().await;
    bench.request_cancel().await;
    assert_the_next_generation_runs(&bench).await;
}

#[tokio::test]
async fn a_stop_ends_the_running_tasks_but_those_that_survive_it() {
    let bench = Bench::new().await;
    let pid = bench.file("pid");
    let long = format!("echo $$ > {}; sleep 1000", pid.display());
    bench.send_task("a", &long).await;
    let mut cleanup = bench.message("b", Bench::spec(&bench.waiting()));
    cleanup.survives_stop = true;
    bench.send(&cleanup).await;
    let config = Config {
        slots: 4,
        ..Config::default()
    };
    let running = bench.start_with(&bench.store, config);
    bench.until_started(1).await;
    bench
        .until(|| async { std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')) })
        .await;
    bench.show_stop().await;
    bench.until_posted(1).await;
    let stopped = bench.posted().await.remove(0);
    assert_eq!(
        (stopped.task.as_str(), &stopped.report.outcome),
        ("a", &Outcome::Cancelled(Generation::FIRST))
    );
    let pid = std::fs::read_to_string(&pid).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
    bench.go();
    let results = bench.results(running, 2).await;
    assert_eq!(results[0].report.outcome, Outcome::Succeeded);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_cancel_during_a_stop_ends_what_survived_it() {
    let bench = Bench::new().await;
    bench.show_stop().await;
    let mut cleanup = bench.message("a", Bench::spec(&bench.waiting()));
    cleanup.survives_stop = true;
    bench.send(&cleanup).await;
    let running = bench.start();
    bench.until_started(1).await;
    bench.request_cancel().await;
    bench.until_posted(1).await;
    let results = bench.results(running, 1).await;
    assert_eq!(
        results[0].report.outcome,
        Outcome::Cancelled(Generation::FIRST)
    );
}

#[tokio::test]
async fn what_was_stopped_before_its_start_is_posted_and_never_starts() {
    let bench = Bench::new().await;
    bench.show_stop().await;
    assert_ends_unstarted(&bench).await;
}

#[tokio::test]
async fn a_stop_of_an_earlier_generation_stops_nothing() {
    let bench = Bench::new().await;
    bench.show_stop().await;
    assert_the_next_generation_runs(&bench).await;
}

/// The row may show a stop later than the state has it: a second copy is judged by the state.
#[tokio::test]
async fn a_second_copy_is_not_started_after_a_stop_in_the_state() {
    for survives_stop in [false, true] {
        let bench = Bench::new().await;
        let stop = StopAfter {
            task: TaskIx::new(3),
            grace_used_ms: 0,
        };
        bench.set_stopped("dddf", Some(stop)).await;
        let mut message = bench.message("a", Bench::spec("true"));
        message.again = true;
        message.survives_stop = survives_stop;
        bench.send(&message).await;
        let running = bench.start();
        bench.until_posted(1).await;
        let expected = if survives_stop {
            Outcome::Succeeded
        } else {
            Outcome::Cancelled(Generation::FIRST)
        };
        assert_eq!(bench.results(running, 1).await[0].report.outcome, expected);
    }
}

#[tokio::test]
async fn the_cancel_flag_is_read_once_for_many_short_tasks() {
    let bench = Bench::new().await;
    let (store, meter) = Meter::wrap(bench.store.clone());
    for task in TASKS {
        bench.send_task(task, "true").await;
    }
    let running = bench.start_with(&store, Config::default());
    assert_eq!(bench.results(running, 4).await.len(), 4);
    let counts = meter.snapshot();
    let of = |op| counts.get(&op).map_or(0, |count: &Count| count.requests);
    assert_eq!(of(Op::RowGet), 1);
    assert_eq!(
        (of(Op::RowWrite), of(Op::BlobGet), of(Op::QueueExtend)),
        (0, 0, 0)
    );
    assert_eq!((of(Op::QueueSend), of(Op::QueueDelete)), (4, 4));
}

#[tokio::test]
async fn a_draining_worker_lets_running_tasks_end_and_takes_no_new_one() {
    let bench = Bench::new().await;
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start();
    bench.until_started(1).await;
    bench.send_task("b", "true").await;
    running.stop.drain.cancel();
    bench.go();
    let summary = running.over().await;
    assert_eq!((summary.succeeded, summary.interrupted), (1, 0));
    assert_eq!(bench.posted().await.len(), 1);
    assert_eq!(bench.depth(&bench.queue).await, 1);
}

#[tokio::test]
async fn what_outlasts_the_drain_is_visible_at_once_and_costs_no_start() {
    let bench = Bench::new().await;
    bench.send_task("a", &bench.waiting()).await;
    let running = bench.start();
    bench.until_started(1).await;
    running.stop.drain.cancel();
    bench.until_later(|| async { running.is_over() }).await;
    assert_eq!(running.over().await.interrupted, 1);
    assert_eq!(bench.posted().await, []);
    let visible = bench.store.queues.peek(&bench.queue, 1).await.unwrap();
    assert_eq!(visible.len(), 1);
    let claim = bench.claim("a").await.unwrap();
    assert_eq!(
        (
            claim.record.freed,
            claim.record.interruptions,
            claim.record.starts
        ),
        (true, 1, 1)
    );
    // The next worker takes it at once, as the same attempt.
    let second = bench.start();
    bench.until_started(2).await;
    let claim = bench.claim("a").await.unwrap();
    assert_eq!(
        (
            claim.record.freed,
            claim.record.interruptions,
            claim.record.starts
        ),
        (false, 1, 1)
    );
    bench.go();
    let results = bench.results(second, 1).await;
    assert_eq!(results[0].report.outcome, Outcome::Succeeded);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn an_attempt_that_was_interrupted_too_often_fails() {
    let bench = Bench::new().await;
    bench.send_task("a", &bench.waiting()).await;
    let config = Config {
        max_interruptions: 1,
        ..Config::default()
    };
    let running = bench.start_with(&bench.store, config);
    bench.until_started(1).await;
    running.stop.drain.cancel();
    bench.until_later(|| async { running.is_over() }).await;
    let results = bench.posted().await;
    assert_eq!(
        failure_of(&results[0]).kind,
        crate::engine::FailureKind::Interruptions
    );
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_kill_returns_at_once_and_leaves_no_process() {
    let bench = Bench::new().await;
    bench
        .send_task(
            "a",
            &format!(
                "trap '' TERM; echo $$ > {}; {}",
                bench.file("pid").display(),
                bench.waiting()
            ),
        )
        .await;
    let running = bench.start();
    bench.until_started(1).await;
    let pid = std::fs::read_to_string(bench.file("pid")).unwrap();
    running.stop.drain.cancel();
    running.stop.kill.cancel();
    // No time passes on its clock.
    bench.until(|| async { running.is_over() }).await;
    assert_eq!(running.over().await.left, 1);
    bench
        .until(|| async { !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists() })
        .await;
    assert_eq!(bench.posted().await, []);
}

/// A store whose requests of these kinds meet `fault` once the switch is on.
fn store_that_fails(
    bench: &Bench,
    ops: &'static [Op],
    fault: Fault,
) -> (Store, Arc<Injector>, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    let is_on = switch.clone();
    let faults = Faults::script()
        .hook(move |op, _| (ops.contains(op) && is_on.load(SeqCst)).then_some(fault));
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    (store, injector, switch)
}

#[tokio::test]
async fn the_drain_time_counts_from_the_signal_also_while_a_receive_hangs() {
    let bench = Bench::new().await;
    let hang = Fault::Hang(Duration::from_secs(1000));
    let (store, injector, hangs) = store_that_fails(&bench, &[Op::QueueReceive], hang);
    bench.send_task("a", &bench.waiting()).await;
    let config = Config {
        slots: 2,
        ..Config::default()
    };
    let running = bench.start_with(&store, config);
    bench.until_started(1).await;
    hangs.store(true, SeqCst);
    bench
        .until_later(|| async { injector.happened() == 1 })
        .await;
    running.stop.drain.cancel();
    bench
        .until_later(|| async {
            bench
                .claim("a")
                .await
                .is_some_and(|claim| claim.record.freed)
        })
        .await;
    let since = bench.passed();
    assert!(since < Duration::from_secs(500), "{since:?}");
    bench.until_later(|| async { running.is_over() }).await;
    assert_eq!(running.over().await.interrupted, 1);
}

#[tokio::test]
async fn a_worker_that_is_told_to_go_at_once_waits_for_no_receive() {
    let bench = Bench::new().await;
    let hang = Fault::Hang(Duration::from_secs(1000));
    let (store, injector, hangs) = store_that_fails(&bench, &[Op::QueueReceive], hang);
    hangs.store(true, SeqCst);
    let running = bench.start_with(&store, Config::default());
    bench.until(|| async { injector.happened() == 1 }).await;
    running.stop.drain.cancel();
    running.stop.kill.cancel();
    // No time passes on its clock.
    bench.until(|| async { running.is_over() }).await;
}

#[tokio::test]
async fn a_worker_that_must_go_tries_its_last_requests_once() {
    let bench = Bench::new().await;
    let last = &[Op::RowWrite, Op::QueueExtend];
    let (store, injector, fails) = store_that_fails(&bench, last, Fault::RequestLost);
    bench.send_task("a", &bench.waiting()).await;
    let config = Config {
        drain_timeout: Duration::ZERO,
        ..Config::default()
    };
    let running = bench.start_with(&store, config);
    bench.until_started(1).await;
    fails.store(true, SeqCst);
    running.stop.drain.cancel();
    // Whoever waits for the end of its processes needs some time.
    let step = Duration::from_millis(1);
    bench
        .until_advancing(step, || async { running.is_over() })
        .await;
    assert_eq!(running.over().await.interrupted, 1);
    assert_eq!(injector.happened(), 2);
}
