//! All integration tests in one binary: one link, one emulator.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails, in its helpers too"
)]

mod chaos;
mod ci;
mod cli;
mod conformance;
mod crossing;
mod docs;
mod docs_dependencies;
mod docs_failure_modes;
mod docs_protocol;
mod emulator;
mod faults;
mod formats;
mod health;
mod keys;
mod layers;
mod lost;
mod model;
mod mutants;
mod outages;
mod pipeline;
mod proxy;
mod purging;
mod reconnect;
mod recovery;
mod replies;
mod signals;
mod stopping;
mod support;
mod tasks;
mod timing;
