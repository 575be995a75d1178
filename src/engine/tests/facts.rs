//! Named facts, each on the smallest workflow that shows it.

use super::*;
use crate::definition::{Command, DepPolicy, OnFailure, QueueName, ResultPolicy, Task};

#[test]
fn tasks_become_ready_when_what_they_wait_for_has_ended() {
    let mut world = World::of(DIAMOND);
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("rppp", Status::Running)
    );
    world.succeed("a");
    world.succeed("c");
    assert_eq!(world.states(), "crcp");
    world.succeed("b");
    world.succeed("d");
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("cccc", Status::Completed)
    );
    assert_eq!(world.made_ready(), ["a", "b", "c", "d"]);
}

#[test]
fn a_failure_blocks_all_below_and_names_where_it_began() {
    let mut world = World::of(
        "tasks: [{name: a, cmd: x}, {name: b, cmd: x, depends_on: [a]}, {name: c, cmd: x, depends_on: [b]}, {name: other, cmd: x}]",
    );
    world.fail("a");
    assert_eq!(world.states(), "fuur");
    assert_eq!(world.task("b").root_cause, Some(world.ix("a")));
    assert_eq!(world.task("c").root_cause, Some(world.ix("a")));
    assert_eq!(world.task("a").root_cause, None);
    assert_eq!(
        world.runtime.first_failure(),
        Some("task `a` failed: exit code 1")
    );
    assert_eq!(world.status(), Status::Running, "`other` goes on");
    world.succeed("other");
    assert_eq!(world.status(), Status::Failed);
}

#[test]
fn a_failure_leaves_an_independent_branch_alone() {
    let mut world = World::of(
        "tasks: [{name: a, cmd: x}, {name: b, cmd: x, depends_on: [a]}, {name: c, cmd: x}, {name: d, cmd: x, depends_on: [c]}]",
    );
    world.succeed("a");
    world.fail("b");
    world.succeed("c");
    world.succeed("d");
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("cfcc", Status::Failed)
    );
}

#[test]
fn a_task_that_succeeds_on_its_last_attempt_leaves_the_workflow_completed() {
    let mut world = World::of("tasks: [{name: flaky, cmd: x, num_retries: 3}]");
    world.fail("flaky");
    world.fail("flaky");
    world.succeed("flaky");
    assert_eq!(world.status(), Status::Completed);
    assert_eq!(world.task("flaky").attempt, Attempt::new(3));
    assert_eq!(
        world.runtime.first_failure(),
        None,
        "a retried failure is not the workflow's"
    );
}

#[test]
fn a_budget_of_three_retries_is_exactly_four_attempts() {
    let mut world = World::of(
        "tasks: [{name: flaky, cmd: x, num_retries: 3}, {name: below, cmd: x, depends_on: [flaky]}]",
    );
    for _ in 0..4 {
        assert_eq!(world.status(), Status::Running);
        world.fail("flaky");
    }
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("fu", Status::Failed)
    );
    assert_eq!(world.task("flaky").attempt, Attempt::new(4));
    assert_eq!(world.made_ready().len(), 4);
}

#[test]
fn a_final_failure_is_not_tried_again() {
    let mut world = World::of("tasks: [{name: a, cmd: x, num_retries: 3}]");
    world.end("a", Outcome::Failed(failure(FailureKind::Deliveries, true)));
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("f", Status::Failed)
    );
}

#[test]
fn a_retry_waits_for_its_time_and_only_while_it_is_ready() {
    let mut world = World::of("tasks: [{name: a, cmd: x, num_retries: 2}]");
    world.fail("a");
    let due = world.task("a").due.unwrap();
    assert_eq!((due.at.as_second(), due.delay_ms), (5, 5_000));
    world.send("a");
    assert_eq!((world.states().as_str(), world.task("a").due), ("d", None));
    world.fail("a");
    world.succeed("a");
    assert_eq!(
        world.task("a").due,
        None,
        "its result came before the mark of its sending"
    );
}

#[test]
fn the_wait_before_a_retry_doubles_to_a_cap() {
    let secs = |failures| retry_delay_limit(failures).as_secs();
    assert_eq!(
        [1, 2, 3, 6, 7, 64, 65, u32::MAX].map(secs),
        [1, 2, 4, 32, 60, 60, 60, 60]
    );
}

