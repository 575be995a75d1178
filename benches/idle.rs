//! What waiting costs: requests a minute of services with nothing to do and of who watches, and how soon the next workflow begins.
//!
//! `cargo bench --bench idle [-- MINUTES]`: after five quiet minutes, or so many, counts for as long again, on an emulator of its own
//! (needs Node 20). One coordinator and one worker have nothing to do at all; on another prefix others have one task that sleeps, and a
//! watcher.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints what it measures, and one that cannot go on fails"
)]

use std::time::Duration;

use dagaz::definition::{Command, WorkflowId};
use dagaz::protocol::read_runtime;
use dagaz::store::Store;
use dagaz::store::layers::meter::Meter;

use bench::figures::{by_kind, requests};
use bench::shapes::flat;
use bench::{Coordinator, On, Place, Work, Worker};

#[expect(dead_code, reason = "other benchmarks use the rest")]
mod bench;

const QUIET_MINUTES: f64 = 5.0;

/// Watches as `workflow watch` does.
async fn watch(place: &Place, store: Store, id: &WorkflowId) {
    let watch = place.client(store).watch(id, None).await;
    let mut watch = watch.unwrap();
    while watch.next().await.unwrap().is_some() {}
    panic!("what is watched has ended");
}

/// From a submit to the start of its task, in seconds.
async fn first_start(place: &Place) -> (f64, f64) {
    let began = place.env.wall();
    let id = place.submit("bench", &flat(1)).await;
    let submitted = place.env.wall();
    place
        .until("the end", 50, async || place.all_ended().await)
        .await;
    place.check(std::slice::from_ref(&id)).await;
    let state = read_runtime(&place.store, &place.layout, &id).await;
    let mut tasks = state.unwrap().unwrap().record.tasks;
    let report = tasks.remove(0).report.unwrap();
    let since = |began| {
        let started = report.started_at.unwrap();
        started.duration_since(began).as_secs_f64()
    };
    (since(began), since(submitted))
}

#[tokio::main]
async fn main() {
    let minutes = std::env::args().find_map(|word| word.parse().ok());
    let minutes: f64 = minutes.unwrap_or(QUIET_MINUTES);
    let quiet = Duration::from_secs_f64(minutes * 60.0);

    let idle = Place::new(On::Emulator, "idle").await;
    let idle_coordinator = Coordinator::usual(&idle);
    let idle_worker = Worker::start(&idle, 1, Work::Nothing);

    let busy = Place::new(On::Emulator, "busy").await;
    let busy_coordinator = Coordinator::usual(&busy);
    let busy_worker = Worker::start(&busy, 1, Work::Processes);
    let mut sleeper = flat(1);
    sleeper.tasks[0].cmd = Command::Exec(vec!["sleep".to_owned(), "86400".to_owned()]);
    let id = busy.submit("bench", &sleeper).await;
    let (store, watcher) = Meter::wrap(busy.store.clone());

    let meters = [
        ("coordinator, nothing to do", &idle_coordinator.meter),
        ("worker, nothing to do", &idle_worker.meter),
        ("coordinator, one task runs", &busy_coordinator.meter),
        ("worker, one task runs", &busy_worker.meter),
        ("watcher of that workflow", &watcher),
    ];
    let count = async {
        idle.env.sleep(quiet).await;
        for (_, meter) in meters {
            meter.take();
        }
        idle.env.sleep(quiet).await;
        meters.map(|(name, meter)| (name, meter.take()))
    };
    let counts = tokio::select! {
        biased;
        counts = count => counts,
        () = watch(&busy, store, &id) => return,
    };
    println!("requests a minute, over {minutes} minutes after {minutes} quiet ones");
    for (name, counts) in counts {
        println!(
            "  {name:<26} {:>6.1}: {}",
            requests(&counts) / minutes,
            by_kind(&counts, minutes)
        );
    }
    let (since_call, since_return) = first_start(&idle).await;
    println!(
        "after that, from a submit to the start of its task {since_call:.2} s, {since_return:.2} s of it after the submit returned"
    );
    busy_worker.end().await;
    busy_coordinator.end().await;
    idle_worker.end().await;
    idle_coordinator.end().await;
}
