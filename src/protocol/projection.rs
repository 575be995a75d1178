//! The index row as its one regular writer sees it (P16): an ordered projection of the state.
//!
//! Invariants:
//! 1. Every write names the version it replaces and carries epoch and revision of the state it shows.
//! 2. A row is in the open partition before its state leaves a final one, and leaves it only after the state is final.
//! 3. `cancel_requested` and `stopping` are carried along when a row moves and never cleared: they name their generation. The one is
//!    never made up, the other is shown from the state.

use tokio_util::sync::CancellationToken;

use super::layout::Layout;
use super::patience::patiently;
use super::read::{FoundRow, ReadError, found, read_row, store_errors};
use super::row::fields_of;
use crate::definition::WorkflowId;
use crate::engine::Generation;
use crate::env::{Env, Timestamp};
use crate::record::{Epoch, IndexRecord, Revision, RunId};
use crate::store::{ETag, Expect, Fields, Kind, RowKey, Store, StoreError, Value};

/// The fields that others write by themselves; they only ever rise.
const FLAGS: [&str; 2] = ["cancel_requested", "stopping"];
/// How often a write that met another version is tried.
const TRIES_MAX: u32 = 16;

/// What became of a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Shown {
    /// The row shows the record.
    Yes,
    /// A higher epoch stands in the row.
    Met(Epoch),
}

/// The index row of one workflow.
#[derive(Debug)]
pub struct Projection {
    env: Env,
    store: Store,
    layout: Layout,
    id: WorkflowId,
    known: Option<Known>,
    cancel_requested: Option<Generation>,
}

/// The open row as it was read or written last.
#[derive(Debug)]
struct Known {
    version: ETag,
    flags: Fields,
}

/// What is at a place before it is written.
enum Before {
    /// Not known: read it.
    Unknown,
    /// Nothing, most likely.
    Nothing,
    /// This row, most likely.
    Row(Known),
}

impl Projection {
    /// A row of which nothing is known yet.
    #[must_use]
    pub const fn new(env: Env, store: Store, layout: Layout, id: WorkflowId) -> Self {
        Self {
            env,
            store,
            layout,
            id,
            known: None,
            cancel_requested: None,
        }
    }

    /// The generation whose cancel the row asked for when it was read last.
    #[must_use]
    pub const fn cancel_requested(&self) -> Option<Generation> {
        self.cancel_requested
    }

    /// Forgets what is known of the row, so that the next write reads it.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// Reads the row. If it is the open one of the run `run`, no later leader's, the next write needs no look at it.
    ///
    /// # Errors
    /// [`ReadError`]
    pub async fn read(
        &mut self,
        run: RunId,
        epoch: Epoch,
        hurry: &CancellationToken,
    ) -> Result<Option<IndexRecord>, ReadError> {
        let read = || async { store_errors(read_row(&self.store, &self.layout, &self.id).await) };
        let Some(found) = patiently(&self.env, hurry, read).await?? else {
            return Ok(None);
        };
        if found.is_open() && found.record.run_id == run && found.record.epoch <= epoch {
            self.cancel_requested = found.record.cancel_requested;
            self.known = Some(Known {
                flags: flags_of(&found.row.fields),
                version: found.row.etag,
            });
        }
        Ok(Some(found.record))
    }

    /// Shows `record` in the open row; makes the row where there is none.
    ///
    /// # Errors
    /// [`ReadError`]; try again later.
    pub async fn show(
        &mut self,
        record: &IndexRecord,
        hurry: &CancellationToken,
    ) -> Result<Shown, ReadError> {
        let key = self.layout.open_row(&self.id);
        let mut fields = fields_of(record);
        if self.known.is_none() {
            // A retry moves the row back; the flags of the final row go with it.
            if let Some(done) = self.get(&self.layout.done_row(&self.id), hurry).await? {
                if done.record.epoch > record.epoch {
                    return Ok(Shown::Met(done.record.epoch));
                }
                carry_flags(&done, record, &mut fields);
            }
        }
        let before = self.known.take().map_or(Before::Unknown, Before::Row);
        let (shown, known) = self.put(&key, record, &fields, before, hurry).await?;
        self.known = known;
        Ok(shown)
    }

