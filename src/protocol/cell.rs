//! The state of one workflow in storage: one writer at a time, by compare-and-swap, with lost replies settled by stamp (P3, P10).
//!
//! Invariants:
//! 1. A swap ends in exactly one of: stored, a rival's version is stored, or an error after which nothing is known.
//! 2. The same record (same stamp) may be put several times; it is stored at most once, since each put names the version it replaces.
//! 3. What is named is stored before what names it, under a name that nothing else ever has.

use bytes::Bytes;
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::layout::Layout;
use super::patience::patiently;
use super::read::{ReadError, read_whole, understand_state};
use crate::definition::WorkflowId;
use crate::engine::{Runtime, TaskIx};
use crate::env::Env;
use crate::record::{
    Ledger, Limits, RuntimeRecord, Side, Stamp, StateRecord, TombstoneRecord, encode,
};
use crate::store::{Blob, BlobPath, ETag, Expect, Kind, Store, StoreError};

/// How often a write of unknown outcome is put again before its writer gives up.
const PUTS_MAX: u32 = 8;

/// How a swap ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Swap {
    /// The record is stored.
    Stored,
    /// Something else is stored: read again.
    Rival,
}

/// The runtime blob of one workflow, as its writer knows it.
#[derive(Debug)]
pub struct Cell {
    env: Env,
    store: Store,
    layout: Layout,
    id: WorkflowId,
    version: Option<ETag>,
    in_doubt: bool,
    limits: Limits,
    ledger: Ledger,
}

impl Cell {
    /// A cell of which nothing is known yet.
    #[must_use]
    pub fn new(env: Env, store: Store, layout: Layout, id: WorkflowId, limits: Limits) -> Self {
        Self {
            env,
            store,
            layout,
            id,
            version: None,
            in_doubt: false,
            limits,
            ledger: Ledger::new(limits),
        }
    }

    /// Reads what is stored; none where the workflow was not activated.
    ///
    /// # Errors
    /// [`ReadError`]
    pub async fn load(
        &mut self,
        hurry: &CancellationToken,
    ) -> Result<Option<StateRecord>, ReadError> {
        let Self {
            env, store, layout, ..
        } = &*self;
        let get = |path: BlobPath| {
            async move { patiently(env, hurry, || store.blobs.get(&path)).await }.boxed()
        };
        let found = read_whole(layout, &self.id, self.limits, &get).await?;
        let (found, ledger) = found.unzip();
        let version = found.as_ref().map(|stored| stored.etag.clone());
        // What a write was to replace is there still, so it may yet be carried out.
        self.in_doubt &= version == self.version;
        self.version = version;
        self.ledger = ledger.unwrap_or_else(|| Ledger::new(self.limits));
        Ok(found.map(|stored| stored.record))
    }

    /// Reads what is stored without understanding it; none where nothing is. The next write replaces exactly that.
    ///
    /// # Errors
    /// The store's.
    pub async fn look(&mut self, hurry: &CancellationToken) -> Result<Option<Blob>, ReadError> {
        let found = self.get(hurry).await?;
        let version = found.as_ref().map(|blob| blob.etag.clone());
        self.in_doubt &= version == self.version;
        self.version = version;
        Ok(found)
    }

    async fn get(&self, hurry: &CancellationToken) -> Result<Option<Blob>, StoreError> {
        let path = self.layout.runtime(&self.id);
        patiently(&self.env, hurry, || self.store.blobs.get(&path)).await
    }

    /// Whether a write was sent of which nobody knows if it was, or will be, carried out.
    #[must_use]
    pub const fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Replaces the version read or written last by `record` with the tasks of `runtime`, of which those `touched` have changed since; the
    /// number of bytes put is added to `bytes`.
    ///
    /// # Errors
    /// The store's. Nothing is known of the state then: load it before the next swap.
    pub async fn swap_tasks(
        &mut self,
        mut record: RuntimeRecord,
        runtime: &Runtime,
        touched: &[TaskIx],
        bytes: &mut u64,
        hurry: &CancellationToken,
    ) -> Result<Swap, ReadError> {
        for side in self.ledger.lay(&mut record, runtime, touched) {
            let (id, run, stamp) = (&record.workflow_id, record.run_id, record.stamp);
            let (path, body) = match side {
                Side::Snapshot(snapshot) => {
                    (self.layout.snapshot(id, run, stamp), encode(&snapshot))
                }
                Side::Details(details) => (self.layout.details(id, run, stamp), encode(&details)),
            };
            self.put_side(&path, body.into(), bytes, hurry).await?;
        }
        self.swap(&record, bytes, hurry).await
    }

