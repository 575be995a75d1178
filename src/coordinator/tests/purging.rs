//! Purges: what goes and what stays, whatever interrupts them (P31).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::*;
use crate::definition::TaskName;
use crate::env::{Clock, Mono, Timestamp};
use crate::protocol::{read_definition, read_state, write_claim};
use crate::record::{
    ClaimRecord, JournalRecord, JournalResult, StateRecord, Token, TombstoneRecord,
};
use crate::store::memory::MemoryStore;

impl World {
    /// Runs a workflow to its end and puts beside it what workers leave: outputs, logs, a claim. A neighbour has the same.
    pub(super) async fn ended_with_all(&self) -> (WorkflowId, RuntimeRecord) {
        self.worker("default", succeed());
        let neighbour = self.submit("w1", DIAMOND).await;
        let id = self.submit("w", DIAMOND).await;
        self.left_by_workers(&neighbour).await;
        let state = self.left_by_workers(&id).await;
        (id, state)
    }

    async fn left_by_workers(&self, id: &WorkflowId) -> RuntimeRecord {
        let state = self.ended(id).await;
        for name in ["a", "b/c"] {
            let task = TaskName::new(name).expect("legal");
            let of = self
                .layout
                .execution(id, state.run_id, &task, Attempt::new(1), "t");
            self.put(&of.output(), b"1".to_vec()).await;
            self.put(&of.log(), b"1".to_vec()).await;
            let claim = ClaimRecord {
                schema: 1,
                workflow_id: id.clone(),
                run_id: state.run_id,
                generation: state.generation,
                task,
                attempt_no: Attempt::new(1),
                token: Token::new(self.env.uuid()),
                worker: "gone/1".to_owned(),
                host: "gone".to_owned(),
                started_at: self.env.wall(),
                visibility_s: 60,
                starts: 1,
                interruptions: 0,
                freed: false,
            };
            write_claim(&self.store, &self.layout, &claim, &Expect::Absent)
                .await
                .expect("memory");
        }
        state
    }

    /// How much is left of a workflow: rows, claims, outputs, logs, definitions.
    pub(super) async fn left(&self, id: &WorkflowId) -> [usize; 5] {
        let layout = &self.layout;
        let rows = [layout.open_row(id), layout.done_row(id)];
        let mut count = 0;
        for key in rows {
            let row = self.store.rows.get(layout.index(), &key).await;
            count += usize::from(row.expect("memory").is_some());
        }
        let rows = &self.store.rows;
        let claims = rows.query(layout.claims(), id.as_str(), None).await;
        let of = format!("{id}/");
        let blobs = &self.store.blobs;
        let outputs = blobs.list(layout.outputs(), &of, None).await;
        let logs = blobs.list(layout.logs(), &of, None).await;
        let definition = read_definition(&self.store, layout, id).await;
        [
            count,
            claims.expect("memory").items.len(),
            outputs.expect("memory").items.len(),
            logs.expect("memory").items.len(),
            usize::from(definition.expect("memory").is_some()),
        ]
    }

    async fn tombstone(&self, id: &WorkflowId) -> Option<TombstoneRecord> {
        let state = read_state(&self.store, &self.layout, id).await;
        match state.expect("memory")?.record {
            StateRecord::Live(_) => None,
            StateRecord::Purged(tombstone) => Some(tombstone),
        }
    }

    /// Waits until nothing but the tombstone is left.
    pub(super) async fn purged(&self, id: &WorkflowId) -> TombstoneRecord {
        self.until("the end of the purge", async || {
            (self.left(id).await == [0; 5]).then_some(())
        })
        .await;
        self.tombstone(id).await.expect("a tombstone")
    }

