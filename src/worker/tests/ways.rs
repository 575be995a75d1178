//! The ways out of the handler (P21), and what they leave.

use super::*;
use crate::engine::FailureKind;
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};

#[tokio::test]
async fn an_attempt_that_succeeds_is_posted_and_leaves_nothing() {
    let bench = Bench::new().await;
    let result = bench.run_one(Bench::spec("echo hello")).await;
    assert_eq!(result.report.outcome, Outcome::Succeeded);
    assert_eq!(result.report.exit_code, Some(0));
    assert!(result.report.started_at.is_some());
    assert_eq!(result.report.output, None);
    assert_eq!(result.report.stderr_tail, None);
    assert_eq!(
        (result.task, result.attempt_no),
        (name("a"), Attempt::new(1))
    );
    bench.assert_tidy().await;
}

#[tokio::test]
async fn an_attempt_that_fails_is_posted_with_code_and_end_of_standard_error() {
    let bench = Bench::new().await;
    let result = bench
        .run_one(Bench::spec("echo out; echo why >&2; exit 3"))
        .await;
    let failure = failure_of(&result);
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::Exit, "exit code 3")
    );
    assert!(!failure.is_final);
    assert_eq!(result.report.exit_code, Some(3));
    assert_eq!(result.report.stderr_tail.as_deref(), Some("why\n"));
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_time_limit_ends_an_attempt_as_timed_out() {
    let bench = Bench::new().await;
    let mut spec = Bench::spec("sleep 1000");
    spec.timeout_s = Some(30.0);
    bench.send(&bench.message("a", spec)).await;
    let running = bench.start();
    bench.until_posted(1).await;
    let result = bench.results(running, 1).await.remove(0);
    assert_eq!(failure_of(&result).kind, FailureKind::Timeout);
    assert_eq!(failure_of(&result).message, "timed out after 30 s");
    assert_eq!(result.report.exit_code, None);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn what_cannot_start_fails_with_the_reason() {
    let bench = Bench::new().await;
    let mut spec = Bench::spec("true");
    spec.cwd = Some("/no/such/folder".to_owned());
    let result = bench.run_one(spec).await;
    assert_eq!(failure_of(&result).kind, FailureKind::Spawn);
    assert!(failure_of(&result).message.contains("/no/such/folder"));
    assert_eq!(result.report.started_at, None);
}

#[tokio::test]
async fn a_message_of_a_newer_version_is_given_back_with_a_delay() {
    let bench = Bench::new().await;
    let json = r#"{"schema": 2, "news": true}"#;
    bench
        .send_text(&base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            json,
        ))
        .await;
    let running = bench.start();
    bench.send_task("a", "true").await;
    let results = bench.results(running, 1).await;
    assert_eq!(results.len(), 1);
    assert_eq!(bench.depth(&bench.queue).await, 1);
    assert_eq!(
        bench.store.queues.peek(&bench.queue, 1).await.unwrap(),
        Vec::<String>::new()
    );
    bench.clock.advance(Duration::from_secs(3));
    assert_eq!(
        bench
            .store
            .queues
            .peek(&bench.queue, 1)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn garbage_is_moved_to_the_poison_queue_and_the_messages_behind_it_run() {
    let bench = Bench::new().await;
    for garbage in ["hello", "", "bnVsbA==", &"A".repeat(64 * 1024)] {
        bench.send_text(garbage).await;
    }
    bench.send_task("a", "true").await;
    let results = bench.results(bench.start(), 1).await;
    assert_eq!(results.len(), 1);
    let poison = bench.layout.task_poison(&Config::default().queues[0]);
    assert_eq!(bench.depth(&poison).await, 4);
    let kept = bench.store.queues.peek(&poison, 4).await.unwrap();
    assert_eq!(kept[0], "hello");
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_missing_queue_is_made_and_served() {
    let bench = Bench::new().await;
    let other = QueueName::new("other").unwrap();
    let queues = vec![other.clone(), Config::default().queues[0].clone()];
    let config = Config {
        queues,
        ..Config::default()
    };
    let running = bench.start_with(&bench.store, config);
    let queue = bench.layout.task_queue(&other);
    bench
        .until_later(|| async { bench.store.queues.depth(&queue).await.is_ok() })
        .await;
    let body = encode_message(&bench.message("a", Bench::spec("true")));
    bench
        .store
        .queues
        .send(&queue, &body, Duration::ZERO)
        .await
        .unwrap();
    bench.until_posted(1).await;
    assert_eq!(bench.results(running, 1).await.len(), 1);
}

#[tokio::test]
async fn no_more_tasks_run_at_once_than_there_are_slots() {
    let bench = Bench::new().await;
    for task in TASKS {
        bench.send_task(task, &bench.waiting()).await;
    }
    let config = Config {
        slots: 2,
        ..Config::default()
    };
    let running = bench.start_with(&bench.store, config);
    bench.until_started(2).await;
    let visible = bench.store.queues.peek(&bench.queue, 32).await.unwrap();
    assert_eq!(visible.len(), 2, "what has no slot stays visible");
    assert_eq!(bench.starts(), 2);
    bench.go();
    assert_eq!(bench.results(running, 4).await.len(), 4);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_worker_with_nothing_to_do_ends_at_its_idle_time_out() {
    let bench = Bench::new().await;
    bench.send_task("a", "true").await;
    let config = Config {
        idle_timeout: Some(Duration::from_secs(30)),
        ..Config::default()
    };
    let running = bench.start_with(&bench.store, config);
    let completions = bench.layout.completions();
    bench
        .until(|| async { bench.depth(completions).await == 1 })
        .await;
    bench.until_later(|| async { running.is_over() }).await;
    assert_eq!(running.over().await.succeeded, 1);
    assert!(bench.env.wall() >= Timestamp::UNIX_EPOCH + Duration::from_secs(30));
}

/// Else it comes back, perhaps before the state tells that it is old.
#[tokio::test]
async fn a_message_whose_removal_is_throttled_is_removed_all_the_same() {
    let bench = Bench::new().await;
    let busy = Fault::Throttled(Some(Duration::from_secs(1)));
    let faults = (1..6).fold(Faults::script(), |faults, nth| {
        faults.on(Op::QueueDelete, nth, busy)
    });
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", "true").await;
    let running = bench.start_with(&store, Config::default());
    bench
        .until_later(|| async { injector.happened() == 5 })
        .await;
    running.stop.drain.cancel();
    bench.until_later(|| async { running.is_over() }).await;
    assert_eq!(running.over().await.succeeded, 1);
    assert_eq!(bench.posted().await.len(), 1);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn who_waits_for_the_removal_of_a_message_holds_no_slot_and_no_more_of_them_than_slots() {
    let bench = Bench::new().await;
    let faults = Faults::script()
        .hook(|op, _| (*op == Op::QueueDelete).then_some(Fault::Hang(Duration::from_secs(1000))));
    let (store, _) = faults.wrap(bench.store.clone(), bench.env.clone());
    for task in &TASKS[..3] {
        bench.send_task(task, "true").await;
    }
    let running = bench.start_with(&store, Config::default());
    let completions = bench.layout.completions();
    bench
        .until_later(|| async { bench.depth(completions).await == 2 })
        .await;
    let end = bench.env.mono().plus(Duration::from_secs(10));
    bench
        .until_later(|| async { bench.env.mono() >= end })
        .await;
    let visible = bench.store.queues.peek(&bench.queue, 32).await.unwrap();
    assert_eq!(visible.len(), 1, "one slot, and one that only tidies up");
    running.stop.drain.cancel();
    running.stop.kill.cancel();
    bench.until_later(|| async { running.is_over() }).await;
    assert_eq!(running.over().await.succeeded, 2);
}
