//! Garbage, damaged states, bugs.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::protocol::leader;

#[tokio::test(flavor = "multi_thread")]
async fn garbage_goes_to_the_poison_queue_and_a_newer_message_stays() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    let newer = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        r#"{"schema":2,"new":true}"#,
    );
    for body in ["hello", "bnVsbA==", newer.as_str()] {
        let (queues, completions) = (&world.store.queues, world.layout.completions());
        let sent = queues.send(completions, body, Duration::ZERO).await;
        sent.expect("memory");
    }
    let id = world.submit("beside", DIAMOND).await;
    assert_eq!(world.ended(&id).await.status, Status::Completed);
    world
        .until("the newer one to be all that is left", async || {
            (world.depth(world.layout.completions()).await == 1).then_some(())
        })
        .await;
    assert_eq!(world.depth(world.layout.completions_poison()).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_that_cannot_be_moved_holds_up_no_completion_and_no_stop() {
    let faults = Faults::script().hook(|op, path| {
        let hangs = *op == Op::QueueSend && path.ends_with("completions-poison");
        hangs.then_some(Fault::Hang(Duration::from_secs(86_400)))
    });
    let (world, injector) = World::with(faults).await;
    for _ in 0..40 {
        let (queues, completions) = (&world.store.queues, world.layout.completions());
        let sent = queues.send(completions, "hello", Duration::ZERO).await;
        sent.expect("memory");
    }
    let (task, ended) = world.coordinator(World::config());
    world.worker("default", succeed());
    let id = world.submit("beside", DIAMOND).await;
    assert_eq!(world.ended(&id).await.status, Status::Completed);
    assert_eq!(injector.happened(), 8, "a few at once");
    world.stop.cancel();
    let stopped = world.env.timeout(PATIENCE, task.join()).await;
    stopped.expect("it waits for no garbage");
    assert_eq!(ended.lock().unwrap().take(), Some(Ok(())));
    assert_eq!(world.depth(world.layout.completions()).await, 40);
    let sentinel = world.store.blobs.get(&world.layout.sentinel()).await;
    assert!(!sentinel.expect("memory").expect("made").leased);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_of_a_damaged_workflow_is_kept_in_the_poison_queue_after_ten_deliveries() {
    let world = World::new().await;
    let id = world.submit("damaged", DIAMOND).await;
    let state = world.layout.runtime(&id);
    world.put(&state, b"x".to_vec()).await;
    let task = TaskMessage {
        schema: 1,
        workflow_id: id.clone(),
        run_id: RunId::new(uuid::Uuid::nil()),
        generation: Generation::FIRST,
        epoch: Epoch::new(1),
        task: "a".parse().expect("legal"),
        attempt_no: Attempt::new(1),
        again: false,
        survives_stop: false,
        body: TaskBody::Blob("none".to_owned()),
    };
    let text = completion(&task, Outcome::Succeeded, world.env.wall());
    let queues = &world.store.queues;
    let queue = world.layout.completions();
    let deliver_and_hide = async |hidden| {
        let found = queues.receive(queue, 1, Duration::from_secs(60)).await;
        let found = found.expect("memory").pop().expect("visible");
        let extended = queues.extend(queue, &found.receipt, hidden).await;
        extended.expect("held");
    };
    for deliveries in [3, 9] {
        let sent = queues.send(queue, &text, Duration::ZERO).await;
        sent.expect("memory");
        for _ in 0..deliveries {
            deliver_and_hide(Duration::ZERO).await;
        }
        // Hidden, so that the other one is not met meanwhile.
        deliver_and_hide(Duration::from_secs(1)).await;
    }
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    world
        .until("the one that came often to be moved", async || {
            (world.depth(world.layout.completions_poison()).await == 1).then_some(())
        })
        .await;
    assert_eq!(world.depth(queue).await, 1, "the other one is left");
    let kept = queues
        .peek(world.layout.completions_poison(), 1)
        .await
        .expect("memory");
    assert_eq!(kept, [text], "as it was");
    let other = world.submit("other", DIAMOND).await;
    assert_eq!(world.ended(&other).await.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_too_long_for_a_row_is_cut_there_and_holds_up_no_end() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    // No worker of ours says so much, but a message has room for it.
    let message = "x".repeat(40_000);
    let failure = Failure {
        kind: FailureKind::Exit,
        message: message.clone(),
        is_final: false,
    };
    let id = world.submit("long", "tasks: [{name: a, cmd: x}]").await;
    let task = world.next_task("default").await;
    world.answer(&task, Outcome::Failed(failure)).await;
    let state = world.ended(&id).await;
    let whole = format!("task `a` failed: {message}");
    assert_eq!(state.reason.as_deref(), Some(whole.as_str()));
    let row = read_row(&world.store, &world.layout, &id)
        .await
        .expect("memory")
        .expect("it has ended")
        .record;
    let cut = row.reason.strip_suffix('…').expect("a mark");
    assert!(whole.starts_with(cut) && cut.len() > 30_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_whose_actor_panics_rests_and_goes_on_and_others_notice_nothing() {
    let loads = Arc::new(Mutex::new(Vec::new()));
    let (seen, env) = (Arc::clone(&loads), real::env());
    let faults = Faults::script().hook(move |op, path| {
        if *op == Op::BlobGet && path.ends_with("/panics.json") {
            let nth = {
                let mut seen = seen.lock().unwrap();
                seen.push(env.mono());
                seen.len()
            };
            assert!(nth > 2, "a bug that strikes twice");
        }
        None
    });
    let (world, _) = World::with(faults).await;
    let struck = world.submit("panics", DIAMOND).await;
    let fine = world.submit("fine", DIAMOND).await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    assert_eq!(world.ended(&fine).await.status, Status::Completed);
    assert_eq!(world.ended(&struck).await.status, Status::Completed);
    // Half of the pause at least, which begins at a second and doubles.
    let loads = loads.lock().unwrap();
    let gap = |nth: usize| loads[nth].since(loads[nth - 1]).as_millis();
    assert!(gap(1) >= 500 && gap(2) >= 1_000, "{loads:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_of_a_newer_schema_is_set_aside_and_others_go_on() {
    let world = World::new().await;
    let (task, _) = world.coordinator(Config {
        visibility_timeout: Duration::from_secs(1),
        ..World::config()
    });
    let (id, held) = with_a_worker(&world, "newer").await;
    let (blobs, path) = (&world.store.blobs, world.layout.runtime(&id));
    let old = blobs.get(&path).await.expect("memory").expect("activated");
    let body = Bytes::from_static(br#"{"schema":2,"new":true}"#);
    let newer = blobs
        .put(&path, body.clone(), &Expect::Version(old.etag), None)
        .await
        .expect("nobody else writes");
    world.answer(&held, Outcome::Succeeded).await;
    world.worker("default", succeed());
    let fine = world.submit("fine", DIAMOND).await;
    assert_eq!(world.ended(&fine).await.states, "cccc");
    world
        .until("the answer to be all that is left", async || {
            (world.depth(world.layout.completions()).await == 1).then_some(())
        })
        .await;
    let kept = blobs.get(&path).await.expect("memory").expect("there");
    assert_eq!(kept.body, body, "nobody has touched it");
    blobs
        .put(&path, old.body, &Expect::Version(newer), None)
        .await
        .expect("nobody else writes");
    assert_eq!(world.ended(&id).await.states, "c");
    assert!(
        statistic(&world, task, "workflows_broken").await >= 1,
        "it was reported"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_beyond_all_counting_is_damage_of_one_workflow_and_no_way_into_the_others() {
    let world = World::new().await;
    let (task, ended) = world.coordinator(World::config());
    let (id, held) = with_a_worker(&world, "counter").await;
    rewrite(&world, &id, |state| {
        (state.epoch, state.holder) = (Epoch::new(u64::MAX), "elsewhere/1".to_owned());
    })
    .await;
    world.answer(&held, Outcome::Succeeded).await;
    world.worker("default", succeed());
    let fine = world.submit("fine", DIAMOND).await;
    let state = world.ended(&fine).await;
    assert_eq!((state.states.as_str(), state.epoch.number()), ("cccc", 1));
    assert_eq!(ended.lock().unwrap().take(), None, "it leads still");
    world
        .until("the damaged one to be set aside", async || {
            (world.depth(world.layout.completions()).await == 1).then_some(())
        })
        .await;
    assert!(statistic(&world, task, "workflows_broken").await >= 1);
}

/// A workflow whose one task is with a worker, which is known; its message.
async fn with_a_worker(world: &World, id: &str) -> (WorkflowId, TaskMessage) {
    let yaml = "tasks: [{name: a, cmd: x, queue: slow}]";
    let id = world.submit(id, yaml).await;
    let held = world.next_task("slow").await;
    world.marked(&id).await;
    (id, held)
}

/// Changes a state behind the back of its leader.
async fn rewrite(world: &World, id: &WorkflowId, change: impl FnOnce(&mut RuntimeRecord)) {
    let found = read_runtime(&world.store, &world.layout, id).await;
    let mut found = found.expect("memory").expect("activated");
    change(&mut found.record);
    let body = Bytes::from(encode(&found.record));
    let (blobs, path) = (&world.store.blobs, world.layout.runtime(id));
    let expect = Expect::Version(found.etag);
    let written = blobs.put(&path, body, &expect, None).await;
    written.expect("nobody else writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_stored_state_has_not_issued_either_goes_to_the_poison_queue() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let (id, held) = with_a_worker(&world, "ahead").await;
    let later = |attempt| TaskMessage {
        attempt_no: Attempt::new(attempt),
        ..held.clone()
    };
    world.answer(&later(3), Outcome::Succeeded).await;
    world.drained().await;
    assert_eq!(world.depth(world.layout.completions_poison()).await, 1);
    rewrite(&world, &id, |state| {
        state.tasks[0].attempt_no = Attempt::new(2);
    })
    .await;
    world.answer(&later(2), Outcome::Succeeded).await;
    world.drained().await;
    assert_eq!(world.depth(world.layout.completions_poison()).await, 1);
    assert_eq!(world.ended(&id).await.states, "c");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_epochs_have_gone_back_raises_its_own_and_goes_on() {
    let world = World::new().await;
    let (_task, ended) = world.coordinator(World::config());
    let (id, held) = with_a_worker(&world, "restored").await;
    rewrite(&world, &id, |state| {
        (state.epoch, state.holder) = (Epoch::new(7), "elsewhere/1".to_owned());
    })
    .await;
    world.answer(&held, Outcome::Succeeded).await;
    world.drained().await;
    assert_eq!(ended.lock().unwrap().take(), None, "it leads still");
    let state = world.ended(&id).await;
    assert_eq!((state.states.as_str(), state.epoch.number()), ("c", 8));
}

/// A counter of a coordinator, which is stopped for that.
pub(super) async fn statistic(world: &World, coordinator: TaskHandle, name: &str) -> u64 {
    world.stop.cancel();
    coordinator.join().await;
    let found = leader(&world.store, &world.layout).await.expect("memory");
    let (sentinel, _, _) = found.expect("led");
    sentinel.statistics[name]
}

/// A blob in an archive, say: no state without a definition, no listing and no claim may keep what is unfinished.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_looked_at_keeps_no_sweep() {
    for listed in [true, false] {
        let faults = Faults::script().hook(move |op, path| match op {
            Op::BlobGet if path.ends_with("/gone.json") => Some(Fault::Refused),
            Op::BlobList if !listed => Some(Fault::Refused),
            _ => None,
        });
        let (world, _) = World::with(faults).await;
        let gone = WorkflowId::new("gone").expect("legal");
        world
            .put(&world.layout.runtime(&gone), b"{}".to_vec())
            .await;
        world.worker("default", succeed());
        let (_task, _) = world.coordinator(World::config());
        // No message tells of it: a sweep has to find its row.
        let id = world.submit("found", DIAMOND).await;
        assert_eq!(world.ended(&id).await.status, Status::Completed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_no_tombstones_but_those_being_looked_at() {
    let (stop, looks) = (CancellationToken::new(), Arc::new(AtomicU32::new(0)));
    let (told, seen) = (stop.clone(), Arc::clone(&looks));
    let faults = Faults::script().hook(move |op, path| {
        if *op == Op::BlobGet && path.contains("/gone-") {
            seen.fetch_add(1, Ordering::SeqCst);
            told.cancel();
        }
        None
    });
    let (world, _) = World::with(faults).await;
    let world = World { stop, ..world };
    for nth in 0..40 {
        let id = WorkflowId::new(format!("gone-{nth}")).expect("legal");
        let path = world.layout.runtime(&id);
        world.put(&path, b"{}".to_vec()).await;
    }
    let (task, ended) = world.coordinator(World::config());
    task.join().await;
    assert!(ended.lock().unwrap().as_ref().unwrap().is_ok());
    assert_eq!(looks.load(Ordering::SeqCst), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pause_of_who_is_set_aside_grows_also_where_its_state_is_stored_first() {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let (seen, env) = (Arc::clone(&writes), real::env());
    let faults = Faults::script().hook(move |op, path| {
        let strikes = *op == Op::RowWrite && path.ends_with("/open/w") && {
            let mut seen = seen.lock().unwrap();
            seen.push(env.mono());
            seen.len() < 4
        };
        strikes.then_some(Fault::Refused)
    });
    let world = World::new().await;
    let (store, _) = faults.wrap(world.store.clone(), world.env.clone());
    world.worker("default", succeed());
    let (_task, _) = world.coordinator_over(&store, World::config());
    let id = world.submit("w", DIAMOND).await;
    assert_eq!(world.ended(&id).await.status, Status::Completed);
    let writes = writes.lock().unwrap();
    let gap = |nth: usize| writes[nth].since(writes[nth - 1]).as_millis();
    assert!(gap(2) >= 1_000 && gap(3) >= 2_000, "{writes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_row_is_shown_by_the_next_actor_where_the_first_has_panicked() {
    let panics = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&panics);
    let faults = Faults::script().hook(move |op, path| {
        let strikes = *op == Op::RowWrite && path.ends_with("/done/w");
        assert!(
            !strikes || seen.fetch_add(1, Ordering::SeqCst) > 0,
            "a bug that strikes once"
        );
        None
    });
    let (world, _) = World::with(faults).await;
    world.worker("default", succeed());
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("w", DIAMOND).await;
    assert_eq!(world.ended(&id).await.status, Status::Completed);
    assert_eq!(panics.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn news_of_a_workflow_that_is_set_aside_comes_no_sooner_for_being_shared() {
    let [looks, shown, receives] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
    let seen = [&looks, &shown, &receives].map(Arc::clone);
    let faults = Faults::script().hook(move |op, path| {
        let [looks, shown, receives] = &seen;
        let is_look = *op == Op::BlobGet && path.ends_with("/broken.json");
        looks.fetch_add(u32::from(is_look), Ordering::SeqCst);
        shown.fetch_add(u32::from(*op == Op::QueueExtend), Ordering::SeqCst);
        receives.fetch_add(u32::from(*op == Op::QueueReceive), Ordering::SeqCst);
        // So the one that is well settles its share last.
        let is_late = *op == Op::BlobPut && path.ends_with("/well.json");
        is_late.then_some(Fault::ReplyLate(Duration::from_millis(100)))
    });
    let (world, _) = World::with(faults).await;
    let (_task, _) = world.coordinator(World::config());
    let broken = world.submit("broken", DIAMOND).await;
    let first = world.next_task("default").await;
    let well = world.submit("well", DIAMOND).await;
    let second = world.next_task("default").await;
    for id in [&broken, &well] {
        world.marked(id).await;
    }
    let path = world.layout.runtime(&broken);
    let blobs = &world.store.blobs;
    let good = blobs.get(&path).await.expect("memory").expect("there");
    let expect = Expect::Version(good.etag);
    let damage = blobs.put(&path, Bytes::from_static(b"damaged"), &expect, None);
    damage.await.expect("current");
    let before = looks.load(Ordering::SeqCst);
    world.answer(&first, Outcome::Succeeded).await;
    world
        .until("it to be looked at", async || {
            (looks.load(Ordering::SeqCst) > before).then_some(())
        })
        .await;
    let results = [&first, &second].map(|task| {
        let text = completion(task, Outcome::Succeeded, world.env.wall());
        let record = decode_message::<CompletionRecord>(&text).expect("own");
        record.results
    });
    let text = encode_message(&CompletionRecord::of_results(results.concat()));
    let (queues, queue) = (&world.store.queues, world.layout.completions());
    let sent = queues.send(queue, &text, Duration::ZERO);
    sent.await.expect("memory");
    world.until_states(&well, "cddp").await;
    let before = receives.load(Ordering::SeqCst);
    world
        .until("what comes back to be received", async || {
            (receives.load(Ordering::SeqCst) > before + 2).then_some(())
        })
        .await;
    assert_eq!(shown.load(Ordering::SeqCst), 0);
    assert_eq!(world.depth(world.layout.completions_poison()).await, 0);
}
