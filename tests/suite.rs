//! All integration tests in one binary: one link, one emulator.

mod conformance;
mod support;
