//! The stored forms: bytes in, bytes out. Each is JSON with a schema number first, and old ones stay readable (golden files).
//!
//! Invariants:
//! 1. A newer schema is told apart from nonsense ([`DecodeError`]): it is left for who understands it, never half-read.
//! 2. Unknown keys are refused: a record that says more than this code knows has a newer schema. Rows pass them over: they are
//!    open to foreign tools.
//! 3. A counter beyond what counting reaches is nonsense: nothing that was read makes a count overflow or stand still.
//! 4. Queue messages are base64 of JSON, so that no byte of a user's text can break the service's XML.

mod claim;
mod completion;
mod control;
mod definition;
mod id;
mod index;
mod journal;
mod key;
mod ledger;
mod message;
mod packed;
mod runtime;
mod sentinel;
mod tombstone;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use claim::ClaimRecord;
pub use completion::{CompletionRecord, CompletionResult};
pub use control::{ControlAction, ControlRecord, ControlResult};
pub use definition::DefinitionRecord;
pub use id::{COUNTER_MAX, ControlSeq, Epoch, Revision, RunId, Stamp, Token};
pub use index::IndexRecord;
pub use journal::{JournalAction, JournalRecord, JournalResult};
pub use key::KeyRecord;
pub use ledger::{Ledger, Limits, Side};
pub use message::{Input, InputOutput, Inputs, TaskBody, TaskMessage, TaskSpec};
pub use packed::{AttemptRow, DetailsRecord, Packed, SnapshotRecord};
pub use runtime::{RuntimeRecord, TaskDetail};
pub use sentinel::SentinelRecord;
pub use tombstone::{StateRecord, TombstoneRecord};

/// Bytes that are not a record this code can read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A later version of the software wrote it.
    #[error("has schema {found}, newer than {known}, the newest this version reads")]
    Newer {
        /// The schema number found.
        found: u32,
        /// The newest one known.
        known: u32,
    },
    /// It is damaged or foreign.
    #[error("is no {what}: {why}")]
    Nonsense {
        /// What was expected.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// A stored form.
pub trait Record: Serialize + DeserializeOwned {
    /// What it is called in messages.
    const WHAT: &'static str;
    /// The newest schema number this code reads and the one it writes.
    const SCHEMA: u32;
}

#[derive(Deserialize)]
struct Probe {
    schema: u32,
}

fn nonsense<T: Record>(why: &str) -> DecodeError {
    DecodeError::Nonsense {
        what: T::WHAT,
        why: why.to_owned(),
    }
}

/// Reads a record from JSON.
///
/// # Errors
/// [`DecodeError::Newer`]: leave it alone. [`DecodeError::Nonsense`]: set it aside and report it.
pub fn decode<T: Record>(json: &[u8]) -> Result<T, DecodeError> {
    match serde_json::from_slice::<Probe>(json) {
        Ok(probe) if probe.schema > T::SCHEMA => Err(DecodeError::Newer {
            found: probe.schema,
            known: T::SCHEMA,
        }),
        Ok(probe) if probe.schema == 0 => Err(nonsense::<T>("schema 0 was never used")),
        Ok(_) => serde_json::from_slice(json).map_err(|error| nonsense::<T>(&error.to_string())),
        Err(error) => Err(nonsense::<T>(&error.to_string())),
    }
}

/// Writes a record as JSON.
///
/// # Panics
/// Never: records hold nothing that JSON cannot say.
#[must_use]
pub fn encode<T: Record>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("records are plain data with text keys")
}

/// Reads a record from the text of a queue message.
///
/// # Errors
/// As [`decode`].
pub fn decode_message<T: Record>(text: &str) -> Result<T, DecodeError> {
    let json = STANDARD
        .decode(text.trim())
        .map_err(|error| nonsense::<T>(&error.to_string()))?;
    decode(&json)
}

/// Writes a record as the text of a queue message.
#[must_use]
pub fn encode_message<T: Record>(record: &T) -> String {
    STANDARD.encode(encode(record))
}
