//! The emulator of the tests, and what only it can show of the Azure store.

use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use dagaz::env::real;
use dagaz::store::azure::{AzureConfig, AzureStore};
use dagaz::store::{BlobPath, Container, Expect, Kind, Queue, Store};

use crate::support::azurite::{Azurite, azurite};

fn open(azurite: &Azurite) -> Store {
    let (config, prefix) =
        AzureConfig::resolve("demo", Some(&azurite.connection_string())).unwrap();
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
