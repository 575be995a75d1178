//! The sentinel blob: who leads, in which epoch, and how it fares. Its lease is the leadership.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Record;
use super::id::{Epoch, counted};

/// The sentinel, schema 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentinelRecord {
    /// 1.
    pub schema: u32,
    /// The number of the leader; 0 while there was none.
    pub epoch: Epoch,
    /// Its name, as `host/pid`; none while there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Its own random id: two processes of one name are told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_id: Option<Uuid>,
    /// The version of its software.
    pub version: String,
    /// When it became leader, by its own clock; for people.
    pub acquired_at: Timestamp,
    /// How long it had led when this was written, in seconds, by its own clock.
    #[serde(deserialize_with = "counted")]
    pub led_for_s: u64,
    /// Its counters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statistics: BTreeMap<String, u64>,
}

impl Record for SentinelRecord {
    const WHAT: &'static str = "coordinator sentinel";
    const SCHEMA: u32 = 1;
}
