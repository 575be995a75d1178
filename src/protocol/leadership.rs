//! Becoming and staying the leader of a prefix (P11, P13, P14): a lease on the sentinel blob, and the epoch inside it.
//!
//! Invariants:
//! 1. Each acquisition has a fresh lease id; the epoch is raised under the lease before anything else is done.
//! 2. The sentinel is written only under the lease and by version.
//! 3. A renewal whose outcome is unknown is not a renewal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::fence::{Fence, Loss};
use super::layout::Layout;
use super::patience::patiently;
use super::read::{ReadError, Stored, understand};
use crate::env::{Env, Mono};
use crate::record::{Epoch, Record, SentinelRecord, encode};
use crate::store::layers::gate::Gate;
use crate::store::{Expect, Kind, LeaseId, Store, StoreError};

/// How often the name of a leader that has just taken the lease is looked for, and the pause between.
const NAME_TRIES: u32 = 8;
const NAME_PAUSE: Duration = Duration::from_millis(250);

/// Who asks to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name for people.
    pub holder: String,
    /// The length of its lease, 15–60 s, whole seconds.
    pub lease: Duration,
}

/// Who leads, as far as the sentinel tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Its name; none if the sentinel names none.
    pub holder: Option<String>,
    /// Its epoch.
    pub epoch: Epoch,
    /// How long it has led, by its own account and service time.
    pub age: Duration,
}

/// The answer to a try to lead.
#[derive(Debug)]
pub enum Try {
    /// This process leads.
    Leads(Box<Leadership>),
    /// Another holds the lease.
    Held(Leader),
}

/// One term of leadership.
#[derive(Debug)]
pub struct Leadership {
    env: Env,
    /// For the lease itself, and for looking who leads.
    bare: Store,
    store: Store,
    layout: Layout,
    lease_id: LeaseId,
    lease: Duration,
    holder: String,
    holder_id: Uuid,
    began: Mono,
    epoch: AtomicU64,
    sentinel: Mutex<Stored<SentinelRecord>>,
    fence: Arc<Fence>,
}

/// The sentinel and the service time since its last change.
async fn sentinel(
    store: &Store,
    layout: &Layout,
) -> Result<Option<(Stored<SentinelRecord>, Duration, bool)>, ReadError> {
    let path = layout.sentinel();
    let Some(blob) = store.blobs.get(&path).await? else {
        return Ok(None);
    };
    let record = understand(&path, &blob)?;
    let since =
        Duration::try_from(blob.read_at.duration_since(blob.changed_at)).unwrap_or_default();
    Ok(Some((
        Stored {
            record,
            etag: blob.etag,
        },
        since,
        blob.leased,
    )))
}

/// Who leads, and whether the lease is held now; none where nobody ever led.
///
/// # Errors
/// [`ReadError`]
pub async fn leader(
    store: &Store,
    layout: &Layout,
) -> Result<Option<(SentinelRecord, Leader, bool)>, ReadError> {
    let Some((Stored { record, .. }, since, leased)) = sentinel(store, layout).await? else {
        return Ok(None);
    };
    let age = Duration::from_secs(record.led_for_s) + since;
    let leader = Leader {
        holder: record.holder.clone(),
        epoch: record.epoch,
        age,
    };
    Ok(Some((record, leader, leased)))
}

