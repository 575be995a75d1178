//! Merges before wide joins: nothing ends in another way, and fewer tasks are in flight.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::prelude::*;

use super::cases::{Case, cases};
use super::reference::{Answer, Plan, Stand, definition_of, end_of};
use super::*;
use crate::definition::{DepPolicy, OnFailure, ResultPolicy, TooManyMerges, limit_fan_in};

/// Runs all that becomes ready, in its order; `answer` tells how an attempt of the task at a place ends. Returns the most that were in
/// flight at once.
fn run(
    runtime: &mut Runtime,
    changes: &mut Changes,
    answer: impl Fn(TaskIx, u32) -> Answer,
) -> usize {
    let mut most = 0;
    let mut line = std::collections::VecDeque::from(std::mem::take(&mut changes.ready));
    while let Some(task) = line.pop_front() {
        most = most.max(line.len() + 1);
        let attempt = runtime.task(task).attempt;
        let id = AttemptId {
            task,
            generation: runtime.generation(),
            attempt,
        };
        let retry = RetryAfter {
            now: Timestamp::UNIX_EPOCH,
            delay: Duration::ZERO,
        };
        let now = retry.now;
        let sent = |_, _| true;
        let applied = match answer(task, attempt.number()) {
            Answer::Succeeds => {
                runtime.apply_report(id, report(Outcome::Succeeded), retry, sent, changes)
            }
            Answer::Fails => runtime.apply_report(id, report(failed()), retry, sent, changes),
            Answer::FailsForGood => {
                let failed = Outcome::Failed(failure(FailureKind::Exit, true));
                runtime.apply_report(id, report(failed), retry, sent, changes)
            }
            Answer::Refused => {
                let refused = failure(FailureKind::Send, true);
                runtime.refuse(task, attempt, refused, now, sent, changes)
            }
        };
        assert_eq!(applied, Applied::Changed);
        line.extend(changes.ready.drain(..));
    }
    most
}

/// Runs a case with merges to its end, and again after a retry: each of its own tasks ends as the reference says.
fn play(case: &Case, most: usize) {
    let of = definition_of(
        &case.plans,
        case.result_policy,
        OnFailure::Continue,
        case.backwards,
    );
    let count = of.tasks.len();
    let limited = limit_fan_in(of.clone(), most).unwrap();
    for (before, after) in of.tasks.iter().zip(&limited.tasks) {
        let waits = &after.depends_on;
        assert_eq!(&before.name, &after.name, "places stay");
        assert_eq!(&before.depends_on[..], &waits[..before.depends_on.len()]);
    }
    let merges = limited.tasks[count..].iter();
    assert!(merges.clone().all(|merge| merge.depends_on.len() <= most));
    let batches: BTreeSet<_> = merges.clone().map(|merge| &merge.depends_on).collect();
    assert_eq!(batches.len(), merges.len(), "no batch has two merges");
    let plan = |place: usize| {
        if case.backwards {
            count - 1 - place
        } else {
            place
        }
    };
    let answer = |task: TaskIx, attempt| case.plans[plan(task.at())].answer(attempt);
    let stands = |runtime: &Runtime| -> Vec<Stand> {
        let stand = |at: usize| Stand {
            state: runtime.tasks()[plan(at)].state,
            attempt: runtime.tasks()[plan(at)].attempt.number(),
        };
        (0..count).map(stand).collect()
    };
    let mut changes = Changes::default();
    let mut runtime = Runtime::start(graph(&limited), &mut changes);
    run(&mut runtime, &mut changes, answer);
    let unrun = Stand {
        state: TaskState::Pending,
        attempt: 0,
    };
    let end = end_of(&case.plans, &vec![unrun; count]);
    assert_eq!(stands(&runtime), end);
    let mut unlimited = Runtime::start(graph(&of), &mut changes);
    changes.ready.clear();
    changes.ready.extend(
        unlimited
            .graph()
            .tasks()
            .filter(|task| unlimited.task(*task).state == TaskState::Ready),
    );
    run(&mut unlimited, &mut changes, answer);
    assert_eq!(runtime.status(), unlimited.status());
    let again = [&mut runtime, &mut unlimited].map(|runtime| {
        let rerun = runtime.rerun(&mut changes);
        run(runtime, &mut changes, answer);
        (rerun, runtime.status(), stands(runtime))
    });
    assert_eq!(again[0], again[1], "after a retry");
    let ended = |task: &TaskRun| task.state == TaskState::Completed && task.report.is_none();
    assert!(runtime.tasks()[count..].iter().all(ended));
}

