//! Stops: a failure ends the rest of a workflow with `on_failure: cancel`.

use super::*;

const TWO_CHAINS: &str = "
on_failure: cancel
tasks:
  - {name: a, cmd: 'true'}
  - {name: b, cmd: 'true', depends_on: [a]}
  - {name: c, cmd: 'true', num_retries: 3}
  - {name: d, cmd: 'true', depends_on: [c]}
  - {name: cleanup, cmd: 'true', depends_on: [b, d, c], dep_policy: always}
";

impl World {
    async fn stopping(&self, id: &WorkflowId) -> Option<Generation> {
        let row = read_row(&self.store, &self.layout, id).await;
        row.expect("memory")?.record.stopping
    }

    /// `b` has failed while `c` is with a worker, whose message is returned.
    async fn stopped(&self, id: &WorkflowId) -> TaskMessage {
        let [a, c] = self.next_two("default").await;
        assert!(!c.survives_stop);
        self.answer(&a, Outcome::Succeeded).await;
        let b = self.next_task("default").await;
        self.answer(&b, failed()).await;
        self.until_states(id, "cfdxp").await;
        c
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_ends_the_rest_and_the_row_tells_the_workers() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("stops", TWO_CHAINS).await;
    let c = world.stopped(&id).await;
    let shown = world.env.mono();
    world
        .until("the row to show it", async || world.stopping(&id).await)
        .await;
    // A row that only counts waits for two seconds.
    assert!(world.env.mono().since(shown) < Duration::from_millis(1_500));
    world
        .answer(&c, Outcome::Cancelled(Generation::FIRST))
        .await;
    let cleanup = world.next_task("default").await;
    assert_eq!(
        (cleanup.task.as_str(), cleanup.survives_stop),
        ("cleanup", true)
    );
    world.answer(&cleanup, Outcome::Succeeded).await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str(), state.cancel),
        (Status::Failed, "cfxxc", None),
        "what a worker says because of a stop is no cancel of a person"
    );
    let reason = state.tasks[3].reason.as_deref();
    assert_eq!(reason, Some("stopped because task `b` failed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_no_worker_answers_ends_with_the_grace_and_the_cleanup_runs() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        cancel_grace: Duration::from_millis(300),
        ..World::config()
    });
    let id = world.submit("alone", TWO_CHAINS).await;
    world.stopped(&id).await;
    let cleanup = world.next_task("default").await;
    world.answer(&cleanup, Outcome::Succeeded).await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Failed, "cfxxc")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_leader_goes_on_with_a_stop_and_a_failure_is_then_the_last() {
    let world = World::new().await;
    let (task, _) = world.coordinator(World::config());
    let id = world.submit("inherited", TWO_CHAINS).await;
    let c = world.stopped(&id).await;
    world.stop.cancel();
    task.join().await;
    let next = World {
        stop: CancellationToken::new(),
        ..world
    };
    let (_task, _) = next.coordinator(World::config());
    next.answer(&c, failed()).await;
    let cleanup = next.next_task("default").await;
    next.answer(&cleanup, Outcome::Succeeded).await;
    let state = next.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Failed, "cffxc")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_during_a_stop_ends_the_cleanup_too() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("both", TWO_CHAINS).await;
    let c = world.stopped(&id).await;
    world.ask(&id, ControlAction::Cancel).await;
    world.until_states(&id, "cfdxx").await;
    world
        .answer(&c, Outcome::Cancelled(Generation::FIRST))
        .await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Cancelled, "cfxxx")
    );
    // The row, too, tells who cancelled it, although a task had failed.
    let row = world.until("the final row", async || {
        let row = read_row(&world.store, &world.layout, &id).await;
        row.expect("memory")
            .filter(|row| row.record.status.is_final())
    });
    assert_eq!(row.await.record.reason, "cancelled by test");
}

/// A stop never ends a cleanup, so its worker has read a person's request.
#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_was_cancelled_is_a_cancel_by_a_person() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("proof", TWO_CHAINS).await;
    let c = world.stopped(&id).await;
    world
        .answer(&c, Outcome::Cancelled(Generation::FIRST))
        .await;
    let cleanup = world.next_task("default").await;
    world
        .answer(&cleanup, Outcome::Cancelled(Generation::FIRST))
        .await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Cancelled, "cfxxx")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_a_stop_runs_to_the_end() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("again", TWO_CHAINS).await;
    let c = world.stopped(&id).await;
    world
        .answer(&c, Outcome::Cancelled(Generation::FIRST))
        .await;
    let cleanup = world.next_task("default").await;
    world.answer(&cleanup, Outcome::Succeeded).await;
    world.ended(&id).await;
    world.ask(&id, ControlAction::Retry).await;
    world.worker("default", succeed());
    world.until_states(&id, "ccccc").await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.generation),
        (Status::Completed, Generation::new(2))
    );
    assert_eq!(state.stop, None);
    assert_eq!(
        world.stopping(&id).await,
        Some(Generation::FIRST),
        "the field names what is over"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_refused_for_good_stops_the_rest() {
    let world = World::new().await;
    let faults = Faults::script().hook(|op, path| {
        (*op == Op::QueueSend && path.ends_with("q-bad")).then_some(Fault::Refused)
    });
    let (store, _injector) = faults.wrap(world.store.clone(), world.env.clone());
    let (_task, _) = world.coordinator_over(&store, World::config());
    let yaml = "
on_failure: cancel
tasks:
  - {name: first, cmd: x}
  - {name: bad, cmd: x, depends_on: [first], queue: bad}
  - {name: long, cmd: x}
  - {name: after, cmd: x, depends_on: [long]}
";
    let id = world.submit("refused", yaml).await;
    let [first, long] = world.next_two("default").await;
    world.answer(&first, Outcome::Succeeded).await;
    world.until_states(&id, "cfdx").await;
    world
        .answer(&long, Outcome::Cancelled(Generation::FIRST))
        .await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Failed, "cfxx")
    );
}
