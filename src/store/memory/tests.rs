//! What the memory store does beyond the contract: limits, time, and names as strict as the services.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use uuid::Uuid;

use super::MemoryStore;
use super::manual::ManualClock;
use crate::store::{
    BlobPath, Container, Expect, Fields, Kind, LeaseId, Queue, RowKey, Store, StoreError, Table,
    Value,
};

const SECOND: Duration = Duration::from_secs(1);

fn queue() -> Queue {
    Queue::new("tasks").unwrap()
}

fn path(name: &str) -> BlobPath {
    BlobPath::new(Container::new("state").unwrap(), name).unwrap()
}

fn lease(n: u128) -> LeaseId {
    LeaseId(Uuid::from_u128(n))
}

fn kind<T>(result: Result<T, StoreError>) -> Kind {
    result.err().expect("an error").kind
}

async fn opened(clock: &std::sync::Arc<ManualClock>) -> Store {
    let store = MemoryStore::open(clock.env());
    store.queues.create_queue(&queue()).await.unwrap();
    let container = Container::new("state").unwrap();
    store.blobs.create_container(&container).await.unwrap();
    store
}

#[tokio::test]
async fn a_wait_ends_when_a_message_is_sent() {
    let clock = ManualClock::still();
    let store = opened(&clock).await;
    let queue = queue();
    let mut wait = store.queues.wait(&queue, 60 * SECOND);
    assert!(wait.as_mut().now_or_never().is_none());
    store
        .queues
        .send(&queue, "x", Duration::ZERO)
        .await
        .unwrap();
    assert!(wait.now_or_never().is_some());
}

#[tokio::test]
async fn a_wait_ends_when_a_delayed_message_becomes_visible_and_not_before() {
    let clock = ManualClock::still();
    let store = opened(&clock).await;
    let queue = queue();
    let mut wait = store.queues.wait(&queue, 60 * SECOND);
    assert!(wait.as_mut().now_or_never().is_none());
    store.queues.send(&queue, "x", 5 * SECOND).await.unwrap();
    clock.advance(4 * SECOND);
    assert!(wait.as_mut().now_or_never().is_none());
    clock.advance(SECOND);
    assert!(wait.now_or_never().is_some());
}

#[tokio::test]
async fn a_wait_ends_when_a_message_is_given_back() {
    let clock = ManualClock::still();
    let store = opened(&clock).await;
    let queue = queue();
    store
        .queues
        .send(&queue, "x", Duration::ZERO)
        .await
        .unwrap();
    let taken = store.queues.receive(&queue, 1, 50 * SECOND).await.unwrap();
    let mut wait = store.queues.wait(&queue, 60 * SECOND);
    assert!(wait.as_mut().now_or_never().is_none());
    let receipt = &taken[0].receipt;
    store
        .queues
        .extend(&queue, receipt, Duration::ZERO)
        .await
        .unwrap();
    assert!(wait.now_or_never().is_some());
}

#[tokio::test]
async fn a_wait_ends_at_its_limit_also_without_the_queue() {
    let clock = ManualClock::still();
    let store = opened(&clock).await;
    for queue in [queue(), Queue::new("nowhere").unwrap()] {
        let mut wait = store.queues.wait(&queue, 3 * SECOND);
        assert!(wait.as_mut().now_or_never().is_none());
        clock.advance(3 * SECOND);
        assert!(wait.now_or_never().is_some());
    }
}

#[tokio::test]
async fn a_silent_store_tells_nobody_of_a_message() {
    let clock = ManualClock::still();
    let store = MemoryStore::silent(clock.env());
    store.queues.create_queue(&queue()).await.unwrap();
    let queue = queue();
    let mut wait = store.queues.wait(&queue, 60 * SECOND);
    assert!(wait.as_mut().now_or_never().is_none());
    let sent = store.queues.send(&queue, "x", Duration::ZERO);
    sent.await.unwrap();
    assert!(wait.as_mut().now_or_never().is_none());
    clock.advance(60 * SECOND);
    assert!(wait.now_or_never().is_some());
}

#[tokio::test]
async fn a_receipt_outlives_its_time_until_another_receives() {
    let clock = ManualClock::still();
    let store = opened(&clock).await;
    let queue = queue();
    store
        .queues
        .send(&queue, "x", Duration::ZERO)
        .await
        .unwrap();
    let taken = store.queues.receive(&queue, 1, SECOND).await.unwrap();
    clock.advance(2 * SECOND);
    let revived = store
        .queues
        .extend(&queue, &taken[0].receipt, SECOND)
        .await
        .unwrap();
    clock.advance(2 * SECOND);
    assert_eq!(
        store.queues.receive(&queue, 1, SECOND).await.unwrap().len(),
        1
    );
    assert_eq!(
        kind(store.queues.extend(&queue, &revived, SECOND).await),
        Kind::Gone
    );
}

