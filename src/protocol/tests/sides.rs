//! States that name blobs beside them: what is stored when, and who reads what.

use std::sync::Arc;

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::super::read::read_whole;
use super::states::{state, tombstone};
use super::*;

use crate::definition::{Source, parse};
use crate::engine::{
    Applied, Attempt, AttemptId, AttemptReport, Changes, Generation, Graph, Outcome, RetryAfter,
    Runtime, TaskIx,
};
use crate::record::{
    DetailsRecord, Limits, RunId, RuntimeRecord, SnapshotRecord, Stamp, StateRecord, decode, encode,
};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::layers::meter::Meter;
use crate::store::{BlobPath, Expect, Kind, StoreError};

/// All that can be beside the state is.
const ALL_BESIDE: Limits = Limits {
    letters: 0,
    details: 0,
};

/// A leader of a workflow of three tasks, of which one waits.
struct Writer {
    env: Env,
    plain: Store,
    cell: Cell,
    runtime: Runtime,
    stamp: Option<Stamp>,
}

impl Writer {
    async fn new(faults: Faults) -> Self {
        let env = env_of(&ManualClock::eager());
        let plain = memory(&env).await;
        let (store, _) = faults.wrap(plain.clone(), env.clone());
        let yaml =
            "tasks: [{name: a, cmd: x}, {name: b, cmd: x}, {name: c, cmd: x, depends_on: [b]}]";
        let definition = parse(&Source::new("t.yaml", yaml))
            .expect("legal")
            .definition;
        let graph = Arc::new(Graph::new(&definition).expect("no loop"));
        Self {
            cell: Cell::new(env.clone(), store, layout(), id(), ALL_BESIDE),
            env,
            plain,
            runtime: Runtime::start(graph, &mut Changes::default()),
            stamp: None,
        }
    }

    async fn write(&mut self, revision: u64) -> Result<Swap, ReadError> {
        let record = RuntimeRecord {
            states: String::new(),
            ..state(&self.env, revision)
        };
        self.stamp = Some(record.stamp);
        let touched = self.runtime.take_touched();
        let hurry = CancellationToken::new();
        let (cell, runtime) = (&mut self.cell, &self.runtime);
        cell.swap_tasks(record, runtime, &touched, &mut 0, &hurry)
            .await
    }

    /// Applies the success of the task at a place.
    fn succeed(&mut self, place: u32) {
        let id = AttemptId {
            task: TaskIx::new(place),
            generation: Generation::FIRST,
            attempt: Attempt::new(1),
        };
        let at = crate::env::Timestamp::UNIX_EPOCH;
        let report = AttemptReport {
            outcome: Outcome::Succeeded,
            token: uuid::Uuid::from_u128(u128::from(place))
                .simple()
                .to_string(),
            worker: "w/1".to_owned(),
            started_at: Some(at),
            ended_at: at,
            exit_code: Some(0),
            output: None,
            has_log: false,
            stderr_tail: None,
            reused_from: None,
        };
        let retry = RetryAfter {
            now: at,
            delay: std::time::Duration::ZERO,
        };
        let (runtime, mut changes) = (&mut self.runtime, Changes::default());
        let applied = runtime.apply_report(id, report, retry, |_, _| true, &mut changes);
        assert_eq!(applied, Applied::Changed);
    }

    /// Writes, and reads the same.
    async fn is_read_as_written(&mut self, states: &str) {
        assert_eq!(self.write(2).await, Ok(Swap::Stored));
        let read = self.read().await.expect("stored");
        let (written, tasks) = RuntimeRecord::tasks_of(&self.runtime);
        assert_eq!((read.states.as_str(), written.as_str()), (states, states));
        assert_eq!((read.tasks, read.packed), (tasks, None));
    }

    /// Takes the state up as the next leader does.
    async fn next_leader(&mut self, limits: Limits) {
        let (env, store) = (self.env.clone(), self.plain.clone());
        self.cell = Cell::new(env, store, layout(), id(), limits);
        let loaded = self.cell.load(&CancellationToken::new()).await;
        let record = loaded.expect("memory").expect("stored").live();
        let graph = Arc::clone(self.runtime.graph());
        let restored = record
            .expect("live")
            .runtime(graph, &mut Changes::default());
        self.runtime = restored.expect("fits");
    }

