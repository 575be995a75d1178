//! Posting and uploading through faults (P21, P32).

use super::*;
use crate::engine::{FailureKind, Output};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};

#[tokio::test]
async fn a_completion_that_cannot_be_posted_for_a_while_is_posted_in_the_end() {
    let bench = Bench::new().await;
    let faults = (1..=9).fold(Faults::script(), |faults, nth| {
        faults.on(Op::QueueSend, nth, Fault::RequestLost)
    });
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", "true").await;
    let running = bench.start_with(&store, Config::default());
    bench.until_posted(1).await;
    // Nine pauses doubling from a second take minutes, which the message outlasts by its heartbeats.
    assert!(bench.env.wall() > Timestamp::UNIX_EPOCH + Duration::from_secs(120));
    assert_eq!(injector.happened(), 9);
    let results = bench.results(running, 1).await;
    assert_eq!(results.len(), 1);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_worker_that_cannot_post_takes_no_new_task() {
    let bench = Bench::new().await;
    let faults =
        Faults::script().hook(|op, _| (*op == Op::QueueSend).then_some(Fault::RequestLost));
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", "true").await;
    let config = Config {
        slots: 2,
        ..Config::default()
    };
    let running = bench.start_with(&store, config);
    bench
        .until_later(|| async { injector.happened() > 2 })
        .await;
    bench.send_task("b", &bench.waiting()).await;
    bench
        .until_later(|| async { injector.happened() > 4 })
        .await;
    assert_eq!(bench.starts(), 0);
    running.stop.kill.cancel();
    running.stop.drain.cancel();
    bench.until_later(|| async { running.is_over() }).await;
}

#[tokio::test]
async fn a_completion_that_can_never_be_posted_leaves_the_message_to_come_back() {
    let bench = Bench::new().await;
    let faults =
        Faults::script().hook(|op, _| (*op == Op::QueueSend).then_some(Fault::RequestLost));
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", "true").await;
    let config = Config {
        completion_send_max_attempts: 3,
        ..Config::default()
    };
    let running = bench.start_with(&store, config);
    bench
        .until_later(|| async { injector.happened() == 3 })
        .await;
    let summary = running.drained().await;
    assert_eq!((summary.left, summary.succeeded), (1, 0));
    assert_eq!(bench.depth(&bench.queue).await, 1);
    assert_eq!(bench.posted().await, []);
}

#[tokio::test]
async fn an_upload_whose_reply_was_lost_is_not_taken_for_a_rivals() {
    let bench = Bench::new().await;
    let faults = Faults::script().on(Op::BlobPut, 1, Fault::ReplyLost);
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    let command = r#"printf '"%05000d"' 7 > $WORKFLOW_OUTPUT"#;
    bench.go();
    bench
        .send_task("a", &format!("{}; {command}", bench.waiting()))
        .await;
    let running = bench.start_with(&store, Config::default());
    bench.until_posted(1).await;
    assert_eq!(injector.happened(), 1);
    let results = bench.results(running, 1).await;
    assert_eq!(results[0].report.output, Some(Output::Blob(5002)));
    assert_eq!(bench.starts(), 1);
}

#[tokio::test]
async fn an_output_that_is_refused_for_good_fails_the_attempt_and_is_never_a_success() {
    let bench = Bench::new().await;
    let store = Store {
        blobs: Arc::new(denied::DeniedBlobs::for_puts(u32::MAX, &bench.store)),
        ..bench.store.clone()
    };
    bench
        .send_task("a", r#"printf '"%05000d"' 7 > $WORKFLOW_OUTPUT"#)
        .await;
    let running = bench.start_with(&store, Config::default());
    bench.until_posted(1).await;
    let results = bench.results(running, 1).await;
    let failure = failure_of(&results[0]);
    assert_eq!(failure.kind, FailureKind::Upload);
    assert!(
        failure.message.contains("access denied"),
        "{}",
        failure.message
    );
    assert_eq!(results[0].report.output, None);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_refusal_of_a_few_minutes_is_waited_out() {
    let bench = Bench::new().await;
    let store = Store {
        blobs: Arc::new(denied::DeniedBlobs::for_puts(7, &bench.store)),
        ..bench.store.clone()
    };
    bench
        .send_task("a", r#"printf '"%05000d"' 7 > $WORKFLOW_OUTPUT"#)
        .await;
    let running = bench.start_with(&store, Config::default());
    bench.until_posted(1).await;
    let results = bench.results(running, 1).await;
    assert_eq!(results[0].report.outcome, Outcome::Succeeded);
    bench.assert_tidy().await;
}

#[tokio::test]
async fn receive_errors_end_nothing_and_the_work_goes_on_after_them() {
    let bench = Bench::new().await;
    let faults = (1..=6).fold(Faults::script(), |faults, nth| {
        faults.on(Op::QueueReceive, nth, Fault::RequestLost)
    });
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", "true").await;
    let config = Config {
        idle_timeout: Some(Duration::from_secs(1)),
        ..Config::default()
    };
    let running = bench.start_with(&store, config);
    bench.until_posted(1).await;
    assert_eq!(injector.happened(), 6);
    assert_eq!(bench.results(running, 1).await.len(), 1);
}

#[tokio::test]
async fn a_wait_of_a_day_that_the_service_asks_for_is_cut_to_half_a_minute() {
    let bench = Bench::new().await;
    let day = Duration::from_secs(86_400);
    let faults = Faults::script().on(Op::QueueReceive, 1, Fault::Throttled(Some(day)));
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send_task("a", "true").await;
    let asked = bench.env.mono();
    let running = bench.start_with(&store, Config::default());
    bench.until_posted(1).await;
    let waited = bench.env.mono().since(asked);
    assert_eq!(injector.happened(), 1);
    assert_eq!(bench.results(running, 1).await.len(), 1);
    assert!(
        (Duration::from_secs(30)..Duration::from_secs(60)).contains(&waited),
        "{waited:?}"
    );
}

#[tokio::test]
async fn a_worker_in_the_middle_of_an_outage_ends_at_once_when_told() {
    let bench = Bench::new().await;
    let faults = Faults::script().hook(|_, _| Some(Fault::RequestLost));
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    let running = bench.start_with(&store, Config::default());
    bench
        .until_later(|| async { injector.happened() > 6 })
        .await;
    running.stop.drain.cancel();
    // No time passes on its clock.
    bench.until(|| async { running.is_over() }).await;
}

mod denied {
    //! Blobs of an account on which a role is missing.

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use bytes::Bytes;

    use crate::store::{
        Blob, BlobPath, Blobs, Container, Continuation, ETag, Expect, Kind, LeaseId, Listed, Page,
        Result, Store, StoreError,
    };

    /// Denies so many puts, and all else that writes.
    #[derive(Debug)]
    pub(super) struct DeniedBlobs(Arc<dyn Blobs>, AtomicU32);

    impl DeniedBlobs {
        pub(super) fn for_puts(puts: u32, store: &Store) -> Self {
            Self(store.blobs.clone(), AtomicU32::new(puts))
        }
    }

    fn denied<T>() -> Result<T> {
        Err(StoreError::new(Kind::Denied, "put blob", "no role"))
    }

    #[async_trait]
    impl Blobs for DeniedBlobs {
        async fn create_container(&self, _: &Container) -> Result<()> {
            denied()
        }
        async fn get(&self, path: &BlobPath) -> Result<Option<Blob>> {
            self.0.get(path).await
        }
        async fn put(
            &self,
            path: &BlobPath,
            body: Bytes,
            expect: &Expect,
            lease: Option<LeaseId>,
        ) -> Result<ETag> {
            let one_less = |left: u32| left.checked_sub(1);
            match (self.1).fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) {
                Ok(_) => denied(),
                Err(_) => self.0.put(path, body, expect, lease).await,
            }
        }
        async fn delete(&self, _: &BlobPath, _: &ETag) -> Result<()> {
            denied()
        }
        async fn list(
            &self,
            container: &Container,
            prefix: &str,
            after: Option<&Continuation>,
        ) -> Result<Page<Listed>> {
            self.0.list(container, prefix, after).await
        }
        async fn acquire_lease(&self, _: &BlobPath, _: LeaseId, _: u8) -> Result<()> {
            denied()
        }
        async fn renew_lease(&self, _: &BlobPath, _: LeaseId) -> Result<()> {
            denied()
        }
        async fn release_lease(&self, _: &BlobPath, _: LeaseId) -> Result<()> {
            denied()
        }
        async fn break_lease(&self, _: &BlobPath) -> Result<()> {
            denied()
        }
    }
}
