//! Writes of which the outcome is not known, and rivals.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures::FutureExt as _;

use super::troubles::statistic;
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_state_write_whose_reply_is_lost_is_recognised_by_its_stamp() {
    let faults = Faults::script().hook(|op, path| {
        (*op == Op::BlobPut && path.ends_with("lost.json")).then_some(Fault::ReplyLost)
    });
    let (world, injector) = World::with(faults).await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    let id = world.submit("lost", DIAMOND).await;
    let state = world.ended(&id).await;
    assert_eq!(state.states, "cccc");
    let puts = injector.happened();
    assert_eq!(puts, state.revision.number(), "no write was made twice");
    assert!(
        world
            .executed
            .lock()
            .unwrap()
            .values()
            .all(|times| *times == 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_outcome_nobody_knows_keeps_the_lease_from_being_released() {
    for is_known in [true, false] {
        let dark = Arc::new(AtomicBool::new(false));
        let is_dark = Arc::clone(&dark);
        let faults = Faults::script().hook(move |op, path| {
            let hits = is_dark.load(Ordering::SeqCst) && path.ends_with("/doubt.json");
            match op {
                Op::BlobPut if hits && is_known => Some(Fault::RequestLost),
                Op::BlobPut if hits => Some(Fault::ReplyLost),
                Op::BlobGet if hits => Some(Fault::RequestLost),
                _ => None,
            }
        });
        let world = World::new().await;
        let (store, injector) = faults.wrap(world.store.clone(), world.env.clone());
        let (task, ended) = world.coordinator_over(&store, World::config());
        let id = world.submit("doubt", DIAMOND).await;
        let sent = world.next_task("default").await;
        world.marked(&id).await;
        dark.store(true, Ordering::SeqCst);
        world.answer(&sent, Outcome::Succeeded).await;
        world
            .until("the write", async || {
                (injector.happened() > 0).then_some(())
            })
            .await;
        world.stop.cancel();
        task.join().await;
        assert_eq!(ended.lock().unwrap().take(), Some(Ok(())));
        let sentinel = world.store.blobs.get(&world.layout.sentinel()).await;
        let is_leased = sentinel.expect("memory").expect("made").leased;
        assert_eq!(is_leased, !is_known);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rival_that_always_wins_costs_the_memory_and_nothing_else_once_it_stops() {
    let world = World::new().await;
    let (rages, puts) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let (is_raging, count) = (Arc::clone(&rages), Arc::clone(&puts));
    let (plain, path) = (
        world.store.clone(),
        world.layout.runtime(&"always".parse().expect("legal")),
    );
    let faults = Faults::script().hook(move |op, name| {
        if *op == Op::BlobPut && name.ends_with("/always.json") && is_raging.load(Ordering::SeqCst)
        {
            count.fetch_add(1, Ordering::SeqCst);
            // Somebody writes just before the coordinator: the same state, in other bytes.
            let overwrite = async {
                let blob = plain.blobs.get(&path).await?.expect("activated");
                let body = Bytes::from([&blob.body[..], b"\n"].concat());
                plain
                    .blobs
                    .put(&path, body, &Expect::Version(blob.etag), None)
                    .await
            };
            let written = overwrite.now_or_never().expect("memory does not wait");
            written.expect("nobody else writes");
        }
        None
    });
    let (store, _) = faults.wrap(world.store.clone(), world.env.clone());
    let (task, _) = world.coordinator_over(
        &store,
        Config {
            visibility_timeout: Duration::from_secs(1),
            ..World::config()
        },
    );
    world.worker("default", succeed());
    let gate = world.submit(
        "always",
        "tasks: [{name: a, cmd: x, queue: slow}, {name: b, cmd: x, depends_on: [a]}]",
    );
    let id = gate.await;
    let held = world.next_task("slow").await;
    world.marked(&id).await;
    rages.store(true, Ordering::SeqCst);
    world.answer(&held, Outcome::Succeeded).await;
    // One try, two more, and all of that again when the message has come back.
    world
        .until("a second round", async || {
            (puts.load(Ordering::SeqCst) > 3).then_some(())
        })
        .await;
    assert_eq!(world.depth(world.layout.completions()).await, 1);
    assert_eq!(world.state(&id).await.expect("there").states, "dp");
    rages.store(false, Ordering::SeqCst);
    assert_eq!(world.ended(&id).await.states, "cc");
    world.drained().await;
    assert_eq!(
        *world.executed.lock().unwrap(),
        [(("b".to_owned(), 1), 1)].into()
    );
    assert!(
        statistic(&world, task, "workflows_broken").await >= 1,
        "its memory was thrown away"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_is_remembered_when_a_rival_has_written() {
    let world = World::new().await;
    let puts = AtomicU32::new(0);
    let (plain, path) = (
        world.store.clone(),
        world.layout.runtime(&"w".parse().expect("legal")),
    );
    let faults = Faults::script().hook(move |op, name| {
        // The second write is to store what was sent: a rival is faster, with the same state in other bytes.
        let is_state = *op == Op::BlobPut && name.ends_with("/w.json");
        if is_state && puts.fetch_add(1, Ordering::SeqCst) == 1 {
            let overwrite = async {
                let blob = plain.blobs.get(&path).await?.expect("activated");
                let body = Bytes::from([&blob.body[..], b"\n"].concat());
                let expect = Expect::Version(blob.etag);
                plain.blobs.put(&path, body, &expect, None).await
            };
            let written = overwrite.now_or_never().expect("memory does not wait");
            written.expect("nobody else writes");
        }
        None
    });
    let (store, _) = faults.wrap(world.store.clone(), world.env.clone());
    let (_task, _) = world.coordinator_over(&store, World::config());
    let id = world
        .submit("w", "tasks: [{name: a, cmd: x}, {name: b, cmd: x}]")
        .await;
    world.until_states(&id, "dd").await;
    let queue = world.layout.task_queue(&"default".parse().expect("legal"));
    assert_eq!(world.depth(&queue).await, 2);
}

/// Else the purge, carried out late, would stand behind a final row, where nobody looks for what is unfinished.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_carried_out_late_is_ruled_out_before_a_final_row_is_finished() {
    let writes = Arc::new(Mutex::new(None::<Vec<(Op, String)>>));
    let seen = Arc::clone(&writes);
    let faults = Faults::script().hook(move |op, path| {
        let mut seen = seen.lock().unwrap();
        let seen = seen.as_mut()?;
        if !matches!(op, Op::BlobPut | Op::RowWrite) || !path.contains("/w") {
            return None;
        }
        seen.push((*op, path.to_owned()));
        let puts = seen.iter().filter(|(op, _)| *op == Op::BlobPut).count();
        // So often does a writer try before it gives up.
        let is_lost = *op == Op::BlobPut && puts <= 8;
        is_lost.then_some(Fault::Hang(Duration::from_millis(1)))
    });
    let (world, _) = World::with(faults).await;
    world.worker("default", succeed());
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("w", DIAMOND).await;
    world.ended(&id).await;
    *writes.lock().unwrap() = Some(Vec::new());
    world.ask(&id, ControlAction::Purge).await;
    let is_put = |write: &(Op, String)| write.0 == Op::BlobPut;
    world
        .until("the row to be final again", async || {
            let writes = writes.lock().unwrap();
            let writes = writes.as_ref()?;
            writes
                .iter()
                .find(|(_, path)| path.ends_with("/done/w"))
                .map(drop)
        })
        .await;
    let writes = writes.lock().unwrap().take().expect("noted");
    let finished = writes
        .iter()
        .position(|(_, path)| path.ends_with("/done/w"));
    let before = &writes[..finished.expect("found above")];
    assert!(
        before.iter().filter(|write| is_put(write)).count() > 8,
        "{writes:?}"
    );
}
