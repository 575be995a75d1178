//! What the state machine costs: completions applied per second, counted steps, bytes of stored state.
//!
//! `cargo bench --bench engine`. The counted figures come first and do not depend on the machine.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use dagaz::definition::{Definition, Source, TaskName, WorkflowId, parse};
use dagaz::engine::{
    Applied, AttemptId, AttemptReport, Changes, Graph, Outcome, Output, RetryAfter, Runtime, TaskIx,
};
use dagaz::env::{Timestamp, real};
use dagaz::record::{
    ControlSeq, DetailsRecord, Epoch, Ledger, Limits, Record, Revision, RunId, RuntimeRecord, Side,
    SnapshotRecord, Stamp, decode, encode,
};

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// The places that a task waits for, by its own place and the number of tasks.
type Shape = (&'static str, fn(usize, usize) -> Vec<usize>);

const SHAPES: [Shape; 5] = [
    ("flat", |_, _| vec![]),
    ("chain", |place, _| {
        place.checked_sub(1).into_iter().collect()
    }),
    // Layers of ten; each task waits for two of the layer above.
    ("layered", |place, _| match place.checked_sub(10) {
        Some(above) => vec![above, above / 10 * 10 + (above + 1) % 10],
        None => vec![],
    }),
    // Up to three parents, anywhere before.
    ("random", |place, _| {
        let mut parents = [7_919, 104_729, 1_299_709].map(|prime| place * prime % (place + 1));
        parents.sort_unstable();
        let earlier = parents.into_iter().filter(|parent| *parent < place);
        let mut parents: Vec<_> = earlier.collect();
        parents.dedup();
        parents
    }),
    ("join", |place, count| {
        if place + 1 == count {
            (0..place).collect()
        } else {
            vec![]
        }
    }),
];

fn definition(shape: Shape, count: usize) -> Definition {
    let source = Source::new("bench.yaml", "tasks: [{name: a, cmd: 'true'}]");
    let template = parse(&source).expect("a legal definition").definition;
    let named = |place: usize| TaskName::new(format!("task-{place}")).expect("legal");
    let task = |place: usize| {
        let mut task = template.tasks[0].clone();
        task.name = named(place);
        task.depends_on = shape.1(place, count).into_iter().map(named).collect();
        task
    };
    Definition {
        tasks: (0..count).map(task).collect(),
        ..template.clone()
    }
}

/// A report as workers send it: a small output, no log.
fn report() -> AttemptReport {
    let output = serde_json::value::RawValue::from_string("{\"mae\":0.0731}".to_owned());
    AttemptReport {
        outcome: Outcome::Succeeded,
        token: "0123456789abcdef0123456789abcdef".to_owned(),
        worker: "worker-17/4242".to_owned(),
        started_at: Timestamp::from_millisecond(1_767_225_600_123).ok(),
        ended_at: Timestamp::from_millisecond(1_767_225_660_456).expect("in range"),
        exit_code: Some(0),
        output: output.ok().map(Output::Inline),
        has_log: false,
        stderr_tail: None,
        reused_from: None,
    }
}

struct Start {
    runtime: Runtime,
    line: VecDeque<TaskIx>,
}

fn start(graph: &Arc<Graph>) -> Start {
    let mut changes = Changes::default();
    let runtime = Runtime::start(Arc::clone(graph), &mut changes);
    Start {
        runtime,
        line: changes.ready.into(),
    }
}

/// Applies the success of every task, in the order in which they become ready.
fn run(mut start: Start, report: &AttemptReport) -> Runtime {
    let mut changes = Changes::default();
    let retry = RetryAfter {
        now: report.ended_at,
        delay: Duration::ZERO,
    };
    while let Some(task) = start.line.pop_front() {
        let id = AttemptId {
            task,
            generation: start.runtime.generation(),
            attempt: start.runtime.task(task).attempt,
        };
        let applied =
            start
                .runtime
                .apply_report(id, report.clone(), retry, |_, _| true, &mut changes);
        assert_eq!(applied, Applied::Changed);
        start.line.extend(changes.ready.drain(..));
        changes.ended.clear();
    }
    assert!(start.runtime.status().is_final());
    start.runtime
}

/// The state but for its tasks.
fn header(runtime: &Runtime, stamp: u128) -> RuntimeRecord {
    RuntimeRecord {
        schema: RuntimeRecord::SCHEMA,
        workflow_id: WorkflowId::new("bench").expect("legal"),
        run_id: RunId::new(uuid::Uuid::nil()),
        generation: runtime.generation(),
        epoch: Epoch::new(1),
        holder: "head/1".to_owned(),
        stamp: Stamp::new(uuid::Uuid::from_u128(stamp)),
        revision: Revision::new(1),
        status: runtime.status(),
        reason: None,
        control_seq: ControlSeq::new(0),
        control_results: Vec::new(),
        cancel: None,
        stop: None,
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
        states: String::new(),
        tasks: Vec::new(),
        packed: None,
    }
}

/// A state in storage, as its leader lays it out.
struct Stored {
    ledger: Ledger,
    snapshots: BTreeMap<Stamp, SnapshotRecord>,
    details: BTreeMap<Stamp, DetailsRecord>,
    head: Vec<u8>,
    writes: u128,
    bytes: usize,
}

impl Stored {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(Limits::default()),
            snapshots: BTreeMap::new(),
            details: BTreeMap::new(),
            head: Vec::new(),
            writes: 0,
            bytes: 0,
        }
    }

    fn write(&mut self, runtime: &mut Runtime) {
        self.writes += 1;
        let touched = runtime.take_touched();
        let mut head = header(runtime, self.writes);
        for side in self.ledger.lay(&mut head, runtime, &touched) {
            match side {
                Side::Snapshot(snapshot) => {
                    self.bytes += encode(&snapshot).len();
                    self.snapshots.insert(head.stamp, snapshot);
                }
                Side::Details(details) => {
                    self.bytes += encode(&details).len();
                    self.details.insert(head.stamp, details);
                }
            }
        }
        self.head = encode(&head);
        self.bytes += self.head.len();
    }

    fn read(&self) -> RuntimeRecord {
        let head: RuntimeRecord = decode(&self.head).expect("just encoded");
        let packed = head.packed.clone().unwrap_or_default();
        let snapshot = packed.snapshot.map(|stamp| self.snapshots[&stamp].clone());
        let before = snapshot.iter().flat_map(|snapshot| &snapshot.details);
        let details = before.chain(&packed.details);
        let details = details.map(|stamp| self.details[stamp].clone()).collect();
        let read = Ledger::read(Limits::default(), head, snapshot, details);
        read.expect("just laid out").0
    }
}