    /// Purges a workflow, submits it again and starts it, as a later leader does of which nobody here knows yet. Returns the new run.
    async fn next_life(&self, id: &WorkflowId) -> RunId {
        let (blobs, rows) = (&self.store.blobs, &self.store.rows);
        let (definition, state) = (self.layout.definition(id), self.layout.runtime(id));
        let mut record = self.state(id).await.expect("activated");
        for path in [&definition, &state] {
            let etag = blobs.get(path).await.expect("memory").expect("there").etag;
            blobs.delete(path, &etag).await.expect("memory");
        }
        let row = read_row(&self.store, &self.layout, id).await;
        let row = row.expect("memory").expect("there").row;
        rows.delete(self.layout.index(), &row.key, &row.etag)
            .await
            .expect("memory");
        self.submit(id.as_str(), DIAMOND).await;
        let stored = read_definition(&self.store, &self.layout, id).await;
        record.run_id = stored.expect("memory").expect("there").record.run_id;
        self.put(&state, encode(&record)).await;
        record.run_id
    }

    pub(super) async fn journal(&self) -> Vec<JournalRecord> {
        let day = crate::protocol::journal_day(self.env.wall());
        let rows = self.store.rows.query(self.layout.journal(), &day, None);
        let rows = rows.await.expect("memory").items;
        let record = |row: crate::store::Row| crate::protocol::record_of(&row.fields);
        rows.into_iter()
            .map(|row| record(row).expect("ours"))
            .collect()
    }
}

pub(super) fn config(holder: &str) -> Config {
    Config {
        holder: holder.to_owned(),
        break_lease: true,
        ..World::config()
    }
}

/// Both were asked of the same state, and the purge was first.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_a_purge_was_faster_than_is_refused_in_the_journal() {
    let world = World::new().await;
    let (first, _) = world.coordinator(config("one/1"));
    let (id, _) = world.ended_with_all().await;
    killed(first).await;
    let purge = world.request(&id, ControlAction::Purge).await;
    let retry = world.request(&id, ControlAction::Retry).await;
    let asked = retry.request_id;
    world.send(purge).await;
    world.send(retry).await;
    let (_second, _) = world.coordinator(config("two/1"));
    world.purged(&id).await;
    let entry = world.until("the answer", async || {
        let mut entries = world.journal().await.into_iter();
        entries.find(|entry| entry.request_id == Some(asked))
    });
    let entry = entry.await;
    assert_eq!(entry.result, JournalResult::Refused);
    assert_eq!(entry.detail.as_deref(), Some("it was purged meanwhile"));
}

