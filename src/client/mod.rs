//! What people ask of workflows, as functions: submit, cancel, retry, purge, read, list, watch, outputs, logs and the journal. Prints nothing.
//!
//! Invariants:
//! 1. No runtime blob is ever written here: requests travel as messages to the coordinator (P29).
//! 2. Every request may be repeated after any interruption: what is already done is found and left alone (P3).
//! 3. Containers, tables and queues are made by `submit` alone; what only reads never creates.
//! 4. Tasks are shown in the words of [`TaskWord`], which tell `queued` from `running` and `ready` from `retrying`.

use std::time::Duration;

use crate::definition::GraphError;
use crate::definition::WorkflowId;
use crate::env::Env;
use crate::protocol::{Layout, ReadError};
use crate::store::{Kind, Store, StoreError};

mod cancel;
mod control;
mod fetch;
mod journal;
mod list;
mod purge;
mod read;
mod retry;
mod submit;
mod view;
mod watch;

#[cfg(test)]
mod tests;

pub use fetch::{Log, TaskOutput};
pub use list::Listing;
pub use read::Stage;
pub use submit::Submitted;
pub use view::{Counts, Summary, TaskView, TaskWord, WorkflowView};
pub use watch::{Running, Update, Watch};

/// How often an operation is begun anew when others change what it works on, or when its outcome stays unknown.
const TRIES_MAX: u32 = 10;

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// There is no such workflow.
    #[error("workflow `{0}` does not exist")]
    NoWorkflow(WorkflowId),
    /// The workflow has no such task.
    #[error("workflow `{id}` has no task `{task}`")]
    NoTask {
        /// The workflow.
        id: WorkflowId,
        /// The name given.
        task: String,
        /// The nearest name there is.
        nearest: Option<String>,
    },
    /// The task has nothing of the kind asked for.
    #[error("task `{task}` {why}")]
    Nothing {
        /// The workflow.
        id: WorkflowId,
        /// The task.
        task: String,
        /// What there is instead.
        why: String,
    },
    /// The id is taken by another definition.
    #[error("workflow `{0}` exists with another definition")]
    Taken(WorkflowId),
    /// The id is taken by a workflow that is being purged.
    #[error("workflow `{0}` is being purged")]
    Purging(WorkflowId),
    /// The request does not fit where the workflow stands.
    #[error("workflow `{id}` {why}")]
    Refused {
        /// The workflow.
        id: WorkflowId,
        /// Why.
        why: String,
    },
    /// The definition cannot be run.
    #[error("the definition {0}")]
    Graph(#[from] GraphError),
    /// Nobody but others got through: the state changed whenever it was about to be written.
    #[error("workflow `{0}` changed again and again while the request was written")]
    Contended(WorkflowId),
    /// The time given to a wait is over.
    #[error("workflow `{id}` had not ended after {limit:?}")]
    TimedOut {
        /// The workflow.
        id: WorkflowId,
        /// The time.
        limit: Duration,
    },
    /// Something stored cannot be read, or the store does not answer.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<StoreError> for ClientError {
    fn from(error: StoreError) -> Self {
        Self::Read(ReadError::Store(error))
    }
}

impl ClientError {
    /// The error of the store behind it, where there is one.
    #[must_use]
    pub const fn store(&self) -> Option<&StoreError> {
        match self {
            Self::Read(ReadError::Store(error)) => Some(error),
            Self::Read(ReadError::Decode { .. })
            | Self::NoWorkflow(_)
            | Self::NoTask { .. }
            | Self::Nothing { .. }
            | Self::Taken(_)
            | Self::Purging(_)
            | Self::Refused { .. }
            | Self::Graph(_)
            | Self::Contended(_)
            | Self::TimedOut { .. } => None,
        }
    }

    /// Why every try was in vain, by what the last has met: others, or a store that does not answer.
    fn gave_up(id: &WorkflowId, met: Option<StoreError>) -> Self {
        match met {
            Some(error) if error.kind == Kind::Ambiguous => error.into(),
            Some(_) | None => Self::Contended(id.clone()),
        }
    }

    fn is_kind(&self, kind: Kind) -> bool {
        self.store().is_some_and(|error| error.kind == kind)
    }
}

/// Result of a request.
pub type Result<T> = std::result::Result<T, ClientError>;

/// How a request to the coordinator was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// The coordinator has applied it.
    Applied,
    /// The coordinator has begun with it; the rest is done in the background, and again after a crash.
    Underway,
    /// It is stored; nobody answered yet. It will be served when a coordinator runs.
    Stored,
}

/// Acts for a person on the workflows of one prefix.
#[derive(Debug, Clone)]
pub struct Client {
    env: Env,
    store: Store,
    layout: Layout,
    actor: String,
}

impl Client {
    /// A client of the prefix of `layout`; `actor` names the person in records.
    #[must_use]
    pub fn new(env: Env, store: Store, layout: Layout, actor: impl Into<String>) -> Self {
        let actor = actor.into();
        Self {
            env,
            store,
            layout,
            actor,
        }
    }

    /// The names of its prefix.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }
}
