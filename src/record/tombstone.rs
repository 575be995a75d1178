//! What is left in the place of the runtime blob of a purged workflow, and how the two are told apart (P31).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::id::{Epoch, RunId, Stamp};
use super::{DecodeError, Record, RuntimeRecord, decode};
use crate::definition::WorkflowId;

/// The tombstone, schema 1. Only it has a `purged_at`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TombstoneRecord {
    /// 1.
    pub schema: u32,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The life of the id that was purged: what carries it is refused everywhere.
    pub run_id: RunId,
    /// The leader that wrote this.
    pub epoch: Epoch,
    /// Its name, as `host/pid`.
    pub holder: String,
    /// Marks this write.
    pub stamp: Stamp,
    /// The request that was applied.
    pub request_id: Uuid,
    /// Who asked, as `user@host`.
    pub purged_by: String,
    /// When the purge began, by the leader's clock.
    pub purged_at: Timestamp,
}

impl Record for TombstoneRecord {
    const WHAT: &'static str = "tombstone";
    const SCHEMA: u32 = 1;
}

/// What a runtime blob holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateRecord {
    /// The state of a workflow.
    Live(RuntimeRecord),
    /// That it was purged.
    Purged(TombstoneRecord),
}

#[derive(Deserialize)]
struct Probe {
    #[serde(default)]
    purged_at: Option<serde::de::IgnoredAny>,
}

impl StateRecord {
    /// Reads a runtime blob.
    ///
    /// # Errors
    /// As [`decode`].
    pub fn decode(json: &[u8]) -> Result<Self, DecodeError> {
        let is_tombstone =
            serde_json::from_slice::<Probe>(json).is_ok_and(|probe| probe.purged_at.is_some());
        if is_tombstone {
            decode(json).map(Self::Purged)
        } else {
            decode(json).map(Self::Live)
        }
    }

    /// The state, where there is one.
    #[must_use]
    pub fn live(self) -> Option<RuntimeRecord> {
        match self {
            Self::Live(record) => Some(record),
            Self::Purged(_) => None,
        }
    }

    /// Marks the write that made it.
    #[must_use]
    pub const fn stamp(&self) -> Stamp {
        match self {
            Self::Live(record) => record.stamp,
            Self::Purged(tombstone) => tombstone.stamp,
        }
    }

    /// The leader that wrote it.
    #[must_use]
    pub fn writer(&self) -> (Epoch, &str) {
        match self {
            Self::Live(record) => (record.epoch, &record.holder),
            Self::Purged(tombstone) => (tombstone.epoch, &tombstone.holder),
        }
    }
}
