//! What large workflows cost, and many: time, processor time, memory, bytes of state.
//!
//! `cargo bench --bench large [-- TASKS]`. One workflow of 100,000 tasks, or so many, for each shape: first with all in this process over
//! the store in memory, then with a coordinator process of its own over an emulator (needs Node 20). Then many workflows, on the emulator
//! too. All are submitted before the coordinator starts. The commands of the tasks do nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints what it measures, and one that cannot go on fails"
)]

use std::process::{Command, Stdio};
use std::time::Duration;

use dagaz::definition::Definition;
use dagaz::env::real;
use dagaz::protocol::{Layout, leader};
use dagaz::store::azure::{AzureConfig, AzureStore};
use dagaz::store::layers::Op;
use dagaz::store::layers::meter::Meter;
use dagaz::store::memory::MemoryStore;
use dagaz::worker;
use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use bench::{Place, shape, used, with_a_join};

mod bench;

/// Slots of the one worker.
const SLOTS: u16 = 64;

fn shapes(count: usize) -> [(&'static str, Definition); 3] {
    [
        ("flat", shape(count, |_| vec![])),
        (
            "layered",
            // Layers of a thousand; each task waits for two of the layer above.
            shape(count, |place| match place.checked_sub(1_000) {
                Some(above) => vec![above, above / 1_000 * 1_000 + (above + 1) % 1_000],
                None => vec![],
            }),
        ),
        ("join", with_a_join(count - 1)),
    ]
}

async fn until_all_ended(place: &Place) {
    let (rows, index) = (&place.store.rows, place.layout.index());
    let ended = async || {
        rows.query(index, Layout::OPEN, None)
            .await
            .unwrap()
            .items
            .is_empty()
    };
    place.until("the end", 200, ended).await;
}

async fn in_memory(name: &str, definition: &Definition) {
    let env = real::env();
    let (stop, worker_stop) = (CancellationToken::new(), worker::Stop::default());
    let place = Place::new(MemoryStore::open(env.clone()), &env, "bench").await;
    let (store, meter) = Meter::wrap(place.store.clone());
    let worker = place.worker(place.store.clone(), SLOTS, &worker_stop);
    place.submit("bench", definition).await;
    let (began, (cpu, _)) = (env.mono(), used("self"));
    let coordinator = place.coordinator(store, None, &stop);
    until_all_ended(&place).await;
    let took = env.mono().since(began).as_secs_f64();
    let (cpu_after, _) = used("self");
    stop.cancel();
    worker_stop.drain.cancel();
    coordinator.join().await;
    worker.join().await;
    let tasks = definition.tasks.len() as f64;
    let counts = meter.snapshot();
    let of = |op: Op| counts.get(&op).copied().unwrap_or_default();
    let requests = counts.values().map(|count| count.requests).sum::<u64>() as f64;
    println!(
        "memory {name:<8} {took:>6.1} s {:>6.0} us of processor time a task, worker and store included; coordinator: {:.2} requests a task, {} state writes, {:.0} bytes of blobs a task",
        (cpu_after - cpu) * 1e6 / tasks,
        requests / tasks,
        of(Op::BlobPut).requests,
        of(Op::BlobPut).sent as f64 / tasks,
    );
}

async fn on_the_emulator(name: &str, count: usize, definition: &Definition) {
    let env = real::env();
    let connection = bench::azurite::azurite().connection_string();
    let (config, _) = AzureConfig::resolve("bench", Some(&connection)).unwrap();
    let store = AzureStore::open(&config, env.clone()).unwrap();
    let prefix = format!("large{name}");
    let place = Place::new(store, &env, &prefix).await;
    let worker_stop = worker::Stop::default();
    let worker = place.worker(place.store.clone(), SLOTS, &worker_stop);
    let ids: Vec<_> = (0..count).map(|number| format!("bench-{number}")).collect();
    let submits = ids.iter().map(|id| place.submit(id, definition));
    futures::stream::iter(submits)
        .buffer_unordered(16)
        .collect::<Vec<_>>()
        .await;
    let began = env.mono();
    let mut coordinator = Command::new(env!("CARGO_BIN_EXE_workflow"))
        .args([
            "coordinator",
            "--prefix",
            &prefix,
            "--stats-interval-s",
            "1",
        ])
        .env("AZURE_STORAGE_CONNECTION_STRING", &connection)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until_all_ended(&place).await;
    let took = env.mono().since(began).as_secs_f64();
    env.sleep(Duration::from_secs(12)).await;
    let (cpu, peak) = used(&coordinator.id().to_string());
    let statistics = leader(&place.store, &place.layout)
        .await
        .unwrap()
        .unwrap()
        .0
        .statistics;
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    worker_stop.drain.cancel();
    worker.join().await;
    let tasks = (count * definition.tasks.len()) as f64;
    let told = |name: &str| statistics.get(name).copied().unwrap_or_default() as f64;
    println!(
        "emulator {name:<12} {took:>6.1} s {:>6.0} tasks/s; coordinator: {:.0} us of processor time a task, at most {peak:.0} MiB, {} state writes, {:.1} MiB of states, {:.0} bytes a task",
        tasks / took,
        cpu * 1e6 / tasks,
        told("state_writes"),
        told("state_bytes") / 1_048_576.0,
        told("state_bytes") / tasks,
    );
}

#[tokio::main]
async fn main() {
    let count = std::env::args().find_map(|word| word.parse().ok());
    let shapes = shapes(count.unwrap_or(100_000));
    for (name, definition) in &shapes {
        in_memory(name, definition).await;
    }
    for (name, definition) in &shapes {
        on_the_emulator(name, 1, definition).await;
    }
    on_the_emulator("1x10000", 1, &shape(10_000, |_| vec![])).await;
    on_the_emulator("500x20", 500, &shape(20, |_| vec![])).await;
    on_the_emulator(
        "10000x3",
        10_000,
        &shape(3, |place| place.checked_sub(1).into_iter().collect()),
    )
    .await;
}
