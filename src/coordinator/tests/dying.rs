//! A leader that dies before, or just after, each of its writes in turn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

/// Whether the request changes something, apart from the sentinel, which is another's test.
fn is_write(op: Op, path: &str) -> bool {
    let writes = matches!(
        op,
        Op::BlobPut | Op::RowWrite | Op::RowDelete | Op::QueueSend | Op::QueueDelete
    );
    writes && !path.ends_with("_coordinator.lock")
}

fn config(holder: &str) -> Config {
    Config {
        holder: holder.to_owned(),
        break_lease: true,
        visibility_timeout: Duration::from_secs(1),
        ..World::config()
    }
}

/// Runs a workflow under a leader that dies at its `nth` write, which arrives or does not, and then under another. Whether the first died.
async fn dies_at(nth: u64, arrives: bool) -> bool {
    let world = World::new().await;
    let (count, dead) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let kill = Arc::clone(&dead);
    let (mortal, _) = Faults::script()
        .hook(move |op: &Op, path: &str| {
            if kill.load(Ordering::SeqCst) {
                return Some(Fault::RequestLost);
            }
            if !is_write(*op, path) || count.fetch_add(1, Ordering::SeqCst) + 1 < nth {
                return None;
            }
            kill.store(true, Ordering::SeqCst);
            Some(if arrives {
                Fault::ReplyLost
            } else {
                Fault::RequestLost
            })
        })
        .wrap(world.store.clone(), world.env.clone());
    let (first, _) = world.coordinator_over(&mortal, config("test/1"));
    world.worker("default", succeed());
    let yaml = "tasks: [{name: a, cmd: 'true'}, {name: b, cmd: 'true', depends_on: [a]}]";
    let id = world.submit("w", yaml).await;
    world
        .until("death, or the end", async || {
            let row = read_row(&world.store, &world.layout, &id)
                .await
                .expect("memory");
            let is_over = row.is_some_and(|row| !row.is_open())
                && world.depth(world.layout.completions()).await == 0;
            (dead.load(Ordering::SeqCst) || is_over).then_some(())
        })
        .await;
    let died = dead.load(Ordering::SeqCst);
    killed(first).await;
    let (_second, _) = world.coordinator_over(&world.store, config("test/2"));
    let state = world.ended(&id).await;
    assert_eq!(
        (state.states.as_str(), state.status),
        ("cc", Status::Completed),
        "death at write {nth}, {arrives}"
    );
    world.drained().await;
    let executed = world.executed.lock().unwrap().clone();
    assert_eq!(executed.len(), 2, "one attempt each: {executed:?}");
    assert!(executed.values().all(|times| *times <= 2), "{executed:?}");
    world.stop.cancel();
    died
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_at_any_write_is_followed_by_one_that_finishes() {
    for arrives in [false, true] {
        let all = (1..=20).map(|nth| dies_at(nth, arrives));
        let died = futures::future::join_all(all).await;
        let deaths = died.iter().filter(|died| **died).count();
        assert!((10..20).contains(&deaths), "each write was one: {died:?}");
    }
}
