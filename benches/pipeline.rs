//! What a whole pipeline costs: requests per task, and how fast the coordinator takes completions.
//!
//! `cargo bench --bench pipeline`. Starts an emulator of its own (needs Node 20); the commands of the tasks do nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints what it measures, and one that cannot go on fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use dagaz::coordinator::MAX_OUTSTANDING_EMULATOR;
use dagaz::definition::WorkflowId;
use dagaz::engine::AttemptReport;
use dagaz::env::real;
use dagaz::protocol::{read_row, read_runtime};
use dagaz::store::azure::{AzureConfig, AzureStore};
use dagaz::store::layers::Op;
use dagaz::store::layers::meter::{Count, Meter};
use dagaz::store::memory::MemoryStore;
use dagaz::store::{ETag, Expect, Store};
use dagaz::worker;
use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use answers::{answer, below_a_root};
use bench::{Place, shape, used, with_a_join};

#[path = "bench/answers.rs"]
mod answers;
mod bench;

/// Tasks of the measured flat workflow, beside its join.
const FLAT: usize = 500;
/// Completions waiting for the coordinator.
const PRELOADED: usize = 998;
/// Rounds of which the median is told.
const ROUNDS: usize = 5;

/// Requests per task of a flat workflow with a join, with one worker of `slots`.
async fn requests_per_task(place: &Place, slots: u16) {
    let (coordinator_store, coordinator_meter) = Meter::wrap(place.store.clone());
    let (worker_store, worker_meter) = Meter::wrap(place.store.clone());
    let definition = with_a_join(FLAT);
    let (stop, worker_stop) = (CancellationToken::new(), worker::Stop::default());
    let coordinator = place.coordinator(coordinator_store, Some(MAX_OUTSTANDING_EMULATOR), &stop);
    let worker = place.worker(worker_store, slots, &worker_stop);
    // What both do before there is work is not counted.
    place.env.sleep(Duration::from_secs(1)).await;
    let (before, _) = (coordinator_meter.take(), worker_meter.take());
    assert!(before.contains_key(&Op::LeaseAcquire), "it leads");
    let began = place.env.mono();
    let id = place.submit("bench", &definition).await;
    place
        .until("the end", 50, async || {
            let row = read_row(&place.store, &place.layout, &id).await.unwrap();
            row.is_some_and(|row| row.record.status.is_final())
        })
        .await;
    let took = place.env.mono().since(began).as_secs_f64();
    let counts = [coordinator_meter.snapshot(), worker_meter.snapshot()];
    stop.cancel();
    worker_stop.drain.cancel();
    coordinator.join().await;
    worker.join().await;
    print_requests(slots, took, &counts);
}

fn print_requests(slots: u16, took: f64, counts: &[BTreeMap<Op, Count>; 2]) {
    let tasks = (FLAT + 1) as f64;
    println!(
        "\nrequests per task, {FLAT} tasks + join, {slots} slots: {took:.1} s, {:.0} tasks/s",
        tasks / took
    );
    println!("{:<24} {:>12} {:>8}", "", "coordinator", "worker");
    let ops: BTreeSet<Op> = counts
        .iter()
        .flat_map(|counts| counts.keys().copied())
        .collect();
    let per_task = |counts: &BTreeMap<Op, Count>, op: &Op| {
        counts.get(op).map_or(0, |count| count.requests) as f64 / tasks
    };
    for op in ops {
        let [coordinator, worker] = [0, 1].map(|side| per_task(&counts[side], &op));
        println!("{:<24} {coordinator:>12.3} {worker:>8.3}", op.to_string());
    }
    let [coordinator, worker] = [0, 1].map(|side: usize| {
        counts[side]
            .keys()
            .map(|op| per_task(&counts[side], op))
            .sum::<f64>()
    });
    println!(
        "{:<24} {coordinator:>12.3} {worker:>8.3}  together {:.3}",
        "sum",
        coordinator + worker
    );
}

/// How one round went.
struct Round {
    /// From the start of the coordinator to its last acknowledgement.
    per_second: f64,
    /// Processor time of this process for each completion, in milliseconds.
    cpu_ms: f64,
    /// What was sent in between, becoming leader included.
    counts: BTreeMap<Op, Count>,
}

