//! Purges of what cannot be read (P31).

use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::{join, join_all};

use super::purging::config;
use super::*;
use crate::protocol::read_head;
use crate::record::{JournalResult, Limits, TombstoneRecord};
use crate::store::BlobPath;

/// What has happened to a blob.
type Spoilt = Option<&'static [u8]>;
const GONE: Spoilt = None;
const DAMAGED: Spoilt = Some(b"damaged");
const NEWER: Spoilt = Some(br#"{"schema": 99}"#);

impl World {
    /// A leader that stores all that it can beside the state; its looks at the state of `w` are counted.
    fn leader(&self, holder: &str) -> (TaskHandle, Arc<AtomicU32>) {
        let looks = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&looks);
        let faults = Faults::script().hook(move |op, path| {
            let is_look = *op == Op::BlobGet && path.ends_with("-workflows/w.json");
            seen.fetch_add(u32::from(is_look), Ordering::SeqCst);
            None
        });
        let (store, _) = faults.wrap(self.store.clone(), self.env.clone());
        let all_beside = Limits {
            letters: 0,
            details: 0,
        };
        let config = Config {
            state_limits: all_beside,
            visibility_timeout: Duration::from_secs(1),
            ..config(holder)
        };
        let (task, _) = self.coordinator_over(&store, config);
        (task, looks)
    }

    /// The snapshot that a state names.
    async fn snapshot(&self, id: &WorkflowId) -> BlobPath {
        let head = read_head(&self.store, &self.layout, id).await;
        let head = head.expect("memory").expect("stored").record.live();
        let head = head.expect("live");
        let stamp = head.packed.and_then(|packed| packed.snapshot);
        self.layout
            .snapshot(id, head.run_id, stamp.expect("all is beside"))
    }

    /// Damages or removes the state, or what is beside it.
    async fn spoil(&self, id: &WorkflowId, is_beside: bool, how: Spoilt) {
        let path = if is_beside {
            self.snapshot(id).await
        } else {
            self.layout.runtime(id)
        };
        let blobs = &self.store.blobs;
        let etag = blobs.get(&path).await.expect("memory").expect("there").etag;
        if let Some(body) = how {
            let expect = Expect::Version(etag);
            let put = blobs.put(&path, Bytes::from_static(body), &expect, None);
            drop(put.await.expect("current"));
        } else {
            blobs.delete(&path, &etag).await.expect("current");
        }
    }

    async fn bytes(&self, path: &BlobPath) -> Option<Bytes> {
        let found = self.store.blobs.get(path).await;
        found.expect("memory").map(|blob| blob.body)
    }

    /// What the journal tells of a request, once it does.
    async fn told(&self, asked: uuid::Uuid) -> JournalResult {
        self.until("the answer", async || {
            let mut entries = self.journal().await.into_iter();
            let entry = entries.find(|entry| entry.request_id == Some(asked));
            entry.map(|entry| entry.result)
        })
        .await
    }

    /// Sends what must change nothing, and waits until that is sure.
    async fn is_left(&self, looks: &AtomicU32, asked: ControlRecord) {
        let id = asked.workflow_id.clone();
        let (left, state) = (self.left(&id).await, self.layout.runtime(&id));
        let bytes = self.bytes(&state).await;
        self.send(asked).await;
        // One turn takes three looks at most: one before, the one with this, and then another.
        let enough = looks.load(Ordering::SeqCst) + 7;
        self.until("looks at the state, or a change", async || {
            let is_over = looks.load(Ordering::SeqCst) >= enough || self.left(&id).await != left;
            is_over.then_some(())
        })
        .await;
        assert_eq!(self.left(&id).await, left, "nothing of it is lost");
        assert_eq!(self.bytes(&state).await, bytes);
    }

    async fn purge_unread(&self, asked: ControlRecord) -> TombstoneRecord {
        let (id, request, run) = (asked.workflow_id.clone(), asked.request_id, asked.run_id);
        self.send(asked).await;
        let tombstone = self.purged(&id).await;
        assert_eq!((tombstone.run_id, tombstone.request_id), (run, request));
        assert_eq!(self.told(request).await, JournalResult::Applied);
        tombstone
    }
}

