//! What whole pipelines cost, end to end: time, requests, bytes, processor time and memory, and the pause between tasks.
//!
//! `cargo bench --bench pipeline [-- WORD]`: all cases, or those with WORD in their name, on an emulator of its own (needs Node 20) and
//! on the store in memory; with commands that do nothing, and some with the real program `true`. One worker. Workflows are submitted to
//! services that wait, and their end is told by the coordinator's count of requests: a look at the rows would take time of the emulator.
//! Of five rounds the one of median time is told; cases of more than 600 tasks have one round. A hop is the time from the end of the
//! last parent's command to the start of the child's, the wait for a slot included. Memory is that of this whole process, with what
//! earlier cases left in it. The emulator is warm before anything is measured: its first thousands of requests take twice as long. Beside
//! small cases of many slots the same requests are made once more by a plain loop, in turns, to compare with.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints what it measures, and one that cannot go on fails"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use dagaz::definition::{Definition, WorkflowId};
use dagaz::env::real;
use dagaz::protocol::read_runtime;
use dagaz::store::Expect;
use dagaz::store::layers::Op;

use bench::bare::{AT_ONCE, all, bare};
use bench::figures::{self, Counts, by_kind, forget_peak, median, of, peak, percentile};
use bench::shapes::{chain, epigenomics, montage, shape, with_a_join};
use bench::{Coordinator, On, Place, Work, Worker};

#[expect(dead_code, reason = "other benchmarks use the rest")]
mod bench;

/// Rounds of a small case.
const ROUNDS: usize = 5;
/// The pause between two looks for the end.
const LOOK_MS: u64 = 2;
/// The most tasks of a small case.
const SMALL: usize = 600;
/// How often the emulator takes so many messages before anything is measured.
const WARM_ROUNDS: usize = 5;
const WARM_MESSAGES: usize = 800;
/// Messages on the queue at once of what stands beside a case.
const DEPTH: u64 = 128;

struct Case {
    name: &'static str,
    workflows: usize,
    definition: fn() -> Definition,
    slots: u16,
    works: &'static [Work],
}

const NOTHING: &[Work] = &[Work::Nothing];
const BOTH: &[Work] = &[Work::Nothing, Work::Processes];

const CASES: [Case; 8] = [
    Case {
        name: "flat 500 + join, 1 slot",
        workflows: 1,
        definition: || with_a_join(500),
        slots: 1,
        works: BOTH,
    },
    Case {
        name: "flat 500 + join, 32 slots",
        workflows: 1,
        definition: || with_a_join(500),
        slots: 32,
        works: &[Work::Nothing, Work::Singly, Work::Processes],
    },
    Case {
        name: "flat 100, 32 slots",
        workflows: 1,
        definition: || shape(100, |_| vec![]),
        slots: 32,
        works: &[Work::Processes],
    },
    Case {
        name: "chain of 50, 1 slot",
        workflows: 1,
        definition: || chain(50),
        slots: 1,
        works: BOTH,
    },
    Case {
        name: "flat 5,000 + join, 32 slots",
        workflows: 1,
        definition: || with_a_join(5_000),
        slots: 32,
        works: NOTHING,
    },
    Case {
        name: "500 workflows of 5, 32 slots",
        workflows: 500,
        definition: || with_a_join(4),
        slots: 32,
        works: NOTHING,
    },
    Case {
        name: "montage 1,000, 32 slots",
        workflows: 1,
        definition: montage,
        slots: 32,
        works: BOTH,
    },
    Case {
        name: "epigenomics 10,000, 32 slots",
        workflows: 1,
        definition: epigenomics,
        slots: 32,
        works: NOTHING,
    },
];

/// How one round went.
struct Round {
    took: f64,
    coordinator: Counts,
    worker: Counts,
    /// Seconds of processor time of the coordinator.
    cpu: f64,
    /// The most memory of this process, in MiB.
    peak: f64,
    /// Milliseconds from the end of the last parent's command to the start of the child's.
    hops: Vec<f64>,
    /// Seconds that a plain loop needs for the same requests.
    bare: Option<f64>,
}

