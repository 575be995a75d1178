//! Leaders on a clock that moves only when a test says so: pauses, standstills, and what comes too soon.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::env::Joined;
use crate::protocol::leader;
use crate::store::memory::manual::ManualClock;

impl World {
    /// One whose time stands still, and its store with these faults.
    async fn still(faults: Faults) -> (Self, Store, Arc<ManualClock>) {
        let clock = ManualClock::still();
        let env = Env {
            entropy: real::env().entropy,
            ..clock.env()
        };
        let plain = MemoryStore::open(env.clone());
        let world = Self::over(plain.clone(), env.clone());
        world.layout.create(&plain).await.expect("memory");
        let (store, _) = faults.wrap(plain, env);
        (world, store, clock)
    }
}

/// A leader that was paused beyond its lease finds its fence closed before it does anything with what it had in mind.
#[tokio::test]
async fn nothing_is_issued_by_a_leader_that_wakes_after_its_fence_has_closed() {
    let issued = Arc::new(Mutex::new(None::<Vec<(Op, String)>>));
    let note = Arc::clone(&issued);
    let faults = Faults::script().hook(move |op, path| {
        let mut noted = note.lock().unwrap();
        let noted = noted.as_mut()?;
        noted.push((*op, path.to_owned()));
        // It must not come to lead anew, with every right to act.
        matches!(op, Op::LeaseRenew | Op::LeaseAcquire).then_some(Fault::RequestLost)
    });
    let (world, store, clock) = World::still(faults).await;
    let id = world.submit("paused", DIAMOND).await;
    let (_task, _) = world.coordinator_over(
        &store,
        Config {
            lease_duration: Duration::from_secs(60),
            ..World::config()
        },
    );
    let queue = world.layout.task_queue(&"default".parse().expect("legal"));
    // Time goes in small steps until the first task is sent; the mark of it waits for a write of its own.
    for _ in 0..500 {
        if world
            .store
            .queues
            .depth(&queue)
            .await
            .is_ok_and(|depth| depth == 1)
        {
            break;
        }
        step(&clock, Duration::from_millis(1)).await;
    }
    assert_eq!(
        world.state(&id).await.expect("activated").states,
        "rppp",
        "the mark is not stored yet"
    );
    let task = world.next_task("default").await;
    world.answer(&task, Outcome::Succeeded).await;
    *issued.lock().unwrap() = Some(Vec::new());
    step(&clock, Duration::from_secs(46)).await;
    for _ in 0..20 {
        step(&clock, Duration::from_millis(100)).await;
    }
    let issued = issued.lock().unwrap().take().expect("noted");
    let of_a_leader = |op: &Op| !matches!(op, Op::BlobGet | Op::LeaseRenew | Op::LeaseAcquire);
    let forbidden: Vec<_> = issued.iter().filter(|(op, _)| of_a_leader(op)).collect();
    assert!(forbidden.is_empty(), "{forbidden:?}");
    assert!(!issued.is_empty(), "it did wake");
    assert_eq!(world.state(&id).await.expect("activated").states, "rppp");
}

/// Renewals go well all the time: it is the work that fails.
#[tokio::test]
async fn a_receive_loop_that_hangs_or_panics_leaves_the_lead_to_a_standby() {
    for panics in [false, true] {
        let is_broken = Arc::new(AtomicBool::new(false));
        let broken = Arc::clone(&is_broken);
        let faults = Faults::script().hook(move |op, path| {
            let strikes = broken.load(Ordering::SeqCst)
                && *op == Op::QueueReceive
                && path.ends_with("completions");
            assert!(!(strikes && panics), "a bug in the loop");
            strikes.then_some(Fault::Hang(Duration::from_secs(86_400)))
        });
        let (world, store, clock) = World::still(faults).await;
        let (first, ended) = world.coordinator_over(&store, World::config());
        step(&clock, Duration::from_millis(1)).await;
        let (_second, _) = world.coordinator(Config {
            holder: "test/2".to_owned(),
            standby: true,
            ..World::config()
        });
        for _ in 0..100 {
            step(&clock, Duration::from_secs(1)).await;
        }
        let lease = world.store.blobs.get(&world.layout.sentinel()).await;
        let first_leads = lease.expect("memory").expect("made");
        assert!(String::from_utf8_lossy(&first_leads.body).contains("test/1"));

        is_broken.store(true, Ordering::SeqCst);
        let id = world.submit("w", DIAMOND).await;
        // 60 s without a turn, a quarter of the lease until that is seen, the lease, and the standby's next look.
        let limit = if panics { 15 + 1 } else { 60 + 4 + 15 + 1 };
        for _ in 0..limit + 2 {
            step(&clock, Duration::from_secs(1)).await;
        }
        let state = world.state(&id).await.expect("activated");
        assert_eq!(state.holder, "test/2");
        let joined = first.join().await;
        if panics {
            assert_eq!(joined, Joined::Panicked("a bug in the loop".to_owned()));
        } else {
            let ended = ended.lock().unwrap().take();
            assert_eq!(ended, Some(Err(CoordinatorError::Stalled)));
        }
    }
}

#[tokio::test]
async fn statistics_that_came_too_soon_are_stored_later() {
    let (world, _, clock) = World::still(Faults::script()).await;
    world.submit("w", DIAMOND).await;
    let (_task, _) = world.coordinator(Config {
        stats_interval: Duration::from_secs(20),
        ..World::config()
    });
    // Nothing is counted between the two reports, of which the first comes too soon.
    for _ in 0..45 {
        step(&clock, Duration::from_secs(1)).await;
    }
    let found = leader(&world.store, &world.layout).await.expect("memory");
    let statistics = found.expect("it leads").0.statistics;
    assert_eq!(statistics.get("tasks_sent"), Some(&1), "{statistics:?}");
}

#[tokio::test]
async fn a_stop_waits_for_what_is_on_its_way_to_a_queue_that_hangs_and_for_no_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let faults = Faults::script().hook(move |op, _| {
        (*op == Op::QueueSend).then(|| {
            seen.fetch_add(1, Ordering::SeqCst);
            Fault::Hang(Duration::from_secs(10))
        })
    });
    let (world, store, clock) = World::still(faults).await;
    let yaml = "tasks: [{name: a, cmd: 'true'}, {name: b, cmd: 'true'}]";
    for n in 0..30 {
        world.submit(&format!("w{n}"), yaml).await;
    }
    let (task, ended) = world.coordinator_over(&store, World::config());
    for _ in 0..50 {
        step(&clock, Duration::from_millis(10)).await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 32);
    world.stop.cancel();
    for _ in 0..11 {
        step(&clock, Duration::from_secs(1)).await;
    }
    assert!(ended.lock().unwrap().is_some(), "it has ended");
    task.join().await;
    assert_eq!(asked.load(Ordering::SeqCst), 32);
}