/// Tries once to become leader.
///
/// # Errors
/// [`ReadError`]; nothing is held then, but for a lease that may run out by itself.
pub async fn try_to_lead(
    env: &Env,
    store: &Store,
    layout: &Layout,
    candidate: &Candidate,
    hurry: &CancellationToken,
) -> Result<Try, ReadError> {
    let path = layout.sentinel();
    if sentinel(store, layout).await?.is_none() {
        let body = Bytes::from(encode(&nobody(env)));
        match store.blobs.put(&path, body, &Expect::Absent, None).await {
            // Whoever made it, it is there, or the acquisition below says that it is not.
            Ok(_) => {}
            Err(error) if matches!(error.kind, Kind::Conflict | Kind::Ambiguous) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let lease_id = LeaseId(env.uuid());
    let secs = u8::try_from(candidate.lease.as_secs()).unwrap_or(60);
    let mut sent_at = env.mono();
    let mut taken = store.blobs.acquire_lease(&path, lease_id, secs).await;
    if taken
        .as_ref()
        .is_err_and(|error| error.kind == Kind::Ambiguous)
    {
        // Acquiring again under the same id succeeds if the first request did.
        sent_at = env.mono();
        taken = store.blobs.acquire_lease(&path, lease_id, secs).await;
    }
    match taken {
        Ok(()) => {}
        Err(error) if error.kind == Kind::Conflict => {
            let mut found = leader(store, layout).await?;
            for _ in 0..NAME_TRIES {
                if found
                    .as_ref()
                    .is_some_and(|(_, leader, _)| leader.holder.is_some())
                {
                    break;
                }
                // Whoever has the lease is about to write its name.
                env.sleep(NAME_PAUSE).await;
                found = leader(store, layout).await?;
            }
            let unknown = Leader {
                holder: None,
                epoch: Epoch::new(0),
                age: Duration::ZERO,
            };
            return Ok(Try::Held(found.map_or(unknown, |(_, leader, _)| leader)));
        }
        Err(error) => return Err(error.into()),
    }
    let Some((found, _, _)) = sentinel(store, layout).await? else {
        return Err(StoreError::new(
            Kind::NotFound,
            format!("get blob {path}"),
            "deleted meanwhile",
        )
        .into());
    };
    let fence = Arc::new(Fence::new(env.clone(), candidate.lease, sent_at));
    let gate = Arc::clone(&fence);
    let leadership = Leadership {
        env: env.clone(),
        bare: store.clone(),
        store: Gate::wrap(store.clone(), Arc::new(move || gate.is_open())),
        layout: layout.clone(),
        lease_id,
        lease: candidate.lease,
        holder: candidate.holder.clone(),
        holder_id: env.uuid(),
        began: env.mono(),
        epoch: AtomicU64::new(found.record.epoch.number()),
        sentinel: Mutex::new(found),
        fence,
    };
    leadership.raise_epoch(Epoch::new(0), hurry).await?;
    Ok(Try::Leads(Box::new(leadership)))
}

/// Ends the lease that somebody holds, if somebody does.
///
/// # Errors
/// Whatever else than "there is nothing to break" the store says.
pub async fn break_lease(store: &Store, layout: &Layout) -> Result<bool, StoreError> {
    match store.blobs.break_lease(&layout.sentinel()).await {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind, Kind::Conflict | Kind::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

fn nobody(env: &Env) -> SentinelRecord {
    SentinelRecord {
        schema: SentinelRecord::SCHEMA,
        epoch: Epoch::new(0),
        holder: None,
        holder_id: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        acquired_at: env.wall(),
        led_for_s: 0,
        statistics: BTreeMap::new(),
    }
}

impl Leadership {
    /// The epoch of this term.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.epoch.load(Ordering::Acquire))
    }

    /// The name of this leader.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The store as this leader may use it: it refuses everything once the fence is closed.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The fence of this term.
    #[must_use]
    pub const fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }

    /// Raises the epoch above what it is and above `met`, under the lease.
    ///
    /// # Errors
    /// The store's; the epoch is unchanged then.
    pub async fn raise_epoch(
        &self,
        met: Epoch,
        hurry: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut sentinel = self.sentinel.lock().await;
        let epoch = sentinel.record.epoch.max(met).next();
        let record = self.record(epoch, sentinel.record.statistics.clone());
        self.write(&mut sentinel, record, hurry).await?;
        self.epoch.store(epoch.number(), Ordering::Release);
        Ok(())
    }

    /// Stores `statistics` in the sentinel.
    ///
    /// # Errors
    /// The store's; they may be tried again at the next occasion.
    pub async fn store_statistics(
        &self,
        statistics: BTreeMap<String, u64>,
        hurry: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut sentinel = self.sentinel.lock().await;
        let record = self.record(self.epoch(), statistics);
        self.write(&mut sentinel, record, hurry).await
    }

    fn record(&self, epoch: Epoch, statistics: BTreeMap<String, u64>) -> SentinelRecord {
        let led_for = self.env.mono().since(self.began);
        let led_since = self
            .env
            .wall()
            .checked_sub(led_for)
            .unwrap_or_else(|_overflow| self.env.wall());
        SentinelRecord {
            schema: SentinelRecord::SCHEMA,
            epoch,
            holder: Some(self.holder.clone()),
            holder_id: Some(self.holder_id),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            acquired_at: led_since,
            led_for_s: led_for.as_secs(),
            statistics,
        }
    }

    /// Writes the sentinel; a lost reply is settled by looking whether it was written.
    async fn write(
        &self,
        sentinel: &mut Stored<SentinelRecord>,
        record: SentinelRecord,
        hurry: &CancellationToken,
    ) -> Result<(), StoreError> {
        let path = self.layout.sentinel();
        let body = Bytes::from(encode(&record));
        let mut tries = 3;
        loop {
            tries -= 1;
            let expect = Expect::Version(sentinel.etag.clone());
            let put = || {
                self.store
                    .blobs
                    .put(&path, body.clone(), &expect, Some(self.lease_id))
            };
            let error = match patiently(&self.env, hurry, put).await {
                Ok(etag) => {
                    *sentinel = Stored { record, etag };
                    return Ok(());
                }
                Err(error) => error,
            };
            if !matches!(error.kind, Kind::Ambiguous | Kind::Conflict) || tries == 0 {
                return Err(error);
            }
            let read = || async { self.store.blobs.get(&path).await };
            let Some(blob) = patiently(&self.env, hurry, read).await? else {
                return Err(error);
            };
            let found: Option<SentinelRecord> = crate::record::decode(&blob.body).ok();
            match found {
                Some(found) if found == record => {
                    *sentinel = Stored {
                        record,
                        etag: blob.etag,
                    };
                    return Ok(());
                }
                Some(found) if found.holder_id == sentinel.record.holder_id => {
                    sentinel.etag = blob.etag;
                }
                Some(_) | None => return Err(error),
            }
        }
    }

    /// Whether the sentinel still names this leader and the lease is held (P13).
    ///
    /// # Errors
    /// [`ReadError`]
    pub async fn still_leads(&self) -> Result<bool, ReadError> {
        let found = sentinel(&self.bare, &self.layout).await?;
        Ok(found.is_some_and(|(stored, _, leased)| {
            leased && stored.record.holder_id == Some(self.holder_id)
        }))
    }

    /// Renews the lease until the fence closes; closes it when the lease is lost or cannot be renewed in time.
    ///
    /// `alive` says whether the work loop still turns.
    ///
    /// # Cancel safety
    /// Dropping it stops the renewals; the fence then closes by itself.
    pub async fn keep(&self, alive: impl Fn() -> bool) {
        let path = self.layout.sentinel();
        let mut pause = self.lease / 4;
        loop {
            let pause_left = pause.min(self.fence.left());
            tokio::select! {
                () = self.env.sleep(pause_left) => {}
                () = self.fence.closed().cancelled() => return,
            }
            if !alive() {
                tracing::error!("leader_stalled");
                self.fence.close(Loss::Stalled);
                return;
            }
            if self.fence.left().is_zero() {
                tracing::error!("lease_lapsed");
                self.fence.close(Loss::Lapsed);
                return;
            }
            let sent_at = self.env.mono();
            let renew = self.bare.blobs.renew_lease(&path, self.lease_id);
            pause = self.lease / 12;
            match self.env.timeout(self.lease / 12, renew).await {
                Ok(Ok(())) => {
                    self.fence.renewed(sent_at);
                    pause = self.lease / 4;
                }
                Ok(Err(error)) if matches!(error.kind, Kind::Conflict | Kind::NotFound) => {
                    self.fence.close(Loss::Superseded(self.successor().await));
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = %error, left_s = self.fence.left().as_secs(), "lease_not_renewed");
                    pause = pause.saturating_sub(self.env.mono().since(sent_at));
                }
                Err(_elapsed) => {
                    tracing::warn!(
                        left_s = self.fence.left().as_secs(),
                        "lease_renewal_timed_out"
                    );
                    pause = Duration::ZERO;
                }
            }
        }
    }

    /// Who took over, in words.
    async fn successor(&self) -> String {
        match leader(&self.bare, &self.layout).await {
            Ok(Some((record, found, _))) if record.holder_id != Some(self.holder_id) => {
                format!(
                    "`{}` leads now, in epoch {}",
                    found.holder.unwrap_or_default(),
                    found.epoch
                )
            }
            Ok(Some(_)) => "the lease was broken".to_owned(),
            Ok(None) => "the sentinel blob was deleted".to_owned(),
            Err(error) => format!("the lease is another's ({error})"),
        }
    }

    /// Gives the lease back, with the last statistics; tells whether that is certain.
    pub async fn release(&self, statistics: BTreeMap<String, u64>) -> bool {
        let hurry = CancellationToken::new();
        hurry.cancel();
        if let Err(error) = self.store_statistics(statistics, &hurry).await {
            tracing::debug!(error = %error, "last_statistics_not_stored");
        }
        self.fence.close(Loss::Superseded("released".to_owned()));
        let path = self.layout.sentinel();
        match self.bare.blobs.release_lease(&path, self.lease_id).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(error = %error, "lease_not_released");
                false
            }
        }
    }
}
