//! Blobs and their leases.
//!
//! Invariants:
//! 1. A lease that ran out stays on record until the blob is written or leased anew, so that its holder may still renew it, as on
//!    the real service; it protects nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Attempt, ServiceClock, lock};
use crate::env::{Mono, Timestamp};
use crate::store::{
    Blob, BlobPath, Blobs, Container, Continuation, ETag, Expect, Kind, LEASE_SECS, LeaseId,
    Listed, Page, Result,
};

/// Names on one page of a listing: far fewer than the service's 5,000, so that callers meet page ends.
const PAGE_NAMES: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    HeldUntil(Mono),
    Broken,
}

#[derive(Debug)]
struct Lease {
    id: LeaseId,
    secs: u8,
    state: LeaseState,
}

#[derive(Debug)]
struct Entry {
    body: Bytes,
    etag: ETag,
    changed_at: Timestamp,
    lease: Option<Lease>,
}

impl Entry {
    /// Whose lease protects the blob now.
    fn holder(&self, now: Mono) -> Option<LeaseId> {
        let lease = self.lease.as_ref()?;
        match lease.state {
            LeaseState::HeldUntil(end) if now < end => Some(lease.id),
            LeaseState::HeldUntil(_) | LeaseState::Broken => None,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    containers: BTreeMap<Container, BTreeMap<String, Entry>>,
    versions: u64,
}

impl State {
    fn names(
        &mut self,
        attempt: Attempt<'_>,
        container: &Container,
    ) -> Result<&mut BTreeMap<String, Entry>> {
        self.containers
            .get_mut(container)
            .ok_or_else(|| attempt.fail(Kind::NoResource, "no such container"))
    }

    fn entry(&mut self, attempt: Attempt<'_>, path: &BlobPath) -> Result<&mut Entry> {
        self.names(attempt, path.container())?
            .get_mut(path.name())
            .ok_or_else(|| attempt.fail(Kind::NotFound, "no such blob"))
    }
}

#[derive(Debug)]
pub(super) struct MemoryBlobs {
    clock: ServiceClock,
    state: Mutex<State>,
}

impl MemoryBlobs {
    pub(super) fn new(clock: ServiceClock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }
}

fn lease_end(now: Mono, secs: u8) -> LeaseState {
    LeaseState::HeldUntil(now.plus(Duration::from_secs(u64::from(secs))))
}

#[async_trait]
impl Blobs for MemoryBlobs {
    async fn create_container(&self, container: &Container) -> Result<()> {
        lock(&self.state)
            .containers
            .entry(container.clone())
            .or_default();
        Ok(())
    }

    async fn get(&self, path: &BlobPath) -> Result<Option<Blob>> {
        let attempt = Attempt::new("get blob", path);
        let now = self.clock.mono();
        let read_at = self.clock.wall();
        let mut state = lock(&self.state);
        let names = state.names(attempt, path.container())?;
        Ok(names.get(path.name()).map(|entry| Blob {
            body: entry.body.clone(),
            etag: entry.etag.clone(),
            leased: entry.holder(now).is_some(),
            changed_at: entry.changed_at,
            read_at,
        }))
    }

    async fn put(
        &self,
        path: &BlobPath,
        body: Bytes,
        expect: &Expect,
        lease: Option<LeaseId>,
    ) -> Result<ETag> {
        let attempt = Attempt::new("put blob", path);
        let conflict = |detail: &str| Err(attempt.fail(Kind::Conflict, detail));
        if body.is_empty() {
            return Err(attempt.fail(Kind::Invalid, "an empty blob cannot be read back"));
        }
        let now = self.clock.mono();
        let changed_at = self.clock.wall();
        let mut state = lock(&self.state);
        let version = state.versions + 1;
        let names = state.names(attempt, path.container())?;
        let stored = names.get_mut(path.name());
        match (stored.as_ref().and_then(|entry| entry.holder(now)), lease) {
            (None, None) => {}
            (Some(holder), Some(given)) if holder == given => {}
            (Some(_), _) => return conflict("leased under another id"),
            (None, Some(_)) => return conflict("not leased under that id"),
        }
        let etag = ETag::new(format!("\"0x{version:016X}\""));
        match (stored, expect) {
            (None, Expect::Absent) => {
                let entry = Entry {
                    body,
                    etag: etag.clone(),
                    changed_at,
                    lease: None,
                };
                names.insert(path.name().to_owned(), entry);
            }
            (Some(entry), Expect::Version(expected)) if entry.etag == *expected => {
                entry.body = body;
                entry.etag = etag.clone();
                entry.changed_at = changed_at;
                if lease.is_none() {
                    entry.lease = None;
                }
            }
            (Some(_), Expect::Absent) => return conflict("the blob exists"),
            (Some(_), Expect::Version(_)) => return conflict("the blob is of another version"),
            (None, Expect::Version(_)) => return conflict("the blob is missing"),
        }
        state.versions = version;
        Ok(etag)
    }

    async fn delete(&self, path: &BlobPath, etag: &ETag) -> Result<()> {
        let attempt = Attempt::new("delete blob", path);
        let now = self.clock.mono();
        let mut state = lock(&self.state);
        let entry = state.entry(attempt, path)?;
        if entry.holder(now).is_some() {
            return Err(attempt.fail(Kind::Conflict, "leased"));
        }
        if entry.etag != *etag {
            return Err(attempt.fail(Kind::Conflict, "the blob is of another version"));
        }
        state.names(attempt, path.container())?.remove(path.name());
        Ok(())
    }

    async fn list(
        &self,
        container: &Container,
        prefix: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Listed>> {
        let attempt = Attempt::new("list blobs in", container);
        let start = match after {
            Some(last) => Bound::Excluded(last.0.as_str()),
            None => Bound::Included(prefix),
        };
        let mut state = lock(&self.state);
        let mut below = state
            .names(attempt, container)?
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(name, _)| name.starts_with(prefix));
        let listed = |(name, entry): (&String, &Entry)| Listed {
            name: name.clone(),
            etag: entry.etag.clone(),
            changed_at: entry.changed_at,
        };
        let items: Vec<Listed> = below.by_ref().take(PAGE_NAMES).map(listed).collect();
        let more = below.next().is_some();
        let next = items.last().filter(|_| more);
        let next = next.map(|last| Continuation(last.name.clone()));
        Ok(Page { items, next })
    }

    async fn acquire_lease(&self, path: &BlobPath, id: LeaseId, secs: u8) -> Result<()> {
        let attempt = Attempt::new("lease blob", path);
        if !LEASE_SECS.contains(&secs) {
            return Err(attempt.fail(Kind::Invalid, "a lease takes 15 to 60 seconds"));
        }
        let now = self.clock.mono();
        let mut state = lock(&self.state);
        let entry = state.entry(attempt, path)?;
        if entry.holder(now).is_some_and(|holder| holder != id) {
            return Err(attempt.fail(Kind::Conflict, "leased under another id"));
        }
        entry.lease = Some(Lease {
            id,
            secs,
            state: lease_end(now, secs),
        });
        Ok(())
    }

    async fn renew_lease(&self, path: &BlobPath, id: LeaseId) -> Result<()> {
        let attempt = Attempt::new("renew lease of blob", path);
        let now = self.clock.mono();
        let mut state = lock(&self.state);
        match &mut state.entry(attempt, path)?.lease {
            Some(lease) if lease.id == id && lease.state != LeaseState::Broken => {
                lease.state = lease_end(now, lease.secs);
                Ok(())
            }
            _ => Err(attempt.fail(Kind::Conflict, "not leased under that id")),
        }
    }

    async fn release_lease(&self, path: &BlobPath, id: LeaseId) -> Result<()> {
        let attempt = Attempt::new("release lease of blob", path);
        let mut state = lock(&self.state);
        let entry = state.entry(attempt, path)?;
        if entry.lease.as_ref().is_none_or(|lease| lease.id != id) {
            return Err(attempt.fail(Kind::Conflict, "not leased under that id"));
        }
        entry.lease = None;
        Ok(())
    }

    async fn break_lease(&self, path: &BlobPath) -> Result<()> {
        let attempt = Attempt::new("break lease of blob", path);
        let mut state = lock(&self.state);
        match &mut state.entry(attempt, path)?.lease {
            Some(lease) => {
                lease.state = LeaseState::Broken;
                Ok(())
            }
            None => Err(attempt.fail(Kind::Conflict, "there is no lease to break")),
        }
    }
}
