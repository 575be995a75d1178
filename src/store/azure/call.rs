//! One call of a service: its name for people, its limit, and its error.
//!
//! Invariants:
//! 1. Every call has a limit, a lease call one short enough to be repeated before the lease ends.
//! 2. Every error names the operation and what it was tried on.

use std::future::Future;
use std::time::Duration;

use azure_core::Context;

use super::config::{AzureConfig, Credential};
use super::errors::{Circumstances, Effect, store_error};
use super::transport::{Exchange, Outcome, Reply, scaled};
use crate::env::{Env, Timestamp};
use crate::store::{Kind, Result, StoreError};

/// Longest wait for the answer to an ordinary request; a body adds a second for each MiB.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the answer to a lease request: a renewal must be repeated well before the lease ends.
const LEASE_MAX: Duration = Duration::from_secs(5);

/// A request about to be made.
#[derive(Debug)]
pub(super) struct Call {
    operation: String,
    effect: Effect,
    limit: Duration,
}

impl Call {
    pub(super) fn read(operation: String) -> Self {
        Self {
            operation,
            effect: Effect::Read,
            limit: REQUEST_MAX,
        }
    }

    pub(super) fn write(operation: String, bytes: usize) -> Self {
        Self {
            operation,
            effect: Effect::Write,
            limit: scaled(REQUEST_MAX, u64::try_from(bytes).unwrap_or(u64::MAX)),
        }
    }

    pub(super) fn lease(operation: String) -> Self {
        Self {
            operation,
            effect: Effect::Write,
            limit: LEASE_MAX,
        }
    }

    /// The service time of the reply.
    pub(super) fn service_time(&self, reply: &Reply) -> Result<Timestamp> {
        reply
            .date
            .ok_or_else(|| self.refused(Kind::Corrupt, "the reply has no `Date`"))
    }

    /// An error of this call that needs no request.
    pub(super) fn refused(&self, kind: Kind, detail: impl Into<String>) -> StoreError {
        StoreError::new(kind, self.operation.clone(), detail)
    }
}

/// Makes the calls of one service.
#[derive(Debug)]
pub(super) struct Caller {
    service: &'static str,
    by_role: bool,
    host_looks_like_account: bool,
    pub(super) env: Env,
}

impl Caller {
    pub(super) fn new(service: &'static str, config: &AzureConfig, env: Env) -> Self {
        Self {
            service,
            by_role: config.credential == Credential::Identity,
            host_looks_like_account: config.host_looks_like_account(),
            env,
        }
    }

    /// Runs `request`, which must hand the context it is given to exactly one operation of the crates.
    pub(super) async fn run<T, F>(
        &self,
        call: &Call,
        request: impl FnOnce(Context) -> F + Send,
    ) -> Result<(T, Reply)>
    where
        F: Future<Output = azure_core::Result<T>> + Send,
    {
        let exchange = Exchange::new(call.limit);
        let mut context = Context::new();
        context.insert(exchange.clone());
        match (request(context).await, exchange.outcome()) {
            (Ok(value), Outcome::Replied(reply)) => Ok((value, reply)),
            (Ok(value), _) => Ok((value, Reply::default())),
            (Err(error), outcome) => Err(store_error(
                &call.operation,
                call.effect,
                outcome,
                &error,
                Circumstances {
                    service: self.service,
                    by_role: self.by_role,
                    host_looks_like_account: self.host_looks_like_account,
                    now: self.env.wall(),
                },
            )),
        }
    }
}
