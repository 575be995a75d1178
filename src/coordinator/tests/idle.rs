//! What a coordinator costs that has nothing to do.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const MINUTES: u32 = 10;

/// A coordinator on a clock that stands still, beside the workflows named; its requests pass `faults`.
async fn still(faults: Faults, workflows: &[&str]) -> (Arc<ManualClock>, World, TaskHandle) {
    let clock = ManualClock::still();
    let env = Env {
        entropy: real::env().entropy,
        ..clock.env()
    };
    let plain = MemoryStore::open(env.clone());
    let world = World::over(plain.clone(), env.clone());
    world.layout.create(&plain).await.expect("memory");
    for id in workflows {
        world.submit(id, DIAMOND).await;
    }
    let (store, _) = faults.wrap(plain, env);
    let config = Config {
        holder: "test/1".to_owned(),
        ..Config::default()
    };
    let (task, _) = world.coordinator_over(&store, config);
    (clock, world, task)
}

#[tokio::test]
async fn a_coordinator_with_nothing_to_do_for_long_asks_seldom_and_begins_soon() {
    let requests = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&requests);
    let faults = Faults::script().hook(move |_, _| {
        seen.fetch_add(1, Ordering::SeqCst);
        None
    });
    let (clock, world, _task) = still(faults, &[]).await;
    let pass = async |ticks| {
        for _ in 0..ticks {
            step(&clock, Duration::from_millis(100)).await;
        }
    };
    pass(310 * 10).await;
    requests.store(0, Ordering::SeqCst);
    pass(MINUTES * 600).await;
    let asked = requests.load(Ordering::SeqCst);
    assert!(asked <= 60 * MINUTES, "{asked} in {MINUTES} minutes");
    let id = world.submit("w", DIAMOND).await;
    let row = read_row(&world.store, &world.layout, &id).await;
    let run_id = row.expect("memory").expect("submitted").record.run_id;
    world
        .send(ControlRecord {
            request_id: world.env.uuid(),
            action: ControlAction::Submit,
            workflow_id: id.clone(),
            run_id,
            generation: Generation::FIRST,
            control_seq: ControlSeq::new(0),
            actor: "test".to_owned(),
            requested_at: world.env.wall(),
        })
        .await;
    pass(20).await;
    assert!(world.state(&id).await.is_some(), "begun within 2 s");
}

#[tokio::test]
async fn looks_at_slow_rows_take_a_fifth_of_the_time() {
    let queries = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&queries);
    let faults = Faults::script().hook(move |op, _| {
        (*op == Op::RowQuery).then(|| {
            seen.fetch_add(1, Ordering::SeqCst);
            Fault::ReplyLate(Duration::from_secs(2))
        })
    });
    let (clock, _world, _task) = still(faults, &["w"]).await;
    for _ in 0..1_200 {
        step(&clock, Duration::from_millis(100)).await;
    }
    let asked = queries.load(Ordering::SeqCst);
    assert!((10..=20).contains(&asked), "{asked} in 2 minutes");
}

#[tokio::test]
async fn a_coordinator_looks_every_25_ms_for_a_second_and_a_half_after_news() {
    let looks = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&looks);
    let faults = Faults::script().hook(move |op, _| {
        if *op == Op::QueueReceive {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        None
    });
    let (clock, world, _task) = still(faults, &["w"]).await;
    let looks_in = async |from_ms: u64, to_ms: u64| {
        for ms in (0..to_ms).step_by(10) {
            if ms == from_ms {
                looks.store(0, Ordering::SeqCst);
            }
            step(&clock, Duration::from_millis(10)).await;
        }
        looks.load(Ordering::SeqCst)
    };
    looks_in(0, 5_000).await;
    let task = world.next_task("default").await;
    world.answer(&task, Outcome::Succeeded).await;
    // It is taken half a second after it came, at most.
    let soon = looks_in(700, 1_400).await;
    assert!((20..=35).contains(&soon), "{soon} in 700 ms");
    let later = looks_in(1_600, 4_600).await;
    assert!((4..=10).contains(&later), "{later} in 3 s");
}
