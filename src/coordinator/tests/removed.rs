//! Workflows that somebody removes under their leader, and rows that are removed alone (P16).

use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt as _;

use super::*;
use crate::store::BlobPath;

const ONE: &str = "tasks: [{name: a, cmd: x}]";

impl World {
    async fn remove_blob(&self, path: &BlobPath) {
        let blobs = &self.store.blobs;
        let etag = blobs.get(path).await.expect("memory").expect("there").etag;
        blobs.delete(path, &etag).await.expect("current");
    }

    /// Removes the open row, whatever the leader writes meanwhile.
    async fn remove_row(&self, id: &WorkflowId) {
        let (table, key) = (self.layout.index(), self.layout.open_row(id));
        let rows = &self.store.rows;
        while let Some(row) = rows.get(table, &key).await.expect("memory") {
            rows.delete(table, &key, &row.etag).await.ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_is_removed_holds_no_messages_back_from_others() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(Config {
        max_outstanding: Some(1),
        ..World::config()
    });
    let removed = world.submit("removed", ONE).await;
    world.marked(&removed).await;
    assert_eq!(world.next_task("default").await.workflow_id, removed);
    let next = world.submit("next", ONE).await;
    world.remove_blob(&world.layout.definition(&removed)).await;
    world.remove_blob(&world.layout.runtime(&removed)).await;
    world.remove_row(&removed).await;
    assert_eq!(world.next_task("default").await.workflow_id, next);
    assert!(world.state(&removed).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_removed_from_under_its_leader_is_made_again() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("w", ONE).await;
    world.marked(&id).await;
    let sent = world.next_task("default").await;
    let before = world.state(&id).await.expect("activated");
    let row = async || {
        let row = read_row(&world.store, &world.layout, &id).await;
        row.expect("memory")
    };
    // From then on nothing happens that would make the row anyway.
    world
        .until("the row to show all", async || {
            let row = row().await?;
            (row.record.revision == before.revision).then_some(())
        })
        .await;
    world.remove_row(&id).await;
    let row = world.until("the row", row).await;
    assert_eq!(
        (row.record.run_id, row.record.revision),
        (before.run_id, before.revision)
    );
    assert_eq!(world.state(&id).await, Some(before));
    world.answer(&sent, Outcome::Succeeded).await;
    assert_eq!(world.ended(&id).await.states, "c");
    let queue = world.layout.task_queue(&"default".parse().expect("legal"));
    assert_eq!(world.depth(&queue).await, 1, "nothing was sent again");
}

/// Its definition is read, then it is removed, then its row is looked for.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_while_it_is_taken_up_is_not_begun() {
    let world = World::new().await;
    let id = world.submit("w", ONE).await;
    world.remove_row(&id).await;
    let looks = Arc::new(AtomicU32::new(0));
    let (count, plain, path) = (
        Arc::clone(&looks),
        world.store.clone(),
        world.layout.definition(&id),
    );
    let faults = Faults::script().hook(move |op, at| {
        if *op == Op::BlobGet && at.ends_with("w.def.json") {
            count.fetch_add(1, Ordering::SeqCst);
        }
        if *op == Op::RowGet && count.load(Ordering::SeqCst) == 1 {
            let removed = async {
                if let Ok(Some(blob)) = plain.blobs.get(&path).await {
                    plain.blobs.delete(&path, &blob.etag).await.ok();
                }
            };
            removed.now_or_never().expect("memory waits for nothing");
        }
        None
    });
    let (store, _) = faults.wrap(world.store.clone(), world.env.clone());
    let (task, _) = world.coordinator_over(&store, World::config());
    world
        .until("another look, or the state", async || {
            let is_begun = world.state(&id).await.is_some();
            (is_begun || looks.load(Ordering::SeqCst) > 1).then_some(())
        })
        .await;
    world.stop.cancel();
    task.join().await;
    assert!(world.state(&id).await.is_none());
}
