//! Wrappers over a whole [`Store`](super::Store), each of which does one thing around every request.
//!
//! A layer is a [`Layer`] and nothing more; `forward` alone implements the three traits, so a new method of a trait is forwarded
//! by all layers or does not compile.
//!
//! Which goes inside which: `Retry` outside of everything, so that each try is counted by `Meter`, noted by `Health`, refused by
//! `Gate` and broken by `Faults`: `Retry::wrap(Gate::wrap(Health::wrap(Meter::wrap(Faults::wrap(store)))))`.
//!
//! Invariants:
//! 1. [`Queues::wait`](super::Queues::wait) is no request: every layer lets it through as it is.
//! 2. A layer that sends nothing says so by the kind of its error.

use std::fmt;
use std::future::Future;

use futures::future::BoxFuture;

use super::{Kind, Result, StoreError};

pub mod fault;
mod forward;
pub mod gate;
pub mod health;
pub mod meter;
mod op;
#[cfg(test)]
pub(crate) mod remote;
pub mod retry;

#[cfg(test)]
mod tests;

pub use op::Op;

use forward::{Weight, wrap};

/// One request on its way to the store.
#[derive(Debug, Clone, Copy)]
struct Call<'a> {
    op: Op,
    /// What it is about, from the container, queue or table down; unused places are empty.
    subject: [&'a str; 3],
    /// Bytes of content that go with it.
    sent: usize,
}

impl Call<'_> {
    fn fail(&self, kind: Kind, detail: &str) -> StoreError {
        StoreError::new(kind, self.to_string(), detail)
    }

    /// The subject in one piece, as `p-workflows/w.json`.
    fn path(&self) -> String {
        let [place, rest @ ..] = self.subject;
        rest.iter()
            .filter(|part| !part.is_empty())
            .fold(place.to_owned(), |path, part| format!("{path}/{part}"))
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.op, self.path())
    }
}

/// What a wrapper does around each request.
trait Layer: fmt::Debug + Send + Sync + 'static {
    /// Answers `call`, by sending it as often as it takes, also never.
    fn around<'a, T: Weight>(
        &'a self,
        call: Call<'a>,
        send: impl Fn() -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    ) -> impl Future<Output = Result<T>> + Send + 'a;
}
