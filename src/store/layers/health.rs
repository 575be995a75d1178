//! Whether the three services answer, judged by the requests that a process makes anyway.
//!
//! Invariants:
//! 1. It sends nothing itself; a service that was not asked counts as well.
//! 2. Any answer is one, a refusal too, except one of the credentials: a process that is refused everything serves nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;

use super::{Call, Layer, Weight, wrap};
use crate::env::{Env, Mono};
use crate::store::{Kind, Result, Store};

/// So many requests in a row without an answer, and none since, make a service that does not answer.
const FAILURES: u32 = 2;
/// How long that is believed without another request. Longer than the longest pause between two tries and the time-out of one.
const BELIEVED: Duration = Duration::from_secs(90);

/// Failures in a row.
#[derive(Debug)]
struct Failing {
    times: u32,
    last_at: Mono,
    kind: Kind,
}

/// Notes how the requests that pass it end.
#[derive(Debug)]
pub struct Health {
    env: Env,
    failing: Mutex<BTreeMap<&'static str, Failing>>,
}

impl Health {
    /// `store`, watched, and who watches it.
    #[must_use]
    pub fn wrap(store: Store, env: Env) -> (Store, Arc<Self>) {
        let health = Arc::new(Self {
            env,
            failing: Mutex::default(),
        });
        (wrap(store, health.clone()), health)
    }

    /// The services that do not answer, as `queues: unavailable`.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let now = self.env.mono();
        let failing = self.failing();
        let down = failing.iter().filter(|(_, failing)| {
            failing.times >= FAILURES && now.since(failing.last_at) < BELIEVED
        });
        down.map(|(service, failing)| format!("{service}s: {}", failing.kind))
            .collect()
    }

    fn failing(&self) -> MutexGuard<'_, BTreeMap<&'static str, Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, service: &'static str, ended: std::result::Result<(), Kind>) {
        let mut failing = self.failing();
        match ended {
            Err(kind @ (Kind::Unavailable | Kind::Ambiguous | Kind::Denied)) => {
                let times = failing.get(service).map_or(0, |failing| failing.times);
                let now = Failing {
                    times: times.saturating_add(1),
                    last_at: self.env.mono(),
                    kind,
                };
                failing.insert(service, now);
            }
            _ => {
                failing.remove(service);
            }
        }
    }
}

impl Layer for Health {
    async fn around<'a, T: Weight>(
        &'a self,
        call: Call<'a>,
        send: impl Fn() -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    ) -> Result<T> {
        let result = send().await;
        let (service, _) = call.op.words();
        self.note(
            service,
            result.as_ref().map(drop).map_err(|error| error.kind),
        );
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::layers::Op;
    use crate::store::layers::fault::{Fault, Faults};
    use crate::store::layers::gate::Gate;
    use crate::store::memory::MemoryStore;
    use crate::store::memory::manual::ManualClock;
    use crate::store::{Container, Queue};

    #[tokio::test]
    async fn a_service_that_does_not_answer_is_named_until_it_does() {
        let clock = ManualClock::still();
        let env = clock.env();
        let memory = MemoryStore::open(env.clone());
        let faults = Faults::script()
            .on(Op::QueueDepth, 2, Fault::RequestLost)
            .on(Op::QueueDepth, 3, Fault::RequestLost)
            .on(Op::QueueDepth, 5, Fault::RequestLost)
            .on(Op::QueueDepth, 6, Fault::RequestLost);
        let (broken, _) = faults.wrap(memory, env.clone());
        let (store, health) = Health::wrap(broken, env.clone());
        let queue = Queue::new("a-queue").unwrap();
        store.queues.create_queue(&queue).await.unwrap();
        let told = [0, 0, 1, 0, 0, 1];
        for troubles in told {
            store.queues.depth(&queue).await.ok();
            assert_eq!(health.troubles().len(), troubles);
        }
        assert_eq!(health.troubles(), ["queues: unavailable"]);
        store
            .blobs
            .create_container(&Container::new("others").unwrap())
            .await
            .unwrap();
        assert_eq!(health.troubles().len(), 1, "each is judged by itself");
        clock.advance(BELIEVED);
        assert_eq!(health.troubles().len(), 0, "not asked lately");
    }

    #[tokio::test]
    async fn what_was_never_sent_says_nothing_of_the_service() {
        let env = ManualClock::still().env();
        let (store, health) = Health::wrap(MemoryStore::open(env.clone()), env);
        let store = Gate::wrap(store, Arc::new(|| false));
        let queue = Queue::new("a-queue").unwrap();
        for _ in 0..FAILURES {
            store.queues.depth(&queue).await.unwrap_err();
        }
        assert_eq!(health.troubles().len(), 0);
    }
}