#[test]
fn a_message_that_can_never_be_sent_fails_its_task_whatever_the_budget() {
    let mut world =
        World::of("tasks: [{name: a, cmd: x, num_retries: 5}, {name: b, cmd: x, depends_on: [a]}]");
    let AttemptId { task, attempt, .. } = world.id("a");
    let too_large = failure(FailureKind::Send, true);
    let earlier = Attempt::NONE;
    let refused = world.runtime.refuse(
        task,
        earlier,
        too_large.clone(),
        world.now,
        |_, _| true,
        &mut world.changes,
    );
    assert_eq!(refused, Applied::OldNews);
    let refused = world.runtime.refuse(
        task,
        attempt,
        too_large,
        world.now,
        |_, _| true,
        &mut world.changes,
    );
    assert_eq!(refused, Applied::Changed);
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("fu", Status::Failed)
    );
    assert_eq!(world.task("a").reason.as_deref(), Some("exit code 1"));
}

#[test]
fn old_news_changes_nothing_and_is_told_apart_from_what_was_never_issued() {
    let mut world = World::of(
        "tasks: [{name: a, cmd: x, num_retries: 1}, {name: b, cmd: x, depends_on: [a]}, {name: c, cmd: x}]",
    );
    let first = world.id("a");
    world.fail("a");
    world.fail("a");
    world.succeed("c");
    assert_eq!(world.rerun(), Applied::Changed);
    let (before, seen) = (stored(&world.runtime), world.changes.clone());
    let (a, b) = (world.id("a"), world.id("b"));
    let later = |id: AttemptId| AttemptId {
        attempt: id.attempt.next(),
        ..id
    };
    let next_life = |id: AttemptId| AttemptId {
        generation: id.generation.next(),
        ..id
    };
    let past_life = |id: AttemptId| AttemptId {
        generation: Generation::FIRST,
        ..id
    };
    let news = [
        (first, Applied::OldNews),
        (
            AttemptId {
                generation: a.generation,
                ..first
            },
            Applied::OldNews,
        ),
        (past_life(a), Applied::OldNews),
        (world.id("c"), Applied::OldNews),
        (later(a), Applied::Unissued),
        (next_life(a), Applied::Unissued),
        (b, Applied::Unissued),
    ];
    for (id, expected) in news {
        assert_eq!(world.runtime.place_of(id), expected, "{id:?}");
        assert_eq!(world.apply(id, Outcome::Succeeded), expected, "{id:?}");
    }
    assert_eq!(
        world.runtime.mark_sent(first.task, first.attempt),
        Applied::OldNews
    );
    assert_eq!(
        world.runtime.end_grace(&mut world.changes),
        Applied::OldNews
    );
    assert_eq!(world.rerun(), Applied::OldNews, "it has not ended");
    assert_eq!(stored(&world.runtime), before);
    assert_eq!(world.changes, seen);
}

#[test]
fn a_duplicate_of_the_other_outcome_does_not_count() {
    let mut world = World::of(DIAMOND);
    let id = world.id("a");
    world.succeed("a");
    assert_eq!(world.apply(id, failed()), Applied::OldNews);
    assert_eq!(world.states(), "crrp");
}

#[test]
fn a_task_that_needs_only_some_keeps_the_inputs_that_had_ended() {
    let mut world = World::of(
        "tasks: [{name: a, cmd: x}, {name: b, cmd: x}, {name: c, cmd: x}, {name: first, cmd: x, depends_on: [a, b, c], dep_policy: any}, {name: two, cmd: x, depends_on: [a, b, c], dep_policy: 2}]",
    );
    world.succeed("b");
    assert_eq!(world.task("first").inputs, Some(vec![world.ix("b")]));
    world.succeed("a");
    assert_eq!(
        world.task("two").inputs,
        Some(vec![world.ix("a"), world.ix("b")])
    );
    assert_eq!(
        world.task("first").inputs,
        Some(vec![world.ix("b")]),
        "fixed when it was made ready"
    );
}

#[test]
fn a_task_that_waits_for_all_needs_no_list_of_inputs() {
    let mut world = World::of(DIAMOND);
    world.succeed("a");
    assert_eq!(world.task("b").inputs, None);
}

#[test]
fn a_notifier_that_is_not_needed_is_skipped_and_the_workflow_is_completed() {
    let mut world = World::of(
        "tasks: [{name: train, cmd: x}, {name: notify, cmd: x, depends_on: [train], dep_policy: on_failure}]",
    );
    world.succeed("train");
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("cs", Status::Completed)
    );
}

