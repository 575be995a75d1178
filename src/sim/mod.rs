//! The simulator: coordinators, workers and clients, the very code that ships, over a store in memory, in virtual time, with faults;
//! all of it from one seed.
//!
//! | part | does |
//! | --- | --- |
//! | `dice`, `scheduler`, `process` | chance, order and time from a seed; processes that crash, pause and have wrong clocks |
//! | `wire`, `faults` | requests that take time, get lost, land late, are answered twice |
//! | `workload`, `executor` | random workflows; jobs that end as the seed says |
//! | `servers`, `operator` | who runs, and what happens to them |
//! | `oracle` | what must never be seen |
//! | `verdict`, `reference` | what must hold at the end |
//!
//! A run has two phases. In the first everything goes wrong that its swarm of faults has drawn; in the second nothing does, and
//! within bounded time every workflow must be final and every queue empty.
//!
//! Invariants:
//! 1. Two runs of one seed make the same choices: nothing here or in the services reads a clock, rolls dice or waits but by
//!    [`Env`](crate::env::Env).

mod dice;
mod executor;
mod faults;
mod operator;
mod oracle;
mod process;
mod reference;
mod run;
mod scheduler;
mod servers;
#[cfg(test)]
mod tests;
mod trace;
mod verdict;
mod wire;
mod workload;

pub use run::{Report, run};
