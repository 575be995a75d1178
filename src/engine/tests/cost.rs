//! Counted steps: a completion costs the same however large the graph is.

use super::*;

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
    let mut line = std::collections::VecDeque::from(std::mem::take(&mut changes.ready));
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
