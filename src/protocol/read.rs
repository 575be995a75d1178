//! Reading what is stored of a workflow, for everybody who only looks.

use crate::definition::WorkflowId;
use crate::protocol::layout::Layout;
use crate::protocol::row::record_of;
use crate::record::{
    DecodeError, DefinitionRecord, IndexRecord, Record, RuntimeRecord, StateRecord, decode,
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

/// Reads what the runtime blob holds; none where the workflow was not activated yet.
///
/// # Errors
/// [`ReadError`]
pub async fn read_state(
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
