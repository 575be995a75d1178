//! The one way to the wire: a pooled client under every request of the three service crates.
//!
//! It is the last policy of their pipelines, receives the [`Exchange`] of the call through the pipeline's context, and leaves there what
//! became of the request; `errors` decides what that means.
//!
//! Invariants:
//! 1. One request is sent at most once: no retry, no redirect. (The pool may open a second connection when the first was closed
//!    before a byte of the request left.)
//! 2. Every request ends: [`Exchange::limit`] bounds sending and the head of the reply, and again the body of the reply, which has a second
//!    more for each MiB.
//! 3. What is noted holds no address with a signature and no header of the request.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::headers::{HeaderName, Headers};
use azure_core::{BytesStream, Context, Policy, Request, Response, StatusCode};
use bytes::{Bytes, BytesMut};

use super::config::{AzureConfig, ConfigError};
use crate::env::{Env, Timestamp};

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Idle connections are closed before the service does it (the emulator: after 5 s), so that no request meets a closing one.
const POOL_IDLE_MAX: Duration = Duration::from_secs(4);
/// Idle connections kept for one host.
const POOL_SIZE: usize = 64;

/// What became of one request.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// It was not sent: something before the wire refused it.
    NotSent,
    /// No connection, so nothing was sent.
    Unreached(String),
    /// It was, or may have been, sent; no whole reply came.
    Lost(String),
    /// The service answered.
    Replied(Reply),
}

/// What a reply says about itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// The service's error code.
    pub(super) code: Option<String>,
    /// The first line of the service's message.
    pub(super) message: Option<String>,
    pub(super) request_id: Option<String>,
    /// Service time.
    pub(super) date: Option<Timestamp>,
    pub(super) retry_after: Option<Duration>,
}

/// One request on its way: its limit, and the place where the transport notes the outcome.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    limit: Duration,
    outcome: Arc<Mutex<Outcome>>,
}

impl Exchange {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            outcome: Arc::new(Mutex::new(Outcome::NotSent)),
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
    }
}

/// The pooled client.
#[derive(Debug)]
pub(super) struct Transport {
    client: reqwest::Client,
    env: Env,
}

impl Transport {
    pub(super) fn new(config: &AzureConfig, env: Env) -> Result<Self, ConfigError> {
        let mut builder = reqwest::Client::builder()
            .pool_max_idle_per_host(POOL_SIZE)
            .pool_idle_timeout(POOL_IDLE_MAX)
            .connect_timeout(CONNECT_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true);
        if config.is_emulator() {
            // A proxy for the internet does not know the emulator.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| {
            ConfigError::new(
                format!("no HTTP client can be made: {}", chain(&error)),
                "look at the proxy settings in the environment (`HTTPS_PROXY`)",
            )
        })?;
        Ok(Self { client, env })
    }

    /// Sends, and reads the reply whole.
    async fn exchange(
        &self,
        request: &Request,
        limit: Duration,
    ) -> Result<(u16, Headers, Bytes), Outcome> {
        let request = build(&self.client, request)?;
        let sent = self.env.timeout(limit, self.client.execute(request)).await;
        let mut reply = match sent {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) if error.is_connect() => {
                return Err(Outcome::Unreached(chain(&error.without_url())));
            }
            Ok(Err(error)) => return Err(Outcome::Lost(chain(&error.without_url()))),
            Err(_) => return Err(Outcome::Lost(no_reply(limit))),
        };
        let status = reply.status().as_u16();
        let headers = headers(&reply);
        let limit = scaled(limit, reply.content_length().unwrap_or(0));
        let read = self.env.timeout(limit, body(&mut reply)).await;
        match read {
            Ok(Ok(body)) => Ok((status, headers, body)),
            // The status of a refusal says enough without its text.
            _ if status >= 300 => Ok((status, headers, Bytes::new())),
            Ok(Err(error)) => Err(Outcome::Lost(chain(&error.without_url()))),
            Err(_) => Err(Outcome::Lost(no_reply(limit))),
        }
    }
}

fn no_reply(limit: Duration) -> String {
    format!("no whole reply within {} s", limit.as_secs())
}

/// `limit`, and a second more for each MiB.
pub(super) fn scaled(limit: Duration, bytes: u64) -> Duration {
    limit + Duration::from_secs(bytes >> 20)
}

