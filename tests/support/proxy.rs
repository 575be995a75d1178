//! A proxy before the emulator that breaks chosen requests of whoever talks through it, and keeps a log of all.
//!
//! One for each process under test tells who sent what. Signatures do not cover the port, so requests pass as they are.
//!
//! Invariants:
//! 1. A fault says exactly whether the request was carried out; the caller learns only what a real one would.
//! 2. A request is in the log when it has arrived, before anything becomes of it; its status when the emulator has answered.
//! 3. Each request goes to the emulator at most once, on a connection of its own.

use std::fmt::Write as _;
use std::io::BufReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::azurite::{ACCOUNT, Azurite, Endpoints, connection_string};
use super::stack::{PATIENCE, now};
use super::wire::Message;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    AcquireLease,
    RenewLease,
    ReleaseLease,
    PutBlob,
    GetBlob,
    PutMessage,
    GetMessages,
    UpdateMessage,
    DeleteMessage,
    InsertEntity,
    MergeEntity,
    DeleteEntity,
    GetEntity,
    QueryEntities,
    /// Making and counting containers, queues and tables, mostly.
    Other,
}

/// What becomes of a request.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// It is not carried out, the connection ends.
    RequestLost,
    /// It is carried out, the connection ends without the reply.
    ReplyLost,
    /// It is carried out, the reply comes this much later.
    ReplyLate(Duration),
    /// It is carried out, the reply ends within its body.
    ReplyCut,
    /// It is not carried out, the connection is reset.
    Reset,
    /// Nothing happens before [`Proxy::release`]; then it is carried out.
    Held,
    /// It is not carried out, this is the answer.
    Answer {
        status: u16,
        code: &'static str,
        retry_after_s: Option<u64>,
    },
}

/// Which of the requests that a rule is about, counted from when it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Times {
    Nth(u64),
    Next(u64),
    Always,
    /// Each of which the number is a multiple of this.
    Every(u64),
}

/// One request that has arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) kind: Kind,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) at: Instant,
    /// The emulator's answer; none if it was not carried out, or not yet.
    pub(crate) status: Option<u16>,
    /// Whether a rule was about it.
    pub(crate) is_broken: bool,
}

/// A predicate on kind and target.
type About = Box<dyn Fn(Kind, &str) -> bool + Send>;

struct Rule {
    about: About,
    times: Times,
    fault: Fault,
    met: u64,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    log: Vec<Seen>,
    /// How often [`Proxy::release`] was called; the last time for good, at the end.
    released: u64,
    is_over: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Resets connections.
    /// For what only a socket of tokio can do.
    runtime: Mutex<Option<Runtime>>,
}

/// A running proxy.
pub(crate) struct Proxy {
    endpoints: Endpoints,
    ports: [SocketAddr; 3],
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").finish_non_exhaustive()
    }
}

