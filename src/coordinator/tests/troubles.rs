//! Lost replies, garbage, damaged states, bugs.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_state_write_whose_reply_is_lost_is_recognised_by_its_stamp() {
    let env = real::env();
    let faults = Faults::script().hook(|op, path| {
        (*op == Op::BlobPut && path.ends_with("lost.json")).then_some(Fault::ReplyLost)
    });
    let (store, injector) = faults.wrap(MemoryStore::open(env.clone()), env.clone());
    let world = World::over(store, env);
    world
        .layout
        .create(&world.store)
        .await
        .expect("no fault there");
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
async fn garbage_goes_to_the_poison_queue_and_a_newer_message_stays() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    let newer = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        r#"{"schema":2,"new":true}"#,
    );
    for body in ["hello", "bnVsbA==", newer.as_str()] {
        world
            .store
            .queues
            .send(world.layout.completions(), body, Duration::ZERO)
            .await
            .expect("memory");
    }
    let id = world.submit("beside", DIAMOND).await;
    assert_eq!(world.ended(&id).await.status, Status::Completed);
    assert_eq!(world.depth(world.layout.completions_poison()).await, 2);
    assert_eq!(world.depth(world.layout.completions()).await, 1);
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
        body: TaskBody::Blob("none".to_owned()),
    };
    let text = completion(&task, Outcome::Succeeded, world.env.wall());
    let queues = &world.store.queues;
    let queue = world.layout.completions();
    for deliveries in [3, 9] {
        queues
            .send(queue, &text, Duration::ZERO)
            .await
            .expect("memory");
        for _ in 0..deliveries {
            let found = queues
                .receive(queue, 1, Duration::from_secs(60))
                .await
                .expect("memory");
            let receipt = &found.first().expect("visible").receipt;
            queues
                .extend(queue, receipt, Duration::ZERO)
                .await
                .expect("held");
        }
        // Hidden, so that the other one is not met meanwhile.
        let found = queues
            .receive(queue, 1, Duration::from_secs(60))
            .await
            .expect("memory");
        let receipt = &found.first().expect("visible").receipt;
        queues
            .extend(queue, receipt, Duration::from_secs(1))
            .await
            .expect("held");
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
async fn a_workflow_whose_actor_panics_rests_and_goes_on_and_others_notice_nothing() {
    let env = real::env();
    let panics = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let seen = Arc::clone(&panics);
    let faults = Faults::script().hook(move |op, path| {
        let strikes = *op == Op::BlobGet && path.ends_with("/panics.json");
        let nth = if strikes {
            seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst)
        } else {
            9
        };
        assert!(nth >= 2, "a bug that strikes twice");
        None
    });
    let (store, _) = faults.wrap(MemoryStore::open(env.clone()), env.clone());
    let world = World::over(store, env);
    world
        .layout
        .create(&world.store)
        .await
        .expect("no fault there");
    let struck = world.submit("panics", DIAMOND).await;
    let fine = world.submit("fine", DIAMOND).await;
    let (_task, _) = world.coordinator(World::config());
    world.worker("default", succeed());
    assert_eq!(world.ended(&fine).await.status, Status::Completed);
    world
        .until("the panics", async || {
            (panics.load(std::sync::atomic::Ordering::SeqCst) > 2).then_some(())
        })
        .await;
    assert_eq!(world.ended(&struck).await.status, Status::Completed);
}