/// A leader that lost its lease a moment ago remembers a run that has been purged since; what it acknowledges is gone for its successor.
#[tokio::test(flavor = "multi_thread")]
async fn news_of_a_later_life_is_not_old_to_who_remembers_an_earlier_one() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("w", DIAMOND).await;
    let mut first = world.next_task("default").await;
    first.run_id = world.next_life(&id).await;
    world.answer(&first, Outcome::Succeeded).await;
    world
        .until("the result", async || {
            let state = world.state(&id).await?;
            state.states.starts_with('c').then_some(())
        })
        .await;
    world.next_life(&id).await;
    world.ask(&id, ControlAction::Cancel).await;
    world
        .until("the cancel", async || {
            world.state(&id).await?.cancel.map(drop)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_removes_all_of_its_run_and_leaves_a_tombstone() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let (id, state) = world.ended_with_all().await;
    assert_eq!(world.left(&id).await, [1, 2, 2, 2, 1]);
    let request = world.request(&id, ControlAction::Purge).await;
    let request_id = request.request_id;
    world.send(request).await;
    let tombstone = world.purged(&id).await;
    assert_eq!(
        (
            tombstone.run_id,
            tombstone.request_id,
            tombstone.purged_by.as_str()
        ),
        (state.run_id, request_id, "test")
    );
    let neighbour = WorkflowId::new("w1").expect("legal");
    assert_eq!(
        world.left(&neighbour).await,
        [1, 2, 2, 2, 1],
        "it keeps its own"
    );
    world.drained().await;
    let answered = world
        .until("the journal", async || {
            let entries = world.journal().await;
            entries
                .into_iter()
                .find(|entry| entry.request_id == Some(request_id))
        })
        .await;
    assert_eq!(answered.result, JournalResult::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_news_of_a_purged_run_recreates_nothing() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("w", "tasks: [{name: a, cmd: 'true'}]").await;
    let task = world.next_task("default").await;
    world.answer(&task, Outcome::Succeeded).await;
    world.ended(&id).await;
    let request = world.request(&id, ControlAction::Purge).await;
    world.send(request.clone()).await;
    let before = world.purged(&id).await;
    world.answer(&task, failed()).await;
    for action in [
        ControlAction::Retry,
        ControlAction::Cancel,
        ControlAction::Purge,
        ControlAction::Submit,
    ] {
        let late = ControlRecord {
            action,
            request_id: world.env.uuid(),
            ..request.clone()
        };
        world.send(late).await;
    }
    world.drained().await;
    assert_eq!(world.left(&id).await, [0; 5]);
    assert_eq!(world.tombstone(&id).await, Some(before));
    assert_eq!(world.depth(world.layout.completions_poison()).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_has_ended_as_the_asker_saw_it_is_purged() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("w", "tasks: [{name: a, cmd: 'true'}]").await;
    let task = world.next_task("default").await;
    world.ask(&id, ControlAction::Purge).await;
    let refusal = async |count: usize| {
        let state = world
            .until("the answer", async || {
                let state = world.state(&id).await?;
                (state.control_results.len() == count).then_some(state)
            })
            .await;
        state.control_results[count - 1]
            .refused
            .clone()
            .expect("refused")
    };
    assert_eq!(refusal(1).await, "it is still running");
    world.answer(&task, failed()).await;
    world.ended(&id).await;
    let asked_before = world.request(&id, ControlAction::Purge).await;
    world.ask(&id, ControlAction::Retry).await;
    let again = world.next_task("default").await;
    world.answer(&again, Outcome::Succeeded).await;
    world.ended(&id).await;
    world.send(asked_before).await;
    assert_eq!(refusal(3).await, "another request was served meanwhile");
    assert_eq!(world.left(&id).await, [1, 0, 0, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_after_a_purge_is_a_new_life_of_the_id() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let id = world.submit("w", "tasks: [{name: a, cmd: 'true'}]").await;
    let old = world.next_task("default").await;
    world.answer(&old, Outcome::Succeeded).await;
    world.ended(&id).await;
    let old_request = world.request(&id, ControlAction::Purge).await;
    world.send(old_request.clone()).await;
    world.purged(&id).await;
    world.submit("w", "tasks: [{name: a, cmd: 'true'}]").await;
    let new = world.next_task("default").await;
    assert_ne!(new.run_id, old.run_id);
    // News and requests of the old life change nothing of the new one.
    world.answer(&old, failed()).await;
    let request_id = world.env.uuid();
    world
        .send(ControlRecord {
            request_id,
            ..old_request
        })
        .await;
    world.drained().await;
    world.answer(&new, Outcome::Succeeded).await;
    let state = world.ended(&id).await;
    assert_eq!(
        (state.run_id, state.status),
        (new.run_id, Status::Completed)
    );
}

/// The requests by which a purge changes something, from its first one on.
fn is_step(op: Op, path: &str) -> bool {
    match op {
        Op::BlobPut => path == "test-workflows/w.json",
        Op::BlobDelete => true,
        Op::RowWrite => path.starts_with("testWorkflowsIndex"),
        Op::RowDelete => path.starts_with("testWorkflowsIndex") || path.starts_with("testClaims"),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_interrupted_at_any_write_is_completed_by_the_next_leader() {
    for nth in 1.. {
        let world = World::new().await;
        let (first, _) = world.coordinator(World::config());
        let (id, state) = world.ended_with_all().await;
        world.drained().await;
        killed(first).await;
        // This leader dies at its nth step: from then on nothing of it arrives.
        let (count, dead) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
        let dies = Arc::clone(&dead);
        let (mortal, _) = Faults::script()
            .hook(move |op: &Op, path: &str| {
                if is_step(*op, path) && count.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                    dies.store(true, Ordering::SeqCst);
                }
                dies.load(Ordering::SeqCst).then_some(Fault::RequestLost)
            })
            .wrap(world.store.clone(), world.env.clone());
        let (second, _) = world.coordinator_over(&mortal, config("test/2"));
        world.ask(&id, ControlAction::Purge).await;
        world
            .until("death, or the end of the purge", async || {
                let over = dead.load(Ordering::SeqCst) || world.left(&id).await == [0; 5];
                over.then_some(())
            })
            .await;
        let survived = !dead.load(Ordering::SeqCst);
        killed(second).await;
        if world.tombstone(&id).await.is_none() {
            // The request was received by who died; who asks again gets it sooner than its message comes back.
            world.ask(&id, ControlAction::Purge).await;
        }
        let (_third, _) = world.coordinator_over(&world.store, config("test/3"));
        assert_eq!(world.purged(&id).await.run_id, state.run_id, "{nth}");
        world.stop.cancel();
        if survived {
            assert!(
                nth > 9,
                "open, bury, 2 claims, 4 blobs, 2 rows, definition: {nth}"
            );
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_of_twenty_thousand_blobs_leaves_none_and_delays_nobody() {
    let world = World::new().await;
    let (_task, _) = world.coordinator(World::config());
    let (id, state) = world.ended_with_all().await;
    let task = TaskName::new("a").expect("legal");
    for n in 1..=20_000 {
        let attempt = Attempt::new(n);
        let of = (world.layout).execution(&id, state.run_id, &task, attempt, "more");
        let path = if n % 2 == 0 { of.log() } else { of.output() };
        world.put(&path, b"1".to_vec()).await;
    }
    for container in [world.layout.outputs(), world.layout.logs()] {
        let page = world.store.blobs.list(container, "w/", None).await;
        assert!(page.expect("memory").next.is_some(), "more than one page");
    }
    world.ask(&id, ControlAction::Purge).await;
    let other = world.submit("other", DIAMOND).await;
    world.ended(&other).await;
    world.purged(&id).await;
    assert_eq!(world.left(&id).await, [0; 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_whose_replies_are_lost_ends_all_the_same() {
    for nth in 1.. {
        let world = World::new().await;
        let (first, _) = world.coordinator(World::config());
        let (id, _) = world.ended_with_all().await;
        world.drained().await;
        killed(first).await;
        let count = AtomicU64::new(0);
        let (lossy, injector) = Faults::script()
            .hook(move |op: &Op, path: &str| {
                let is_nth = is_step(*op, path) && count.fetch_add(1, Ordering::SeqCst) + 1 == nth;
                is_nth.then_some(Fault::ReplyLost)
            })
            .wrap(world.store.clone(), world.env.clone());
        let (_second, _) = world.coordinator_over(&lossy, config("test/2"));
        world.ask(&id, ControlAction::Purge).await;
        world.purged(&id).await;
        world.drained().await;
        world.stop.cancel();
        if injector.happened() == 0 {
            assert!(nth > 9, "{nth}");
            return;
        }
    }
}

/// A service clock with leaps ahead.
#[derive(Debug, Default)]
struct Leaping(AtomicU64);

impl Leaping {
    fn ahead(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

impl Clock for Leaping {
    fn wall(&self) -> Timestamp {
        real::env().wall() + self.ahead()
    }

    fn mono(&self) -> Mono {
        real::env().mono().plus(self.ahead())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        real::env().clock.sleep(duration).boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_goes_after_a_week_of_the_services_time() {
    let clock = Arc::new(Leaping::default());
    let service = Env {
        clock: clock.clone(),
        ..real::env()
    };
    let world = World::over(MemoryStore::open(service), real::env());
    world.layout.create(&world.store).await.expect("memory");
    let (first, _) = world.coordinator(World::config());
    let (id, _) = world.ended_with_all().await;
    world.ask(&id, ControlAction::Purge).await;
    world.purged(&id).await;
    killed(first).await;
    clock.0.fetch_add(6 * 24 * 3600, Ordering::SeqCst);
    let (second, _) = world.coordinator(config("test/2"));
    // Each leader looks once when it takes over, before it takes up what waits.
    let seen = world.submit("seen", DIAMOND).await;
    world.ended(&seen).await;
    assert!(world.tombstone(&id).await.is_some());
    killed(second).await;
    clock.0.fetch_add(24 * 3600, Ordering::SeqCst);
    let (_third, _) = world.coordinator(config("test/3"));
    world
        .until("the end of the tombstone", async || {
            let state = read_state(&world.store, &world.layout, &id).await;
            state.expect("memory").is_none().then_some(())
        })
        .await;
}