    async fn read(&self) -> Result<RuntimeRecord, ReadError> {
        let stored = read_runtime(&self.plain, &layout(), &id()).await?;
        Ok(stored.expect("stored").record)
    }

    /// The snapshot that the newest state names.
    fn snapshot(&self) -> BlobPath {
        let run = RunId::new(uuid::Uuid::nil());
        layout().snapshot(&id(), run, self.stamp.expect("written"))
    }
}

#[tokio::test]
async fn a_state_is_read_whole_wherever_its_parts_are() {
    let mut writer = Writer::new(Faults::script()).await;
    assert_eq!(writer.write(1).await, Ok(Swap::Stored));
    assert_eq!(writer.read().await.expect("stored").states, "rrp");
    for (place, states) in [(0, "drp"), (1, "ddp")] {
        let sent = writer
            .runtime
            .mark_sent(TaskIx::new(place), Attempt::new(1));
        assert_eq!(sent, Applied::Changed);
        writer.is_read_as_written(states).await;
    }
    writer.succeed(0);
    writer.is_read_as_written("cdp").await;
    // The next leaders go on where the one before has ended, whatever their limits.
    writer.next_leader(ALL_BESIDE).await;
    writer.succeed(1);
    writer.is_read_as_written("ccr").await;
    let head = read_head(&writer.plain, &layout(), &id()).await;
    let head = head.expect("memory").expect("stored").record.live();
    assert_eq!(head.expect("live").states, "");
    writer.next_leader(Limits::default()).await;
    writer.succeed(2);
    writer.is_read_as_written("ccc").await;
    writer.next_leader(ALL_BESIDE).await;
    writer.is_read_as_written("ccc").await;
}

#[tokio::test]
async fn what_a_state_names_is_stored_before_it() {
    let refused =
        Faults::script().hook(|_, path| path.contains("=state").then_some(Fault::Refused));
    let mut writer = Writer::new(refused).await;
    let written = writer.write(1).await;
    assert!(matches!(
        written,
        Err(ReadError::Store(StoreError {
            kind: Kind::Invalid,
            ..
        }))
    ));
    let read = read_head(&writer.plain, &layout(), &id()).await;
    assert_eq!(read.expect("memory"), None);
}

#[tokio::test]
async fn the_reply_to_what_a_state_names_may_be_lost() {
    // The first put is that of the snapshot.
    let lost = Faults::script().on(Op::BlobPut, 1, Fault::ReplyLost);
    let mut writer = Writer::new(lost).await;
    assert_eq!(writer.write(1).await, Ok(Swap::Stored));
    assert_eq!(writer.read().await.expect("stored").states, "rrp");
}

#[tokio::test]
async fn a_state_that_names_what_is_gone_or_damaged_is_damaged() {
    let mut writer = Writer::new(Faults::script()).await;
    assert_eq!(writer.write(1).await, Ok(Swap::Stored));
    let path = writer.snapshot();
    let blobs = &writer.plain.blobs;
    for body in [&b"{}"[..], b"no JSON"] {
        let etag = blobs
            .get(&path)
            .await
            .expect("memory")
            .expect("stored")
            .etag;
        let expect = Expect::Version(etag);
        let put = blobs.put(&path, body.into(), &expect, None).await;
        put.expect("memory");
        let error = writer.read().await.expect_err("damaged").to_string();
        assert!(error.contains(&path.to_string()), "{error}");
    }
    let etag = blobs
        .get(&path)
        .await
        .expect("memory")
        .expect("stored")
        .etag;
    blobs.delete(&path, &etag).await.expect("memory");
    let error = writer.read().await.expect_err("gone").to_string();
    let is_named =
        error.contains(&path.to_string()) && error.contains("is no snapshot: it is gone");
    assert!(is_named, "{error}");
}

