//! Against a server of a few lines, for what the emulator never does: throttle, fail, hang, hang up, and answer nonsense.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Mutex, mpsc};
use std::thread;

use bytes::Bytes;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;

use super::*;
use crate::env::{Clock, Mono, real};
use crate::store::{
    BlobPath, Container, ETag, Expect, Fields, Kind, LeaseId, Queue, Receipt, RowKey, StoreError,
    Table, Value,
};

/// What the server does with one connection after it has read the request.
enum Answer {
    /// Sends this.
    Text(String),
    /// Ends the connection.
    HangUp,
    /// Says that the request is there, and answers never.
    Silence(oneshot::Sender<()>),
}

/// A server that answers one request after the other, each on a connection of its own, and tells what it got.
struct Stub {
    address: String,
    requests: mpsc::Receiver<String>,
}

impl Stub {
    fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tell, requests) = mpsc::channel();
        thread::spawn(move || {
            let mut silent = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                tell.send(read_request(&mut stream)).ok();
                match answer {
                    Answer::Text(text) => stream.write_all(text.as_bytes()).unwrap(),
                    Answer::HangUp => stream.shutdown(Shutdown::Both).unwrap(),
                    Answer::Silence(there) => {
                        there.send(()).ok();
                        silent.push(stream);
                    }
                }
            }
            // Holds silent connections open until the client is gone.
            for mut stream in silent {
                stream.read_to_end(&mut Vec::new()).ok();
            }
        });
        Self { address, requests }
    }

    fn store(&self, env: Env) -> Store {
        let base = format!("http://{}/acct1", self.address);
        let text = format!(
            "AccountName=acct1;BlobEndpoint={base};QueueEndpoint={base};TableEndpoint={base};SharedAccessSignature=?sv=2022-11-02&ss=bqt&srt=sco&sp=rwdlacup&sig=s3cr3t%3D"
        );
        let (config, _) = AzureConfig::resolve("demo", Some(&text)).unwrap();
        AzureStore::open(&config, env).unwrap()
    }
}

/// Reads head and body of a request.
fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let n = stream.read(&mut piece).unwrap();
        bytes.extend_from_slice(&piece[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(n > 0, "half a request: {text}");
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().unwrap())
        });
        if body.len() >= length.unwrap_or(0) {
            return text;
        }
    }
}