/// One coordinator over completions of one workflow that were there before it, `batch` results a message.
async fn preloaded(place: &Place, batch: usize) -> Round {
    let stop = CancellationToken::new();
    let first = place.coordinator(place.store.clone(), None, &stop);
    place.submit("bench", &below_a_root(PRELOADED)).await;
    answer(place, 1, 1).await;
    let queue = place.queue();
    place
        .until("all leaves to be sent", 50, async || {
            place.store.queues.depth(&queue).await.unwrap() == PRELOADED as u64
        })
        .await;
    stop.cancel();
    first.join().await;
    answer(place, PRELOADED, batch).await;
    let completions = place.layout.completions();
    let messages = place.store.queues.depth(completions).await.unwrap();

    let (store, meter) = Meter::wrap(place.store.clone());
    let stop = CancellationToken::new();
    let deleted = || {
        let counts = meter.snapshot();
        counts
            .get(&Op::QueueDelete)
            .map_or(0, |count| count.requests)
    };
    let (began, (cpu, _)) = (place.env.mono(), used("self"));
    let second = place.coordinator(store, None, &stop);
    place
        .until("the last acknowledgement", 1, async || {
            deleted() >= messages
        })
        .await;
    let took = place.env.mono().since(began).as_secs_f64();
    let cpu = used("self").0 - cpu;
    let counts = meter.snapshot();
    place
        .until("the join to be sent", 5, async || {
            place.store.queues.depth(&queue).await.unwrap() == 1
        })
        .await;
    stop.cancel();
    second.join().await;
    Round {
        per_second: PRELOADED as f64 / took,
        cpu_ms: cpu * 1000.0 / PRELOADED as f64,
        counts,
    }
}

