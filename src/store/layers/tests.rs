//! Each layer does its one thing around every request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use uuid::Uuid;

use super::Op;
use super::fault::{Fault, Faults};
use super::gate::Gate;
use super::meter::{Count, Meter};
use super::remote::{Remote, Service};
use super::retry::{Policy, Retry};
use crate::store::memory::MemoryStore;
use crate::store::memory::manual::ManualClock;
use crate::store::{
    BlobPath, Container, ETag, Expect, Fields, Kind, LeaseId, Queue, Receipt, Result, RowKey,
    Store, StoreError, Table, Value,
};

const SECOND: Duration = Duration::from_secs(1);

fn kind<T>(result: Result<T>) -> Option<Kind> {
    result.err().map(|error| error.kind)
}

fn queue() -> Queue {
    Queue::new("tasks").unwrap()
}

fn blob() -> BlobPath {
    BlobPath::new(Container::new("state").unwrap(), "w.json").unwrap()
}

/// Makes each request once, in an order in which all succeed on an empty store, and tells how each ended.
async fn every_request(store: &Store) -> Vec<Option<Kind>> {
    let (blobs, queues, rows) = (&store.blobs, &store.queues, &store.rows);
    let (path, queue) = (blob(), queue());
    let id = LeaseId(Uuid::from_u128(1));
    let mut ends = vec![kind(blobs.create_container(path.container()).await)];
    let body = Bytes::from_static(b"12345");
    let put = blobs.put(&path, body, &Expect::Absent, None).await;
    let etag = put.clone().unwrap_or(ETag::new(""));
    ends.extend([
        kind(put),
        kind(blobs.get(&path).await),
        kind(blobs.list(path.container(), "w", None).await),
        kind(blobs.acquire_lease(&path, id, 60).await),
        kind(blobs.renew_lease(&path, id).await),
        kind(blobs.break_lease(&path).await),
        kind(blobs.release_lease(&path, id).await),
        kind(blobs.delete(&path, &etag).await),
        kind(queues.create_queue(&queue).await),
        kind(queues.send(&queue, "1234567", Duration::ZERO).await),
        kind(queues.peek(&queue, 1).await),
        kind(queues.depth(&queue).await),
    ]);
    let received = queues.receive(&queue, 1, SECOND).await;
    let receipt = received.clone().map(|messages| messages[0].receipt.clone());
    ends.push(kind(received));
    let none = Receipt {
        message_id: "1".to_owned(),
        pop: "1".to_owned(),
    };
    let receipt = receipt.unwrap_or(none.clone());
    let extended = queues.extend(&queue, &receipt, SECOND).await;
    let receipt = extended.clone().unwrap_or(none);
    ends.extend([kind(extended), kind(queues.delete(&queue, &receipt).await)]);
    let table = Table::new("Claims").unwrap();
    let key = RowKey::new("p", "r").unwrap();
    let fields = Fields::from([("ab".to_owned(), Value::Text("xyz".to_owned()))]);
    ends.push(kind(rows.create_table(&table).await));
    let written = rows.write(&table, &key, &fields, &Expect::Absent).await;
    let etag = written.clone().unwrap_or(ETag::new(""));
    ends.extend([
        kind(written),
        kind(rows.get(&table, &key).await),
        kind(rows.query(&table, "p", None).await),
        kind(rows.delete(&table, &key, &etag).await),
    ]);
    ends
}

fn all(kind: Option<Kind>) -> Vec<Option<Kind>> {
    vec![kind; Op::ALL.len()]
}

fn memory() -> Store {
    MemoryStore::open(ManualClock::eager().env())
}

/// A store with a queue, in which requests meet `faults`, behind a meter, behind a retry loop of `limit`.
async fn retried(clock: &Arc<ManualClock>, faults: Faults, limit: Duration) -> (Store, Arc<Meter>) {
    let store = MemoryStore::open(clock.env());
    store.queues.create_queue(&queue()).await.unwrap();
    let (store, _) = faults.wrap(store, clock.env());
    let (store, meter) = Meter::wrap(store);
    let store = Retry::wrap(store, clock.env(), Policy::within(limit));
    (store, meter)
}

async fn send(store: &Store) -> Result<()> {
    store.queues.send(&queue(), "x", Duration::ZERO).await
}

#[test]
fn each_kind_of_request_has_its_own_words() {
    let words: BTreeMap<_, _> = Op::ALL.iter().map(|op| (op.words(), op)).collect();
    assert_eq!(words.len(), Op::ALL.len());
    assert_eq!(Op::LeaseRenew.to_string(), "blob renew lease");
}

#[tokio::test]
async fn all_layers_let_every_request_through() {
    let env = ManualClock::eager().env();
    let (store, _) = Faults::script().wrap(memory(), env.clone());
    let store = Gate::wrap(store, Arc::new(|| true));
    let (store, meter) = Meter::wrap(store);
    let store = Retry::wrap(store, env, Policy::default());
    assert_eq!(every_request(&store).await, all(None));
    assert_eq!(meter.total().requests, 21);
}