#[tokio::test]
async fn a_text_that_the_service_cannot_carry_is_refused() {
    let store = opened(&ManualClock::still()).await;
    for text in ["\u{1}", "\u{b}", "\u{fffe}", " a", "a\n"] {
        let sent = store.queues.send(&queue(), text, Duration::ZERO).await;
        assert_eq!(kind(sent), Kind::Invalid, "{text:?}");
    }
    store
        .queues
        .send(&queue(), "a\t\r\nb", Duration::ZERO)
        .await
        .unwrap();
}

#[tokio::test]
async fn times_out_of_range_are_refused() {
    let store = opened(&ManualClock::still()).await;
    let week = Duration::from_secs(7 * 24 * 3600);
    let queues = &store.queues;
    assert_eq!(
        kind(queues.send(&queue(), "x", week + SECOND).await),
        Kind::Invalid
    );
    for time in [Duration::ZERO, Duration::from_millis(999), week + SECOND] {
        assert_eq!(kind(queues.receive(&queue(), 1, time).await), Kind::Invalid);
    }
    let blob = path("a");
    let body = Bytes::from_static(b"x");
    store
        .blobs
        .put(&blob, body, &Expect::Absent, None)
        .await
        .unwrap();
    for secs in [0, 14, 61] {
        let leased = store.blobs.acquire_lease(&blob, lease(1), secs).await;
        assert_eq!(kind(leased), Kind::Invalid);
    }
}

#[tokio::test]
async fn a_lease_that_ran_out_can_be_renewed_until_the_blob_is_written() {
    let clock = ManualClock::still();
    let store = opened(&clock).await;
    let blob = path("a");
    let body = Bytes::from_static(b"x");
    let first = store
        .blobs
        .put(&blob, body.clone(), &Expect::Absent, None)
        .await
        .unwrap();
    store
        .blobs
        .acquire_lease(&blob, lease(1), 15)
        .await
        .unwrap();
    clock.advance(15 * SECOND);
    assert!(!store.blobs.get(&blob).await.unwrap().unwrap().leased);
    store.blobs.renew_lease(&blob, lease(1)).await.unwrap();
    assert!(store.blobs.get(&blob).await.unwrap().unwrap().leased);
    clock.advance(15 * SECOND);
    store
        .blobs
        .put(&blob, body, &Expect::Version(first), None)
        .await
        .unwrap();
    assert_eq!(
        kind(store.blobs.renew_lease(&blob, lease(1)).await),
        Kind::Conflict
    );
}

#[tokio::test]
async fn a_listing_goes_over_page_ends() {
    let store = opened(&ManualClock::still()).await;
    let container = Container::new("state").unwrap();
    for n in 0..200 {
        let blob = path(&format!("a/{n:03}"));
        let body = Bytes::from_static(b"x");
        store
            .blobs
            .put(&blob, body, &Expect::Absent, None)
            .await
            .unwrap();
    }
    let first = store.blobs.list(&container, "a/", None).await.unwrap();
    assert_eq!(first.items.len(), 100);
    let second = store
        .blobs
        .list(&container, "a/", first.next.as_ref())
        .await
        .unwrap();
    assert_eq!(
        second.items.first().map(|blob| blob.name.as_str()),
        Some("a/100")
    );
    assert_eq!(second.next, None, "a full last page names no other");
}

#[tokio::test]
async fn a_merge_that_makes_the_row_too_large_is_refused_and_changes_nothing() {
    let store = MemoryStore::open(ManualClock::still().env());
    let table = Table::new("Claims").unwrap();
    store.rows.create_table(&table).await.unwrap();
    let key = RowKey::new("p", "r").unwrap();
    let part = |from: usize| -> Fields {
        let text = "x".repeat(32 * 1024);
        (from..from + 10)
            .map(|n| (format!("f{n}"), Value::Text(text.clone())))
            .collect()
    };
    let first = store
        .rows
        .write(&table, &key, &part(0), &Expect::Absent)
        .await
        .unwrap();
    let expect = Expect::Version(first.clone());
    assert_eq!(
        kind(store.rows.write(&table, &key, &part(10), &expect).await),
        Kind::Invalid
    );
    assert_eq!(
        store.rows.get(&table, &key).await.unwrap().unwrap().etag,
        first
    );
}

#[tokio::test]
async fn names_of_fields_are_checked() {
    let store = MemoryStore::open(ManualClock::still().env());
    let table = Table::new("Claims").unwrap();
    store.rows.create_table(&table).await.unwrap();
    let key = RowKey::new("p", "r").unwrap();
    for name in ["", "1a", "a-b", "Timestamp"] {
        let fields = Fields::from([(name.to_owned(), Value::Bool(true))]);
        let written = store
            .rows
            .write(&table, &key, &fields, &Expect::Absent)
            .await;
        assert_eq!(kind(written), Kind::Invalid, "{name:?}");
    }
}

#[tokio::test]
async fn a_wait_sleeps_once_until_the_first_message_is_due() {
    let clock = ManualClock::eager();
    let store = opened(&clock).await;
    store.queues.send(&queue(), "x", 7 * SECOND).await.unwrap();
    store.queues.wait(&queue(), 60 * SECOND).await;
    assert_eq!(clock.slept(), [7 * SECOND]);
}
