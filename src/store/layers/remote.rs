//! A store that is far away, for tests that count in virtual time: every request takes its time.
//!
//! Invariants:
//! 1. Each request takes the time of its service: it arrives after half of it, and its reply after the other half.
//! 2. A service that takes one at a time takes them in the order in which they came, whoever sent them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Mutex;

use super::{Call, Layer, Weight, wrap};
use crate::env::Env;
use crate::store::{Result, Store};

/// A line in which requests stand; it holds how long each has waited.
type Line = Arc<Mutex<Vec<Duration>>>;

/// How a service takes requests; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    /// What one request takes.
    request: Duration,
    /// Where they stand in line, if it takes one at a time.
    line: Option<Line>,
}

impl Service {
    /// As Azure: any number of requests at once.
    pub(crate) const fn wide(request: Duration) -> Self {
        Self {
            request,
            line: None,
        }
    }

    /// As the emulator, which has one thread.
    pub(crate) fn narrow(request: Duration) -> Self {
        Self {
            request,
            line: Some(Arc::default()),
        }
    }

    /// How long each request has stood in line, in the order in which they were taken.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        let line = self.line.as_ref();
        line.map_or_else(Vec::new, |line| {
            let waits = line.try_lock().expect("nothing is asked for any more");
            waits.clone()
        })
    }
}

/// The way of one process to a service.
#[derive(Debug)]
pub(crate) struct Remote {
    env: Env,
    service: Service,
}

impl Remote {
    /// `store` as the process of `env` reaches it behind `service`.
    pub(crate) fn wrap(store: Store, env: Env, service: Service) -> Store {
        wrap(store, Arc::new(Self { env, service }))
    }
}

impl Layer for Remote {
    async fn around<'a, T: Weight>(
        &'a self,
        _: Call<'a>,
        send: impl Fn() -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    ) -> Result<T> {
        let _turn = match &self.service.line {
            Some(line) => {
                let came_at = self.env.mono();
                let mut line = line.lock().await;
                line.push(self.env.mono().since(came_at));
                Some(line)
            }
            None => None,
        };
        let half = self.service.request / 2;
        self.env.sleep(half).await;
        let reply = send().await;
        self.env.sleep(half).await;
        reply
    }
}