    async fn put_side(
        &self,
        path: &BlobPath,
        body: Bytes,
        bytes: &mut u64,
        hurry: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut puts = 0;
        loop {
            puts += 1;
            *bytes += body.len() as u64;
            let put = || {
                self.store
                    .blobs
                    .put(path, body.clone(), &Expect::Absent, None)
            };
            match patiently(&self.env, hurry, put).await {
                // Nobody else has the stamp: it is there already.
                Ok(_)
                | Err(StoreError {
                    kind: Kind::Conflict,
                    ..
                }) => return Ok(()),
                Err(error) if error.kind == Kind::Ambiguous && puts < PUTS_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Replaces the version read or written last by `record`; the number of bytes put is added to `bytes`.
    ///
    /// # Errors
    /// The store's. Nothing is known of the state then: load it before the next swap.
    pub async fn swap(
        &mut self,
        record: &RuntimeRecord,
        bytes: &mut u64,
        hurry: &CancellationToken,
    ) -> Result<Swap, ReadError> {
        let body = Bytes::from(encode(record));
        self.put(body, record.stamp, bytes, hurry).await
    }

    /// Replaces the version read or written last by a tombstone.
    ///
    /// # Errors
    /// As [`Cell::swap`].
    pub async fn bury(
        &mut self,
        tombstone: &TombstoneRecord,
        hurry: &CancellationToken,
    ) -> Result<Swap, ReadError> {
        let body = Bytes::from(encode(tombstone));
        self.put(body, tombstone.stamp, &mut 0, hurry).await
    }

    async fn put(
        &mut self,
        body: Bytes,
        stamp: Stamp,
        bytes: &mut u64,
        hurry: &CancellationToken,
    ) -> Result<Swap, ReadError> {
        let path = self.layout.runtime(&self.id);
        let expect = self.version.clone().map_or(Expect::Absent, Expect::Version);
        let mut last = None;
        for _ in 0..PUTS_MAX {
            *bytes += body.len() as u64;
            let put = || self.store.blobs.put(&path, body.clone(), &expect, None);
            match patiently(&self.env, hurry, put).await {
                Ok(etag) => {
                    self.version = Some(etag);
                    self.in_doubt = false;
                    return Ok(Swap::Stored);
                }
                Err(error) if matches!(error.kind, Kind::Conflict | Kind::Ambiguous) => {
                    self.in_doubt |= error.kind == Kind::Ambiguous;
                    last = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
            if let Some(swap) = self.settle(stamp, &expect, hurry).await? {
                // What it was to replace is gone: a late arrival is refused.
                self.in_doubt = false;
                return Ok(swap);
            }
            tracing::debug!(workflow = %self.id, "state_write_repeated");
        }
        let gave_up = || {
            StoreError::new(
                Kind::Ambiguous,
                format!("put blob {path}"),
                "no outcome after many tries",
            )
        };
        Err(last.unwrap_or_else(gave_up).into())
    }

    /// After a refusal or a lost reply: whose version is stored? None: still the one that was to be replaced.
    async fn settle(
        &mut self,
        stamp: Stamp,
        expect: &Expect,
        hurry: &CancellationToken,
    ) -> Result<Option<Swap>, ReadError> {
        let Some(found) = self.get(hurry).await? else {
            return Ok(if *expect == Expect::Absent {
                None
            } else {
                Some(Swap::Rival)
            });
        };
        // What cannot be understood is nothing of this writer.
        let stored = understand_state(&self.layout.runtime(&self.id), &found);
        if stored.is_ok_and(|record| record.stamp() == stamp) {
            self.version = Some(found.etag);
            return Ok(Some(Swap::Stored));
        }
        Ok(if *expect == Expect::Version(found.etag) {
            None
        } else {
            Some(Swap::Rival)
        })
    }
}
