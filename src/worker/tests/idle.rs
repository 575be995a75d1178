//! What an idle worker asks for, and what a wall clock that jumps does to a task: nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::env::{Clock, Mono};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::layers::meter::Meter;

#[tokio::test]
async fn an_idle_worker_sends_at_most_13_requests_a_minute() {
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
    assert!((12 * MINUTES..=13 * MINUTES).contains(&sent), "{sent}");
    running.stop.drain.cancel();
    running.over().await;
}

/// When each receive of a task queue was sent.
type Receives = Arc<Mutex<Vec<Mono>>>;

/// Workers that start at the same moment, and their receives, which are throttled while the switch is on.
fn crowd(bench: &Bench, size: usize, slots: u16) -> (Vec<Running>, Receives, Arc<AtomicBool>) {
    let (receives, throttled) = (Receives::default(), Arc::new(AtomicBool::new(false)));
    let (seen, is_on, env) = (receives.clone(), throttled.clone(), bench.env.clone());
    let faults = Faults::script().hook(move |op, _| {
        if *op != Op::QueueReceive {
            return None;
        }
        seen.lock().unwrap().push(env.mono());
        is_on
            .load(Ordering::SeqCst)
            .then_some(Fault::Throttled(None))
    });
    let (store, _) = faults.wrap(bench.store.clone(), bench.env.clone());
    let config = Config {
        slots,
        ..Config::default()
    };
    let workers = (0..size).map(|_| bench.start_with(&store, config.clone()));
    (workers.collect(), receives, throttled)
}

#[tokio::test]
async fn fifty_idle_workers_look_at_different_moments_and_still_less_often_under_throttling() {
    const WORKERS: usize = 50;
    const MINUTES: usize = 3;
    let bench = Bench::new().await;
    let (workers, receives, throttled) = crowd(&bench, WORKERS, 1);
    let pass = async |secs| {
        let end = bench.env.mono().plus(Duration::from_secs(secs));
        bench
            .until_later(|| async { bench.env.mono() >= end })
            .await;
    };
    pass(30).await;
    receives.lock().unwrap().clear();
    pass(60 * MINUTES as u64).await;
    let idle = std::mem::take(&mut *receives.lock().unwrap());
    assert!(idle.len() <= 13 * WORKERS * MINUTES, "{}", idle.len());
    let mut at_once = BTreeMap::new();
    for at in &idle {
        *at_once.entry(at).or_insert(0) += 1;
    }
    // Time moves half a second at a time, and each worker looks once in about four.
    let most = at_once.values().max().unwrap();
    assert!(*most <= WORKERS / 2, "{most} at once");
    throttled.store(true, Ordering::SeqCst);
    pass(60).await;
    receives.lock().unwrap().clear();
    pass(60 * MINUTES as u64).await;
    let refused = receives.lock().unwrap().len();
    assert!(refused <= 4 * WORKERS * MINUTES, "{refused} under 503");
    assert!(refused >= WORKERS * MINUTES, "{refused}: they go on");
    for worker in workers {
        worker.drained().await;
    }
}

#[tokio::test]
async fn a_worker_looks_every_50_ms_for_a_second_and_a_half_after_a_task() {
    let bench = Bench::new().await;
    let (workers, receives, _) = crowd(&bench, 1, 1);
    bench.send(&bench.message("a", Bench::spec("true"))).await;
    bench.until_posted(1).await;
    let ended_at = bench.passed();
    let until = ended_at + Duration::from_millis(1_200);
    bench
        .until_advancing(Duration::from_millis(10), || async {
            bench.passed() >= until
        })
        .await;
    let from = Mono::new(ended_at + Duration::from_millis(200));
    let looks = receives
        .lock()
        .unwrap()
        .iter()
        .filter(|at| **at >= from)
        .count();
    // Half of that and more is chance; with pauses that double there were six.
    assert!((12..=60).contains(&looks), "{looks} in a second");
    for worker in workers {
        worker.drained().await;
    }
}

#[tokio::test]
async fn a_worker_rests_20_ms_after_a_receive_that_found_little() {
    let bench = Bench::new().await;
    let (workers, receives, _) = crowd(&bench, 1, 4);
    let step = Duration::from_millis(1);
    let seen = || receives.lock().unwrap().clone();
    bench
        .until_advancing(step, || async { !seen().is_empty() })
        .await;
    let before = seen().len();
    bench.send(&bench.message("a", Bench::spec("true"))).await;
    // One of the next two finds it.
    bench
        .until_advancing(step, || async { seen().len() >= before + 3 })
        .await;
    // All other pauses so soon after an event are shorter.
    let next = &seen()[before..before + 3];
    let longest = next.windows(2).map(|two| two[1].since(two[0])).max();
    let is_rest = longest.is_some_and(|longest| longest >= Duration::from_millis(20));
    assert!(is_rest, "{next:?}");
    bench
        .until_advancing(step, || async { bench.results_there().await == 1 })
        .await;
    for worker in workers {
        worker.drained().await;
    }
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