impl Proxy {
    /// A proxy before `azurite` that breaks nothing yet.
    pub(crate) fn before(azurite: &Azurite) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            runtime: Mutex::new(Some(runtime)),
        });
        let Endpoints { blob, queue, table } = &azurite.endpoints;
        let mut addresses = Vec::new();
        for (service, endpoint) in [blob, queue, table].into_iter().enumerate() {
            let upstream = url::Url::parse(endpoint).unwrap();
            let upstream = SocketAddr::from(([127, 0, 0, 1], upstream.port().unwrap()));
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            addresses.push(listener.local_addr().unwrap());
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    if shared.lock().is_over {
                        return;
                    }
                    let (shared, stream) = (Arc::clone(&shared), stream.unwrap());
                    thread::spawn(move || serve(&shared, service, upstream, stream));
                }
            });
        }
        let ports: [SocketAddr; 3] = addresses.try_into().unwrap();
        let [blob, queue, table] = ports.map(|port| format!("http://{port}/{ACCOUNT}"));
        Self {
            endpoints: Endpoints { blob, queue, table },
            ports,
            shared,
        }
    }

    /// What `AZURE_STORAGE_CONNECTION_STRING` must hold to go through it.
    pub(crate) fn connection_string(&self) -> String {
        connection_string(&self.endpoints)
    }

    pub(crate) const fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Breaks requests of one kind whose path and query contain `name`.
    pub(crate) fn fault(&self, kind: Kind, name: &str, times: Times, fault: Fault) {
        let name = name.to_owned();
        self.fault_if(times, fault, move |of, target| {
            of == kind && target.contains(&name)
        });
    }

    /// Breaks the requests that `about` is true of. The first rule that is about a request decides.
    pub(crate) fn fault_if(
        &self,
        times: Times,
        fault: Fault,
        about: impl Fn(Kind, &str) -> bool + Send + 'static,
    ) {
        self.shared.lock().rules.push(Rule {
            about: Box::new(about),
            times,
            fault,
            met: 0,
        });
    }

    /// Breaks nothing any more. What is held stays so.
    pub(crate) fn heal(&self) {
        self.shared.lock().rules.clear();
    }

    /// Lets go what is held or late by now.
    pub(crate) fn release(&self) {
        self.shared.lock().released += 1;
        self.shared.changed.notify_all();
    }

    /// All requests so far.
    pub(crate) fn log(&self) -> Vec<Seen> {
        self.shared.lock().log.clone()
    }

    /// The requests of one kind so far whose path and query contain `name`.
    pub(crate) fn seen(&self, kind: Kind, name: &str) -> Vec<Seen> {
        let state = self.shared.lock();
        let of = state.log.iter().filter(|seen| is(seen, kind, name));
        of.cloned().collect()
    }

    /// How many there are of them.
    pub(crate) fn count(&self, kind: Kind, name: &str) -> usize {
        self.seen(kind, name).len()
    }

    /// Waits until `count` of them have arrived.
    pub(crate) fn wait_for(&self, kind: Kind, name: &str, count: usize) {
        self.wait_until(&format!("{count} times {kind:?} of {name}"), |log| {
            log.iter().filter(|seen| is(seen, kind, name)).count() >= count
        });
    }

    /// Waits until the log is as `wanted`.
    pub(crate) fn wait_until(&self, what: &str, wanted: impl Fn(&[Seen]) -> bool) {
        let state = self.shared.lock();
        let (state, over) = self
            .shared
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !wanted(&state.log))
            .unwrap();
        let mut text = String::new();
        if over.timed_out() {
            for seen in &state.log {
                writeln!(text, "{:?} {} {:?}", seen.kind, seen.target, seen.status).unwrap();
            }
        }
        drop(state);
        assert!(
            !over.timed_out(),
            "waited too long for {what}; the log:\n{text}"
        );
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        state.rules.clear();
        drop(state);
        self.shared.changed.notify_all();
        // The test may run within another runtime, where none may be waited for.
        if let Some(runtime) = self.shared.runtime.lock().unwrap().take() {
            runtime.shutdown_background();
        }
        for port in self.ports {
            // Wakes the listener, which then sees that all is over.
            drop(TcpStream::connect(port));
        }
    }
}

fn is(seen: &Seen, kind: Kind, name: &str) -> bool {
    seen.kind == kind && seen.target.contains(name)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Notes a request and tells its number and what becomes of it.
    fn arrive(&self, service: usize, request: &Message) -> (usize, Option<Fault>) {
        let kind = kind(service, request);
        let target = request.word(1).to_owned();
        let mut state = self.lock();
        let mut fault = None;
        for rule in &mut state.rules {
            if fault.is_some() || !(rule.about)(kind, &target) {
                continue;
            }
            rule.met += 1;
            let is_due = match rule.times {
                Times::Nth(n) => rule.met == n,
                Times::Next(n) => rule.met <= n,
                Times::Always => true,
                Times::Every(n) => rule.met.is_multiple_of(n),
            };
            if is_due {
                fault = Some(rule.fault.clone());
            }
        }
        state.log.push(Seen {
            kind,
            target,
            at: now(),
            status: None,
            is_broken: fault.is_some(),
        });
        let number = state.log.len() - 1;
        drop(state);
        self.changed.notify_all();
        (number, fault)
    }

    /// Waits until held requests are released, at most for `limit`.
    fn hold(&self, limit: Duration) {
        let state = self.lock();
        let before = state.released;
        let held = |state: &mut State| state.released == before && !state.is_over;
        drop(self.changed.wait_timeout_while(state, limit, held).unwrap());
    }

    /// Sends a request on; none where the emulator gave no answer.
    fn carry_out(&self, number: usize, request: &Message, upstream: SocketAddr) -> Option<Message> {
        let mut stream = TcpStream::connect(upstream).ok()?;
        request.send(&mut stream, request.body.len()).ok()?;
        let is_bare = request.word(0) == "HEAD";
        let reply = Message::read(&mut BufReader::new(stream), is_bare).ok()??;
        self.lock().log[number].status = Some(reply.status());
        self.changed.notify_all();
        Some(reply)
    }

    /// Ends a connection by a reset.
    fn reset(&self, stream: TcpStream) {
        stream.set_nonblocking(true).unwrap();
        let runtime = self.runtime.lock().unwrap();
        let Some(runtime) = &*runtime else { return };
        let _guard = runtime.enter();
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        stream.set_zero_linger().unwrap();
    }
}

