//! What the state machine costs: completions applied per second, counted steps, bytes of stored state.
//!
//! `cargo bench --bench engine`. The counted figures come first and do not depend on the machine.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use dagaz::definition::{Definition, Source, TaskName, WorkflowId, parse};
use dagaz::engine::{
    Applied, AttemptId, AttemptReport, Changes, Graph, Outcome, Output, RetryAfter, Runtime, TaskIx,
};
use dagaz::env::Timestamp;
use dagaz::record::{
    ControlSeq, Epoch, Record, Revision, RunId, RuntimeRecord, Stamp, decode, encode,
};

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

/// The places that a task waits for, by its own place and the number of tasks.
type Shape = (&'static str, fn(usize, usize) -> Vec<usize>);

const SHAPES: [Shape; 4] = [
    ("flat", |_, _| vec![]),
    ("chain", |place, _| {
        place.checked_sub(1).into_iter().collect()
    }),
    // Layers of ten; each task waits for two of the layer above.
    ("layered", |place, _| match place.checked_sub(10) {
        Some(above) => vec![above, above / 10 * 10 + (above + 1) % 10],
        None => vec![],
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

fn record(runtime: &Runtime) -> RuntimeRecord {
    let (states, tasks) = RuntimeRecord::tasks_of(runtime);
    RuntimeRecord {
        schema: RuntimeRecord::SCHEMA,
        workflow_id: WorkflowId::new("bench").expect("legal"),
        run_id: RunId::new(uuid::Uuid::nil()),
        generation: runtime.generation(),
        epoch: Epoch::new(1),
        holder: "head/1".to_owned(),
        stamp: Stamp::new(uuid::Uuid::nil()),
        revision: Revision::new(1),
        status: runtime.status(),
        reason: None,
        control_seq: ControlSeq::new(0),
        control_results: Vec::new(),
        cancel: None,
        stop: None,
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
        states,
        tasks,
        packed: None,
    }
}

fn counted() {
    println!("shape    tasks    steps/completion  bytes/task at the start  at the end");
    for shape in SHAPES {
        for count in SIZES {
            let graph = Arc::new(Graph::new(&definition(shape, count)).expect("no loop"));
            let start = start(&graph);
            let began = start.runtime.steps();
            let per_task = |runtime: &Runtime| encode(&record(runtime)).len() as f64 / count as f64;
            let first = per_task(&start.runtime);
            let end = run(start, &report());
            let steps = (end.steps() - began) as f64 / count as f64;
            let last = per_task(&end);
            println!(
                "{:<8} {count:>6}  {steps:>16.2}  {first:>23.1}  {last:>10.1}",
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

/// What each state write and each load costs beside the request.
fn records(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("record");
    group.sample_size(10);
    for count in SIZES {
        let graph = Arc::new(Graph::new(&definition(SHAPES[0], count)).expect("no loop"));
        let end = run(start(&graph), &report());
        let json = encode(&record(&end));
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("write", count), |bencher| {
            bencher.iter(|| encode(&record(&end)));
        });
        group.bench_function(BenchmarkId::new("load", count), |bencher| {
            bencher.iter(|| {
                let record: RuntimeRecord = decode(&json).expect("just encoded");
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