#[test]
fn a_failed_task_is_a_sink_when_only_cleanups_and_notifiers_follow() {
    for policy in ["always", "on_failure"] {
        let mut world = World::of(&format!(
            "tasks: [{{name: train, cmd: x}}, {{name: after, cmd: x, depends_on: [train], dep_policy: {policy}}}]"
        ));
        world.fail("train");
        assert_eq!(world.status(), Status::Running);
        world.succeed("after");
        assert_eq!(
            (world.states().as_str(), world.status()),
            ("fc", Status::Failed),
            "{policy}"
        );
    }
}

#[test]
fn a_failure_above_a_sink_that_succeeds_counts_by_the_result_policy() {
    for (policy, status) in [
        ("all_sinks_succeed", Status::Completed),
        ("all_tasks_succeed", Status::Failed),
    ] {
        let mut world = World::of(&format!(
            "result_policy: {policy}\ntasks: [{{name: a, cmd: x}}, {{name: b, cmd: x}}, {{name: join, cmd: x, depends_on: [a, b], dep_policy: all_settled}}]"
        ));
        world.fail("a");
        world.succeed("b");
        world.succeed("join");
        assert_eq!((world.states().as_str(), world.status()), ("fcc", status));
    }
}

#[test]
fn a_workflow_of_skipped_tasks_is_completed() {
    let task = |name: &str, parents: &[&str], dep_policy| Task {
        name: TaskName::new(name).unwrap(),
        cmd: Command::Shell("x".to_owned()),
        env: std::collections::BTreeMap::new(),
        cwd: None,
        depends_on: parents
            .iter()
            .map(|name| TaskName::new(*name).unwrap())
            .collect(),
        queue: None,
        dep_policy,
        num_retries: 0,
        timeout_s: None,
        idempotency_key: None,
    };
    let definition = Definition {
        name: None,
        description: None,
        default_queue: QueueName::new("default").unwrap(),
        max_parallelism: None,
        result_policy: ResultPolicy::AllTasksSucceed,
        on_failure: OnFailure::Continue,
        env: std::collections::BTreeMap::new(),
        tasks: vec![
            task("b", &["a"], DepPolicy::OnFailure),
            task("a", &[], DepPolicy::OnFailure),
        ],
    };
    let mut changes = Changes::default();
    let runtime = Runtime::start(graph(&definition), &mut changes);
    assert_eq!(runtime.status(), Status::Completed);
    assert_eq!((changes.ready.len(), changes.ended.len()), (0, 2));
}

#[test]
fn a_load_draws_what_the_stored_state_left_undrawn() {
    let definition = definition(DIAMOND);
    let mut world = World::of(DIAMOND);
    world.succeed("a");
    world.succeed("b");
    world.succeed("c");
    let undrawn = |mut parts: Vec<TaskRun>| {
        for task in &mut parts[1..] {
            (task.state, task.attempt) = (TaskState::Pending, Attempt::NONE);
        }
        parts
    };
    let parts = Parts {
        generation: Generation::FIRST,
        cancel: None,
        stop: None,
        first_failure: None,
        tasks: undrawn(world.runtime.tasks().to_vec()),
    };
    let mut changes = Changes::default();
    let runtime = Runtime::restore(graph(&definition), parts, &mut changes);
    assert_eq!(changes.ready, [world.ix("b"), world.ix("c")]);
    assert_eq!(RuntimeRecord::tasks_of(&runtime).0, "crrp");
}

/// No leader stores such a state; one that was damaged must still end, and without new work.
#[test]
fn a_load_lets_nothing_become_ready_under_a_cancel() {
    let parts = Parts {
        generation: Generation::FIRST,
        cancel: Some(Cancel {
            applied_at: Timestamp::UNIX_EPOCH,
            grace_used_ms: 0,
        }),
        stop: None,
        first_failure: None,
        tasks: vec![TaskRun::NEW; 4],
    };
    let mut changes = Changes::default();
    let mut runtime = Runtime::restore(graph(&definition(DIAMOND)), parts, &mut changes);
    assert_eq!(changes, Changes::default());
    assert_eq!(runtime.end_grace(&mut changes), Applied::Changed);
    assert_eq!(runtime.status(), Status::Cancelled);
}
