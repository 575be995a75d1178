//! States that others write, damage or delete, or that cannot be written.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_outside_writer_costs_a_conflict_and_loses_nothing() {
    let world = World::new().await;
    let coordinator = world.coordinator(&world.store);
    let (store, layout) = (world.store.clone(), world.layout.clone());
    // While each task runs, somebody writes its workflow's state: the same, in other bytes.
    world.worker(
        &["default"],
        Arc::new(move |job| {
            let (store, path) = (store.clone(), layout.runtime(&job.workflow_id));
            Box::pin(async move {
                loop {
                    let blob = store.blobs.get(&path).await.unwrap().unwrap();
                    let body = Bytes::from([&blob.body[..], b"\n"].concat());
                    let expect = Expect::Version(blob.etag);
                    if store.blobs.put(&path, body, &expect, None).await.is_ok() {
                        return 0;
                    }
                }
            })
        }),
    );
    let id = world.submit("rival", DIAMOND).await;
    assert_eq!(world.ended(&id).await, "cccc");
    assert_eq!(world.ran().len(), 4, "{:?}", world.ran());
    world.stop.cancel();
    coordinator.join().await;
    let found = leader(&world.store, &world.layout).await.unwrap();
    let (sentinel, _, leased) = found.unwrap();
    assert!(!leased);
    assert!(sentinel.statistics["state_conflicts"] >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_state_cannot_be_written_nothing_follows_from_it() {
    let world = World::new().await;
    let closed = Arc::new(AtomicBool::new(false));
    let is_closed = Arc::clone(&closed);
    let faults = Faults::script().hook(move |op, path| {
        let state = *op == Op::BlobPut && path.ends_with("held.json");
        (state && is_closed.load(Ordering::SeqCst)).then_some(Fault::RequestLost)
    });
    let (store, injector) = faults.wrap(world.store.clone(), world.env.clone());
    drop(world.coordinator(&store));
    let close = Arc::clone(&closed);
    world.worker(
        &["default"],
        Arc::new(move |job| {
            if job.task.as_str() == "a" {
                close.store(true, Ordering::SeqCst);
            }
            Box::pin(std::future::ready(0))
        }),
    );
    let id = world.submit("held", CHAIN).await;
    world
        .until("the write to be tried", async || {
            (injector.happened() >= 3).then_some(())
        })
        .await;
    assert_eq!(world.ran(), ["a1"]);
    assert_eq!(world.depth("default").await, 0, "the child is not sent");
    // The request that came with the submit may be there, too.
    assert!(
        world.completions().await >= 1,
        "the completion is not acknowledged"
    );
    closed.store(false, Ordering::SeqCst);
    assert_eq!(world.ended(&id).await, "cc");
    assert_eq!(world.ran(), ["a1", "b1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_state_is_set_aside_until_it_is_mended_and_others_go_on() {
    let world = World::new().await;
    let id = world.submit("damaged", DIAMOND).await;
    let path = world.layout.runtime(&id);
    let body = Bytes::from_static(b"x");
    let etag = world
        .store
        .blobs
        .put(&path, body, &Expect::Absent, None)
        .await
        .unwrap();
    drop(world.coordinator(&world.store));
    world.worker(&["default"], exit(0));
    let fine = world.submit("fine", DIAMOND).await;
    assert_eq!(world.ended(&fine).await, "cccc");
    let blob = world.store.blobs.get(&path).await.unwrap().unwrap();
    assert_eq!(&blob.body[..], b"x", "nobody has touched it");
    world.store.blobs.delete(&path, &etag).await.unwrap();
    assert_eq!(world.ended(&id).await, "cccc");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_state_is_not_made_anew_and_others_go_on() {
    let world = World::new().await;
    drop(world.coordinator(&world.store));
    let (store, layout) = (world.store.clone(), world.layout.clone());
    world.worker(
        &["default"],
        Arc::new(move |job| {
            let (store, path) = (store.clone(), layout.runtime(&job.workflow_id));
            Box::pin(async move {
                if job.workflow_id.as_str() == "lost" {
                    while let Some(blob) = store.blobs.get(&path).await.unwrap() {
                        store.blobs.delete(&path, &blob.etag).await.ok();
                    }
                }
                0
            })
        }),
    );
    let id = world.submit("lost", CHAIN).await;
    world
        .until("the state to be deleted", async || {
            (world.ran() == ["a1"] && world.completions().await == 1).then_some(())
        })
        .await;
    let fine = world.submit("fine", DIAMOND).await;
    assert_eq!(world.ended(&fine).await, "cccc");
    assert_eq!(world.state(&id).await, None);
    assert_eq!(
        world.completions().await,
        1,
        "what could not be stored is kept"
    );
    assert_eq!(world.ran().len(), 5, "nothing ran after what was lost");
}
