//! All integration tests in one binary: one link, one emulator.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails, in its helpers too"
)]

mod cli;
mod conformance;
mod docs;
mod emulator;
mod formats;
mod layers;
mod pipeline;
mod support;
