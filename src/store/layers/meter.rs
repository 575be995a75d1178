//! Counts requests and the content that goes with them; for benchmarks and tests.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::future::BoxFuture;

use super::{Call, Layer, Op, Weight, wrap};
use crate::store::{Result, Store};

/// What was counted for one kind of request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests sent, whatever became of them.
    pub requests: u64,
    /// Those that ended in an error.
    pub errors: u64,
    /// Those whose reply carried content: receives and reads that found something.
    pub found: u64,
    /// Bytes of content sent: bodies, texts and fields, without names and headers.
    pub sent: u64,
    /// Bytes of content received.
    pub received: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.found += other.found;
        self.sent += other.sent;
        self.received += other.received;
    }
}

/// Counts the requests that pass it.
#[derive(Debug, Default)]
pub struct Meter {
    counts: Mutex<BTreeMap<Op, Count>>,
}

impl Meter {
    /// `store` with a meter, and the meter.
    #[must_use]
    pub fn wrap(store: Store) -> (Store, Arc<Self>) {
        let meter = Arc::new(Self::default());
        (wrap(store, meter.clone()), meter)
    }

    /// The counts so far, without requests that never came.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<Op, Count> {
        self.counts().clone()
    }

    /// The sum of all counts so far.
    #[must_use]
    pub fn total(&self) -> Count {
        let mut total = Count::default();
        for count in self.counts().values() {
            total += *count;
        }
        total
    }

    /// Starts anew and returns what was counted until now.
    pub fn take(&self) -> BTreeMap<Op, Count> {
        std::mem::take(&mut *self.counts())
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Op, Count>> {
        let counts = self.counts.lock();
        counts.expect("nothing panics while it counts")
    }

    fn add(&self, op: Op, count: Count) {
        *self.counts().entry(op).or_default() += count;
    }
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl Layer for Meter {
    async fn around<'a, T: Weight>(
        &'a self,
        call: Call<'a>,
        send: impl Fn() -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    ) -> Result<T> {
        // Counted before it is sent: a caller that does not wait for the reply has made the request all the same.
        let request = Count {
            requests: 1,
            sent: bytes(call.sent),
            ..Count::default()
        };
        self.add(call.op, request);
        let result = send().await;
        let reply = match &result {
            Ok(reply) => Count {
                found: u64::from(reply.weight() > 0),
                received: bytes(reply.weight()),
                ..Count::default()
            },
            Err(_) => Count {
                errors: 1,
                ..Count::default()
            },
        };
        self.add(call.op, reply);
        result
    }
}
