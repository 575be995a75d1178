//! The proxy of these tests does what it says, seen by a plain HTTP client.

use std::error::Error as _;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use reqwest::{Client, Method, Response};

use crate::support::azurite::{account_signature, azurite};
use crate::support::proxy::{Fault, Kind, Proxy, Times};

/// A client of a container of its own, through a proxy of its own.
struct World {
    proxy: Proxy,
    client: Client,
    container: String,
}

impl World {
    async fn new(container: &str) -> Self {
        let world = Self {
            proxy: Proxy::before(azurite()),
            client: Client::builder().no_proxy().build().unwrap(),
            container: container.to_owned(),
        };
        let made = world.send(Method::PUT, "?restype=container").await.unwrap();
        assert_eq!(made.status(), 201);
        world
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let blob = &self.proxy.endpoints().blob;
        let mark = if path.contains('?') { '&' } else { '?' };
        let signature = account_signature("2099-01-01T00:00:00Z");
        let url = format!("{blob}/{}{path}{mark}{signature}", self.container);
        self.client
            .request(method, url)
            .header("x-ms-version", "2021-08-06")
            .header("x-ms-blob-type", "BlockBlob")
    }

    async fn send(&self, method: Method, path: &str) -> reqwest::Result<Response> {
        let body = if method == Method::PUT && path.starts_with('/') {
            "something"
        } else {
            ""
        };
        self.request(method, path).body(body).send().await
    }

    async fn put(&self) -> reqwest::Result<Response> {
        self.send(Method::PUT, "/b").await
    }

    async fn exists(&self) -> bool {
        self.send(Method::GET, "/b").await.unwrap().status() == 200
    }

    fn breaks(&self, kind: Kind, fault: Fault) {
        self.proxy.fault(kind, "/b", Times::Next(1), fault);
    }
}

/// What lies at the bottom of an error.
fn cause(error: &reqwest::Error) -> Option<ErrorKind> {
    let mut next = error.source();
    let mut kind = None;
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            kind = Some(io.kind());
        }
        next = error.source();
    }
    kind
}

#[tokio::test]
async fn a_proxy_passes_requests_and_replies_as_they_are_and_logs_them() {
    let world = World::new("proxy-plain").await;
    assert_eq!(world.put().await.unwrap().status(), 201);
    let got = world.send(Method::GET, "/b").await.unwrap();
    assert_eq!(got.text().await.unwrap(), "something");
    let missing = world.send(Method::GET, "/c").await.unwrap();
    assert_eq!(missing.headers()["x-ms-error-code"], "BlobNotFound");
    let log = world.proxy.log();
    let log = log
        .iter()
        .map(|seen| (seen.kind, seen.status, seen.is_broken));
    assert_eq!(
        log.collect::<Vec<_>>(),
        [
            (Kind::Other, Some(201), false),
            (Kind::PutBlob, Some(201), false),
            (Kind::GetBlob, Some(200), false),
            (Kind::GetBlob, Some(404), false),
        ]
    );
}

#[tokio::test]
async fn a_lost_request_is_not_carried_out_and_a_lost_reply_is_of_one_that_was() {
    let world = World::new("proxy-lost").await;
    world.breaks(Kind::PutBlob, Fault::RequestLost);
    world.put().await.unwrap_err();
    assert!(!world.exists().await);
    world.breaks(Kind::PutBlob, Fault::ReplyLost);
    world.put().await.unwrap_err();
    assert!(world.exists().await);
    let puts = world.proxy.seen(Kind::PutBlob, "/b");
    let statuses: Vec<_> = puts.iter().map(|seen| seen.status).collect();
    assert_eq!(statuses, [None, Some(201)]);
}

#[tokio::test]
async fn a_reset_is_seen_as_one() {
    let world = World::new("proxy-reset").await;
    world.breaks(Kind::PutBlob, Fault::Reset);
    let error = world.put().await.unwrap_err();
    assert_eq!(cause(&error), Some(ErrorKind::ConnectionReset), "{error:?}");
    assert!(!world.exists().await);
}

#[tokio::test]
async fn a_held_request_is_carried_out_when_it_is_released() {
    let world = World::new("proxy-held").await;
    world.breaks(Kind::PutBlob, Fault::Held);
    let put = world.put();
    tokio::pin!(put);
    let arrived = async {
        while world.proxy.count(Kind::PutBlob, "/b") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        put = &mut put => panic!("{put:?}"),
        () = arrived => {}
    }
    assert!(!world.exists().await);
    world.proxy.release();
    assert_eq!(put.await.unwrap().status(), 201);
    assert!(world.exists().await);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a delay is measured")]
async fn a_late_reply_is_late() {
    let world = World::new("proxy-late").await;
    let wait = Duration::from_millis(300);
    world.breaks(Kind::PutBlob, Fault::ReplyLate(wait));
    let asked = Instant::now();
    assert_eq!(world.put().await.unwrap().status(), 201);
    assert!(asked.elapsed() >= wait);
}

#[tokio::test]
async fn a_cut_reply_ends_within_its_body() {
    let world = World::new("proxy-cut").await;
    world.put().await.unwrap();
    world.breaks(Kind::GetBlob, Fault::ReplyCut);
    let reply = world.send(Method::GET, "/b").await.unwrap();
    assert_eq!(reply.status(), 200);
    reply.bytes().await.unwrap_err();
}

#[tokio::test]
async fn an_answer_comes_from_the_proxy_alone() {
    let world = World::new("proxy-answer").await;
    for (status, code, retry_after_s) in [
        (503, "ServerBusy", Some(30)),
        (500, "InternalError", None),
        (409, "ContainerBeingDeleted", None),
        (404, "MessageNotFound", None),
    ] {
        let answer = Fault::Answer {
            status,
            code,
            retry_after_s,
        };
        world.breaks(Kind::PutBlob, answer);
        let reply = world.put().await.unwrap();
        assert_eq!(reply.status(), status);
        assert_eq!(reply.headers()["x-ms-error-code"], code);
        let asked = reply.headers().get("retry-after");
        assert_eq!(asked.is_some(), retry_after_s.is_some());
    }
    assert!(!world.exists().await);
}

#[tokio::test]
async fn rules_count_the_requests_that_they_are_about() {
    let world = World::new("proxy-count").await;
    let answer = |status| Fault::Answer {
        status,
        code: "",
        retry_after_s: None,
    };
    let rules = [
        (Times::Nth(2), 500),
        (Times::Every(3), 503),
        (Times::Next(4), 429),
    ];
    for (times, status) in rules {
        world
            .proxy
            .fault(Kind::PutBlob, "/b", times, answer(status));
    }
    let mut statuses = Vec::new();
    for _ in 0..6 {
        world.send(Method::GET, "/b").await.unwrap();
        statuses.push(world.put().await.unwrap().status().as_u16());
    }
    // A rule counts only what no rule before it has broken.
    assert_eq!(statuses, [429, 500, 429, 503, 429, 429]);
    world
        .proxy
        .fault(Kind::PutBlob, "", Times::Always, answer(429));
    world.proxy.heal();
    assert_eq!(world.put().await.unwrap().status(), 201);
}
