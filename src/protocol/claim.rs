//! Claims: the leases of workers on attempts, as rows (P19).
//!
//! Invariants:
//! 1. Whether a claim is live is told by the service's clock alone: the age of the row in the reply that shows it.
//! 2. Each write names what it expects; who meets something else reads again and judges anew ([`judge`]).
//! 3. A row that cannot be read holds nothing up for ever: who wants its place takes it for a claim of the same attempt ([`meet_claim`]),
//!    and all others pass it over ([`readable_claim`]). One of a newer version is left to who understands it.

use std::time::Duration;

use tracing::warn;
use uuid::Uuid;

use crate::definition::{TaskName, WorkflowId};
use crate::protocol::layout::Layout;
use crate::protocol::read::ReadError;
use crate::protocol::row::{fields_of, record_of};
use crate::record::{ClaimRecord, DecodeError, Token};
use crate::store::{Continuation, ETag, Expect, Kind, Page, Result, Row, Store};

/// How much older than the visibility time-out a live claim may be: its refresh comes before the message's.
pub const CLAIM_SLACK: Duration = Duration::from_secs(5);

/// A claim as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundClaim {
    /// What it says.
    pub record: ClaimRecord,
    /// Its version.
    pub etag: ETag,
    /// How long ago it was written, by the service's clock.
    pub age: Duration,
}

impl FoundClaim {
    /// How long it stays live if nobody refreshes it; none if it is not.
    #[must_use]
    pub fn live_for(&self) -> Option<Duration> {
        let life = Duration::from_secs(self.record.visibility_s.into()) + CLAIM_SLACK;
        let left = life.saturating_sub(self.age);
        (!self.record.freed && !left.is_zero()).then_some(left)
    }

    /// Whether a worker holds it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live_for().is_some()
    }
}

/// What a found claim means for a worker that wants to hold the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Judged {
    /// Nobody holds this attempt: an earlier one's claim, or none of use.
    Unclaimed,
    /// Its worker gave it back.
    Freed {
        /// Starts so far.
        starts: u32,
        /// Interruptions so far.
        interruptions: u32,
    },
    /// Its worker is gone.
    Abandoned {
        /// Starts so far.
        starts: u32,
        /// Interruptions so far.
        interruptions: u32,
    },
    /// Another execution holds it, for this long if nobody refreshes it.
    Held(Duration),
    /// A later attempt of the same run has it.
    Newer,
}

/// Judges what was found where `mine` is to be written. A claim of another run or of an earlier attempt stands in nobody's way.
pub fn judge(found: &FoundClaim, mine: &ClaimRecord) -> Judged {
    let theirs = &found.record;
    let (starts, interruptions) = (theirs.starts, theirs.interruptions);
    if theirs.run_id != mine.run_id || theirs.attempt_no < mine.attempt_no {
        return Judged::Unclaimed;
    }
    if theirs.attempt_no > mine.attempt_no {
        return Judged::Newer;
    }
    match found.live_for() {
        Some(left) => Judged::Held(left),
        None if theirs.freed => Judged::Freed {
            starts,
            interruptions,
        },
        None => Judged::Abandoned {
            starts,
            interruptions,
        },
    }
}

/// How long ago a row was written. Negative where the service's clock went back: as good as new.
fn age_of(row: &Row) -> Duration {
    let age = row.read_at.duration_since(row.changed_at);
    Duration::try_from(age).unwrap_or_default()
}

/// Understands a claim's row.
///
/// # Errors
/// [`ReadError::Decode`]
pub fn found_claim(row: Row) -> std::result::Result<FoundClaim, ReadError> {
    let age = age_of(&row);
    match record_of(&row.fields) {
        Ok(record) => Ok(FoundClaim {
            record,
            etag: row.etag,
            age,
        }),
        Err(source) => Err(ReadError::Decode {
            place: format!("claim {}", row.key),
            source,
        }),
    }
}

/// Understands a claim's row, for who only looks: one that cannot be read claims nothing, which is warned of.
#[must_use]
pub fn readable_claim(row: Row) -> Option<FoundClaim> {
    found_claim(row)
        .inspect_err(|error| warn!(%error, "claim_passed_over"))
        .ok()
}

/// Reads the claim on a task; none where there is none, nor a table of them.
///
/// # Errors
/// [`ReadError`]
pub async fn read_claim(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
    task: &TaskName,
) -> std::result::Result<Option<FoundClaim>, ReadError> {
    let row = read_row(store, layout, id, task).await?;
    row.map(found_claim).transpose()
}

/// Reads the claim that stands where `mine` is to be written. A damaged one is somebody's, nobody knows whose: it is shown as a claim
/// of the same attempt, started once, that is kept up as `mine` would be.
///
/// # Errors
/// [`ReadError::Decode`]: a newer version wrote it; only that can tell whether it is live.
pub async fn meet_claim(
    store: &Store,
    layout: &Layout,
    mine: &ClaimRecord,
) -> std::result::Result<Option<FoundClaim>, ReadError> {
    let Some(row) = read_row(store, layout, &mine.workflow_id, &mine.task).await? else {
        return Ok(None);
    };
    let (etag, age) = (row.etag.clone(), age_of(&row));
    match found_claim(row) {
        Err(ReadError::Decode {
            place,
            source: source @ DecodeError::Nonsense { .. },
        }) => {
            let record = ClaimRecord {
                token: Token::new(Uuid::nil()),
                worker: String::new(),
                host: String::new(),
                starts: 1,
                interruptions: 0,
                freed: false,
                ..mine.clone()
            };
            let found = FoundClaim { record, etag, age };
            let live_for_s = found.live_for().unwrap_or_default().as_secs();
            warn!(place, error = %source, live_for_s, "claim_damaged");
            Ok(Some(found))
        }
        found => found.map(Some),
    }
}

async fn read_row(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
    task: &TaskName,
) -> Result<Option<Row>> {
    let key = layout.claim(id, task);
    match store.rows.get(layout.claims(), &key).await {
        Err(error) if error.kind == Kind::NoResource => Ok(None),
        row => row,
    }
}

/// Reads the rows of all claims on tasks of one workflow, a page at a time, for [`found_claim`].
///
/// # Errors
/// As [`crate::store::Rows::query`].
pub async fn list_claims(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
    after: Option<&Continuation>,
) -> Result<Page<Row>> {
    store.rows.query(layout.claims(), id.as_str(), after).await
}

/// Inserts, takes, refreshes or frees a claim. A missing table is made.
///
/// # Errors
/// [`Kind::Conflict`] and [`Kind::Ambiguous`]: read again and look for the own token.
pub async fn write_claim(
    store: &Store,
    layout: &Layout,
    record: &ClaimRecord,
    expect: &Expect,
) -> Result<ETag> {
    let key = layout.claim(&record.workflow_id, &record.task);
    let fields = fields_of(record);
    match store
        .rows
        .write(layout.claims(), &key, &fields, expect)
        .await
    {
        Err(error) if error.kind == Kind::NoResource => {
            store.rows.create_table(layout.claims()).await?;
            store
                .rows
                .write(layout.claims(), &key, &fields, expect)
                .await
        }
        other => other,
    }
}

/// Removes the version `etag` of a claim. One that is gone, or another's by now, is as good as removed.
///
/// # Errors
/// What kept the request from being answered.
pub async fn delete_claim(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
    task: &TaskName,
    etag: &ETag,
) -> Result<()> {
    let key = layout.claim(id, task);
    match store.rows.delete(layout.claims(), &key, etag).await {
        Err(error) => match error.kind {
            Kind::NotFound | Kind::NoResource | Kind::Conflict => Ok(()),
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    }
}
