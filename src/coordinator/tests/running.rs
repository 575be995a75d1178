//! Workflows from their activation to their end.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::store::{Fields, Value};

#[tokio::test(flavor = "multi_thread")]
async fn a_diamond_runs_each_task_once_and_ends_completed() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    let id = world.submit("diamond", DIAMOND).await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Completed, "cccc")
    );
    world.drained().await;
    let executed = world.executed.lock().unwrap().clone();
    assert_eq!(executed.len(), 4);
    assert!(executed.values().all(|times| *times == 1), "{executed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_blocks_what_depends_on_it_and_names_the_root_cause() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", failing(&["a"]));
    let id = world
        .submit(
            "train",
            "
tasks:
  - {name: a, cmd: 'false'}
  - {name: b, cmd: 'true', depends_on: [a]}
  - {name: c, cmd: 'true', depends_on: [b]}
  - {name: cleanup, cmd: 'true', depends_on: [c], dep_policy: always}
  - {name: sibling, cmd: 'true'}
",
        )
        .await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Failed, "fuucc")
    );
    assert_eq!(
        state.reason.as_deref(),
        Some("task `a` failed: exit code 1")
    );
    let causes: Vec<_> = state
        .tasks
        .iter()
        .filter_map(|task| task.root_cause)
        .map(crate::engine::TaskIx::at)
        .collect();
    assert_eq!(causes, [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transient_failure_is_tried_again() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker(
        "default",
        Arc::new(|task| {
            Some(if task.attempt_no.number() == 1 {
                failed()
            } else {
                Outcome::Succeeded
            })
        }),
    );
    let id = world
        .submit("flaky", "tasks: [{name: a, cmd: 'true', num_retries: 1}]")
        .await;
    let state = world.ended(&id).await;
    assert_eq!(state.status, Status::Completed);
    assert_eq!(state.tasks[0].attempt_no.number(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_workflow_runs_again_what_failed_and_keeps_the_rest() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let fixed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now_fixed = Arc::clone(&fixed);
    world.worker(
        "default",
        Arc::new(move |task| {
            let well = task.task.as_str() != "b" || fixed.load(std::sync::atomic::Ordering::SeqCst);
            Some(if well { Outcome::Succeeded } else { failed() })
        }),
    );
    let id = world.submit("again", DIAMOND).await;
    assert_eq!(world.ended(&id).await.states, "cfcu");
    now_fixed.store(true, std::sync::atomic::Ordering::SeqCst);
    world.ask(&id, ControlAction::Retry).await;
    let state = world.until_states(&id, "cccc").await;
    assert_eq!(state.generation.number(), 2);
    world.ended(&id).await;
    let executed = world.executed.lock().unwrap().clone();
    assert_eq!(executed.get(&("a".to_owned(), 1)), Some(&1));
    assert_eq!(executed.get(&("b".to_owned(), 2)), Some(&1));
    assert_eq!(executed.len(), 5, "{executed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_an_applied_request_outlives_those_of_refused_ones() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let fails_once = |task: &TaskMessage| task.attempt_no.number() == 1;
    world.worker(
        "default",
        Arc::new(move |task| {
            Some(if fails_once(task) {
                failed()
            } else {
                Outcome::Succeeded
            })
        }),
    );
    let one = "default_queue: default\ntasks: [{name: a, cmd: 'true'}]\n";
    let id = world.submit("crowd", one).await;
    world.ended(&id).await;
    world.ask(&id, ControlAction::Retry).await;
    world.until_states(&id, "c").await;
    for _ in 0..RuntimeRecord::CONTROL_RESULTS_MAX + 4 {
        world.ask(&id, ControlAction::Retry).await;
    }
    world.drained().await;
    let results = world.state(&id).await.unwrap().control_results;
    assert_eq!(results.len(), RuntimeRecord::CONTROL_RESULTS_MAX);
    let applied = results.iter().filter(|result| result.refused.is_none());
    assert_eq!(applied.count(), 1, "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_what_was_not_sent_at_once_and_the_rest_after_the_grace() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        cancel_grace: Duration::from_millis(300),
        ..World::config()
    });
    world.worker("default", Arc::new(|_| None));
    let id = world.submit("cancelled", DIAMOND).await;
    world.marked(&id).await;
    world.ask(&id, ControlAction::Cancel).await;
    world.until_states(&id, "dxxx").await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.status, state.states.as_str()),
        (Status::Cancelled, "xxxx")
    );
}

/// Whoever has asked for it looks at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_was_applied_is_in_the_row_before_what_only_counts() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", Arc::new(|_| None));
    let id = world.submit("cancelling", DIAMOND).await;
    let shows = async |is_so: fn(&IndexRecord) -> bool| {
        let found = read_row(&world.store, &world.layout, &id).await;
        found.unwrap().filter(|found| is_so(&found.record))
    };
    world
        .until("the row to count what was sent", async || {
            shows(|row| row.counts.contains_key("dispatched")).await
        })
        .await;
    let asked = world.env.mono();
    world.ask(&id, ControlAction::Cancel).await;
    world
        .until("the row to show the cancel", async || {
            shows(|row| row.status == Status::Cancelling).await
        })
        .await;
    // A row that only counts waits for two seconds.
    assert!(world.env.mono().since(asked) < Duration::from_millis(1_500));
}