#[async_trait]
impl Policy for Transport {
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        _next: &[Arc<dyn Policy>],
    ) -> azure_core::Result<Response> {
        let exchange = context
            .get::<Exchange>()
            .expect("every call of this folder puts its exchange into the context");
        // Noted before sending: a call that is dropped halfway has perhaps been carried out.
        exchange.note(Outcome::Lost("given up while waiting".to_owned()));
        match self.exchange(request, exchange.limit).await {
            Ok((status, headers, body)) => {
                exchange.note(Outcome::Replied(read_reply(status, &headers, &body)));
                let status = StatusCode::try_from(status)
                    .ok()
                    .ok_or_else(|| failed("a status that HTTP does not know"))?;
                Ok(Response::new(
                    status,
                    headers,
                    Box::pin(BytesStream::new(body)),
                ))
            }
            Err(outcome) => {
                exchange.note(outcome);
                Err(failed("see the exchange"))
            }
        }
    }
}

/// The error for the crates above; what happened is in the exchange.
fn failed(text: &'static str) -> azure_core::Error {
    azure_core::Error::message(azure_core::error::ErrorKind::Io, text)
}

fn build(client: &reqwest::Client, request: &Request) -> Result<reqwest::Request, Outcome> {
    let method = reqwest::Method::from_bytes(request.method().as_ref().as_bytes())
        .ok()
        .ok_or(Outcome::NotSent)?;
    let mut builder = client.request(method, request.url().clone());
    for (name, value) in request.headers().iter() {
        builder = builder.header(name.as_str(), value.as_str());
    }
    match request.body() {
        azure_core::Body::Bytes(bytes) => builder = builder.body(bytes.clone()),
        azure_core::Body::SeekableStream(_) => return Err(Outcome::NotSent),
    }
    builder.build().ok().ok_or(Outcome::NotSent)
}

fn headers(reply: &reqwest::Response) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in reply.headers() {
        if let Ok(value) = value.to_str() {
            headers.insert(name.as_str().to_owned(), value.to_owned());
        }
    }
    headers
}

/// The whole body, in one piece of memory.
async fn body(reply: &mut reqwest::Response) -> reqwest::Result<Bytes> {
    // A length is only believed as far as it costs nothing.
    let told = reply.content_length().unwrap_or(0).min(64 << 20);
    let mut body = BytesMut::with_capacity(usize::try_from(told).unwrap_or(0));
    while let Some(chunk) = reply.chunk().await? {
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

fn read_reply(status: u16, headers: &Headers, body: &[u8]) -> Reply {
    let header = |name: &'static str| headers.get_optional_string(&HeaderName::from_static(name));
    let date = header("date").and_then(|text| http_date(&text));
    let (code, message) = if status >= 300 {
        explanation(body)
    } else {
        (None, None)
    };
    Reply {
        status,
        code: header("x-ms-error-code").or(code),
        message,
        request_id: header("x-ms-request-id"),
        date,
        retry_after: retry_after(&header, date),
    }
}

/// How long the service asks to wait: milliseconds, seconds, or a date, which is compared with its own.
fn retry_after(
    header: &impl Fn(&'static str) -> Option<String>,
    date: Option<Timestamp>,
) -> Option<Duration> {
    let number = |text: String| text.trim().parse::<u64>().ok();
    if let Some(millis) = header("retry-after-ms")
        .or_else(|| header("x-ms-retry-after-ms"))
        .and_then(number)
    {
        return Some(Duration::from_millis(millis));
    }
    let text = header("retry-after")?;
    if let Some(secs) = number(text.clone()) {
        return Some(Duration::from_secs(secs));
    }
    let wait = http_date(&text)?.duration_since(date?);
    Some(Duration::try_from(wait).unwrap_or(Duration::ZERO))
}

fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()
}

/// Code and message of a refusal: XML from blobs and queues, JSON from tables.
fn explanation(body: &[u8]) -> (Option<String>, Option<String>) {
    let text = String::from_utf8_lossy(body);
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(&text) {
        let error = &json["odata.error"];
        let text = |value: &serde_json::Value| value.as_str().and_then(first_line);
        return (text(&error["code"]), text(&error["message"]["value"]));
    }
    let element = |name: &str| {
        let start = text.find(&format!("<{name}>"))? + name.len() + 2;
        let end = start + text[start..].find("</")?;
        first_line(&text[start..end])
    };
    let message = element("Message").map(|message| {
        // Why a signature was refused stands apart from the message; other details may quote what was signed.
        match element("AuthenticationErrorDetail") {
            Some(detail) if detail.starts_with("Signature not valid in the specified time") => {
                format!("{message} {detail}")
            }
            _ => message,
        }
    });
    (element("Code"), message)
}

/// The first line, which is the message itself: request id and time follow it.
fn first_line(text: &str) -> Option<String> {
    let line = text.trim().lines().next()?.trim();
    Some(line.chars().take(300).collect::<String>()).filter(|line| !line.is_empty())
}

/// An error and its causes in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            // Writing to a `String` does not fail.
            write!(text, ": {cause_text}").expect("a String takes all text");
        }
        next = cause.source();
    }
    text.replace('\n', "; ")
}