fn reply(status: &str, headers: &str, body: &str) -> Answer {
    Answer::Text(format!(
        "HTTP/1.1 {status}\r\nDate: Thu, 01 Jan 2026 12:00:00 GMT\r\nx-ms-request-id: r-1\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    ))
}

/// A clock whose every wait is over when the server has the request: time-outs without waiting.
#[derive(Debug)]
struct OverWhenAsked(Mutex<Option<oneshot::Receiver<()>>>);

impl Clock for OverWhenAsked {
    fn wall(&self) -> Timestamp {
        real::env().wall()
    }

    fn mono(&self) -> Mono {
        real::env().mono()
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        let over = self.0.lock().unwrap().take().expect("one wait is awaited");
        async move { over.await.unwrap() }.boxed()
    }
}

fn impatient() -> (Env, oneshot::Sender<()>) {
    let (there, over) = oneshot::channel();
    let clock = Arc::new(OverWhenAsked(Mutex::new(Some(over))));
    let env = Env {
        clock,
        ..real::env()
    };
    (env, there)
}

fn path() -> BlobPath {
    BlobPath::new(Container::new("state").unwrap(), "w.json").unwrap()
}

fn queue() -> Queue {
    Queue::new("tasks").unwrap()
}

fn row() -> (Table, RowKey) {
    (Table::new("index").unwrap(), RowKey::new("p", "r").unwrap())
}

async fn put(store: &Store) -> StoreError {
    let body = Bytes::from_static(b"{}");
    let etag = Expect::Version(ETag::new("\"0x1\""));
    store
        .blobs
        .put(&path(), body, &etag, None)
        .await
        .unwrap_err()
}

async fn get(store: &Store) -> StoreError {
    store.blobs.get(&path()).await.unwrap_err()
}

fn leak_free(error: &StoreError) {
    let text = format!("{error} {error:?}");
    assert!(!text.contains("s3cr3t"), "{text}");
}

#[tokio::test]
async fn throttling_passes_on_the_wait_and_is_not_repeated() {
    let busy = || {
        reply(
            "503 Busy",
            "x-ms-error-code: ServerBusy\r\nRetry-After: 7\r\n",
            "<Error><Code>ServerBusy</Code><Message>Slow down.\nTime:1</Message></Error>",
        )
    };
    let stub = Stub::start(vec![
        busy(),
        busy(),
        reply("429 Too Many", "x-ms-retry-after-ms: 1500\r\n", ""),
    ]);
    let store = stub.store(real::env());
    for error in [put(&store).await, get(&store).await] {
        assert_eq!(error.kind, Kind::Throttled);
        assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(error.detail, "503 ServerBusy: Slow down.; request id r-1");
    }
    assert_eq!(
        get(&store).await.retry_after,
        Some(Duration::from_millis(1500))
    );
    assert_eq!(stub.requests.try_iter().count(), 3);
}

#[tokio::test]
async fn a_wait_until_a_date_is_measured_by_the_services_own_clock() {
    let date = "Retry-After: Thu, 01 Jan 2026 12:00:30 GMT\r\n";
    let stub = Stub::start(vec![reply("503 Busy", date, "")]);
    let error = get(&stub.store(real::env())).await;
    assert_eq!(error.retry_after, Some(Duration::from_secs(30)));
}

#[tokio::test]
async fn a_server_error_leaves_a_write_unknown_and_a_read_undone() {
    let failed = || reply("500 Oops", "x-ms-error-code: OperationTimedOut\r\n", "");
    let stub = Stub::start((0..6).map(|_| failed()).collect());
    let store = stub.store(real::env());
    assert_eq!(put(&store).await.kind, Kind::Ambiguous);
    assert_eq!(get(&store).await.kind, Kind::Unavailable);
    let sent = store.queues.send(&queue(), "a", Duration::ZERO).await;
    assert_eq!(sent.unwrap_err().kind, Kind::Ambiguous);
    let received = store
        .queues
        .receive(&queue(), 1, Duration::from_secs(1))
        .await;
    assert_eq!(received.unwrap_err().kind, Kind::Unavailable);
    let (table, key) = row();
    let written = store
        .rows
        .write(&table, &key, &Fields::new(), &Expect::Absent)
        .await;
    assert_eq!(written.unwrap_err().kind, Kind::Ambiguous);
    let renewed = store
        .blobs
        .renew_lease(&path(), LeaseId(uuid::Uuid::nil()))
        .await;
    assert_eq!(renewed.unwrap_err().kind, Kind::Ambiguous);
}

#[tokio::test]
async fn a_conditional_write_is_done_by_a_whole_success_alone() {
    let answers = [
        ("200 OK", "", Kind::Ambiguous),
        ("201 Created", "", Kind::Ambiguous),
        ("304 Not Modified", "", Kind::Invalid),
        ("400 Bad", "InvalidHeaderValue", Kind::Invalid),
        ("403 No", "AuthorizationFailure", Kind::Denied),
        ("404 Gone", "BlobNotFound", Kind::NotFound),
        (
            "409 Conflict",
            "LeaseIdMismatchWithBlobOperation",
            Kind::Conflict,
        ),
        ("412 Failed", "ConditionNotMet", Kind::Conflict),
        ("413 Large", "RequestBodyTooLarge", Kind::Invalid),
        ("429 Many", "", Kind::Throttled),
        ("500 Oops", "InternalError", Kind::Ambiguous),
        ("503 Busy", "ServerBusy", Kind::Throttled),
    ];
    let whole = "ETag: \"0x2\"\r\nLast-Modified: Thu, 01 Jan 2026 12:00:00 GMT\r\nx-ms-request-server-encrypted: true\r\nx-ms-request-id: 0d5e4c5a-0000-0000-0000-000000000000\r\n";
    let stub = Stub::start(
        answers
            .iter()
            .map(|(status, code, _)| reply(status, &format!("x-ms-error-code: {code}\r\n"), ""))
            .chain([Answer::HangUp, reply("201 Created", whole, "")])
            .collect(),
    );
    let store = stub.store(real::env());
    for (status, _, kind) in answers {
        assert_eq!(put(&store).await.kind, kind, "{status}");
    }
    assert_eq!(put(&store).await.kind, Kind::Ambiguous);
    let etag = Expect::Version(ETag::new("\"0x1\""));
    let body = Bytes::from_static(b"{}");
    let stored = store.blobs.put(&path(), body, &etag, None).await;
    assert_eq!(stored.unwrap(), ETag::new("\"0x2\""));
    let requests: Vec<_> = stub.requests.try_iter().collect();
    assert_eq!(requests.len(), answers.len() + 2, "none was repeated");
    let conditional = |request: &String| request.to_lowercase().contains("if-match: \"0x1\"");
    assert!(requests.iter().all(conditional));
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_leaves_a_write_unknown() {
    let stub = Stub::start(vec![Answer::HangUp, Answer::HangUp]);
    let store = stub.store(real::env());
    let error = put(&store).await;
    assert_eq!(error.kind, Kind::Ambiguous);
    leak_free(&error);
    let error = get(&store).await;
    assert_eq!(error.kind, Kind::Unavailable);
    leak_free(&error);
    // The address holds the signature: it was on the wire, and in no text.
    assert!(stub.requests.recv().unwrap().contains("s3cr3t"));
}

#[tokio::test]
async fn a_connection_that_ends_within_the_answer_leaves_a_write_unknown() {
    let half = "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf";
    let stub = Stub::start(vec![
        Answer::Text(half.to_owned()),
        Answer::Text(half.replace("201 Created", "200 OK")),
    ]);
    let store = stub.store(real::env());
    assert_eq!(put(&store).await.kind, Kind::Ambiguous);
    assert_eq!(get(&store).await.kind, Kind::Unavailable);
}

#[tokio::test]
async fn a_success_that_cannot_be_read_leaves_a_write_unknown() {
    let stub = Stub::start(vec![
        reply("201 Created", "", ""),
        reply("200 OK", "", "<nonsense>"),
    ]);
    let store = stub.store(real::env());
    assert_eq!(put(&store).await.kind, Kind::Ambiguous);
    let received = store
        .queues
        .receive(&queue(), 1, Duration::from_secs(1))
        .await;
    assert_eq!(received.unwrap_err().kind, Kind::Corrupt);
}

#[tokio::test]
async fn a_server_that_never_answers_ends_in_a_time_out() {
    let (env, there) = impatient();
    let stub = Stub::start(vec![Answer::Silence(there)]);
    let error = put(&stub.store(env)).await;
    assert_eq!(error.kind, Kind::Ambiguous);
    assert_eq!(error.detail, "no whole reply within 10 s");

    let (env, there) = impatient();
    let stub = Stub::start(vec![Answer::Silence(there)]);
    assert_eq!(get(&stub.store(env)).await.kind, Kind::Unavailable);

    let (env, there) = impatient();
    let stub = Stub::start(vec![Answer::Silence(there)]);
    let lease = LeaseId(uuid::Uuid::nil());
    let error = stub
        .store(env)
        .blobs
        .renew_lease(&path(), lease)
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Ambiguous);
    assert_eq!(error.detail, "no whole reply within 5 s");
}

/// An identity service that never answers.
#[derive(Debug)]
struct NoToken;

#[async_trait]
impl TokenCredential for NoToken {
    async fn get_token(&self, _: &[&str]) -> azure_core::Result<AccessToken> {
        futures::future::pending().await
    }

    async fn clear_cache(&self) -> azure_core::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_silent_identity_service_is_given_up() {
    let (env, over) = impatient();
    let inner = Arc::new(NoToken);
    let credential = Bounded { inner, env };
    over.send(()).unwrap();
    let error = credential.get_token(&[]).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Io);
}

#[tokio::test]
async fn nothing_is_sent_where_nothing_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let (_, requests) = mpsc::channel();
    let stub = Stub { address, requests };
    let error = put(&stub.store(real::env())).await;
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.detail.contains("refused"), "{error}");
    leak_free(&error);
}

