//! Reading what is stored of a workflow, for everybody who only looks.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};

use crate::definition::WorkflowId;
use crate::protocol::layout::Layout;
use crate::protocol::row::record_of;
use crate::record::{
    DecodeError, DefinitionRecord, DetailsRecord, IndexRecord, Ledger, Limits, Record,
    RuntimeRecord, SnapshotRecord, StateRecord, decode,
};
use crate::store::{Blob, BlobPath, ETag, Row, Store, StoreError};

/// Why something stored could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store did not give it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It was given but cannot be understood.
    #[error("`{place}` {source}")]
    Decode {
        /// Where it is.
        place: String,
        /// What is wrong with it.
        source: DecodeError,
    },
}

impl ReadError {
    /// Whether something stored can be understood by nobody. What a newer version wrote is for that version to judge.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::Decode { source, .. } => matches!(source, DecodeError::Nonsense { .. }),
            Self::Store(_) => false,
        }
    }
}

/// A record and the version it was read in.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored<T> {
    /// The record.
    pub record: T,
    /// Its version.
    pub etag: ETag,
}

/// Reads the definition blob; none where the workflow was never submitted.
///
/// # Errors
/// [`ReadError`]
pub async fn read_definition(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
) -> Result<Option<Stored<DefinitionRecord>>, ReadError> {
    read_blob(store, &layout.definition(id)).await
}

/// Reads what the runtime blob holds, with all that is stored beside it; none where the workflow was not activated yet.
///
/// # Errors
/// [`ReadError`]
pub async fn read_state(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
) -> Result<Option<Stored<StateRecord>>, ReadError> {
    read_state_again(store, layout, id, &Kept::default()).await
}

/// What is stored beside a state, for who looks at it again and again: none of it ever changes. What the last look needed is kept.
#[derive(Debug, Default)]
pub struct Kept(Mutex<BTreeMap<BlobPath, Blob>>);

