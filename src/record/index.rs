//! The index row: a projection of the state for listings, and where a cancel request waits (P16, P17).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Record;
use super::id::{ControlSeq, Epoch, Revision, RunId, counted};
use crate::definition::WorkflowId;
use crate::engine::{Generation, Status};

/// The index row, schema 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRecord {
    /// 1.
    pub schema: u32,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// What people call it; its id where the definition names none.
    pub name: String,
    /// This life of the id.
    pub run_id: RunId,
    /// The generation.
    pub generation: Generation,
    /// The leader that wrote this; 0 before the first.
    pub epoch: Epoch,
    /// The revision of the state that this shows; 0 before the first.
    pub revision: Revision,
    /// Where the workflow stands.
    pub status: Status,
    /// The first failure, as a sentence; empty while there is none (a merge cannot take a field away).
    pub reason: String,
    /// How many tasks it has.
    #[serde(deserialize_with = "counted")]
    pub total: u64,
    /// How many tasks are in each state; states without tasks are left out. Stored as a JSON text, since rows are flat.
    #[serde(with = "json_text")]
    pub counts: BTreeMap<String, u64>,
    /// How many requests of people were applied.
    pub control_seq: ControlSeq,
    /// The generation that is to be cancelled. Only ever written by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<Generation>,
    /// The generation whose running tasks are to stop because another failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Generation>,
    /// When it was submitted, by the submitter's clock.
    pub created_at: Timestamp,
    /// When this was written, by its writer's clock.
    pub updated_at: Timestamp,
}

impl Record for IndexRecord {
    const WHAT: &'static str = "index row";
    const SCHEMA: u32 = 1;
}

/// A value stored as its own JSON text.
mod json_text {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(value).map_err(S::Error::custom)?;
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}
