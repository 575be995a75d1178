//! What an idle worker asks for, and what a wall clock that jumps does to a task: nothing.

use super::*;
use crate::env::{Clock, Mono};
use crate::store::layers::meter::Meter;

#[tokio::test]
async fn an_idle_worker_sends_at_most_24_requests_a_minute() {
    const MINUTES: u64 = 5;
    let bench = Bench::new().await;
    let (store, meter) = Meter::wrap(bench.store.clone());
    let running = bench.start_with(&store, Config::default());
    let pass = async |secs| {
        let end = bench.env.mono().plus(Duration::from_secs(secs));
        bench
            .until_later(|| async { bench.env.mono() >= end })
            .await;
    };
    pass(30).await;
    let before = meter.total().requests;
    pass(MINUTES * 60).await;
    let sent = meter.total().requests - before;
    assert!((12 * MINUTES..=24 * MINUTES).contains(&sent), "{sent}");
    running.stop.drain.cancel();
    running.over().await;
}

/// A clock whose wall can be set.
#[derive(Debug)]
struct Settable {
    inner: Arc<dyn Clock>,
    ahead: Mutex<jiff::SignedDuration>,
}

impl Clock for Settable {
    fn wall(&self) -> Timestamp {
        self.inner.wall() + *self.ahead.lock().unwrap()
    }

    fn mono(&self) -> Mono {
        self.inner.mono()
    }

    fn sleep(&self, duration: Duration) -> futures::future::BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }
}

#[tokio::test]
async fn a_clock_that_is_set_during_a_task_neither_ends_nor_loses_it() {
    for hours in [1, -1] {
        let mut bench = Bench::new().await;
        // Far enough from the epoch to be set back.
        bench.clock.advance(Duration::from_secs(1_000_000));
        let clock = Arc::new(Settable {
            inner: Arc::clone(&bench.env.clock),
            ahead: Mutex::default(),
        });
        bench.env.clock = clock.clone();
        let mut spec = Bench::spec(&bench.waiting());
        spec.timeout_s = Some(60.0);
        bench.send(&bench.message("a", spec)).await;
        let running = bench.start();
        bench.until_started(1).await;
        *clock.ahead.lock().unwrap() = jiff::SignedDuration::from_hours(hours);
        let end = bench.env.mono().plus(Duration::from_secs(30));
        bench
            .until_later(|| async { bench.env.mono() >= end })
            .await;
        bench.go();
        let results = bench.results(running, 1).await;
        let report = &results[0].report;
        assert_eq!(report.outcome, Outcome::Succeeded);
        assert_eq!(bench.starts(), 1);
        bench.assert_tidy().await;
    }
}