impl Round {
    fn counts(&self) -> Counts {
        let mut counts = self.coordinator.clone();
        for (op, count) in &self.worker {
            *counts.entry(*op).or_default() += *count;
        }
        counts
    }
}

async fn round(place: &Place, case: &Case, definition: &Definition, work: Work) -> Round {
    forget_peak();
    let coordinator = Coordinator::usual(place);
    let worker = Worker::start(place, case.slots, work);
    // What both do before there is work is not counted.
    place.env.sleep(Duration::from_secs(1)).await;
    let (before, _) = (coordinator.meter.take(), worker.meter.take());
    assert!(before.contains_key(&Op::LeaseAcquire), "it leads");
    let (began, cpu) = (place.env.mono(), Coordinator::cpu());
    let ids = place.submit_all("bench", case.workflows, definition).await;
    // A look at the rows takes time of the emulator that the services would have: while rows are left to be moved, a count tells.
    let all_moved = async || {
        let counts = coordinator.meter.snapshot();
        let moved = counts.get(&Op::RowDelete).map_or(0, |count| count.requests);
        moved >= u64::try_from(ids.len()).unwrap()
    };
    place
        .until("the last row to move", LOOK_MS, all_moved)
        .await;
    let all_ended = || place.all_ended();
    place.until("the end", LOOK_MS, all_ended).await;
    let took = place.env.mono().since(began).as_secs_f64();
    let cpu = Coordinator::cpu() - cpu;
    let (of_coordinator, of_worker) = (coordinator.meter.snapshot(), worker.meter.snapshot());
    worker.end().await;
    coordinator.end().await;
    let peak = peak("self");
    place.check(&ids).await;
    let mut hops = Vec::new();
    for id in &ids {
        hops.extend(hops_of(place, id, definition).await);
    }
    Round {
        took,
        coordinator: of_coordinator,
        worker: of_worker,
        cpu,
        peak,
        hops,
        bare: None,
    }
}

async fn hops_of(place: &Place, id: &WorkflowId, definition: &Definition) -> Vec<f64> {
    let state = read_runtime(&place.store, &place.layout, id).await.unwrap();
    let mut reports = BTreeMap::new();
    for task in state.unwrap().record.tasks {
        let name = &definition.tasks[task.place.at()].name;
        reports.insert(name, task.report.unwrap());
    }
    let children = definition.tasks.iter();
    let hop = |task: &dagaz::definition::Task| {
        let parents = task.depends_on.iter();
        let last = parents.map(|parent| reports[parent].ended_at).max()?;
        let gap = reports[&task.name].started_at?.duration_since(last);
        Some(gap.as_secs_f64() * 1000.0)
    };
    children.filter_map(hop).collect()
}

fn print_case(what: &str, tasks: usize, rounds: &mut [Round]) {
    rounds.sort_by(|a, b| a.took.total_cmp(&b.took));
    let tasks = tasks as f64;
    let (least, most) = (rounds[0].took, rounds[rounds.len() - 1].took);
    let middle = &rounds[rounds.len() / 2];
    let between = if rounds.len() > 1 {
        format!(" ({least:.3} to {most:.3})")
    } else {
        String::new()
    };
    println!(
        "\n{what}: {:.3} s{between}, {:.0} tasks/s",
        middle.took,
        tasks / middle.took,
    );
    let sides = [&middle.coordinator, &middle.worker];
    for (name, counts) in ["coordinator", "worker"].into_iter().zip(sides) {
        println!("  {name:<12} {}", by_kind(counts, tasks));
    }
    let [requests, bytes] = [
        sides.map(figures::requests).iter().sum::<f64>(),
        sides
            .map(|counts| of(counts, Op::BlobPut).sent as f64)
            .iter()
            .sum(),
    ];
    println!(
        "  a task       {:.2} requests, {:.0} bytes of blobs, {:.0} us of the coordinator's processor time; this process had at most {:.0} MiB",
        requests / tasks,
        bytes / tasks,
        middle.cpu * 1e6 / tasks,
        middle.peak,
    );
    let hops: Vec<f64> = rounds
        .iter()
        .flat_map(|round| &round.hops)
        .copied()
        .collect();
    let ratios = rounds
        .iter()
        .filter_map(|round| Some(round.took / round.bare?));
    let alone = rounds.iter().filter_map(|round| round.bare);
    if middle.bare.is_some() {
        println!(
            "  alone        the same requests take {:.3} s with {AT_ONCE} at once, {:.0} tasks/s; the whole takes {:.2} times as long",
            median(alone.clone()),
            tasks / median(alone),
            median(ratios),
        );
    }
    if !hops.is_empty() {
        let at = |percent| percentile(hops.iter().copied(), percent);
        println!(
            "  hops         {:.0} ms (p50), {:.0} ms (p99) of {}",
            at(50),
            at(99),
            hops.len(),
        );
    }
}

