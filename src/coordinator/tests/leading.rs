//! Becoming leader, taking over, stopping.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::protocol::leader;

/// Its row is still open: the leader before, which may not know yet that it leads no more, could serve a retry or a purge of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_final_state_is_taken_over_before_its_row_is_finished() {
    let world = World::new().await;
    world.worker("default", succeed());
    let (first, _) = world.coordinator(World::config());
    let id = world.submit("w", DIAMOND).await;
    let before = world.ended(&id).await;
    killed(first).await;
    let rows = &world.store.rows;
    let row = read_row(&world.store, &world.layout, &id).await;
    let row = row.expect("memory").expect("final").row;
    let (table, open) = (world.layout.index(), world.layout.open_row(&id));
    rows.write(table, &open, &row.fields, &Expect::Absent)
        .await
        .expect("memory");
    rows.delete(table, &row.key, &row.etag)
        .await
        .expect("memory");
    let (_second, _) = world.coordinator(Config {
        holder: "test/2".to_owned(),
        break_lease: true,
        ..World::config()
    });
    let state = world.ended(&id).await;
    assert_eq!(
        (state.holder.as_str(), state.epoch),
        ("test/2", before.epoch.next())
    );
    assert_eq!(state.states, before.states);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_coordinator_is_refused_and_a_broken_lease_stops_the_first() {
    let world = World::new().await;
    let (_first, first_ended) = world.coordinator(World::config());
    world
        .until("the lease", async || {
            world
                .store
                .blobs
                .get(&world.layout.sentinel())
                .await
                .expect("memory")
                .filter(|blob| blob.leased)
        })
        .await;
    let second = Config {
        holder: "test/2".to_owned(),
        ..World::config()
    };
    let (task, refused) = world.coordinator(second.clone());
    task.join().await;
    let refused = refused
        .lock()
        .unwrap()
        .take()
        .expect("ended")
        .expect_err("held");
    assert!(refused.to_string().contains("`test/1`"), "{refused}");
    let (_third, _) = world.coordinator(Config {
        break_lease: true,
        ..second
    });
    let ended = world
        .until("the first to stop", async || {
            first_ended.lock().unwrap().take()
        })
        .await;
    let error = ended.expect_err("superseded");
    assert!(matches!(error, CoordinatorError::Superseded(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_takes_over_and_finishes_what_another_began() {
    let world = World::new().await;
    let (first, _) = world.coordinator(World::config());
    let id = world.submit("handed", DIAMOND).await;
    world
        .until("the first write", async || world.state(&id).await)
        .await;
    killed(first).await;
    let (_second, _) = world.coordinator(Config {
        holder: "test/2".to_owned(),
        break_lease: true,
        ..World::config()
    });
    world.worker("default", succeed());
    let state = world.ended(&id).await;
    assert_eq!((state.status, state.epoch.number()), (Status::Completed, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_coordinator_stores_its_marks_and_releases_the_lease() {
    let world = World::new().await;
    let (task, ended) = world.coordinator(World::config());
    let id = world.submit("marks", DIAMOND).await;
    let queue = world.layout.task_queue(&"default".parse().expect("legal"));
    world
        .store
        .queues
        .create_queue(&queue)
        .await
        .expect("memory");
    world
        .until("the sending", async || {
            (world.depth(&queue).await == 1).then_some(())
        })
        .await;
    world.stop.cancel();
    task.join().await;
    assert_eq!(ended.lock().unwrap().take(), Some(Ok(())));
    assert_eq!(world.state(&id).await.expect("activated").states, "dppp");
    let sentinel = world
        .store
        .blobs
        .get(&world.layout.sentinel())
        .await
        .expect("memory")
        .expect("made");
    assert!(!sentinel.leased);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopping_coordinator_has_not_looked_at_is_given_back() {
    let world = World::new().await;
    let (slow, is_writing) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (is_slow, writes) = (Arc::clone(&slow), Arc::clone(&is_writing));
    let faults = Faults::script().hook(move |op, path| {
        let held = *op == Op::BlobPut && path.ends_with("w.json") && is_slow.load(Ordering::SeqCst);
        writes.fetch_or(held, Ordering::SeqCst);
        held.then_some(Fault::ReplyLate(Duration::from_secs(1)))
    });
    let (store, _) = faults.wrap(world.store.clone(), world.env.clone());
    let (task, _) = world.coordinator_over(&store, World::config());
    let yaml = "tasks: [{name: a, cmd: x}, {name: b, cmd: x}]";
    let id = world.submit("w", yaml).await;
    let (first, second) = (
        world.next_task("default").await,
        world.next_task("default").await,
    );
    world.until_states(&id, "dd").await;
    slow.store(true, Ordering::SeqCst);
    world.answer(&first, Outcome::Succeeded).await;
    world
        .until("the write of the first end", async || {
            is_writing.load(Ordering::SeqCst).then_some(())
        })
        .await;
    // The second comes while the first is being written.
    world.answer(&second, Outcome::Succeeded).await;
    let completions = world.layout.completions();
    world
        .until("the receipt of the second end", async || {
            let visible = world.store.queues.peek(completions, 32).await;
            visible.expect("memory").is_empty().then_some(())
        })
        .await;
    world.stop.cancel();
    task.join().await;
    let ended = |state: RuntimeRecord| state.states.matches('c').count();
    assert_eq!(world.state(&id).await.map(ended), Some(1));
    let visible = world.store.queues.peek(completions, 32).await;
    assert_eq!(visible.expect("memory").len(), 1, "visible at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_without_a_row_is_found_and_gets_one() {
    let world = World::new().await;
    world.worker("default", succeed());
    let (unfinished, ended) = (
        world.submit("half", DIAMOND).await,
        world.submit("whole", DIAMOND).await,
    );
    {
        // One ends, then both rows are lost; of the other only the definition was ever written.
        let (task, _) = world.coordinator(World::config());
        world.ended(&ended).await;
        world.ended(&unfinished).await;
        killed(task).await;
    }
    let half = world.submit("later", DIAMOND).await;
    for (id, key) in [
        (&half, world.layout.open_row(&half)),
        (&ended, world.layout.done_row(&ended)),
    ] {
        let row = world
            .store
            .rows
            .get(world.layout.index(), &key)
            .await
            .expect("memory");
        let row = row.unwrap_or_else(|| panic!("{id} has a row"));
        world
            .store
            .rows
            .delete(world.layout.index(), &key, &row.etag)
            .await
            .expect("memory");
    }
    let (_next, _) = world.coordinator(Config {
        break_lease: true,
        ..World::config()
    });
    assert_eq!(world.ended(&half).await.status, Status::Completed);
    assert_eq!(world.ended(&ended).await.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stands_for_the_lead_makes_what_is_missing() {
    let env = real::env();
    let world = World::over(MemoryStore::open(env.clone()), env);
    let (_task, _) = world.coordinator(Config {
        standby: true,
        ..World::config()
    });
    world
        .until("a leader", async || {
            let found = leader(&world.store, &world.layout).await.ok()??;
            found.1.holder
        })
        .await;
    world.worker("default", succeed());
    let id = world.submit("w", DIAMOND).await;
    assert_eq!(world.ended(&id).await.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_its_leader_made_ready_and_sends_for_the_first_time_is_not_marked() {
    let world = World::new().await;
    let queue = world.layout.task_queue(&"default".parse().expect("legal"));
    world
        .store
        .queues
        .create_queue(&queue)
        .await
        .expect("memory");
    // Sending fails for a while: what is ready stays unsent, and the next leader finds it.
    let sends = Faults::script().hook(|op, path| {
        (*op == Op::QueueSend && path.contains("-q-")).then_some(Fault::RequestLost)
    });
    let (deaf, _) = sends.wrap(world.store.clone(), world.env.clone());
    let (first, _) = world.coordinator_over(&deaf, World::config());
    let id = world.submit("marked", DIAMOND).await;
    world
        .until("the first write", async || world.state(&id).await)
        .await;
    killed(first).await;
    // The put of `b` loses its reply: it has arrived, and is sent again.
    let lost = Faults::script().on(Op::QueueSend, 2, Fault::ReplyLost);
    let (lossy, _) = lost.wrap(world.store.clone(), world.env.clone());
    let (_second, _) = world.coordinator_over(
        &lossy,
        Config {
            holder: "test/2".to_owned(),
            break_lease: true,
            ..World::config()
        },
    );
    let inherited = world.next_task("default").await;
    assert_eq!(
        (inherited.task.as_str(), inherited.again),
        ("a", true),
        "inherited"
    );
    world.answer(&inherited, Outcome::Succeeded).await;
    let mut copies = vec![];
    for _ in 0..3 {
        let task = world.next_task("default").await;
        copies.push((task.task.to_string(), task.again));
    }
    copies.sort();
    let doubled = if copies[0].0 == copies[1].0 {
        &copies[..2]
    } else {
        &copies[1..]
    };
    assert_eq!(doubled[0].0, doubled[1].0, "one was sent twice: {copies:?}");
    assert_eq!((doubled[0].1, doubled[1].1), (false, true), "{copies:?}");
    let single = copies
        .iter()
        .find(|(task, _)| *task != doubled[0].0)
        .expect("the other");
    assert!(!single.1, "a first sending: {copies:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_inherited_is_not_sent_before_the_news_that_waits_is_known() {
    let world = World::new().await;
    let (first, _) = world.coordinator(World::config());
    let id = world.submit("inherited", DIAMOND).await;
    let sent = world.next_task("default").await;
    killed(first).await;
    assert_eq!(
        world.state(&id).await.expect("activated").states,
        "rppp",
        "the mark is not stored"
    );
    world.answer(&sent, Outcome::Succeeded).await;
    // The next leader is slow to receive, and quick to find the workflow.
    let slow = Faults::script().on(
        Op::QueueReceive,
        1,
        Fault::ReplyLate(Duration::from_millis(500)),
    );
    let (store, _) = slow.wrap(world.store.clone(), world.env.clone());
    let (_second, _) = world.coordinator_over(
        &store,
        Config {
            holder: "test/2".to_owned(),
            break_lease: true,
            ..World::config()
        },
    );
    let next = [
        world.next_task("default").await,
        world.next_task("default").await,
    ];
    let mut names: Vec<_> = next.iter().map(|task| task.task.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["b", "c"], "`a` was not sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_puts_its_epoch_into_state_and_row_before_it_sends() {
    let world = World::new().await;
    let queue = world.layout.task_queue(&"default".parse().expect("legal"));
    let queues = &world.store.queues;
    queues.create_queue(&queue).await.expect("memory");
    let sends = Faults::script().hook(|op, path| {
        (*op == Op::QueueSend && path.contains("-q-")).then_some(Fault::RequestLost)
    });
    let (deaf, _) = sends.wrap(world.store.clone(), world.env.clone());
    let (first, _) = world.coordinator_over(&deaf, World::config());
    let id = world.submit("order", DIAMOND).await;
    world
        .until("the row", async || {
            let row = read_row(&world.store, &world.layout, &id).await;
            (row.expect("memory")?.record.epoch.number() == 1).then_some(())
        })
        .await;
    killed(first).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&order);
    let noting = Faults::script().hook(move |op, path| {
        match op {
            Op::BlobPut if path.ends_with("/order.json") => note.lock().unwrap().push("state"),
            Op::RowWrite if path.contains("/open/") => note.lock().unwrap().push("row"),
            Op::QueueSend => note.lock().unwrap().push("send"),
            // Its completion queue is known to be empty when it finds the workflow.
            Op::RowQuery => return Some(Fault::ReplyLate(Duration::from_millis(200))),
            _ => {}
        }
        None
    });
    let (store, _) = noting.wrap(world.store.clone(), world.env.clone());
    let second = Config {
        holder: "test/2".to_owned(),
        break_lease: true,
        ..World::config()
    };
    let (_second, _) = world.coordinator_over(&store, second);
    assert!(world.next_task("default").await.again);
    assert_eq!(order.lock().unwrap()[..3], ["state", "row", "send"]);
}
