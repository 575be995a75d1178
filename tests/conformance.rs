//! Every clause of the store contract, on every store.

use std::sync::Arc;
use std::time::Duration;

use dagaz::env::{Clock, Env, Mono, Timestamp, real};
use dagaz::store::azure::{AzureConfig, AzureStore};
use dagaz::store::conformance;
use dagaz::store::memory::MemoryStore;
use futures::future::BoxFuture;

use crate::support::azurite::azurite;

/// How many times faster time runs for a store in this process.
const HASTE: u32 = 10;

/// The real clock in a hurry, so that a lease of 15 seconds takes less than two. For stores that share their clock with the test.
#[derive(Debug)]
struct Hasty {
    real: Env,
    start: Mono,
}

impl Hasty {
    fn env() -> Env {
        let real = real::env();
        let start = real.mono();
        Env {
            clock: Arc::new(Self {
                real: real.clone(),
                start,
            }),
            ..real
        }
    }
}

impl Clock for Hasty {
    fn wall(&self) -> Timestamp {
        self.real.wall()
    }

    fn mono(&self) -> Mono {
        let passed = self.real.mono().since(self.start);
        self.start.plus(passed * HASTE)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.real.clock.sleep(duration / HASTE)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_all_layers_keeps_the_contract() {
    use dagaz::store::layers::fault::Faults;
    use dagaz::store::layers::gate::Gate;
    use dagaz::store::layers::meter::Meter;
    use dagaz::store::layers::retry::{Policy, Retry};

    let env = Hasty::env();
    let (store, _) = Faults::script().wrap(MemoryStore::open(env.clone()), env.clone());
    let (store, meter) = Meter::wrap(store);
    let store = Gate::wrap(store, Arc::new(|| true));
    let store = Retry::wrap(store, env.clone(), Policy::default());
    if let Err(broken) = conformance::run_all(&store, &env).await {
        panic!("{broken}");
    }
    assert!(meter.total().requests > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_in_memory_keeps_the_contract() {
    let env = Hasty::env();
    let store = MemoryStore::open(env.clone());
    if let Err(broken) = conformance::run_all(&store, &env).await {
        panic!("{broken}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_on_the_emulator_keeps_the_contract() {
    let env = real::env();
    let connection = azurite().connection_string();
    let (config, _) = AzureConfig::resolve("conf", Some(&connection)).unwrap();
    let store = AzureStore::open(&config, env.clone()).unwrap();
    if let Err(broken) = conformance::run_all(&store, &env).await {
        panic!("{broken}");
    }
}