/// Cases with some joins more, each of all tasks before it that are in one of two sets, or in both.
fn joined() -> impl Strategy<Value = Case> {
    let policy = prop_oneof![
        4 => Just(DepPolicy::All),
        1 => Just(DepPolicy::Any),
        1 => Just(DepPolicy::AllSettled),
        1 => Just(DepPolicy::Always),
        1 => Just(DepPolicy::AtLeast(1)),
    ];
    let joins = prop::collection::vec((0..3_usize, policy), 2..6);
    (cases(), any::<[u32; 2]>(), joins).prop_map(|(mut case, [one, other], joins)| {
        let sets = [one, other, one | other];
        for (set, policy) in joins {
            let before = 0..case.plans.len();
            let parents: Vec<_> = before.filter(|at| sets[set] & (1 << at) != 0).collect();
            let policy = match policy {
                DepPolicy::AtLeast(_) if parents.is_empty() => DepPolicy::All,
                policy => policy,
            };
            case.plans.push(Plan {
                parents,
                policy,
                retries: 0,
                answers: vec![Answer::Succeeds],
            });
        }
        case
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merges_change_no_end(case in cases(), most in 1..5_usize) {
        play(&case, most);
    }

    #[test]
    fn merges_that_joins_share_change_no_end(case in joined(), most in 1..5_usize) {
        play(&case, most);
    }
}

/// A workflow of so many tasks and of joins of these of them.
fn joins_of(tasks: usize, joins: impl Iterator<Item = Range<usize>>) -> Definition {
    let plan = |parents: Range<usize>| Plan {
        parents: parents.collect(),
        policy: DepPolicy::All,
        retries: 0,
        answers: Vec::new(),
    };
    let plans = std::iter::repeat_n(0..0, tasks).chain(joins).map(plan);
    let plans: Vec<_> = plans.collect();
    definition_of(
        &plans,
        ResultPolicy::AllSinksSucceed,
        OnFailure::Continue,
        false,
    )
}

#[test]
fn joins_of_the_same_tasks_share_their_merges() {
    let joins = joins_of(300, std::iter::repeat_n(0..300, 300));
    let limited = limit_fan_in(joins, 2).unwrap();
    assert_eq!(limited.tasks.len(), 600 + 149);
    let waits = limited.tasks[..300].iter().map(|task| &task.depends_on);
    assert!(waits.clone().all(|waits| waits.len() <= 1));
    assert_eq!(waits.flatten().count(), 298);
    let mut changes = Changes::default();
    let mut runtime = Runtime::start(graph(&limited), &mut changes);
    run(&mut runtime, &mut changes, |_, _| Answer::Succeeds);
    assert_eq!(runtime.status(), Status::Completed);
}

#[test]
fn joins_share_the_merges_of_the_batches_that_they_have_in_common() {
    let joins = joins_of(6, [0..5, 0..6, 1..6].into_iter());
    let limited = limit_fan_in(joins, 2).unwrap();
    let told = |task: &crate::definition::Task| {
        let waits: Vec<_> = task.depends_on.iter().map(TaskName::as_str).collect();
        format!("{}: {}", task.name, waits.join(" "))
    };
    let merges: Vec<_> = limited.tasks[9..].iter().map(told).collect();
    let expected = [
        "merge-1: t0 t1",
        "merge-2: t2 t3",
        "merge-3: t1 t2",
        "merge-4: t3 t4",
    ];
    assert_eq!(merges, expected);
    let waits: Vec<_> = limited.tasks[..6].iter().map(told).collect();
    let expected = [
        "t0: ",
        "t1: ",
        "t2: merge-1",
        "t3: merge-1 merge-3",
        "t4: merge-2 merge-3",
        "t5: merge-2 merge-4",
    ];
    assert_eq!(waits, expected);
}

/// Joins of windows of the same tasks, no two of which have a batch in common: merges triple the dependencies.
#[test]
fn merges_that_make_a_definition_too_large_are_refused_with_what_they_make_of_it() {
    let (batch, batches) = (420, 11);
    let windows = (0..batch).map(|first| first..first + batch * batches);
    let joins = joins_of(batch * (batches + 1), windows);
    let tasks = joins.tasks.len() + batch * (batches - 1);
    let dependencies = batch * batch * (batches + 2 * (batches - 1));
    let limited = limit_fan_in(joins, batch).map(|limited| limited.tasks.len());
    let error = TooManyMerges {
        tasks,
        dependencies,
    };
    assert_eq!(limited, Err(error));
}

#[test]
fn a_wide_join_with_merges_has_no_more_than_a_batch_in_flight() {
    let yaml = (0..500)
        .map(|place| format!("t{place}"))
        .collect::<Vec<_>>();
    let tasks = yaml
        .iter()
        .map(|name| format!("{{name: {name}, cmd: x}}, "));
    let tasks = tasks.collect::<String>();
    let join = yaml.join(", ");
    let yaml = format!("tasks: [{tasks}{{name: join, cmd: x, depends_on: [{join}]}}]");
    let limited = limit_fan_in(definition(&yaml), 32).unwrap();
    assert_eq!(limited.tasks.len(), 501 + 15);
    let mut changes = Changes::default();
    let mut runtime = Runtime::start(graph(&limited), &mut changes);
    assert_eq!(run(&mut runtime, &mut changes, |_, _| Answer::Succeeds), 32);
    assert_eq!(runtime.status(), Status::Completed);
}

#[test]
fn a_merge_is_called_as_no_task_is_and_a_narrow_workflow_has_none() {
    let yaml = "tasks: [{name: merge-1, cmd: x}, {name: b, cmd: x}, {name: c, cmd: x, depends_on: [merge-1, b]}]";
    let narrow = definition(yaml);
    assert_eq!(limit_fan_in(narrow.clone(), 2).as_ref(), Ok(&narrow));
    let limited = limit_fan_in(narrow, 1).unwrap();
    let names: Vec<_> = limited
        .tasks
        .iter()
        .map(|task| task.name.as_str())
        .collect();
    assert_eq!(names, ["merge-1", "b", "c", "merge-2"]);
}