#[tokio::test]
async fn a_message_never_expires_and_a_heartbeat_has_no_body() {
    let stub = Stub::start(vec![
        reply("404 Not Found", "x-ms-error-code: QueueNotFound\r\n", ""),
        reply("404 Not Found", "x-ms-error-code: MessageNotFound\r\n", ""),
    ]);
    let store = stub.store(real::env());
    let sent = store
        .queues
        .send(&queue(), "a\r\u{e9}<", Duration::from_millis(1500))
        .await;
    assert_eq!(sent.unwrap_err().kind, Kind::NoResource);
    let request = stub.requests.recv().unwrap();
    assert!(request.contains("messagettl=-1&"), "{request}");
    // Rounded up: a message must not become visible early.
    assert!(request.contains("visibilitytimeout=2"), "{request}");
    assert!(
        request.ends_with("<MessageText>a&#13;&#233;&lt;</MessageText></QueueMessage>"),
        "{request}"
    );

    let receipt = Receipt {
        message_id: "id".to_owned(),
        pop: "a+b".to_owned(),
    };
    let extended = store
        .queues
        .extend(&queue(), &receipt, Duration::from_secs(30))
        .await;
    assert_eq!(extended.unwrap_err().kind, Kind::Gone);
    let request = stub.requests.recv().unwrap();
    assert!(
        request.starts_with("PUT /acct1/tasks/messages/id?popreceipt=a%2Bb"),
        "{request}"
    );
    assert!(
        request.contains("content-length: 0\r\n") && request.ends_with("\r\n\r\n"),
        "{request}"
    );
}