    /// Moves the row of a final state to the final partition.
    ///
    /// # Errors
    /// [`ReadError`]; try again: what was done is found done.
    pub async fn finish(
        &mut self,
        record: &IndexRecord,
        hurry: &CancellationToken,
    ) -> Result<Shown, ReadError> {
        let (open_key, done_key) = (
            self.layout.open_row(&self.id),
            self.layout.done_row(&self.id),
        );
        for _ in 0..TRIES_MAX {
            let mut fields = fields_of(record);
            let version = if let Some(known) = self.known.take() {
                // If it has changed since, it is not removed, and looked at then.
                carry(&known.flags, &mut fields);
                Some(known.version)
            } else if let Some(open) = self.get(&open_key, hurry).await? {
                if open.record.epoch > record.epoch {
                    return Ok(Shown::Met(open.record.epoch));
                }
                carry_flags(&open, record, &mut fields);
                Some(open.row.etag)
            } else {
                None
            };
            let put = self.put(&done_key, record, &fields, Before::Nothing, hurry);
            match put.await? {
                (Shown::Yes, _) => {}
                (met @ Shown::Met(_), _) => return Ok(met),
            }
            let Some(version) = version else {
                return Ok(Shown::Yes);
            };
            if self.delete(&open_key, &version, hurry).await? {
                return Ok(Shown::Yes);
            }
        }
        Err(self.gave_up(&open_key).into())
    }

    /// Shows the row as open again and removes the final one; before the state leaves its final one.
    ///
    /// # Errors
    /// [`ReadError`]
    pub async fn reopen(
        &mut self,
        record: &IndexRecord,
        hurry: &CancellationToken,
    ) -> Result<Shown, ReadError> {
        self.forget();
        match self.show(record, hurry).await? {
            Shown::Yes => {}
            met @ Shown::Met(_) => return Ok(met),
        }
        let done_key = self.layout.done_row(&self.id);
        while let Some(done) = self.get(&done_key, hurry).await? {
            if done.record.epoch > record.epoch {
                return Ok(Shown::Met(done.record.epoch));
            }
            if self.delete(&done_key, &done.row.etag, hurry).await? {
                break;
            }
        }
        Ok(Shown::Yes)
    }

