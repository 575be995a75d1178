//! The coordinator: the one writer of state. It receives completions and requests, hands them to one actor a workflow, and sends what
//! becomes ready.
//!
//! | part | does |
//! | --- | --- |
//! | `lead` | stands for leadership, runs terms, ends them |
//! | `receive` | messages of the completion queue → mail of actors |
//! | `sweep` | rows of unfinished workflows → mail of actors |
//! | `orphans` | definitions without a row → mail of actors |
//! | `lost`, `search` | dispatched tasks whose messages are gone → mail of actors |
//! | `registry` | one actor a workflow |
//! | `actor` | waits for news, takes turns |
//! | `turn` | apply, write |
//! | `act` | acknowledge, send, project |
//! | `load` | taking a workflow up |
//! | `purge` | what is left of a purged workflow goes |
//! | `book` | the state in memory and how news changes it |
//! | `limit` | how many workflows take turns and send at once |
//! | `dispatch`, `window` | what is sent, when, how much at once |
//! | `message` | the message of a task, and its inputs |
//!
//! Invariants:
//! 1. Every request of a term goes through a store that refuses once the fence is closed (P14).
//! 2. No workflow delays another: all waiting for one workflow happens in its actor (P9).

mod act;
mod actor;
mod book;
mod config;
mod context;
mod dispatch;
mod lead;
mod limit;
mod load;
mod lost;
mod mail;
mod message;
mod orphans;
mod purge;
mod receive;
mod registry;
mod search;
mod stats;
mod sweep;
mod turn;
mod window;

#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError, MAX_OUTSTANDING_AZURE, MAX_OUTSTANDING_EMULATOR};
pub use lead::{CoordinatorError, run};
pub use stats::Stats;
