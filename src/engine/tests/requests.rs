//! What people ask for: cancels, and retries of what has ended.

use super::*;

#[test]
fn a_cancel_ends_at_once_what_no_worker_has() {
    let mut world = World::of(DIAMOND);
    assert_eq!(world.cancel(false), Applied::Changed);
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("xxxx", Status::Cancelled)
    );
    assert_eq!(world.changes.ended.len(), 4);
    assert_eq!(world.cancel(false), Applied::OldNews);
}

#[test]
fn a_cancel_waits_for_what_a_worker_may_have() {
    let mut world = World::of(
        "tasks: [{name: sent, cmd: x}, {name: perhaps, cmd: x}, {name: done, cmd: x}, {name: below, cmd: x, depends_on: [sent]}]",
    );
    world.send("sent");
    world.succeed("done");
    assert_eq!(world.cancel(true), Applied::Changed);
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("ddcx", Status::Cancelling)
    );
    world.succeed("sent");
    assert_eq!(
        world.states(),
        "cdcx",
        "nothing becomes ready while a cancel is applied"
    );
    world.end("perhaps", Outcome::Cancelled(Generation::FIRST));
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("cxcx", Status::Cancelled)
    );
}

#[test]
fn a_failure_after_a_cancel_is_not_tried_again() {
    let mut world = World::of("tasks: [{name: a, cmd: x, num_retries: 3}]");
    assert_eq!(world.cancel(true), Applied::Changed);
    world.fail("a");
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("f", Status::Cancelled)
    );
}

#[test]
fn a_waiting_retry_is_cancelled_at_once_and_one_whose_time_has_come_may_be_with_a_worker() {
    for (secs_later, states) in [(0, "x"), (60, "d")] {
        let mut world = World::of("tasks: [{name: a, cmd: x, num_retries: 3}]");
        world.fail("a");
        world.now = Timestamp::from_second(secs_later).unwrap();
        assert_eq!(world.cancel(true), Applied::Changed);
        assert_eq!(
            (world.states().as_str(), world.task("a").due),
            (states, None)
        );
    }
}

#[test]
fn the_end_of_the_grace_ends_a_cancel_without_a_worker() {
    let mut world = World::of(DIAMOND);
    world.send("a");
    assert_eq!(world.cancel(true), Applied::Changed);
    world.runtime.use_grace(Duration::from_millis(1_500));
    world.runtime.use_grace(Duration::from_millis(500));
    assert_eq!(world.runtime.cancel_applied().unwrap().grace_used_ms, 2_000);
    assert_eq!(
        world.runtime.end_grace(&mut world.changes),
        Applied::Changed
    );
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("xxxx", Status::Cancelled)
    );
    assert!(world.task("a").reason.as_deref().unwrap().contains("grace"));
}

#[test]
fn a_workflow_that_has_ended_cannot_be_cancelled() {
    let mut world = World::of("tasks: [{name: a, cmd: x}]");
    world.succeed("a");
    assert_eq!(world.cancel(true), Applied::OldNews);
    assert_eq!(world.status(), Status::Completed);
}

#[test]
fn a_retry_takes_the_blocked_children_along() {
    let mut world = World::of(
        "tasks: [{name: a, cmd: x, num_retries: 1}, {name: b, cmd: x, depends_on: [a]}, {name: c, cmd: x, depends_on: [b]}, {name: ok, cmd: x}]",
    );
    world.fail("a");
    world.fail("a");
    world.succeed("ok");
    assert_eq!(world.rerun(), Applied::Changed);
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("rppc", Status::Running)
    );
    assert_eq!(world.runtime.generation(), Generation::new(2));
    assert_eq!(world.runtime.first_failure(), None);
    assert_eq!(
        (world.task("a").attempt, world.task("a").failures),
        (Attempt::new(3), 0)
    );
    world.fail("a");
    for task in ["a", "b", "c"] {
        world.succeed(task);
    }
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("cccc", Status::Completed)
    );
    assert_eq!(
        world.task("ok").attempt,
        Attempt::new(1),
        "what succeeded is kept"
    );
}

#[test]
fn a_retry_asks_again_the_cleanup_that_ran_past_the_failure() {
    let mut world = World::of(
        "tasks: [{name: a, cmd: x}, {name: z, cmd: x, depends_on: [a], dep_policy: always}, {name: b, cmd: x, depends_on: [a]}, {name: alarm, cmd: x, depends_on: [a], dep_policy: on_failure}, {name: quiet, cmd: x, depends_on: [z], dep_policy: on_failure}]",
    );
    world.fail("a");
    world.succeed("z");
    world.succeed("alarm");
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("fcucs", Status::Failed)
    );
    assert_eq!(world.rerun(), Applied::Changed);
    assert_eq!(world.states(), "rpppp");
    world.succeed("a");
    world.succeed("z");
    world.succeed("b");
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("cccss", Status::Completed)
    );
    assert_eq!(world.task("z").attempt, Attempt::new(2));
}

#[test]
fn a_retry_of_what_has_nothing_to_run_again_is_refused() {
    let mut world = World::of("tasks: [{name: a, cmd: x}]");
    assert_eq!(world.rerun(), Applied::OldNews);
    world.succeed("a");
    assert_eq!(world.rerun(), Applied::OldNews);
    assert_eq!(
        (world.states().as_str(), world.runtime.generation()),
        ("c", Generation::FIRST)
    );
}

#[test]
fn a_cancelled_workflow_can_be_retried() {
    let mut world = World::of(DIAMOND);
    world.succeed("a");
    assert_eq!(world.cancel(false), Applied::Changed);
    assert_eq!(world.states(), "cxxx");
    assert_eq!(world.rerun(), Applied::Changed);
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("crrp", Status::Running)
    );
    for task in ["b", "c", "d"] {
        world.succeed(task);
    }
    assert_eq!(world.status(), Status::Completed);
}