async fn what_has_ended_is_purged(is_beside: bool, how: Spoilt) {
    let world = World::new().await;
    let (_task, looks) = world.leader("one/1");
    let (id, _) = world.ended_with_all().await;
    let retry = world.request(&id, ControlAction::Retry).await;
    let purge = world.request(&id, ControlAction::Purge).await;
    let other = ControlRecord {
        control_seq: purge.control_seq.next(),
        request_id: world.env.uuid(),
        ..purge.clone()
    };
    world.spoil(&id, is_beside, how).await;
    // It is set aside, and who asks as nobody saw it changes nothing about that.
    let refused = retry.request_id;
    world.send(retry).await;
    world.is_left(&looks, other).await;
    world.purge_unread(purge).await;
    assert_eq!(world.told(refused).await, JournalResult::Refused);
    let neighbour = WorkflowId::new("w1").expect("legal");
    let left = world.left(&neighbour).await;
    assert_eq!(left[..2], [1, 2], "it keeps its own");
    world.stop.cancel();
}

/// A workflow that has begun, whose leader is gone, and a purge of it.
async fn begun() -> (World, WorkflowId, ControlRecord) {
    let world = World::new().await;
    let (first, _) = world.leader("one/1");
    let id = world.submit("w", DIAMOND).await;
    drop(world.next_task("default").await);
    world.marked(&id).await;
    killed(first).await;
    let purge = world.request(&id, ControlAction::Purge).await;
    (world, id, purge)
}

async fn what_has_not_ended_is_left(is_beside: bool, how: Spoilt) {
    let (world, id, purge) = begun().await;
    world.spoil(&id, is_beside, how).await;
    let (_second, looks) = world.leader("two/1");
    world.is_left(&looks, purge).await;
    world.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_and_cannot_be_read_can_be_purged_and_what_has_not_cannot() {
    let ways = [
        (false, DAMAGED),
        (false, GONE),
        (true, DAMAGED),
        (true, GONE),
    ];
    let ended = ways.map(|(is_beside, how)| what_has_ended_is_purged(is_beside, how));
    let unfinished = ways.map(|(is_beside, how)| what_has_not_ended_is_left(is_beside, how));
    join(join_all(ended), join_all(unfinished)).await;
}

/// The row is of an older copy, say: what the state itself says counts, where only what is beside it cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_says_ended_beside_a_state_that_does_not_lets_nothing_be_purged() {
    let (world, id, purge) = begun().await;
    let found = read_row(&world.store, &world.layout, &id).await;
    let row = found.expect("memory").expect("there").record;
    assert_eq!(
        (row.run_id, row.generation, row.control_seq),
        (purge.run_id, purge.generation, purge.control_seq)
    );
    let ended = IndexRecord {
        status: Status::Completed,
        ..row
    };
    let (table, open) = (world.layout.index(), world.layout.open_row(&id));
    let rows = &world.store.rows;
    let stored = rows.get(table, &open).await.expect("memory");
    let version = Expect::Version(stored.expect("open").etag);
    let fields = fields_of(&ended);
    let written = rows.write(table, &open, &fields, &version);
    drop(written.await.expect("current"));
    world.spoil(&id, true, DAMAGED).await;
    let (_second, looks) = world.leader("two/1");
    world.is_left(&looks, purge).await;
    world.stop.cancel();
}

/// The newer version that wrote it can purge it.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_of_a_newer_schema_is_not_purged_by_its_row() {
    let world = World::new().await;
    let (_task, looks) = world.leader("one/1");
    let (id, _) = world.ended_with_all().await;
    let purge = world.request(&id, ControlAction::Purge).await;
    world.spoil(&id, false, NEWER).await;
    world.is_left(&looks, purge).await;
}

/// Who still leads has had its epoch put back, and raises it; that the row is not taken for an own one is what counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_later_epoch_is_met_before_what_cannot_be_read_is_replaced() {
    let world = World::new().await;
    let (_task, _) = world.leader("one/1");
    let (id, _) = world.ended_with_all().await;
    let purge = world.request(&id, ControlAction::Purge).await;
    let found = read_row(&world.store, &world.layout, &id).await;
    let found = found.expect("memory").expect("there");
    let later = IndexRecord {
        epoch: Epoch::new(70),
        ..found.record
    };
    let (rows, expect) = (&world.store.rows, Expect::Version(found.row.etag));
    let fields = fields_of(&later);
    let written = rows.write(world.layout.index(), &found.row.key, &fields, &expect);
    drop(written.await.expect("current"));
    world.spoil(&id, false, DAMAGED).await;
    let tombstone = world.purge_unread(purge).await;
    assert!(tombstone.epoch > Epoch::new(70), "{tombstone:?}");
}
