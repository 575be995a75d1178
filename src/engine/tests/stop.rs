//! What `on_failure: cancel` promises: a failure stops the rest, and leaves cleanups and notifiers.

use super::*;

const STOPS: &str = "
on_failure: cancel
tasks:
  - {name: a, cmd: x}
  - {name: b, cmd: x, depends_on: [a]}
  - {name: below, cmd: x, depends_on: [b]}
  - {name: c, cmd: x}
  - {name: d, cmd: x, depends_on: [c]}
  - {name: cleanup, cmd: x, depends_on: [below, c, d], dep_policy: always, num_retries: 1}
  - {name: notify, cmd: x, depends_on: [d], dep_policy: on_failure}
  - {name: after, cmd: x, depends_on: [notify]}
";

fn reason<'w>(world: &'w World, task: &str) -> Option<&'w str> {
    world.task(task).reason.as_deref()
}

const WHY: Option<&str> = Some("stopped because task `b` failed");

/// `b` has failed while `c` runs.
fn stopped() -> World {
    let mut world = World::of(STOPS);
    world.send("c");
    world.succeed("a");
    world.send("b");
    world.fail("b");
    world
}

#[test]
fn a_failure_stops_what_does_not_depend_on_it() {
    let mut world = stopped();
    assert_eq!(world.states(), "cfudxprx");
    assert_eq!(world.status(), Status::Running);
    assert_eq!((reason(&world, "d"), reason(&world, "after")), (WHY, WHY));
    assert_eq!(world.task("below").root_cause, Some(world.ix("b")));
    assert_eq!(world.made_ready(), ["a", "c", "b", "notify"]);
    world.end("c", Outcome::Cancelled(Generation::FIRST));
    assert_eq!(
        (world.states().as_str(), reason(&world, "c")),
        ("cfuxxrrx", WHY)
    );
}

#[test]
fn a_stop_leaves_cleanups_and_notifiers_and_their_retries() {
    let mut world = World::of(
        "{on_failure: cancel, tasks: [{name: bad, cmd: x}, {name: other, cmd: x}, {name: cleanup, cmd: x, depends_on: [other], dep_policy: always, num_retries: 1}]}",
    );
    world.fail("bad");
    assert_eq!(world.states(), "fdp");
    world.end("other", Outcome::Cancelled(Generation::FIRST));
    assert_eq!(world.states(), "fxr");
    world.fail("cleanup");
    assert_eq!(world.states(), "fxr", "it is tried again");
    world.succeed("cleanup");
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("fxc", Status::Failed)
    );
}

#[test]
fn a_result_that_comes_after_a_stop_counts() {
    let mut world = stopped();
    world.succeed("c");
    assert_eq!(world.states(), "cfucxrrx", "and `d` stays stopped");
}

#[test]
fn a_failure_after_a_stop_is_not_tried_again() {
    let mut world = World::of(
        "{on_failure: cancel, tasks: [{name: a, cmd: x}, {name: b, cmd: x, num_retries: 3}]}",
    );
    world.fail("b");
    assert_eq!(
        world.states(),
        "rr",
        "a failure that is tried again stops nothing"
    );
    world.send("b");
    world.fail("a");
    assert_eq!(world.states(), "fd");
    world.fail("b");
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("ff", Status::Failed)
    );
    assert_eq!(world.runtime.stop_in_force().unwrap().task, world.ix("a"));
}

#[test]
fn a_stop_ends_at_once_what_was_certainly_not_sent() {
    let yaml = "{on_failure: cancel, tasks: [{name: a, cmd: x}, {name: ready, cmd: x}, {name: waits, cmd: x, num_retries: 1}]}";
    for (maybe_sent, secs_later, states) in [(false, 0, "fxx"), (true, 0, "fdx"), (true, 60, "fdd")]
    {
        let mut world = World::of(yaml);
        world.fail("waits");
        world.now = Timestamp::from_second(secs_later).unwrap();
        world.maybe_sent = maybe_sent;
        world.fail("a");
        assert_eq!(world.states(), states);
    }
}

#[test]
fn what_became_ready_in_the_same_write_was_not_sent() {
    let mut world = World::of(STOPS);
    world.succeed("a");
    let (b, c) = (world.id("b"), world.id("c"));
    let retry = RetryAfter {
        now: world.now,
        delay: Duration::ZERO,
    };
    let mut changes = Changes::default();
    for (id, outcome) in [(c, Outcome::Succeeded), (b, failed())] {
        let applied =
            world
                .runtime
                .apply_report(id, report(outcome), retry, |_, _| true, &mut changes);
        assert_eq!(applied, Applied::Changed);
    }
    assert_eq!(world.states(), "cfucxrrx", "`d` was ready for a moment");
}

