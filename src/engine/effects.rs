//! What an event did, for the caller to act on after the state is stored.

use super::task::TaskIx;

/// Whether an event changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum Applied {
    /// The state changed and must be stored.
    Changed,
    /// Late news of something the state already knows the end of.
    OldNews,
    /// News of an attempt or generation that this state never issued.
    Unissued,
}

/// What changed, collected over any number of events since the state was stored: nothing of it has left yet.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Tasks that became `ready`, with a new attempt number.
    pub ready: Vec<TaskIx>,
    /// Tasks that ended.
    pub ended: Vec<TaskIx>,
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.ended.is_empty()
    }
}