#[tokio::test]
async fn what_azure_would_refuse_is_not_sent() {
    let stub = Stub::start(Vec::new());
    let store = stub.store(real::env());
    let invalid = |error: StoreError| assert_eq!(error.kind, Kind::Invalid, "{error}");
    for text in ["bell \u{7}", " blank", "blank\n", "\u{ffff}"] {
        invalid(
            store
                .queues
                .send(&queue(), text, Duration::ZERO)
                .await
                .unwrap_err(),
        );
    }
    let week = Duration::from_secs(7 * 24 * 3600);
    invalid(
        store
            .queues
            .send(&queue(), "a", week + Duration::from_millis(1))
            .await
            .unwrap_err(),
    );
    invalid(store.queues.receive(&queue(), 33, week).await.unwrap_err());
    invalid(
        store
            .queues
            .receive(&queue(), 1, Duration::ZERO)
            .await
            .unwrap_err(),
    );
    invalid(store.queues.peek(&queue(), 0).await.unwrap_err());
    let lease = LeaseId(uuid::Uuid::nil());
    invalid(
        store
            .blobs
            .acquire_lease(&path(), lease, 61)
            .await
            .unwrap_err(),
    );
    let (path, body) = (path(), Bytes::from_static(b"{}"));
    let absent = store.blobs.put(&path, body, &Expect::Absent, Some(lease));
    assert_eq!(absent.await.unwrap_err().kind, Kind::Conflict);

    let (table, key) = row();
    let many = (0..253)
        .map(|n| (format!("f{n}"), Value::Bool(true)))
        .collect();
    let large = (0..17)
        .map(|n| (format!("f{n}"), Value::Text("x".repeat(32 * 1024))))
        .collect();
    let odd: Fields = [("RowKey".to_owned(), Value::Int(1))].into();
    for fields in [many, large, odd] {
        let written = store
            .rows
            .write(&table, &key, &fields, &Expect::Absent)
            .await;
        invalid(written.unwrap_err());
    }
}
