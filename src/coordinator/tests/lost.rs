//! Messages that are gone, and what only looks like it (P26). What counts as lost is tested beside the decision.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::protocol::{read_claim, write_claim};
use crate::record::{ClaimRecord, Token};

const TWO: &str = "tasks: [{name: a, cmd: x}, {name: b, cmd: x}]";
const ONE: &str = "tasks: [{name: a, cmd: x}]";

/// A world that counts how often the search has looked at a queue, and in which completions can be kept from the coordinator.
struct Watched {
    world: World,
    store: Store,
    looks: Arc<AtomicU64>,
    is_deaf: Arc<AtomicBool>,
    queue: Queue,
}

impl Watched {
    async fn new() -> Self {
        let world = World::new().await;
        let (looks, is_deaf) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, deaf) = (Arc::clone(&looks), Arc::clone(&is_deaf));
        let faults = Faults::script().hook(move |op, _| {
            if *op == Op::QueueDepth {
                count.fetch_add(1, Ordering::SeqCst);
            }
            let is_lost = *op == Op::QueueReceive && deaf.load(Ordering::SeqCst);
            is_lost.then_some(Fault::RequestLost)
        });
        let (store, _) = faults.wrap(world.store.clone(), world.env.clone());
        let queue = world.layout.task_queue(&"default".parse().expect("legal"));
        world
            .store
            .queues
            .create_queue(&queue)
            .await
            .expect("memory");
        Self {
            world,
            store,
            looks,
            is_deaf,
            queue,
        }
    }

    fn coordinator(&self, holder: &str) -> TaskHandle {
        let config = Config {
            holder: holder.to_owned(),
            lost_dispatch_threshold: Duration::from_millis(100),
            break_lease: true,
            ..World::config()
        };
        self.world.coordinator_over(&self.store, config).0
    }

    /// The next message, which somebody deletes.
    async fn delete_next(&self) -> TaskMessage {
        let queues = &self.world.store.queues;
        let message = self
            .world
            .until("a task message", async || {
                let received = queues.receive(&self.queue, 1, PATIENCE).await;
                received.expect("memory").pop()
            })
            .await;
        queues
            .delete(&self.queue, &message.receipt)
            .await
            .expect("held");
        decode_message(&message.body).expect("ours")
    }

    /// Waits until the search has looked often enough to have found whatever it could.
    async fn looked(&self) {
        let before = self.looks.load(Ordering::SeqCst);
        self.world
            .until("many looks", async || {
                (self.looks.load(Ordering::SeqCst) >= before + 15).then_some(())
            })
            .await;
    }

    async fn depth(&self) -> u64 {
        self.world.depth(&self.queue).await
    }

    /// A live claim on what `task` speaks of.
    async fn claim(&self, task: &TaskMessage) -> ClaimRecord {
        let world = &self.world;
        let claim = ClaimRecord {
            schema: 1,
            workflow_id: task.workflow_id.clone(),
            run_id: task.run_id,
            generation: task.generation,
            task: task.task.clone(),
            attempt_no: task.attempt_no,
            token: Token::new(world.env.uuid()),
            worker: "host/1".to_owned(),
            host: "host".to_owned(),
            started_at: world.env.wall(),
            visibility_s: 60,
            starts: 1,
            interruptions: 0,
            freed: false,
        };
        write_claim(&world.store, &world.layout, &claim, &Expect::Absent)
            .await
            .expect("memory");
        claim
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_message_was_deleted_is_sent_again_marked() {
    let watched = Watched::new().await;
    let _task = watched.coordinator("test/1");
    watched.world.submit("deleted", ONE).await;
    let first = watched.delete_next().await;
    assert!(!first.again);
    let second = watched.world.next_task("default").await;
    assert_eq!(
        (second.task, second.attempt_no, second.again),
        (first.task, first.attempt_no, true)
    );
    watched.looked().await;
    assert_eq!(watched.depth().await, 1, "once, while it is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_was_cleared_is_filled_again() {
    let watched = Watched::new().await;
    let _task = watched.coordinator("test/1");
    watched.world.submit("cleared", TWO).await;
    for _ in 0..2 {
        watched.delete_next().await;
    }
    let mut again = [
        watched.world.next_task("default").await.task.to_string(),
        watched.world.next_task("default").await.task.to_string(),
    ];
    again.sort();
    assert_eq!(again, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_not_taken_for_a_loss() {
    let watched = Watched::new().await;
    let _task = watched.coordinator("test/1");
    let tasks: Vec<_> = (0..50)
        .map(|n| format!("  - {{name: t{n}, cmd: x}}\n"))
        .collect();
    watched
        .world
        .submit("backlog", &format!("tasks:\n{}", tasks.concat()))
        .await;
    // Two are with workers, one of them long enough to have a claim.
    let taken = watched.world.next_task("default").await;
    watched.world.next_task("default").await;
    watched.claim(&taken).await;
    watched.looked().await;
    assert_eq!(watched.depth().await, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_with_a_live_claim_is_not_sent_again_until_the_claim_ends() {
    let watched = Watched::new().await;
    let _task = watched.coordinator("test/1");
    watched.world.submit("claimed", ONE).await;
    let held = watched.delete_next().await;
    let claim = watched.claim(&held).await;
    watched.looked().await;
    assert_eq!(watched.depth().await, 0);
    let world = &watched.world;
    let found = read_claim(&world.store, &world.layout, &held.workflow_id, &held.task)
        .await
        .expect("memory")
        .expect("written");
    let freed = ClaimRecord {
        freed: true,
        ..claim
    };
    write_claim(
        &world.store,
        &world.layout,
        &freed,
        &Expect::Version(found.etag),
    )
    .await
    .expect("memory");
    assert!(world.next_task("default").await.again);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_again_while_completions_wait_to_be_received() {
    let watched = Watched::new().await;
    let _task = watched.coordinator("test/1");
    let id = watched.world.submit("waits", ONE).await;
    watched.world.marked(&id).await;
    watched.is_deaf.store(true, Ordering::SeqCst);
    let done = watched.delete_next().await;
    watched.world.answer(&done, Outcome::Succeeded).await;
    watched.looked().await;
    assert_eq!(watched.depth().await, 0, "its end waits to be received");
    watched.is_deaf.store(false, Ordering::SeqCst);
    assert_eq!(watched.world.ended(&id).await.states, "c");
    assert_eq!(watched.depth().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_workflow_is_not_sent_again() {
    let watched = Watched::new().await;
    let _task = watched.coordinator("test/1");
    let id = watched.world.submit("cancelled", ONE).await;
    watched.delete_next().await;
    watched.world.marked(&id).await;
    watched.world.ask(&id, ControlAction::Cancel).await;
    watched
        .world
        .until("the cancel", async || {
            let state = watched.world.state(&id).await?;
            (state.status == Status::Cancelling).then_some(())
        })
        .await;
    while let Some(message) = watched
        .world
        .store
        .queues
        .receive(&watched.queue, 1, PATIENCE)
        .await
        .expect("memory")
        .pop()
    {
        // Sent again before the cancel was applied.
        let queues = &watched.world.store.queues;
        queues
            .delete(&watched.queue, &message.receipt)
            .await
            .expect("held");
    }
    watched.looked().await;
    assert_eq!(watched.depth().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_leader_sent_is_sent_again_by_the_next() {
    let watched = Watched::new().await;
    let first = watched.coordinator("test/1");
    let id = watched.world.submit("inherited", ONE).await;
    watched.world.marked(&id).await;
    killed(first).await;
    watched.delete_next().await;
    let _second = watched.coordinator("test/2");
    let again = watched.world.next_task("default").await;
    assert_eq!((again.epoch.number(), again.again), (2, true));
    watched.world.answer(&again, Outcome::Succeeded).await;
    assert_eq!(watched.world.ended(&id).await.states, "c");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_message_of_a_stopped_task_is_not_sent_again() {
    let watched = Watched::new().await;
    let world = &watched.world;
    let _task = watched.coordinator("test/1");
    let yaml = "{on_failure: cancel, tasks: [{name: bad, cmd: x}, {name: long, cmd: x}]}";
    let id = world.submit("stopped", yaml).await;
    let queues = &world.store.queues;
    let mut taken = Vec::new();
    world
        .until("both messages", async || {
            let received = queues.receive(&watched.queue, 2, PATIENCE).await;
            taken.extend(received.expect("memory"));
            (taken.len() == 2).then_some(())
        })
        .await;
    let tasks = taken.iter().map(|message| decode_message(&message.body));
    let bad = tasks
        .map(|task| task.expect("ours"))
        .find(|task: &TaskMessage| task.task.as_str() == "bad");
    world.answer(&bad.expect("sent"), failed()).await;
    world.until_states(&id, "fd").await;
    for message in &taken {
        let deleted = queues.delete(&watched.queue, &message.receipt).await;
        deleted.expect("held");
    }
    watched.looked().await;
    assert_eq!(watched.depth().await, 0);
}