    /// Removes the rows of the run `run`, the open one last, since a purge is found by it.
    ///
    /// # Errors
    /// [`ReadError`]; try again: what was done is found done.
    pub async fn remove(&mut self, run: RunId, hurry: &CancellationToken) -> Result<(), ReadError> {
        self.forget();
        self.cancel_requested = None;
        for key in [
            self.layout.done_row(&self.id),
            self.layout.open_row(&self.id),
        ] {
            while let Some(found) = self.get(&key, hurry).await? {
                if found.record.run_id != run || self.delete(&key, &found.row.etag, hurry).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sets `cancel_requested` in the open row of the run `run`, for a cancel that came by message. No row is made for it.
    ///
    /// # Errors
    /// [`ReadError`]
    pub async fn request_cancel(
        &mut self,
        run: RunId,
        epoch: Epoch,
        generation: Generation,
        hurry: &CancellationToken,
    ) -> Result<Shown, ReadError> {
        let key = self.layout.open_row(&self.id);
        let fields = Fields::from([(
            "cancel_requested".to_owned(),
            Value::Int(generation.number().into()),
        )]);
        for _ in 0..TRIES_MAX {
            self.known = None;
            let Some(row) = self.get(&key, hurry).await? else {
                return Ok(Shown::Yes);
            };
            if row.record.epoch > epoch {
                return Ok(Shown::Met(row.record.epoch));
            }
            if row.record.run_id != run || row.record.cancel_requested == Some(generation) {
                return Ok(Shown::Yes);
            }
            let mut flags = flags_of(&row.row.fields);
            flags.extend(fields.clone());
            let expect = Expect::Version(row.row.etag);
            let write = || {
                self.store
                    .rows
                    .write(self.layout.index(), &key, &fields, &expect)
            };
            match patiently(&self.env, hurry, write).await {
                Ok(version) => {
                    self.known = Some(Known { version, flags });
                    return Ok(Shown::Yes);
                }
                Err(error) if matches!(error.kind, Kind::Conflict | Kind::Ambiguous) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.gave_up(&key).into())
    }

    /// Inserts or merges the row at `key` and returns it as it is then.
    async fn put(
        &mut self,
        key: &RowKey,
        record: &IndexRecord,
        fields: &Fields,
        mut before: Before,
        hurry: &CancellationToken,
    ) -> Result<(Shown, Option<Known>), ReadError> {
        let mut is_unknown = false;
        for _ in 0..TRIES_MAX {
            let mut fields = fields.clone();
            let mut flags = Fields::new();
            let expect = match std::mem::replace(&mut before, Before::Unknown) {
                Before::Row(known) => {
                    flags = known.flags;
                    Expect::Version(known.version)
                }
                Before::Nothing => Expect::Absent,
                Before::Unknown => match self.get(key, hurry).await? {
                    None => Expect::Absent,
                    Some(row) if row.record.epoch > record.epoch => {
                        return Ok((Shown::Met(row.record.epoch), None));
                    }
                    Some(row) if row.record.run_id == record.run_id => {
                        self.cancel_requested =
                            row.record.cancel_requested.or(self.cancel_requested);
                        flags = flags_of(&row.row.fields);
                        let version = row.row.etag;
                        leave_higher_flags(&flags, &mut fields);
                        // An earlier try of the same record may have carried fewer flags.
                        let has_all = flags_of(&fields).is_empty();
                        if is_unknown && has_all && stamp(&row.record) == stamp(record) {
                            return Ok((Shown::Yes, Some(Known { version, flags })));
                        }
                        Expect::Version(version)
                    }
                    // A row of an earlier life of the id: its flags must not reach this one, so it is not merged into.
                    Some(row) => {
                        self.delete(key, &row.row.etag, hurry).await?;
                        continue;
                    }
                },
            };
            let write = || {
                self.store
                    .rows
                    .write(self.layout.index(), key, &fields, &expect)
            };
            match patiently(&self.env, hurry, write).await {
                Ok(version) => {
                    flags.extend(flags_of(&fields));
                    return Ok((Shown::Yes, Some(Known { version, flags })));
                }
                // After a lost reply the row is read, which tells whether it was written (P10).
                Err(error) if error.kind == Kind::Ambiguous => is_unknown = true,
                Err(error) if error.kind == Kind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.gave_up(key).into())
    }

    /// Removes the version `etag` of the row at `key`; tells whether the row is gone. After a lost reply it is simply removed again: what
    /// is gone by then was removed.
    async fn delete(
        &self,
        key: &RowKey,
        etag: &ETag,
        hurry: &CancellationToken,
    ) -> Result<bool, ReadError> {
        for _ in 0..TRIES_MAX {
            let delete = || self.store.rows.delete(self.layout.index(), key, etag);
            match patiently(&self.env, hurry, delete).await {
                Ok(()) => return Ok(true),
                Err(error) if error.kind == Kind::NotFound => return Ok(true),
                Err(error) if error.kind == Kind::Conflict => return Ok(false),
                Err(error) if error.kind == Kind::Ambiguous => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.gave_up(key).into())
    }

    async fn get(
        &self,
        key: &RowKey,
        hurry: &CancellationToken,
    ) -> Result<Option<FoundRow>, ReadError> {
        let row = patiently(&self.env, hurry, || {
            self.store.rows.get(self.layout.index(), key)
        })
        .await?;
        row.map(found).transpose()
    }

    fn gave_up(&self, key: &RowKey) -> StoreError {
        let operation = format!("write row {}/{key}", self.layout.index());
        StoreError::new(
            Kind::Conflict,
            operation,
            format!("met another version {TRIES_MAX} times"),
        )
    }
}

/// What tells one projection of a run from all others.
fn stamp(record: &IndexRecord) -> (Epoch, Revision, Timestamp) {
    (record.epoch, record.revision, record.updated_at)
}

/// Leaves alone the flags of a row that are not lower than those to be written: a row that is on its way between the partitions is in
/// both, and the one that stays behind does not know what was asked for meanwhile.
fn leave_higher_flags(row: &Fields, fields: &mut Fields) {
    for flag in FLAGS {
        if let (Some(Value::Int(is)), Some(Value::Int(carried))) = (row.get(flag), fields.get(flag))
            && is >= carried
        {
            fields.remove(flag);
        }
    }
}

fn carry_flags(from: &FoundRow, to: &IndexRecord, fields: &mut Fields) {
    if from.record.run_id == to.run_id {
        carry(&flags_of(&from.row.fields), fields);
    }
}

fn carry(flags: &Fields, fields: &mut Fields) {
    for (flag, value) in flags {
        // A stop that the record itself shows is never an older one.
        let field = fields.entry(flag.clone());
        field.or_insert_with(|| value.clone());
    }
}

fn flags_of(fields: &Fields) -> Fields {
    let flags = fields.iter();
    let flags = flags.filter(|(name, _)| FLAGS.contains(&name.as_str()));
    flags
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_written_over_by_a_higher_one_alone() {
        let flag = |value| Fields::from([("cancel_requested".to_owned(), Value::Int(value))]);
        for (is, carried, left) in [(2, 1, false), (1, 1, false), (1, 2, true)] {
            let mut fields = flag(carried);
            leave_higher_flags(&flag(is), &mut fields);
            assert_eq!(
                fields.contains_key("cancel_requested"),
                left,
                "{is} {carried}"
            );
        }
    }
}