/// Serves one connection to its end.
fn serve(shared: &Shared, service: usize, upstream: SocketAddr, stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut client = BufReader::new(stream);
    while let Ok(Some(request)) = Message::read(&mut client, false) {
        let (number, fault) = shared.arrive(service, &request);
        match &fault {
            Some(Fault::RequestLost) => return,
            Some(Fault::Reset) => return shared.reset(client.into_inner()),
            Some(Fault::Held) => shared.hold(Duration::MAX),
            Some(Fault::Answer {
                status,
                code,
                retry_after_s,
            }) => {
                let reply = refusal(*status, code, *retry_after_s);
                if reply.send(client.get_mut(), reply.body.len()).is_err() {
                    return;
                }
                continue;
            }
            Some(Fault::ReplyLost | Fault::ReplyLate(_) | Fault::ReplyCut) | None => {}
        }
        let Some(reply) = shared.carry_out(number, &request, upstream) else {
            return;
        };
        let mut length = reply.body.len();
        match &fault {
            Some(Fault::ReplyLost) => return,
            Some(Fault::ReplyLate(wait)) => shared.hold(*wait),
            Some(Fault::ReplyCut) => length += 100,
            Some(Fault::RequestLost | Fault::Reset | Fault::Held | Fault::Answer { .. }) | None => {
            }
        }
        let sent = reply.send(client.get_mut(), length);
        if sent.is_err() || length > reply.body.len() {
            return;
        }
    }
}

fn refusal(status: u16, code: &str, retry_after_s: Option<u64>) -> Message {
    let mut headers = vec![("Content-Type".to_owned(), "application/xml".to_owned())];
    if !code.is_empty() {
        headers.push(("x-ms-error-code".to_owned(), code.to_owned()));
    }
    headers.extend(retry_after_s.map(|secs| ("Retry-After".to_owned(), secs.to_string())));
    Message {
        first: format!("HTTP/1.1 {status} Refused"),
        headers,
        body: format!("<Error><Code>{code}</Code><Message>By the proxy.</Message></Error>")
            .into_bytes(),
        is_framed: true,
    }
}

/// What a request to the service of that number asks for.
fn kind(service: usize, request: &Message) -> Kind {
    let (method, target) = (request.word(0), request.word(1));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let has = |word: &str| query.split('&').any(|part| part == word);
    match (service, method) {
        (0, "PUT") if has("comp=lease") => match request.header("x-ms-lease-action") {
            Some("acquire") => Kind::AcquireLease,
            Some("renew") => Kind::RenewLease,
            Some("release") => Kind::ReleaseLease,
            _ => Kind::Other,
        },
        (0, "PUT") if !query.contains("comp=") && !has("restype=container") => Kind::PutBlob,
        (0, "GET") if !query.contains("comp=") => Kind::GetBlob,
        (1, "POST") if path.ends_with("/messages") => Kind::PutMessage,
        (1, "GET") if path.ends_with("/messages") && !has("peekonly=true") => Kind::GetMessages,
        (1, "PUT") if path.contains("/messages/") => Kind::UpdateMessage,
        (1, "DELETE") if path.contains("/messages/") => Kind::DeleteMessage,
        (2, "POST") if !path.ends_with("/Tables") => Kind::InsertEntity,
        (2, "MERGE" | "PATCH") => Kind::MergeEntity,
        (2, "DELETE") if path.contains("PartitionKey") => Kind::DeleteEntity,
        (2, "GET") if path.contains("PartitionKey") => Kind::GetEntity,
        (2, "GET") => Kind::QueryEntities,
        _ => Kind::Other,
    }
}