/// The message of a cancel may be lost: the flag on the row is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_only_the_row_asks_for_is_served() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        cancel_grace: Duration::from_millis(300),
        ..World::config()
    });
    world.worker("default", Arc::new(|_| None));
    let id = world.submit("flagged", DIAMOND).await;
    let flag = Fields::from([("cancel_requested".to_owned(), Value::Int(1))]);
    world
        .until("the flag to be stored", async || {
            let found = read_row(&world.store, &world.layout, &id).await.ok()??;
            // Not before it runs: a leader reads the row as well when it takes a workflow up.
            let is_running = found.record.counts.contains_key("dispatched");
            let row = Some(found.row).filter(|_| is_running)?;
            let (table, expect) = (world.layout.index(), Expect::Version(row.etag));
            let written = world.store.rows.write(table, &row.key, &flag, &expect);
            written.await.ok()
        })
        .await;
    assert_eq!(world.ended(&id).await.status, Status::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_tasks_are_out_than_max_parallelism_allows() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let queue = world.layout.task_queue(&"default".parse().expect("legal"));
    let tasks: Vec<_> = (0..20)
        .map(|n| format!("  - {{name: t{n}, cmd: 'true'}}\n"))
        .collect();
    let tasks = tasks.concat();
    let id = world
        .submit("narrow", &format!("max_parallelism: 2\ntasks:\n{tasks}"))
        .await;
    let queues = &world.store.queues;
    queues.create_queue(&queue).await.expect("memory");
    for _ in 0..20 {
        let depth = world
            .until("a task", async || {
                Some(world.depth(&queue).await).filter(|depth| *depth > 0)
            })
            .await;
        assert!(depth <= 2, "{depth} at once");
        let message = world
            .until("a message", async || {
                let received = queues.receive(&queue, 1, Duration::from_secs(60)).await;
                received.expect("memory").pop()
            })
            .await;
        let task: TaskMessage = decode_message(&message.body).expect("ours");
        let deleted = queues.delete(&queue, &message.receipt).await;
        deleted.expect("memory");
        world.answer(&task, Outcome::Succeeded).await;
    }
    assert_eq!(world.ended(&id).await.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_chain_whose_first_task_fails_settles_in_one_write() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", failing(&["t0"]));
    let tasks: String = (0..20_000)
        .map(|n| match n {
            0 => "  - {name: t0, cmd: 'false'}\n".to_owned(),
            n => format!(
                "  - {{name: t{n}, cmd: 'true', depends_on: [t{}]}}\n",
                n - 1
            ),
        })
        .collect();
    let id = world.submit("chain", &format!("tasks:\n{tasks}")).await;
    let state = world.ended(&id).await;
    assert_eq!(state.status, Status::Failed);
    assert_eq!(state.states.matches('u').count(), 19_999);
    // Activation, perhaps the mark of the sending, and the one that settles all.
    assert!(state.revision.number() <= 3, "{} writes", state.revision);
    assert_eq!(state.task_states().expect("ours")[0], TaskState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_of_five_thousand_parents_gets_all_their_outputs_by_a_blob() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        max_outstanding: Some(256),
        ..World::config()
    });
    let join = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&join);
    world.worker(
        "default",
        Arc::new(move |task| {
            if task.task.as_str() == "join" {
                *seen.lock().unwrap() = Some(task.body.clone());
            }
            Some(Outcome::Succeeded)
        }),
    );
    let names: Vec<_> = (0..5000).map(|n| format!("t{n}")).collect();
    let leaves: Vec<_> = names
        .iter()
        .map(|name| format!("  - {{name: {name}, cmd: 'true'}}\n"))
        .collect();
    let yaml = format!(
        "tasks:\n{}  - {{name: join, cmd: 'true', depends_on: [{}]}}\n",
        leaves.concat(),
        names.join(", ")
    );
    let id = world.submit("wide", &yaml).await;
    let state = world.ended(&id).await;
    assert_eq!(state.status, Status::Completed);
    let body = join.lock().unwrap().take().expect("sent");
    let TaskBody::Blob(name) = body else {
        panic!("too large for a message");
    };
    let path = world.layout.output_named(&name).expect("ours");
    let blob = world.store.blobs.get(&path).await.expect("memory");
    let spec: TaskSpec = decode(&blob.expect("written before it was sent").body).expect("ours");
    assert_eq!(spec.inputs.len(), 5000);
    assert!(spec.inputs.values().all(|input| input.output.is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_workflows_at_once_all_end() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        max_outstanding: Some(64),
        ..World::config()
    });
    world.worker("default", succeed());
    let mut ids = Vec::new();
    for n in 0..500 {
        ids.push(world.submit(&format!("w{n}"), DIAMOND).await);
    }
    for id in &ids {
        assert_eq!(world.ended(id).await.states, "cccc");
    }
    world.drained().await;
    let executed = world.executed.lock().unwrap().values().sum::<u32>();
    assert_eq!(executed, 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_made_for_an_earlier_generation_or_state_is_refused() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", failing(&["b"]));
    let id = world.submit("late", DIAMOND).await;
    world.ended(&id).await;
    let (cancel, retry, twin) = (
        world.request(&id, ControlAction::Cancel).await,
        world.request(&id, ControlAction::Retry).await,
        world.request(&id, ControlAction::Retry).await,
    );
    let answered = async |count: usize| {
        world
            .until_state(&id, "the answer", |state| {
                state.control_results.len() == count && state.status.is_final()
            })
            .await
    };
    world.send(retry).await;
    assert_eq!(answered(1).await.generation.number(), 2);
    world.send(twin).await;
    let state = answered(2).await;
    assert_eq!(
        state.generation.number(),
        2,
        "the twin saw a state of before"
    );
    let why = state.control_results[1].refused.clone().expect("refused");
    assert!(why.contains("another request"), "{why}");

    // The third life waits for `b`, so that a late cancel would find something to end.
    world.ask(&id, ControlAction::Retry).await;
    world.send(cancel).await;
    let state = answered(4).await;
    assert_eq!((state.status, state.cancel), (Status::Failed, None));
    assert!(
        state.control_results[3]
            .refused
            .as_deref()
            .expect("refused")
            .contains("retried")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_again_is_not_served_again() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", failing(&["b"]));
    let id = world.submit("twice", DIAMOND).await;
    world.ended(&id).await;
    let retry = world.request(&id, ControlAction::Retry).await;
    for _ in 0..2 {
        world.send(retry.clone()).await;
        world.drained().await;
    }
    let state = world.ended(&id).await;
    assert_eq!(
        (state.generation.number(), state.control_results.len()),
        (2, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_opens_the_row_before_the_state_leaves_its_end() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&order);
    let faults = Faults::script().hook(move |op, path| {
        let row = *op == Op::RowWrite && path.contains("/open/");
        let state = *op == Op::BlobPut && path.ends_with("/order.json");
        if row || state {
            note.lock().unwrap().push(if row { "row" } else { "state" });
        }
        None
    });
    let (world, _) = World::with(faults).await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", failing(&["d"]));
    let id = world.submit("order", DIAMOND).await;
    world.ended(&id).await;
    order.lock().unwrap().clear();
    world.ask(&id, ControlAction::Retry).await;
    world
        .until_state(&id, "the second end", |state| {
            state.generation.number() == 2 && state.status.is_final()
        })
        .await;
    assert_eq!(order.lock().unwrap()[..2], ["row", "state"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_ready_is_sent_while_the_acknowledgement_hangs() {
    let hangs = Arc::new(AtomicBool::new(false));
    let from_now = Arc::clone(&hangs);
    let faults = Faults::script().hook(move |op, path| {
        let is_acknowledgement = *op == Op::QueueDelete && path.ends_with("-completions");
        let hangs = is_acknowledgement && hangs.load(Ordering::SeqCst);
        hangs.then_some(Fault::Hang(Duration::from_secs(3_600)))
    });
    let (world, _) = World::with(faults).await;
    let (_task, _) = world.coordinator(World::config());
    let yaml = "tasks: [{name: a, cmd: 'true'}, {name: b, cmd: 'true', depends_on: [a]}]";
    let id = world.submit("chain", yaml).await;
    let first = world.next_task("default").await;
    world.marked(&id).await;
    world.drained().await;
    from_now.store(true, Ordering::SeqCst);
    world.answer(&first, Outcome::Succeeded).await;
    assert_eq!(world.next_task("default").await.task.as_str(), "b");
}
