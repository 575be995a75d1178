//! Rows of named fields.
//!
//! Invariants:
//! 1. A stored row keeps every limit of the service, also after a merge.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;

use async_trait::async_trait;

use super::{Attempt, ServiceClock, lock};
use crate::env::Timestamp;
use crate::store::{
    Continuation, ETag, Expect, FIELD_UNITS_MAX, Fields, Kind, Page, Result, Row, RowKey, Rows,
    Table, Value,
};

/// Rows on one page of a query: far fewer than the service's 1,000, so that callers meet page ends.
const PAGE_ROWS: usize = 100;
/// Most fields of one row.
const FIELDS_MAX: usize = 252;
/// Largest row in bytes, names and texts counted two bytes a UTF-16 unit.
const ROW_BYTES_MAX: usize = 1024 * 1024;
/// Longest field name.
const FIELD_NAME_MAX: usize = 255;
/// Fields that the service keeps for itself.
const RESERVED: [&str; 3] = ["PartitionKey", "RowKey", "Timestamp"];

#[derive(Debug)]
struct Stored {
    fields: Fields,
    etag: ETag,
    changed_at: Timestamp,
}

impl Stored {
    fn row(&self, key: RowKey, read_at: Timestamp) -> Row {
        Row {
            key,
            etag: self.etag.clone(),
            fields: self.fields.clone(),
            changed_at: self.changed_at,
            read_at,
        }
    }
}

/// Rows by partition, then by place in it.
type Partitions = BTreeMap<String, BTreeMap<String, Stored>>;

#[derive(Debug, Default)]
struct State {
    tables: BTreeMap<Table, Partitions>,
    versions: u64,
}

impl State {
    fn table(&mut self, attempt: Attempt<'_>, table: &Table) -> Result<&mut Partitions> {
        self.tables
            .get_mut(table)
            .ok_or_else(|| attempt.fail(Kind::NoResource, "no such table"))
    }
}

#[derive(Debug)]
pub(super) struct MemoryRows {
    clock: ServiceClock,
    state: Mutex<State>,
}

impl MemoryRows {
    pub(super) fn new(clock: ServiceClock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }
}

fn check_fields(attempt: Attempt<'_>, fields: &Fields) -> Result<()> {
    let invalid = |detail: String| Err(attempt.fail(Kind::Invalid, detail));
    for (name, value) in fields {
        let plain = name.len() <= FIELD_NAME_MAX
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plain || RESERVED.contains(&name.as_str()) {
            return invalid(format!("`{name}` cannot name a field"));
        }
        if matches!(value, Value::Text(text) if text.encode_utf16().count() > FIELD_UNITS_MAX) {
            return invalid(format!("`{name}` has more than 32 Ki UTF-16 units"));
        }
    }
    Ok(())
}

fn check_row(attempt: Attempt<'_>, fields: &Fields) -> Result<()> {
    let invalid = |detail: &str| Err(attempt.fail(Kind::Invalid, detail));
    if fields.len() > FIELDS_MAX {
        return invalid("a row has at most 252 fields");
    }
    let value_bytes = |value: &Value| match value {
        Value::Text(text) => 2 * text.encode_utf16().count(),
        Value::Int(_) => 8,
        Value::Bool(_) => 1,
    };
    let bytes: usize = fields
        .iter()
        .map(|(name, value)| 2 * name.len() + value_bytes(value))
        .sum();
    if bytes > ROW_BYTES_MAX {
        return invalid("a row has at most 1 MiB");
    }
    Ok(())
}

#[async_trait]
impl Rows for MemoryRows {
    async fn create_table(&self, table: &Table) -> Result<()> {
        lock(&self.state).tables.entry(table.clone()).or_default();
        Ok(())
    }

    async fn get(&self, table: &Table, key: &RowKey) -> Result<Option<Row>> {
        let attempt = Attempt::new("get row", key);
        let read_at = self.clock.wall();
        let mut state = lock(&self.state);
        let partition = state.table(attempt, table)?.get(key.partition());
        let stored = partition.and_then(|rows| rows.get(key.row()));
        Ok(stored.map(|stored| stored.row(key.clone(), read_at)))
    }

    async fn write(
        &self,
        table: &Table,
        key: &RowKey,
        fields: &Fields,
        expect: &Expect,
    ) -> Result<ETag> {
        let attempt = Attempt::new("write row", key);
        let conflict = |detail: &str| Err(attempt.fail(Kind::Conflict, detail));
        check_fields(attempt, fields)?;
        let changed_at = self.clock.wall();
        let mut state = lock(&self.state);
        let version = state.versions + 1;
        let rows = state
            .table(attempt, table)?
            .entry(key.partition().to_owned())
            .or_default();
        let etag = ETag::new(format!("W/\"0x{version:016X}\""));
        match (rows.get_mut(key.row()), expect) {
            (None, Expect::Absent) => {
                check_row(attempt, fields)?;
                let stored = Stored {
                    fields: fields.clone(),
                    etag: etag.clone(),
                    changed_at,
                };
                rows.insert(key.row().to_owned(), stored);
            }
            (Some(stored), Expect::Version(expected)) if stored.etag == *expected => {
                let mut merged = stored.fields.clone();
                merged.extend(fields.clone());
                check_row(attempt, &merged)?;
                stored.fields = merged;
                stored.etag = etag.clone();
                stored.changed_at = changed_at;
            }
            (Some(_), Expect::Absent) => return conflict("the row exists"),
            (Some(_), Expect::Version(_)) => return conflict("the row is of another version"),
            (None, Expect::Version(_)) => return conflict("the row is missing"),
        }
        state.versions = version;
        Ok(etag)
    }

    async fn delete(&self, table: &Table, key: &RowKey, etag: &ETag) -> Result<()> {
        let attempt = Attempt::new("delete row", key);
        let missing = || attempt.fail(Kind::NotFound, "no such row");
        let mut state = lock(&self.state);
        let partitions = state.table(attempt, table)?;
        let rows = partitions.get_mut(key.partition()).ok_or_else(missing)?;
        let stored = rows.get(key.row()).ok_or_else(missing)?;
        if stored.etag != *etag {
            return Err(attempt.fail(Kind::Conflict, "the row is of another version"));
        }
        rows.remove(key.row());
        if rows.is_empty() {
            partitions.remove(key.partition());
        }
        Ok(())
    }

    async fn query(
        &self,
        table: &Table,
        partition: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Row>> {
        let attempt = Attempt::new("query table", table);
        let invalid =
            |error: crate::store::NameError| attempt.fail(Kind::Invalid, error.to_string());
        let read_at = self.clock.wall();
        let start = after.map_or(Bound::Unbounded, |last| Bound::Excluded(last.0.as_str()));
        let mut state = lock(&self.state);
        let Some(rows) = state.table(attempt, table)?.get(partition) else {
            return Ok(Page {
                items: Vec::new(),
                next: None,
            });
        };
        let mut rest = rows.range::<str, _>((start, Bound::Unbounded));
        let items = rest
            .by_ref()
            .take(PAGE_ROWS)
            .map(|(row, stored)| {
                let key = RowKey::new(partition, row.as_str()).map_err(invalid)?;
                Ok(stored.row(key, read_at))
            })
            .collect::<Result<Vec<Row>>>()?;
        let more = rest.next().is_some();
        let next = items.last().filter(|_| more);
        let next = next.map(|row| Continuation(row.key.row().to_owned()));
        Ok(Page { items, next })
    }
}
