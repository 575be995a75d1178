//! Becoming leader, taking over, stopping.

use super::*;

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
    first.abort();
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
        task.abort();
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
