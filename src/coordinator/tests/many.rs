//! Many workflows at once, one of them huge, and many cancels that meet the last completion.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;

use super::*;
use crate::env::Spawner;

/// Counts the actors of workflows that live.
#[derive(Debug)]
struct Census {
    inner: Arc<dyn Spawner>,
    living: Arc<AtomicUsize>,
}

impl Spawner for Census {
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> TaskHandle {
        if name != "workflow" {
            return self.inner.spawn(name, future);
        }
        self.living.fetch_add(1, Ordering::SeqCst);
        let living = Arc::clone(&self.living);
        let counted = async move {
            future.await;
            living.fetch_sub(1, Ordering::SeqCst);
        };
        self.inner.spawn(name, Box::pin(counted))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_workflows_pass_a_giant_and_are_let_go_when_they_end() {
    const GIANT: usize = 2000;
    const SMALL: usize = 1000;
    const WINDOW: u32 = 64;
    let living = Arc::new(AtomicUsize::new(0));
    let real = real::env();
    let spawner = Arc::new(Census {
        inner: Arc::clone(&real.spawner),
        living: Arc::clone(&living),
    });
    let env = Env { spawner, ..real };
    let world = World::over(MemoryStore::open(env.clone()), env);
    world.layout.create(&world.store).await.expect("memory");
    let (_task, _) = world.coordinator(Config {
        max_outstanding: Some(WINDOW),
        ..World::config()
    });
    let tasks: Vec<_> = (0..GIANT)
        .map(|n| format!("  - {{name: t{n}, cmd: 'true'}}\n"))
        .collect();
    let held = "  - {name: held, cmd: 'true', queue: held}\n";
    let yaml = format!("tasks:\n{}{held}", tasks.concat());
    let giant = world.submit("giant", &yaml).await;
    let filled = world.layout.task_queue(&"default".parse().expect("legal"));
    world
        .until("the giant to hold all slots", async || {
            let depth = world.store.queues.depth(&filled).await;
            // There is no queue before the first message.
            (depth.unwrap_or(0) == u64::from(WINDOW)).then_some(())
        })
        .await;
    let mut ids = Vec::new();
    for n in 0..SMALL {
        let yaml = "tasks: [{name: a, cmd: 'true'}]";
        ids.push(world.submit(&format!("w{n}"), yaml).await);
    }
    world
        .until("all to stand in line", async || {
            (living.load(Ordering::SeqCst) == SMALL + 1).then_some(())
        })
        .await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&order);
    world.worker(
        "default",
        Arc::new(move |task| {
            let is_small = task.workflow_id.as_str() != "giant";
            noted.lock().unwrap().push(is_small);
            Some(Outcome::Succeeded)
        }),
    );
    for id in &ids {
        assert_eq!(world.ended(id).await.states, "c");
    }
    world
        .until("the ended ones to be let go", async || {
            (living.load(Ordering::SeqCst) == 1).then_some(())
        })
        .await;
    world.worker("held", succeed());
    assert_eq!(world.ended(&giant).await.status, Status::Completed);
    world
        .until("the giant to be let go", async || {
            (living.load(Ordering::SeqCst) == 0).then_some(())
        })
        .await;
    let order = order.lock().unwrap();
    assert_eq!(order.len(), GIANT + SMALL);
    let last = order.iter().rposition(|is_small| *is_small);
    let of_giant = last.expect("they ran") + 1 - SMALL;
    assert!(of_giant < GIANT / 2, "the small ones waited for {of_giant}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeps_at_every_moment_send_nothing_twice_and_undo_nothing() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        max_outstanding: Some(8),
        ready_sweep_interval: Duration::from_millis(2),
        ready_repair_threshold: Duration::ZERO,
        ..World::config()
    });
    world.worker("default", succeed());
    let mut ids = Vec::new();
    for n in 0..100 {
        ids.push(world.submit(&format!("w{n}"), DIAMOND).await);
    }
    for id in &ids {
        assert_eq!(world.ended(id).await.states, "cccc");
    }
    world.drained().await;
    let executed = world.executed.lock().unwrap().values().sum::<u32>();
    assert_eq!(executed, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_meets_the_last_completion_has_one_end_that_stays() {
    const ROUNDS: usize = 200;
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let mut rounds = BTreeMap::new();
    for n in 0..ROUNDS {
        let yaml = "tasks: [{name: a, cmd: 'true'}]";
        let id = world.submit(&format!("w{n}"), yaml).await;
        rounds.insert(id.clone(), id);
    }
    let mut tasks = Vec::new();
    for _ in 0..ROUNDS {
        tasks.push(world.next_task("default").await);
    }
    // Who asks and who answers are a little apart, either way.
    let meet = tasks.iter().map(|task| async {
        let id = &rounds[&task.workflow_id];
        let request = world.request(id, ControlAction::Cancel).await;
        let pause = || world.env.jitter(Duration::from_millis(400));
        let (first, second) = (pause(), pause());
        futures::join!(
            async {
                world.env.sleep(first).await;
                world.answer(task, Outcome::Succeeded).await;
            },
            async {
                world.env.sleep(second).await;
                world.send(request).await;
            }
        );
    });
    futures::future::join_all(meet).await;
    let mut ends = BTreeMap::new();
    for task in &tasks {
        let state = world.ended(&task.workflow_id).await;
        ends.insert(task.workflow_id.clone(), (state.status, state.states));
        world.answer(task, Outcome::Succeeded).await;
        world.answer(task, failed()).await;
    }
    world.drained().await;
    let mut seen = BTreeMap::new();
    for (id, end) in ends {
        let state = world.ended(&id).await;
        assert_eq!((state.status, state.states), end, "{id} changed again");
        // A result that was there before the end counts, also where the cancel was applied first.
        assert_eq!(end.1, "c", "{id}");
        let answer = state.control_results.last().expect("answered");
        assert_eq!(
            answer.refused.is_some(),
            state.cancel.is_none(),
            "{id}: who asked was told"
        );
        *seen
            .entry((format!("{:?}", state.status), answer.refused.is_some()))
            .or_insert(0) += 1;
    }
    assert!(seen.len() > 1, "both ways were met: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_hangs_holds_up_no_workflow_that_sends_to_another() {
    const HELD: usize = 80;
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let faults = Faults::script().hook(move |op, path| {
        let hangs = *op == Op::QueueSend && path.ends_with("-q-held");
        hangs.then(|| {
            seen.fetch_add(1, Ordering::SeqCst);
            Fault::Hang(Duration::from_secs(3_600))
        })
    });
    let (world, _) = World::with(faults).await;
    let (_task, _) = world.coordinator(World::config());
    let tasks = ["a", "b", "c"].map(|name| format!("{{name: {name}, cmd: 'true', queue: held}}"));
    let yaml = format!("tasks: [{}]", tasks.join(", "));
    let mut held = Vec::new();
    for n in 0..HELD {
        held.push(world.submit(&format!("held{n}"), &yaml).await);
    }
    for id in &held {
        world
            .until("all to be begun", async || world.state(id).await)
            .await;
    }
    world
        .until("the queue to be full", async || {
            (asked.load(Ordering::SeqCst) >= 32).then_some(())
        })
        .await;
    world.worker("default", succeed());
    let id = world
        .submit("free", "tasks: [{name: a, cmd: 'true'}]")
        .await;
    assert_eq!(world.ended(&id).await.status, Status::Completed);
    assert_eq!(asked.load(Ordering::SeqCst), 32);
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_that_hang_before_the_first_receive_hold_up_no_other() {
    let receives = AtomicUsize::new(0);
    let faults = Faults::script().hook(move |op, path| {
        let receives = || receives.fetch_add(1, Ordering::SeqCst);
        if *op == Op::QueueReceive && path.ends_with("-completions") && receives() == 0 {
            return Some(Fault::ReplyLate(Duration::from_millis(200)));
        }
        let hangs = *op == Op::BlobGet && path.contains("/hangs-") && !path.ends_with(".def.json");
        hangs.then_some(Fault::Hang(Duration::from_secs(600)))
    });
    let (world, _) = World::with(faults).await;
    for nth in 0..20 {
        let yaml = "tasks: [{name: a, cmd: 'true'}]";
        world.submit(&format!("hangs-{nth}"), yaml).await;
    }
    let id = world.submit("well", DIAMOND).await;
    world.worker("default", succeed());
    let (_task, _) = world.coordinator(World::config());
    assert_eq!(world.ended(&id).await.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_takes_up_none_of_the_workflows_that_stand_in_line() {
    const WAITING: usize = 200;
    let (living, looks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&looks);
    let faults = Faults::script().hook(move |op, path| {
        let looks = *op == Op::BlobGet && path.contains("/w") && !path.ends_with(".def.json");
        looks.then(|| {
            seen.fetch_add(1, Ordering::SeqCst);
            Fault::ReplyLate(Duration::from_millis(100))
        })
    });
    let real = real::env();
    let spawner = Arc::new(Census {
        inner: Arc::clone(&real.spawner),
        living: Arc::clone(&living),
    });
    let env = Env { spawner, ..real };
    let (store, _) = faults.wrap(MemoryStore::open(env.clone()), env.clone());
    let world = World::over(store, env);
    world.layout.create(&world.store).await.expect("memory");
    for n in 0..WAITING {
        let yaml = "tasks: [{name: a, cmd: 'true'}]";
        world.submit(&format!("w{n}"), yaml).await;
    }
    let (task, ended) = world.coordinator(World::config());
    world
        .until("all to stand in line", async || {
            (living.load(Ordering::SeqCst) == WAITING).then_some(())
        })
        .await;
    world.stop.cancel();
    task.join().await;
    assert!(ended.lock().unwrap().as_ref().unwrap().is_ok());
    // Those that were taking a turn.
    let looks = looks.load(Ordering::SeqCst);
    assert!(looks <= 64, "{looks}");
}