#[tokio::test]
async fn a_closed_gate_refuses_every_request_and_sends_none() {
    let (store, meter) = Meter::wrap(memory());
    let store = Gate::wrap(store, Arc::new(|| false));
    assert_eq!(every_request(&store).await, all(Some(Kind::Fenced)));
    assert_eq!(meter.total(), Count::default());
    let error = store.blobs.get(&blob()).await.unwrap_err();
    let text = "blob get state/w.json: no longer entitled to act (nothing was sent)";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn a_gate_is_asked_before_each_request() {
    let open = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let seen = open.clone();
    let allow = move || seen.load(std::sync::atomic::Ordering::SeqCst);
    let store = Gate::wrap(memory(), Arc::new(allow));
    store.queues.create_queue(&queue()).await.unwrap();
    open.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(kind(send(&store).await), Some(Kind::Fenced));
}

#[tokio::test]
async fn a_gate_inside_a_retry_loop_ends_it() {
    let clock = ManualClock::eager();
    let open = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (shut, seen) = (open.clone(), open);
    let faults = Faults::script().hook(move |_, _| {
        shut.store(false, std::sync::atomic::Ordering::SeqCst);
        Some(Fault::RequestLost)
    });
    let (store, injector) = faults.wrap(memory(), clock.env());
    let allow = move || seen.load(std::sync::atomic::Ordering::SeqCst);
    let store = Gate::wrap(store, Arc::new(allow));
    let store = Retry::wrap(store, clock.env(), Policy::default());
    assert_eq!(kind(send(&store).await), Some(Kind::Fenced));
    assert_eq!(injector.happened(), 1);
}

#[tokio::test]
async fn a_meter_counts_requests_errors_and_content() {
    let (store, meter) = Meter::wrap(memory());
    assert_eq!(every_request(&store).await, all(None));
    let counts = meter.take();
    assert_eq!(counts.len(), Op::ALL.len());
    let content = |op: Op| (counts[&op].sent, counts[&op].received);
    assert_eq!(content(Op::BlobPut), (5, 0));
    assert_eq!(content(Op::BlobGet), (0, 5));
    assert_eq!(content(Op::BlobList), (0, 6));
    assert_eq!(content(Op::QueueSend), (7, 0));
    assert_eq!(content(Op::QueueReceive), (0, 7));
    assert_eq!(content(Op::QueueExtend), (0, 0));
    assert_eq!(content(Op::RowWrite), (5, 0));
    assert_eq!(content(Op::RowQuery), (0, 5));
    let found = |op: &Op| counts[op].found == 1;
    let with_content = counts.iter().filter(|(_, count)| count.received > 0);
    assert!(with_content.map(|(op, _)| op).all(found));
    assert_eq!(counts[&Op::QueueSend].found, 0);
    assert!(counts.values().all(|c| c.requests == 1 && c.errors == 0));
    assert_eq!(meter.total(), Count::default(), "taken");
    let missing = BlobPath::new(Container::new("nowhere").unwrap(), "a").unwrap();
    assert!(store.blobs.get(&missing).await.is_err());
    assert_eq!(meter.snapshot()[&Op::BlobGet].errors, 1);
}

#[tokio::test]
async fn what_was_not_carried_out_is_sent_again() {
    let clock = ManualClock::eager();
    let faults = Faults::script()
        .on(Op::QueueSend, 1, Fault::RequestLost)
        .on(Op::QueueSend, 2, Fault::Throttled(None));
    let (store, meter) = retried(&clock, faults, 60 * SECOND).await;
    send(&store).await.unwrap();
    assert_eq!(meter.snapshot()[&Op::QueueSend].requests, 3);
    assert_eq!(store.queues.depth(&queue()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_write_with_an_unknown_outcome_is_not_sent_again() {
    let clock = ManualClock::eager();
    let faults = Faults::script().on(Op::QueueSend, 1, Fault::ReplyLost);
    let (store, meter) = retried(&clock, faults, 60 * SECOND).await;
    assert_eq!(kind(send(&store).await), Some(Kind::Ambiguous));
    assert_eq!(meter.snapshot()[&Op::QueueSend].requests, 1);
    assert_eq!(store.queues.depth(&queue()).await.unwrap(), 1);
    assert!(clock.slept().is_empty());
}

#[tokio::test]
async fn a_read_without_a_reply_is_sent_again() {
    let clock = ManualClock::eager();
    let faults = Faults::script().on(Op::QueueDepth, 1, Fault::ReplyLost);
    let (store, meter) = retried(&clock, faults, 60 * SECOND).await;
    assert_eq!(store.queues.depth(&queue()).await.unwrap(), 0);
    assert_eq!(meter.snapshot()[&Op::QueueDepth].requests, 2);
}

#[tokio::test]
async fn pauses_double_up_to_the_longest_and_end_at_the_limit() {
    let clock = ManualClock::eager();
    let faults = Faults::script().hook(|_, _| Some(Fault::RequestLost));
    let (store, _) = retried(&clock, faults, 60 * SECOND).await;
    let error = send(&store).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "the last error comes back");
    let slept = clock.slept();
    let mut doubling = 200;
    for pause in &slept {
        let pause = pause.as_millis();
        assert!((doubling / 2..=doubling).contains(&pause), "{slept:?}");
        doubling = (doubling * 2).min(10_000);
    }
    let whole: Duration = slept.iter().sum();
    assert!((50 * SECOND..=60 * SECOND).contains(&whole), "{slept:?}");
}

#[tokio::test]
async fn the_wait_that_the_service_asks_for_is_kept_up_to_its_cap() {
    let clock = ManualClock::eager();
    let faults = Faults::script()
        .on(Op::QueueSend, 1, Fault::Throttled(Some(7 * SECOND)))
        .on(Op::QueueSend, 2, Fault::Throttled(Some(3_600 * SECOND)));
    let (store, _) = retried(&clock, faults, 60 * SECOND).await;
    send(&store).await.unwrap();
    assert_eq!(clock.slept(), [7 * SECOND, 30 * SECOND]);
}

#[tokio::test]
async fn a_wait_beyond_the_limit_is_not_begun() {
    let clock = ManualClock::eager();
    let fault = Fault::Throttled(Some(7 * SECOND));
    let faults = Faults::script().on(Op::QueueSend, 1, fault);
    let (store, _) = retried(&clock, faults, 5 * SECOND).await;
    let error: StoreError = send(&store).await.unwrap_err();
    assert_eq!(error.retry_after, Some(7 * SECOND));
    assert!(clock.slept().is_empty());
}

#[tokio::test]
async fn each_fault_carries_out_what_it_says() {
    let clock = ManualClock::eager();
    for (fault, end, stored, slept) in [
        (Fault::RequestLost, Some(Kind::Unavailable), 0, vec![]),
        (Fault::ReplyLost, Some(Kind::Ambiguous), 1, vec![]),
        (Fault::ReplyLate(3 * SECOND), None, 1, vec![3 * SECOND]),
        (Fault::Throttled(None), Some(Kind::Throttled), 0, vec![]),
        (
            Fault::Hang(9 * SECOND),
            Some(Kind::Ambiguous),
            0,
            vec![9 * SECOND],
        ),
    ] {
        let before = clock.slept().len();
        let inner = MemoryStore::open(clock.env());
        inner.queues.create_queue(&queue()).await.unwrap();
        let faults = Faults::script().on(Op::QueueSend, 1, fault);
        let (store, injector) = faults.wrap(inner.clone(), clock.env());
        assert_eq!(kind(send(&store).await), end, "{fault:?}");
        let depth = inner.queues.depth(&queue()).await.unwrap();
        assert_eq!(depth, stored, "{fault:?}");
        assert_eq!(clock.slept()[before..], slept, "{fault:?}");
        send(&store).await.unwrap();
        assert_eq!(injector.happened(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_hook_chooses_by_request_and_path_after_the_script() {
    let faults = Faults::script()
        .on(Op::BlobGet, 2, Fault::RequestLost)
        .hook(|op, path| {
            let hit = *op == Op::BlobGet && path == "state/w.json";
            hit.then_some(Fault::Throttled(None))
        });
    let (store, injector) = faults.wrap(memory(), ManualClock::eager().env());
    let container = Container::new("state").unwrap();
    store.blobs.create_container(&container).await.unwrap();
    let other = BlobPath::new(container, "v.json").unwrap();
    let path = blob();
    assert_eq!(kind(store.blobs.get(&path).await), Some(Kind::Throttled));
    assert_eq!(kind(store.blobs.get(&path).await), Some(Kind::Unavailable));
    assert_eq!(kind(store.blobs.get(&other).await), None);
    assert_eq!(injector.happened(), 2);
}

#[tokio::test]
async fn a_narrow_service_takes_one_request_at_a_time_and_a_wide_one_any_number() {
    let (wide, narrow) = (Service::wide(SECOND), Service::narrow(SECOND));
    for (service, answered) in [(wide, 2), (narrow, 1)] {
        let clock = ManualClock::still();
        let inner = MemoryStore::open(clock.env());
        inner.queues.create_queue(&queue()).await.unwrap();
        let store = Remote::wrap(inner, clock.env(), service);
        let mut sends = [send(&store).boxed(), send(&store).boxed()];
        let mut ends = || {
            let ended = sends.iter_mut().filter_map(FutureExt::now_or_never);
            ended.count()
        };
        assert_eq!(ends(), 0);
        clock.advance(SECOND / 2);
        assert_eq!(ends(), 0, "the replies are on their way");
        clock.advance(SECOND / 2);
        assert_eq!(ends(), answered);
    }
}