impl Kept {
    pub(super) fn blobs(&self) -> MutexGuard<'_, BTreeMap<BlobPath, Blob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As [`read_state`], asking only for what is not kept from an earlier look.
///
/// # Errors
/// [`ReadError`]
pub async fn read_state_again(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
    kept: &Kept,
) -> Result<Option<Stored<StateRecord>>, ReadError> {
    let head = &layout.runtime(id);
    let needed = &Kept::default();
    let get = |path: BlobPath| {
        let get = async move {
            let known = kept.blobs().get(&path).cloned();
            let found = match known {
                Some(blob) => Some(blob),
                None => store.blobs.get(&path).await?,
            };
            if let Some(blob) = found.as_ref().filter(|_| path != *head) {
                needed.blobs().insert(path, blob.clone());
            }
            Ok(found)
        };
        get.boxed()
    };
    let found = read_whole(layout, id, Limits::default(), &get).await?;
    let needed = std::mem::take(&mut *needed.blobs());
    *kept.blobs() = needed;
    Ok(found.map(|(stored, _ledger)| stored))
}

/// Reads what the runtime blob itself holds, which says all of a workflow but of its tasks; none where it was not activated yet.
///
/// # Errors
/// [`ReadError`]
pub async fn read_head(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
) -> Result<Option<Stored<StateRecord>>, ReadError> {
    let path = layout.runtime(id);
    let Some(blob) = store.blobs.get(&path).await? else {
        return Ok(None);
    };
    understand_state(&path, &blob).map(|record| {
        Some(Stored {
            record,
            etag: blob.etag,
        })
    })
}

/// A way to get a blob, as patient as its user is.
pub(super) type Get<'a> =
    dyn Fn(BlobPath) -> BoxFuture<'a, Result<Option<Blob>, StoreError>> + Sync + 'a;

/// As [`read_state`], by `get`; with what its writer must know of how it is laid out.
pub(super) async fn read_whole(
    layout: &Layout,
    id: &WorkflowId,
    limits: Limits,
    get: &Get<'_>,
) -> Result<Option<(Stored<StateRecord>, Ledger)>, ReadError> {
    let path = layout.runtime(id);
    let mut before = None;
    loop {
        let Some(blob) = get(path.clone()).await? else {
            return Ok(None);
        };
        let etag = blob.etag.clone();
        let record = match understand_state(&path, &blob)? {
            StateRecord::Live(record) => record,
            tombstone @ StateRecord::Purged(_) => {
                let stored = Stored {
                    record: tombstone,
                    etag,
                };
                return Ok(Some((stored, Ledger::new(limits))));
            }
        };
        match complete(layout, record, limits, get).await {
            Ok((record, ledger)) => {
                let record = StateRecord::Live(record);
                return Ok(Some((Stored { record, etag }, ledger)));
            }
            // It may have been purged meanwhile, or have another snapshot now.
            Err(Incomplete::Gone { .. }) if before.as_ref() != Some(&etag) => before = Some(etag),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Side blobs asked for at once.
const SIDES_AT_ONCE: usize = 16;

/// Why what is stored beside a runtime blob could not be read.
enum Incomplete {
    /// It is not there.
    Gone {
        path: BlobPath,
        what: &'static str,
    },
    Other(ReadError),
}

impl From<StoreError> for Incomplete {
    fn from(error: StoreError) -> Self {
        Self::Other(error.into())
    }
}

impl From<ReadError> for Incomplete {
    fn from(error: ReadError) -> Self {
        Self::Other(error)
    }
}

impl From<Incomplete> for ReadError {
    fn from(incomplete: Incomplete) -> Self {
        match incomplete {
            Incomplete::Other(error) => error,
            Incomplete::Gone { path, what } => Self::Decode {
                place: path.to_string(),
                source: DecodeError::Nonsense {
                    what,
                    why: "it is gone, though the state names it".to_owned(),
                },
            },
        }
    }
}

/// Adds to a runtime blob what is stored beside it.
async fn complete(
    layout: &Layout,
    record: RuntimeRecord,
    limits: Limits,
    get: &Get<'_>,
) -> Result<(RuntimeRecord, Ledger), Incomplete> {
    let (id, run) = (record.workflow_id.clone(), record.run_id);
    let names = record.packed.as_ref();
    let mut snapshot: Option<SnapshotRecord> = None;
    if let Some(stamp) = names.and_then(|packed| packed.snapshot) {
        let path = layout.snapshot(&id, run, stamp);
        let whose = |snapshot: &SnapshotRecord| snapshot.workflow_id.clone();
        snapshot = Some(side(path, &id, whose, get).await?);
    }
    let before = snapshot.iter().flat_map(|snapshot| &snapshot.details);
    let after = names.into_iter().flat_map(|packed| &packed.details);
    let stamps: Vec<_> = before.chain(after).copied().collect();
    let whose = |details: &DetailsRecord| details.workflow_id.clone();
    let gets = stamps
        .into_iter()
        .map(|stamp| side(layout.details(&id, run, stamp), &id, whose, get));
    let details = stream::iter(gets).buffered(SIDES_AT_ONCE);
    let details = details.try_collect().await?;
    Ledger::read(limits, record, snapshot, details).map_err(|source| {
        let place = layout.runtime(&id).to_string();
        ReadError::Decode { place, source }.into()
    })
}

/// Reads what a state of the workflow `id` names, which must be of the same workflow: of the run it is by its place.
async fn side<T: Record>(
    path: BlobPath,
    id: &WorkflowId,
    whose: impl Fn(&T) -> WorkflowId,
    get: &Get<'_>,
) -> Result<T, Incomplete> {
    let Some(blob) = get(path.clone()).await? else {
        let what = T::WHAT;
        return Err(Incomplete::Gone { path, what });
    };
    let record: T = understand(&path, &blob)?;
    let owner = whose(&record);
    if owner != *id {
        let foreign = ReadError::Decode {
            place: path.to_string(),
            source: DecodeError::Nonsense {
                what: T::WHAT,
                why: format!("it is of the workflow `{owner}`, not of `{id}`"),
            },
        };
        return Err(foreign.into());
    }
    Ok(record)
}

/// Adds to a runtime blob that was read what is stored beside it.
///
/// # Errors
/// [`ReadError`]
pub async fn read_sides(
    store: &Store,
    layout: &Layout,
    record: RuntimeRecord,
) -> Result<RuntimeRecord, ReadError> {
    let get = |path: BlobPath| async move { store.blobs.get(&path).await }.boxed();
    let (record, _ledger) = complete(layout, record, Limits::default(), &get).await?;
    Ok(record)
}

/// Reads the state of a workflow; none where it was not activated yet, and none where it was purged: a tombstone holds no state.
///
/// # Errors
/// [`ReadError`]
pub async fn read_runtime(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
) -> Result<Option<Stored<RuntimeRecord>>, ReadError> {
    let Some(Stored { record, etag }) = read_state(store, layout, id).await? else {
        return Ok(None);
    };
    Ok(record.live().map(|record| Stored { record, etag }))
}

/// Understands a runtime blob.
///
/// # Errors
/// [`ReadError::Decode`]
pub fn understand_state(path: &BlobPath, blob: &Blob) -> Result<StateRecord, ReadError> {
    StateRecord::decode(&blob.body).map_err(|source| ReadError::Decode {
        place: path.to_string(),
        source,
    })
}

/// Reads any record that is a blob of its own.
///
/// # Errors
/// [`ReadError`]
pub async fn read_blob<T: Record>(
    store: &Store,
    path: &BlobPath,
) -> Result<Option<Stored<T>>, ReadError> {
    let Some(blob) = store.blobs.get(path).await? else {
        return Ok(None);
    };
    understand(path, &blob).map(|record| {
        Some(Stored {
            record,
            etag: blob.etag,
        })
    })
}

/// Understands a blob that is a record of its own.
///
/// # Errors
/// [`ReadError::Decode`]
pub fn understand<T: Record>(path: &BlobPath, blob: &Blob) -> Result<T, ReadError> {
    decode(&blob.body).map_err(|source| ReadError::Decode {
        place: path.to_string(),
        source,
    })
}

/// An index row as found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundRow {
    /// The row, with its key and version.
    pub row: Row,
    /// What it says.
    pub record: IndexRecord,
}

impl FoundRow {
    /// Whether it is among the rows of unfinished workflows.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.row.key.partition() == Layout::OPEN
    }
}

/// Reads the index row; none where there is none. The open row is looked for again after the final one, since a retry moves
/// the row the other way.
///
/// # Errors
/// [`ReadError`]
pub async fn read_row(
    store: &Store,
    layout: &Layout,
    id: &WorkflowId,
) -> Result<Option<FoundRow>, ReadError> {
    for key in [
        layout.open_row(id),
        layout.done_row(id),
        layout.open_row(id),
    ] {
        if let Some(row) = store.rows.get(layout.index(), &key).await? {
            return found(row).map(Some);
        }
    }
    Ok(None)
}

/// Understands an index row.
///
/// # Errors
/// [`ReadError::Decode`]
pub fn found(row: Row) -> Result<FoundRow, ReadError> {
    match record_of(&row.fields) {
        Ok(record) => Ok(FoundRow { row, record }),
        Err(source) => Err(ReadError::Decode {
            place: format!("index row {}", row.key),
            source,
        }),
    }
}

/// Parts the store's errors, which patience may wait out, from the rest.
///
/// # Errors
/// The store's.
pub fn store_errors<T>(result: Result<T, ReadError>) -> Result<Result<T, ReadError>, StoreError> {
    match result {
        Err(ReadError::Store(error)) => Err(error),
        other => Ok(other),
    }
}