/// What the transport needs for the queue and blob requests of `recorded` with nothing in between, up to 8 at once.
async fn bare(place: &Place, recorded: &BTreeMap<Op, Count>) -> Round {
    let of = |op: Op| recorded.get(&op).copied().unwrap_or_default();
    let (deletes, receives, puts) = (of(Op::QueueDelete), of(Op::QueueReceive), of(Op::BlobPut));
    let messages = deletes.requests;
    let body = "x".repeat(usize::try_from(receives.received / messages).unwrap());
    let (queue, queues) = (place.layout.completions(), &place.store.queues);
    let sends = (0..messages).map(|_| queues.send(queue, &body, Duration::ZERO));
    let sent: Vec<_> = futures::stream::iter(sends)
        .buffer_unordered(8)
        .collect()
        .await;
    assert!(sent.iter().all(Result::is_ok));
    let state = Bytes::from("x".repeat(usize::try_from(puts.sent / puts.requests).unwrap()));
    let path = place.layout.runtime(&WorkflowId::new("bare").unwrap());
    let blobs = &place.store.blobs;
    let mut etag: Option<ETag> = None;
    let (mut left, mut written) = (messages, 0);
    let (began, (cpu, _)) = (place.env.mono(), used("self"));
    while left > 0 {
        let hidden = Duration::from_secs(60);
        let batch = queues.receive(queue, 32, hidden).await.unwrap();
        left -= batch.len() as u64;
        let deletes = batch
            .iter()
            .map(|message| queues.delete(queue, &message.receipt));
        let gone = futures::stream::iter(deletes)
            .buffer_unordered(8)
            .collect::<Vec<_>>();
        let put = async {
            while written < puts.requests * (messages - left) / messages {
                let expect = etag.take().map_or(Expect::Absent, Expect::Version);
                etag = Some(
                    blobs
                        .put(&path, state.clone(), &expect, None)
                        .await
                        .unwrap(),
                );
                written += 1;
            }
        };
        let (gone, ()) = futures::future::join(gone, put).await;
        assert!(gone.iter().all(Result::is_ok));
    }
    let took = place.env.mono().since(began).as_secs_f64();
    Round {
        per_second: PRELOADED as f64 / took,
        cpu_ms: (used("self").0 - cpu) * 1000.0 / PRELOADED as f64,
        counts: BTreeMap::new(),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_rounds(what: &str, rounds: &[Round]) {
    let rates = || rounds.iter().map(|round| round.per_second);
    let (least, most) = (
        rates().fold(f64::MAX, f64::min),
        rates().fold(0.0, f64::max),
    );
    let writes = rounds[0]
        .counts
        .get(&Op::BlobPut)
        .copied()
        .unwrap_or_default();
    println!(
        "{what:<52} {:>7.0}/s ({least:.0} to {most:.0}), {:.3} ms of processor time each, {} blob writes, {} bytes",
        median(rates()),
        median(rounds.iter().map(|round| round.cpu_ms)),
        writes.requests,
        writes.sent,
    );
}

/// Preloaded completions, singly and in batches, on places of `store`.
async fn completions(store: impl Fn() -> Store, name: &str) {
    println!("\n{PRELOADED} preloaded completions of one workflow, {name}, medians of {ROUNDS}");
    for batch in [1, 32] {
        let (mut rounds, mut bare_rounds) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let env = real::env();
            let place = Place::new(store(), &env, &format!("b{batch}r{round}")).await;
            let done = preloaded(&place, batch).await;
            bare_rounds.push(bare(&place, &done.counts).await);
            rounds.push(done);
        }
        print_rounds(&format!("coordinator, {batch} a message"), &rounds);
        print_rounds(
            "the same requests, 8 at once, without a coordinator",
            &bare_rounds,
        );
        let ratios = rounds.iter().zip(&bare_rounds);
        let ratio = median(ratios.map(|(round, bare)| bare.per_second / round.per_second));
        println!("the coordinator takes {ratio:.2} times as long");
    }
}

/// Times in milliseconds between the end of a command and the start of the next, in a chain of 50 with one worker.
async fn hops(place: &Place) -> Vec<f64> {
    let (stop, worker_stop) = (CancellationToken::new(), worker::Stop::default());
    let coordinator = place.coordinator(place.store.clone(), None, &stop);
    let worker = place.worker(place.store.clone(), 1, &worker_stop);
    let chain = shape(50, |task| task.checked_sub(1).into_iter().collect());
    let id = place.submit("bench", &chain).await;
    place
        .until("the end", 50, async || {
            let row = read_row(&place.store, &place.layout, &id).await.unwrap();
            row.is_some_and(|row| row.record.status.is_final())
        })
        .await;
    stop.cancel();
    worker_stop.drain.cancel();
    coordinator.join().await;
    worker.join().await;
    let state = read_runtime(&place.store, &place.layout, &id).await;
    let tasks = state.unwrap().unwrap().record.tasks;
    let reports: Vec<_> = tasks
        .iter()
        .map(|task| task.report.as_deref().unwrap())
        .collect();
    let hop = |pair: &[&AttemptReport]| {
        let gap = pair[1].started_at.unwrap().duration_since(pair[0].ended_at);
        gap.as_secs_f64() * 1000.0
    };
    reports.windows(2).map(hop).collect()
}

/// What one request takes that waits for no other, in milliseconds: puts, sends, receives and deletions in turn.
async fn one_request(place: &Place) -> f64 {
    let (queues, blobs) = (&place.store.queues, &place.store.blobs);
    let (queue, env) = (place.queue(), &place.env);
    let mut took = Vec::new();
    for number in 0..50 {
        let path = place
            .layout
            .runtime(&WorkflowId::new(format!("one-{number}")).unwrap());
        let mut began = env.mono();
        let mut note = || {
            let now = env.mono();
            took.push(now.since(began).as_secs_f64() * 1000.0);
            began = now;
        };
        let body = Bytes::from_static(&[b'x'; 1_000]);
        blobs.put(&path, body, &Expect::Absent, None).await.unwrap();
        note();
        queues.send(&queue, "x", Duration::ZERO).await.unwrap();
        note();
        let found = queues
            .receive(&queue, 1, Duration::from_secs(60))
            .await
            .unwrap();
        note();
        queues.delete(&queue, &found[0].receipt).await.unwrap();
        note();
    }
    median(took.into_iter())
}

async fn print_hops(store: &Store) {
    let env = real::env();
    let place = Place::new(store.clone(), &env, "hops").await;
    let mut hops = hops(&place).await;
    hops.sort_by(f64::total_cmp);
    let request = one_request(&place).await;
    println!(
        "\nchain of 50: from the end of one command to the start of the next {:.0} ms (p50), {:.0} ms (p99); one request alone takes {request:.1} ms",
        hops[hops.len() / 2],
        hops[hops.len() * 99 / 100],
    );
}

#[tokio::main]
async fn main() {
    // Cargo hands its own flags on; none mean anything here.
    let env = real::env();
    completions(|| MemoryStore::open(real::env()), "store in memory").await;

    let connection = bench::azurite::azurite().connection_string();
    let (config, _) = AzureConfig::resolve("bench", Some(&connection)).unwrap();
    let store = AzureStore::open(&config, env.clone()).unwrap();
    for slots in [1, 32] {
        let place = Place::new(store.clone(), &env, &format!("slots{slots}")).await;
        requests_per_task(&place, slots).await;
    }
    print_hops(&store).await;
    completions(|| store.clone(), "emulator").await;
}
