//! State, leadership and rows under lost replies, rivals and late clocks, over the memory store.

mod leading;
mod rows;
mod sides;
mod states;

use std::sync::Arc;

use super::*;
use crate::definition::WorkflowId;
use crate::env::{Env, real};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::store::memory::manual::ManualClock;

fn id() -> WorkflowId {
    WorkflowId::new("w").expect("legal")
}

fn layout() -> Layout {
    Layout::new("test").expect("legal")
}

/// A clock that the test moves, with real dice.
fn env_of(clock: &Arc<ManualClock>) -> Env {
    Env {
        entropy: real::env().entropy,
        ..clock.env()
    }
}

async fn memory(env: &Env) -> Store {
    let store = MemoryStore::open(env.clone());
    layout().create(&store).await.expect("memory");
    store
}
