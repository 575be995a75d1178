//! Faults on request: what networks and services do to callers, deterministic and by script.
//!
//! Invariants:
//! 1. A fault says exactly whether the request was carried out; the caller learns only what a real one would.
//! 2. The same script meets the same calls with the same faults.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::BoxFuture;

use super::{Call, Layer, Op, Weight, wrap};
use crate::env::Env;
use crate::store::{Kind, Result, Store, StoreError};

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not arrive: [`Kind::Unavailable`], not carried out.
    RequestLost,
    /// It is carried out, the reply is lost: [`Kind::Ambiguous`], for a read [`Kind::Unavailable`].
    ReplyLost,
    /// It is carried out at once, the reply comes this much later.
    ReplyLate(Duration),
    /// The service refuses it for good: [`Kind::Invalid`], not carried out.
    Refused,
    /// The service asks to slow down, for so long: [`Kind::Throttled`], not carried out.
    Throttled(Option<Duration>),
    /// Nothing happens for so long, then the caller's time is over: as [`Self::ReplyLost`], but not carried out.
    Hang(Duration),
}

type Hook = Box<dyn Fn(&Op, &str) -> Option<Fault> + Send + Sync>;

/// Which requests meet which faults.
pub struct Faults {
    script: BTreeMap<(Op, u64), Fault>,
    hook: Option<Hook>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("script", &self.script)
            .finish_non_exhaustive()
    }
}

impl Faults {
    /// No faults yet.
    #[must_use]
    pub fn script() -> Self {
        Self {
            script: BTreeMap::new(),
            hook: None,
        }
    }

    /// The `nth` request of this kind, counted from 1, meets `fault`.
    #[must_use]
    pub fn on(mut self, op: Op, nth: u64, fault: Fault) -> Self {
        self.script.insert((op, nth), fault);
        self
    }

    /// Requests without a fault in the script meet what `hook` says of the request and its path, as `p-workflows/w.json`.
    #[must_use]
    pub fn hook(
        mut self,
        hook: impl Fn(&Op, &str) -> Option<Fault> + Send + Sync + 'static,
    ) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// `store` with these faults, and what tells how many have happened.
    #[must_use]
    pub fn wrap(self, store: Store, env: Env) -> (Store, Arc<Injector>) {
        let injector = Arc::new(Injector {
            env,
            faults: self,
            seen: Mutex::default(),
        });
        (wrap(store, injector.clone()), injector)
    }
}

#[derive(Debug, Default)]
struct Seen {
    requests: BTreeMap<Op, u64>,
    faults: u64,
}

/// Puts the faults in the way of requests.
#[derive(Debug)]
pub struct Injector {
    env: Env,
    faults: Faults,
    seen: Mutex<Seen>,
}

impl Injector {
    /// How many requests met a fault so far.
    #[must_use]
    pub fn happened(&self) -> u64 {
        self.seen().faults
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        let seen = self.seen.lock();
        seen.expect("nothing panics while it counts")
    }

    /// Counts `call` and says what happens to it.
    fn next(&self, call: Call<'_>) -> Option<Fault> {
        let nth = {
            let mut seen = self.seen();
            let count = seen.requests.entry(call.op).or_default();
            *count += 1;
            *count
        };
        // Asked without the lock: the hook may look at what has happened.
        let scripted = self.faults.script.get(&(call.op, nth)).copied();
        let fault = scripted.or_else(|| {
            let hook = self.faults.hook.as_ref()?;
            hook(&call.op, &call.path())
        })?;
        self.seen().faults += 1;
        Some(fault)
    }
}

/// What a caller learns whose request got no reply.
fn no_reply(call: Call<'_>) -> StoreError {
    let kind = if call.op.is_read() {
        Kind::Unavailable
    } else {
        Kind::Ambiguous
    };
    call.fail(kind, "injected: no reply")
}

impl Layer for Injector {
    async fn around<'a, T: Weight>(
        &'a self,
        call: Call<'a>,
        send: impl Fn() -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    ) -> Result<T> {
        match self.next(call) {
            None => send().await,
            Some(Fault::RequestLost) => Err(call.fail(Kind::Unavailable, "injected: not sent")),
            Some(Fault::ReplyLost) => {
                // The reply is what gets lost, whatever it says.
                send().await.ok();
                Err(no_reply(call))
            }
            Some(Fault::ReplyLate(by)) => {
                let reply = send().await;
                self.env.sleep(by).await;
                reply
            }
            Some(Fault::Refused) => Err(call.fail(Kind::Invalid, "injected: refused")),
            Some(Fault::Throttled(retry_after)) => Err(StoreError {
                retry_after,
                ..call.fail(Kind::Throttled, "injected: slow down")
            }),
            Some(Fault::Hang(time)) => {
                self.env.sleep(time).await;
                Err(no_reply(call))
            }
        }
    }
}
