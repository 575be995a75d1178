//! The journal table: one partition a day of the writer's clock, the newest entry first.
//!
//! Invariants:
//! 1. An entry is written once and best: one try, of a few seconds at most, and a failure is a warning. No action waits longer for it, fails by it
//!    or looks at it.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::layout::Layout;
use super::row::fields_of;
use crate::env::Env;
use crate::record::JournalRecord;
use crate::store::{Expect, Kind, RowKey, Store, StoreError};

/// The longest that an action waits for its entry.
const NOTE_MAX: Duration = Duration::from_secs(5);

/// The partition of the day of `at`.
#[must_use]
pub fn journal_day(at: Timestamp) -> String {
    at.to_zoned_datetime(TimeZone::UTC)
        .strftime("%Y-%m-%d")
        .to_string()
}

/// Writes an entry, if it can be written now.
pub async fn note(env: &Env, store: &Store, layout: &Layout, record: &JournalRecord) {
    // Counted down, so that the order of keys is from the newest to the oldest; the rest tells entries of one moment apart.
    let left = i64::MAX - record.at.as_microsecond();
    let row = format!("{left:019}-{}", env.uuid().simple());
    let key = RowKey::new(journal_day(record.at), row).expect("digits and dashes");
    let fields = fields_of(record);
    let write = store
        .rows
        .write(layout.journal(), &key, &fields, &Expect::Absent);
    let outcome = tokio::select! {
        biased;
        written = write => written.map(drop),
        () = env.sleep(NOTE_MAX) => Err(StoreError::new(
            Kind::Ambiguous,
            format!("write row {}/{key}", layout.journal()),
            format!("no reply within {} s", NOTE_MAX.as_secs()),
        )),
    };
    if let Err(error) = outcome {
        tracing::warn!(action = record.action.word(), error = %error, "not_in_the_journal");
    }
}
