//! The emulator of the tests, and what only it can show of the Azure store.

use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use dagaz::env::real;
use dagaz::store::azure::{AzureConfig, AzureStore};
use dagaz::store::{BlobPath, Container, Expect, Fields, Kind, Queue, RowKey, Store, Table, Value};

use crate::support::azurite::{Azurite, account_signature, azurite};

fn open(azurite: &Azurite) -> Store {
    open_by(&azurite.connection_string())
}

fn open_by(connection_string: &str) -> Store {
    let (config, prefix) = AzureConfig::resolve("demo", Some(connection_string)).unwrap();
    assert_eq!(prefix, "demo");
    assert!(config.is_emulator());
    AzureStore::open(&config, real::env()).unwrap()
}

fn address(endpoint: &str) -> String {
    endpoint.split('/').nth(2).unwrap().to_owned()
}

#[tokio::test]
async fn a_stopped_emulator_is_unavailable_and_comes_back_with_its_data() {
    let mut azurite = Azurite::start();
    let store = open(&azurite);
    let container = Container::new("restart").unwrap();
    let path = BlobPath::new(container.clone(), "a.json").unwrap();
    store.blobs.create_container(&container).await.unwrap();
    let etag = store
        .blobs
        .put(&path, Bytes::from_static(b"{}"), &Expect::Absent, None)
        .await
        .unwrap();

    azurite.stop();
    TcpStream::connect(address(&azurite.endpoints.blob)).unwrap_err();
    let error = store.blobs.get(&path).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    // Nothing can have been written where nothing listens.
    let error = store
        .blobs
        .put(&path, Bytes::from_static(b"{}"), &Expect::Absent, None)
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");

    azurite.restart();
    let blob = store.blobs.get(&path).await.unwrap().unwrap();
    assert_eq!(blob.etag, etag);
}

#[tokio::test]
async fn a_heartbeat_keeps_the_text() {
    let azurite = azurite();
    let store = open(azurite);
    let queue = Queue::new("emulator-heartbeat").unwrap();
    store.queues.create_queue(&queue).await.unwrap();
    let text = "x".repeat(40_000);
    store
        .queues
        .send(&queue, &text, Duration::ZERO)
        .await
        .unwrap();
    let [message] = &store
        .queues
        .receive(&queue, 1, Duration::from_secs(30))
        .await
        .unwrap()[..]
    else {
        panic!("one message was sent")
    };
    let receipt = store
        .queues
        .extend(&queue, &message.receipt, Duration::ZERO)
        .await
        .unwrap();
    assert_ne!(receipt.pop, message.receipt.pop);
    assert_eq!(store.queues.peek(&queue, 1).await.unwrap(), [text]);
}

#[tokio::test]
async fn a_signature_opens_all_three_services_until_it_ends() {
    let azurite = azurite();
    let endpoints = &azurite.endpoints;
    let with = |end: &str| {
        open_by(&format!(
            "BlobEndpoint={}/;QueueEndpoint={}/;TableEndpoint={}/;SharedAccessSignature=?{}",
            endpoints.blob,
            endpoints.queue,
            endpoints.table,
            account_signature(end)
        ))
    };
    let store = with("2099-01-01T00:00:00Z");
    let container = Container::new("emulator-sas").unwrap();
    let path = BlobPath::new(container.clone(), "a=20b.json").unwrap();
    store.blobs.create_container(&container).await.unwrap();
    let body = Bytes::from_static(b"{}");
    store
        .blobs
        .put(&path, body.clone(), &Expect::Absent, None)
        .await
        .unwrap();
    assert_eq!(store.blobs.get(&path).await.unwrap().unwrap().body, body);

    let queue = Queue::new("emulator-sas").unwrap();
    store.queues.create_queue(&queue).await.unwrap();
    store
        .queues
        .send(&queue, "a", Duration::ZERO)
        .await
        .unwrap();
    let received = store
        .queues
        .receive(&queue, 1, Duration::from_secs(30))
        .await
        .unwrap();
    let receipt = store
        .queues
        .extend(&queue, &received[0].receipt, Duration::from_secs(30))
        .await
        .unwrap();
    store.queues.delete(&queue, &receipt).await.unwrap();

    let table = Table::new("emulatorSas").unwrap();
    let key = RowKey::new("it's", "a b").unwrap();
    store.rows.create_table(&table).await.unwrap();
    let fields: Fields = [("n".to_owned(), Value::Int(i64::MIN))].into();
    let etag = store
        .rows
        .write(&table, &key, &fields, &Expect::Absent)
        .await
        .unwrap();
    store
        .rows
        .write(&table, &key, &fields, &Expect::Version(etag))
        .await
        .unwrap();
    assert_eq!(
        store.rows.get(&table, &key).await.unwrap().unwrap().fields,
        fields
    );

    let ended = with("2020-01-01T00:00:00Z");
    let error = ended.blobs.get(&path).await.unwrap_err();
    assert_eq!(error.kind, Kind::Denied, "{error}");
    assert!(
        error.detail.contains("403 Authorization") || error.detail.contains("403 Authentication"),
        "{error}"
    );
}

#[tokio::test]
async fn letters_beyond_ascii_survive_in_long_messages() {
    let store = open(azurite());
    let queue = Queue::new("emulator-letters").unwrap();
    store.queues.create_queue(&queue).await.unwrap();
    // Three bytes a letter over many pieces of a request, at every offset.
    for ascii in ["", "a", "aa"] {
        let text = format!("{ascii}{}", "\u{6f22}".repeat(21_000));
        store
            .queues
            .send(&queue, &text, Duration::ZERO)
            .await
            .unwrap();
        let received = store
            .queues
            .receive(&queue, 1, Duration::from_secs(30))
            .await
            .unwrap();
        assert!(received[0].body == text);
    }
}