/// What one request takes that waits for no other, in microseconds, once queues are warm: puts, sends, receives and deletions in turn.
async fn one_request(on: On) -> f64 {
    let place = Place::new(on, "alone").await;
    let (queues, blobs) = (&place.store.queues, &place.store.blobs);
    let (queue, env) = (place.queue(), real::env());
    for _ in 0..WARM_ROUNDS {
        let mut receipts = Vec::new();
        all((0..WARM_MESSAGES).map(|_| queues.send(&queue, "x", Duration::ZERO))).await;
        while receipts.len() < WARM_MESSAGES {
            let hidden = Duration::from_secs(60);
            let found = queues.receive(&queue, 32, hidden).await.unwrap();
            receipts.extend(found.into_iter().map(|message| message.receipt));
        }
        all(receipts
            .iter()
            .map(|receipt| queues.delete(&queue, receipt)))
        .await;
    }
    let mut took = Vec::new();
    for number in 0..50 {
        let path = place
            .layout
            .runtime(&WorkflowId::new(format!("one-{number}")).unwrap());
        let mut began = env.mono();
        let mut note = || {
            let now = env.mono();
            took.push(now.since(began).as_secs_f64() * 1e6);
            began = now;
        };
        let body = Bytes::from_static(&[b'x'; 1_000]);
        blobs.put(&path, body, &Expect::Absent, None).await.unwrap();
        note();
        queues.send(&queue, "x", Duration::ZERO).await.unwrap();
        note();
        let hidden = Duration::from_secs(60);
        let found = queues.receive(&queue, 1, hidden).await.unwrap();
        note();
        queues.delete(&queue, &found[0].receipt).await.unwrap();
        note();
    }
    median(took.into_iter())
}

#[tokio::main]
async fn main() {
    let word = bench::wanted();
    for on in [On::Emulator, On::Memory] {
        let request = one_request(on).await;
        println!("\n{}: one request alone takes {request:.1} us", on.name());
        let wanted = CASES.iter().enumerate();
        for (number, case) in wanted.filter(|(_, case)| case.name.contains(&word)) {
            let definition = (case.definition)();
            let tasks = case.workflows * definition.tasks.len();
            let count = if tasks <= SMALL { ROUNDS } else { 1 };
            for work in case.works {
                let mut rounds = Vec::new();
                for turn in 0..count {
                    let prefix = format!("c{number}w{}r{turn}", *work as u8);
                    let place = Place::new(on, &prefix).await;
                    let mut done = round(&place, case, &definition, *work).await;
                    if on == On::Emulator && tasks <= SMALL && case.slots > 1 {
                        let bare = bare(&place, &done.counts(), DEPTH).await;
                        done.bare = Some(bare.sends + bare.rest);
                    }
                    rounds.push(done);
                }
                let what = format!("{}, {}, {}", case.name, on.name(), work.name());
                print_case(&what, tasks, &mut rounds);
            }
        }
    }
}