/// Runs all tasks, `batch` completions a write, 256 under way, of which any may end.
fn write_all(graph: &Arc<Graph>, batch: usize) -> (Runtime, Stored) {
    let Start {
        mut runtime,
        mut line,
    } = start(graph);
    let mut stored = Stored::new();
    stored.write(&mut runtime);
    let mut changes = Changes::default();
    let mut under_way: Vec<TaskIx> = Vec::new();
    let report = report();
    let retry = RetryAfter {
        now: report.ended_at,
        delay: Duration::ZERO,
    };
    let mut done = 0;
    while !runtime.status().is_final() {
        while under_way.len() < 256
            && let Some(task) = line.pop_front()
        {
            let attempt = runtime.task(task).attempt;
            assert_eq!(runtime.mark_sent(task, attempt), Applied::Changed);
            under_way.push(task);
        }
        for _ in 0..batch.min(under_way.len()) {
            let task = under_way.swap_remove(done * 7_919 % under_way.len());
            let id = AttemptId {
                task,
                generation: runtime.generation(),
                attempt: runtime.task(task).attempt,
            };
            let applied =
                runtime.apply_report(id, report.clone(), retry, |_, _| true, &mut changes);
            assert_eq!(applied, Applied::Changed);
            done += 1;
        }
        line.extend(changes.ready.drain(..));
        changes.ended.clear();
        stored.write(&mut runtime);
    }
    (runtime, stored)
}

fn counted() {
    let env = real::env();
    println!(
        "shape    tasks    steps/completion  bytes of state/completion, singly  in batches of 32  us/completion"
    );
    for shape in SHAPES {
        for count in SIZES {
            let graph = Arc::new(Graph::new(&definition(shape, count)).expect("no loop"));
            let start = start(&graph);
            let began = start.runtime.steps();
            let end = run(start, &report());
            let steps = (end.steps() - began) as f64 / count as f64;
            let bytes = |batch| write_all(&graph, batch).1.bytes as f64 / count as f64;
            let singly = if count < 1_000_000 {
                bytes(1)
            } else {
                f64::NAN
            };
            let began = env.mono();
            let batched = bytes(32);
            let us = env.mono().since(began).as_secs_f64() * 1e6 / count as f64;
            println!(
                "{:<8} {count:>7}  {steps:>16.2}  {singly:>33.0}  {batched:>16.0}  {us:>13.1}",
                shape.0
            );
        }
    }
}

fn applies(criterion: &mut Criterion) {
    let report = report();
    for shape in SHAPES {
        let mut group = criterion.benchmark_group(format!("apply/{}", shape.0));
        group.sample_size(10);
        for count in SIZES {
            let graph = Arc::new(Graph::new(&definition(shape, count)).expect("no loop"));
            group.throughput(Throughput::Elements(count as u64));
            group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
                let begin = || start(&graph);
                bencher.iter_batched(begin, |start| run(start, &report), BatchSize::PerIteration);
            });
        }
        group.finish();
    }
}

/// What a load costs beside the requests and the decoding of side blobs.
fn records(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("record");
    group.sample_size(10);
    for count in SIZES {
        let graph = Arc::new(Graph::new(&definition(SHAPES[0], count)).expect("no loop"));
        let (_end, stored) = write_all(&graph, 32);
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("load", count), |bencher| {
            bencher.iter(|| {
                let record = stored.read();
                record.runtime(Arc::clone(&graph), &mut Changes::default())
            });
        });
    }
    group.finish();
}

fn main() {
    counted();
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    applies(&mut criterion);
    records(&mut criterion);
    criterion.final_summary();
}