#[test]
fn a_message_that_can_never_be_sent_stops_the_rest() {
    let mut world =
        World::of("{on_failure: cancel, tasks: [{name: a, cmd: x}, {name: b, cmd: x}]}");
    let AttemptId { task, attempt, .. } = world.id("a");
    let now = world.now;
    let too_large = failure(FailureKind::Send, true);
    let applied = world.event(|runtime, changes| {
        runtime.refuse(task, attempt, too_large, now, |_, _| false, changes)
    });
    assert_eq!(applied, Applied::Changed);
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("fx", Status::Failed)
    );
}

#[test]
fn the_end_of_the_grace_ends_a_stop_and_lets_the_cleanup_run() {
    let mut world = stopped();
    assert_eq!(world.runtime.grace_used(), Some(Duration::ZERO));
    world.runtime.use_grace(Duration::from_millis(1_500));
    assert_eq!(
        world.runtime.grace_used(),
        Some(Duration::from_millis(1_500))
    );
    assert_eq!(world.event(Runtime::end_grace), Applied::Changed);
    assert_eq!(world.states(), "cfuxxrrx");
    assert_eq!(
        reason(&world, "c"),
        Some("stopped because task `b` failed; no worker answered within the cancel grace")
    );
    assert_eq!(
        world.runtime.grace_used(),
        None,
        "a stop waits for no cleanup"
    );
    assert_eq!(world.event(Runtime::end_grace), Applied::OldNews);
    world.succeed("cleanup");
    world.succeed("notify");
    assert_eq!(world.status(), Status::Failed);
}

#[test]
fn a_cancel_during_a_stop_ends_every_kind_and_has_a_grace_of_its_own() {
    let mut world = stopped();
    world.send("notify");
    world.runtime.use_grace(Duration::from_secs(5));
    assert_eq!(world.cancel(true), Applied::Changed);
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("cfudxxdx", Status::Cancelling)
    );
    assert_eq!(world.runtime.grace_used(), Some(Duration::ZERO));
    world.end("notify", Outcome::Cancelled(Generation::FIRST));
    world.end("c", Outcome::Cancelled(Generation::FIRST));
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("cfuxxxxx", Status::Cancelled)
    );
    assert_eq!(reason(&world, "c"), None, "the cancel may have been first");
}

#[test]
fn a_stopped_workflow_has_failed_though_its_sinks_succeeded() {
    let yaml = "tasks: [{name: a, cmd: x}, {name: b, cmd: x}, {name: one, cmd: x, depends_on: [a, b], dep_policy: any}]";
    for (key, status) in [("continue", Status::Completed), ("cancel", Status::Failed)] {
        let mut world = World::of(&format!("on_failure: {key}\n{yaml}"));
        world.succeed("a");
        world.succeed("one");
        world.fail("b");
        assert_eq!((world.states().as_str(), world.status()), ("cfc", status));
    }
}

#[test]
fn a_retry_after_a_stop_runs_again_what_was_stopped_and_clears_it() {
    let mut world = stopped();
    world.end("c", Outcome::Cancelled(Generation::FIRST));
    world.succeed("notify");
    world.succeed("cleanup");
    world.made_ready();
    assert_eq!(world.rerun(), Applied::Changed);
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("crprpppp", Status::Running)
    );
    assert_eq!(world.runtime.stop_in_force(), None);
    for task in ["b", "below", "c", "d", "cleanup"] {
        world.succeed(task);
    }
    assert_eq!(
        (world.states().as_str(), world.status()),
        ("ccccccsr", Status::Running)
    );
}

#[test]
fn a_load_draws_a_stop_that_the_stored_state_left_undrawn() {
    let world = stopped();
    let mut tasks = world.runtime.tasks().to_vec();
    let undo = |tasks: &mut Vec<TaskRun>, at: usize, state| {
        tasks[at].state = state;
        tasks[at].reason = None;
    };
    undo(&mut tasks, 3, TaskState::Ready);
    undo(&mut tasks, 4, TaskState::Pending);
    let parts = Parts {
        generation: Generation::FIRST,
        cancel: None,
        stop: None,
        first_failure: None,
        tasks,
    };
    let mut changes = Changes::default();
    let runtime = Runtime::restore(graph(&definition(STOPS)), parts, &mut changes);
    assert_eq!(runtime.stop_in_force(), world.runtime.stop_in_force());
    assert_eq!(RuntimeRecord::tasks_of(&runtime).0, "cfudxprx");
    assert_eq!(runtime.task(world.ix("d")).reason.as_deref(), WHY);
}
