//! Counted steps: a completion costs the same however large the graph is.

use std::collections::VecDeque;

use super::shelf::Shelf;
use super::*;
use crate::record::Limits;

/// Task `i` waits for the places given by `parents(i)`.
fn shape(count: usize, parents: impl Fn(usize) -> Vec<usize>) -> Definition {
    let template = definition("tasks: [{name: a, cmd: x}]");
    let named = |place: usize| TaskName::new(format!("t{place}")).unwrap();
    let task = |place: usize| {
        let mut task = template.tasks[0].clone();
        task.name = named(place);
        task.depends_on = parents(place).into_iter().map(named).collect();
        task
    };
    Definition {
        tasks: (0..count).map(task).collect(),
        ..template
    }
}

/// Steps per completion of a whole run in which every task succeeds.
fn steps_per_completion(definition: &Definition) -> f64 {
    let mut changes = Changes::default();
    let mut runtime = Runtime::start(graph(definition), &mut changes);
    let began = runtime.steps();
    let mut line = VecDeque::from(std::mem::take(&mut changes.ready));
    let mut done = 0_u32;
    while let Some(task) = line.pop_front() {
        let id = AttemptId {
            task,
            generation: Generation::FIRST,
            attempt: Attempt::new(1),
        };
        let retry = RetryAfter {
            now: Timestamp::UNIX_EPOCH,
            delay: Duration::ZERO,
        };
        let applied = runtime.apply_report(
            id,
            report(Outcome::Succeeded),
            retry,
            |_, _| true,
            &mut changes,
        );
        assert_eq!(applied, Applied::Changed);
        line.extend(changes.ready.drain(..));
        changes.ended.clear();
        done += 1;
    }
    assert_eq!(runtime.status(), Status::Completed);
    (runtime.steps() - began) as f64 / f64::from(done)
}

/// Whether a completion costs as much in the large graph as in the small one, within the rounding of their edges.
fn stays_equal(name: &str, of: impl Fn(usize) -> Definition) {
    let [small, large] = [1_000, 100_000].map(|count| steps_per_completion(&of(count)));
    assert!(
        (small - large).abs() < 0.05,
        "{name}: {small} steps became {large}"
    );
    assert!(large < 10.0, "{name}: {large} steps");
}

#[test]
fn a_completion_costs_as_many_steps_in_a_hundred_thousand_tasks_as_in_a_thousand() {
    stays_equal("flat", |count| shape(count, |_| vec![]));
    stays_equal("chain", |count| {
        shape(count, |place| place.checked_sub(1).into_iter().collect())
    });
    stays_equal("layered", |count| {
        shape(count, |place| match place.checked_sub(10) {
            Some(above) => vec![above, above / 10 * 10 + (above + 1) % 10],
            None => vec![],
        })
    });
    stays_equal("join", |count| {
        shape(count, |place| {
            if place + 1 == count {
                (0..place).collect()
            } else {
                vec![]
            }
        })
    });
}

#[test]
fn a_chain_of_a_hundred_thousand_settles_in_one_event() {
    let definition = shape(100_000, |place| place.checked_sub(1).into_iter().collect());
    let mut changes = Changes::default();
    let mut runtime = Runtime::start(graph(&definition), &mut changes);
    let began = runtime.steps();
    let id = AttemptId {
        task: TaskIx::new(0),
        generation: Generation::FIRST,
        attempt: Attempt::new(1),
    };
    let retry = RetryAfter {
        now: Timestamp::UNIX_EPOCH,
        delay: Duration::ZERO,
    };
    let applied = runtime.apply_report(id, report(failed()), retry, |_, _| true, &mut changes);
    assert_eq!(applied, Applied::Changed);
    assert_eq!(
        (runtime.status(), changes.ended.len()),
        (Status::Failed, 100_000)
    );
    assert_eq!(runtime.counts().of(TaskState::UpstreamFailed), 99_999);
    assert!(runtime.steps() - began < 400_000, "{}", runtime.steps());
}

/// The report of a first attempt that succeeded, as large as such reports get.
fn success(place: usize) -> AttemptReport {
    let later = 7 * i64::try_from(place).unwrap();
    let at = Timestamp::from_millisecond(1_767_225_660_456 + later).unwrap();
    AttemptReport {
        token: uuid::Uuid::from_u128(u128::MAX / (place as u128 + 1))
            .simple()
            .to_string(),
        worker: format!("worker-{:02}/4242", place % 50),
        started_at: at
            .checked_sub(jiff::SignedDuration::from_millis(3_600_000))
            .ok(),
        ended_at: at,
        ..report(Outcome::Succeeded)
    }
}

/// Runs all tasks, `batch` completions a write, of which any of the first `window` that are ready may come; tells the bytes written for each.
fn bytes_per_completion(definition: &Definition, batch: usize, window: usize) -> f64 {
    let mut changes = Changes::default();
    let mut runtime = Runtime::start(graph(definition), &mut changes);
    let mut shelf = Shelf::new(Limits::default());
    shelf.put(&mut runtime);
    let mut line = VecDeque::from(std::mem::take(&mut changes.ready));
    let mut under_way: Vec<TaskIx> = Vec::new();
    let mut done = 0;
    while !runtime.status().is_final() {
        while under_way.len() < window
            && let Some(task) = line.pop_front()
        {
            assert_eq!(runtime.mark_sent(task, Attempt::new(1)), Applied::Changed);
            under_way.push(task);
        }
        for _ in 0..batch.min(under_way.len()) {
            let task = under_way.swap_remove(done * 7_919 % under_way.len());
            let id = AttemptId {
                task,
                generation: Generation::FIRST,
                attempt: Attempt::new(1),
            };
            let retry = RetryAfter {
                now: Timestamp::UNIX_EPOCH,
                delay: Duration::ZERO,
            };
            let report = success(task.at());
            let applied = runtime.apply_report(id, report, retry, |_, _| true, &mut changes);
            assert_eq!(applied, Applied::Changed);
            done += 1;
        }
        line.extend(changes.ready.drain(..));
        changes.ended.clear();
        shelf.put(&mut runtime);
    }
    let (record, _ledger) = shelf.get();
    assert_eq!(record.tasks, recorded(&runtime).tasks);
    shelf.bytes as f64 / done as f64
}

#[test]
fn a_completion_writes_at_most_a_kibibyte_of_state_in_batches_of_32_whatever_the_order() {
    for count in [1_000, 100_000] {
        let flat = shape(count, |_| vec![]);
        let layered = shape(count, |place| match place.checked_sub(1_000) {
            Some(above) => vec![above, above / 1_000 * 1_000 + (above + 1) % 1_000],
            None => vec![],
        });
        for (definition, window) in [(&flat, 256), (&flat, count), (&layered, 256)] {
            let bytes = bytes_per_completion(definition, 32, window);
            assert!(
                bytes <= 1_024.0,
                "{count} tasks, {window} under way: {bytes} bytes"
            );
        }
    }
}