#[tokio::test]
async fn what_a_state_names_is_of_the_same_workflow_or_damage_of_its_own() {
    let mut writer = Writer::new(Faults::script()).await;
    assert_eq!(writer.write(1).await, Ok(Swap::Stored));
    writer.succeed(0);
    assert_eq!(writer.write(2).await, Ok(Swap::Stored));
    let (snapshot, blobs) = (writer.snapshot(), &writer.plain.blobs);
    let stored = blobs.get(&snapshot).await.expect("memory");
    let record: SnapshotRecord = decode(&stored.expect("stored").body).expect("ours");
    let stamp = *record.details.last().expect("one");
    let details = layout().details(&id(), RunId::new(uuid::Uuid::nil()), stamp);
    let other = WorkflowId::new("other").expect("legal");
    for (path, what) in [(&details, "detail blob"), (&snapshot, "snapshot")] {
        let stored = blobs.get(path).await.expect("memory").expect("stored");
        let (own, foreign) = if *path == snapshot {
            let mut record: SnapshotRecord = decode(&stored.body).expect("ours");
            let own = std::mem::replace(&mut record.workflow_id, other.clone());
            (own, encode(&record))
        } else {
            let mut record: DetailsRecord = decode(&stored.body).expect("ours");
            let own = std::mem::replace(&mut record.workflow_id, other.clone());
            (own, encode(&record))
        };
        assert_eq!(own, id());
        let expect = Expect::Version(stored.etag);
        let put = blobs.put(path, foreign.into(), &expect, None).await;
        let error = writer.read().await.expect_err("foreign").to_string();
        let why = format!("`{path}` is no {what}: it is of the workflow `other`, not of `{own}`");
        assert_eq!(error, why);
        let expect = Expect::Version(put.expect("current"));
        let put = blobs.put(path, stored.body, &expect, None).await;
        put.expect("current");
        writer.read().await.expect("its own again");
    }
    let etag = blobs.get(&details).await.expect("memory");
    let etag = etag.expect("stored").etag;
    blobs.delete(&details, &etag).await.expect("current");
    let error = writer.read().await.expect_err("gone").to_string();
    assert!(error.contains("is no detail blob: it is gone"), "{error}");
}

/// A purge replaces the state by a tombstone, and then removes what it named.
#[tokio::test]
async fn who_reads_a_state_while_it_is_purged_sees_the_tombstone() {
    let mut writer = Writer::new(Faults::script()).await;
    assert_eq!(writer.write(1).await, Ok(Swap::Stored));
    let (plain, snapshot) = (writer.plain.clone(), writer.snapshot());
    let tombstone = tombstone(&writer.env);
    let (writer, tombstone) = (&futures::lock::Mutex::new(writer), &tombstone);
    let (plain, snapshot) = (&plain, &snapshot);
    let get = |path: BlobPath| {
        let get = async move {
            if path == *snapshot {
                let hurry = CancellationToken::new();
                let purged = writer.lock().await.cell.bury(tombstone, &hurry).await;
                assert_eq!(purged, Ok(Swap::Stored));
                let found = plain.blobs.get(snapshot).await?.expect("stored");
                plain.blobs.delete(snapshot, &found.etag).await?;
            }
            plain.blobs.get(&path).await
        };
        get.boxed()
    };
    let read = read_whole(&layout(), &id(), ALL_BESIDE, &get).await;
    let (stored, _ledger) = read.expect("memory").expect("stored");
    assert_eq!(stored.record, StateRecord::Purged(tombstone.clone()));
}

#[tokio::test]
async fn who_looks_again_asks_only_for_the_state_itself() {
    let mut writer = Writer::new(Faults::script()).await;
    assert_eq!(writer.write(1).await, Ok(Swap::Stored));
    let (store, meter) = Meter::wrap(writer.plain.clone());
    let kept = Kept::default();
    let look = async || {
        let read = read_state_again(&store, &layout(), &id(), &kept).await;
        let state = read.expect("memory").expect("stored").record.live();
        let gets = meter.take()[&Op::BlobGet].requests;
        (state.expect("live").states, gets)
    };
    assert_eq!(look().await, ("rrp".to_owned(), 2));
    assert_eq!(look().await, ("rrp".to_owned(), 1));
    writer.succeed(1);
    assert_eq!(writer.write(2).await, Ok(Swap::Stored));
    // Another snapshot and a detail blob.
    assert_eq!(look().await, ("rcr".to_owned(), 3));
    assert_eq!(look().await, ("rcr".to_owned(), 1));
    assert_eq!(kept.blobs().len(), 2, "the first snapshot is let go");
}
