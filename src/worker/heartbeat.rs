//! Keeps one message hidden and its attempt claimed while it is worked on (P19, P20).
//!
//! Invariants:
//! 1. The claim is written before the message's visibility, in every beat; a task shorter than the first beat never has a claim.
//! 2. One beat at a time; when [`Keeper::run`] has returned, none is under way, so that none races a delete.
//! 3. While a command runs, a keeper without a good beat for the visibility less kill grace less 5 s is lost: the process is gone
//!    before anybody else may start. After its end nothing is lost by time; the keeper goes on trying.
//! 4. A lost receipt with the own claim in place loses nothing: the claim goes on as the lease. A claim that the same beat has written
//!    does not count as in place: it is removed, and the attempt is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Delivery, Worker, sleep_until};
use crate::env::Mono;
use crate::protocol::{
    CLAIM_SLACK, Judged, ReadError, delete_claim, judge, meet_claim, write_claim,
};
use crate::record::ClaimRecord;
use crate::store::{ETag, Expect, Kind, Receipt, StoreError};

/// The latest first beat after the receipt of a message.
pub(super) const FIRST_BEAT: Duration = Duration::from_secs(5);
/// The pause after a beat that did not succeed.
const BEAT_AGAIN: Duration = Duration::from_secs(3);
/// How often one beat writes its claim when others interfere.
const CLAIM_TRIES: usize = 3;

/// Why a message is no longer this worker's.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeatError {
    /// Another execution has the attempt, or the claim was removed.
    #[error("the attempt is another's")]
    Lost,
    /// It is not known: try again.
    #[error(transparent)]
    Failed(#[from] ReadError),
}

impl From<StoreError> for BeatError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

/// What is held of an attempt.
#[derive(Debug, Clone)]
pub(super) struct Held {
    /// Entitles to the message; none when it was lost.
    pub(super) receipt: Option<Receipt>,
    /// The claim as it is or would be written.
    pub(super) record: ClaimRecord,
    /// The version of the claim; none before it was written.
    pub(super) claim: Option<ETag>,
    /// When the last good beat was sent.
    last_good: Mono,
}

/// Keeps one message.
#[derive(Debug)]
pub(super) struct Keeper<'a> {
    worker: &'a Worker,
    delivery: &'a Delivery,
    held: tokio::sync::Mutex<Held>,
    command_runs: AtomicBool,
    retired_at: Mutex<Option<Mono>>,
    /// The attempt is no longer this worker's: stop, post nothing.
    pub(super) lost: CancellationToken,
    done: CancellationToken,
}

impl<'a> Keeper<'a> {
    /// A keeper of `delivery`; `claim` is the version of `record` if it was written already.
    pub(super) fn new(
        worker: &'a Worker,
        delivery: &'a Delivery,
        record: ClaimRecord,
        claim: Option<ETag>,
    ) -> Self {
        Self {
            worker,
            delivery,
            held: tokio::sync::Mutex::new(Held {
                receipt: Some(delivery.message.receipt.clone()),
                record,
                claim,
                last_good: delivery.received_at,
            }),
            command_runs: AtomicBool::new(true),
            retired_at: Mutex::new(None),
            lost: CancellationToken::new(),
            done: CancellationToken::new(),
        }
    }

    /// The message it keeps.
    pub(super) const fn delivery(&self) -> &'a Delivery {
        self.delivery
    }

    /// The command has ended: from now on time alone loses nothing.
    pub(super) fn command_ended(&self) {
        self.command_runs.store(false, Ordering::SeqCst);
    }

    /// No beat comes later than `at`: a cancel must not be held up by a claim that is kept alive.
    pub(super) fn retire(&self, at: Mono) {
        *self
            .retired_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    fn is_retired(&self) -> bool {
        let at = *self
            .retired_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at <= self.worker.env.mono())
    }

    /// Ends [`Self::run`].
    pub(super) fn finish(&self) {
        self.done.cancel();
    }

    /// What is held by now.
    pub(super) async fn held(&self) -> Held {
        self.held.lock().await.clone()
    }

    /// The claim as it stands.
    pub(super) async fn record(&self) -> ClaimRecord {
        self.held.lock().await.record.clone()
    }

    /// When the attempt is lost unless a beat succeeds; none while no command runs.
    async fn lost_at(&self) -> Option<Mono> {
        if !self.command_runs.load(Ordering::SeqCst) {
            return None;
        }
        let config = &self.worker.config;
        let limit = config
            .visibility
            .saturating_sub(config.kill_grace + CLAIM_SLACK);
        Some(self.held.lock().await.last_good.plus(limit))
    }

    /// Beats until [`Self::finish`] or the loss of the attempt.
    pub(super) async fn run(&self) {
        let env = &self.worker.env;
        let first = FIRST_BEAT.min(self.worker.config.heartbeat_interval);
        let mut next = self.delivery.received_at.plus(first);
        let mut failing = false;
        loop {
            let lost_at = self.lost_at().await;
            tokio::select! {
                biased;
                () = self.done.cancelled() => return,
                () = sleep_until(env, lost_at.map_or(next, |at| at.min(next))) => {}
            }
            // The command may have ended meanwhile.
            let lost_at = self.lost_at().await;
            if lost_at.is_some_and(|at| at <= env.mono()) {
                self.lose("no_heartbeat_in_time");
                return;
            }
            if self.is_retired() {
                return self.done.cancelled().await;
            }
            let sent = env.mono();
            let beat = self.beat();
            let beaten = match lost_at {
                None => Ok(beat.await),
                Some(at) => env.timeout(at.since(sent), beat).await,
            };
            next = match beaten {
                Ok(Ok(())) => {
                    if failing {
                        info!(task = %self.delivery.task.task, "heartbeat_recovered");
                    }
                    failing = false;
                    sent.plus(self.worker.config.heartbeat_interval)
                }
                Ok(Err(BeatError::Lost)) => return self.lose("attempt_is_anothers"),
                Ok(Err(BeatError::Failed(error))) => {
                    let task = &self.delivery.task;
                    // Once a row of failures: in an outage every task of the worker has one.
                    if failing {
                        debug!(workflow_id = %task.workflow_id, task = %task.task, %error, "heartbeat_failed_again");
                    } else {
                        warn!(workflow_id = %task.workflow_id, task = %task.task, %error, "heartbeat_failed");
                    }
                    failing = true;
                    env.mono().plus(BEAT_AGAIN)
                }
                // Judged at the top of the loop.
                Err(_) => env.mono(),
            };
        }
    }

    fn lose(&self, why: &'static str) {
        let task = &self.delivery.task;
        warn!(workflow_id = %task.workflow_id, task = %task.task, attempt_no = %task.attempt_no, why, "ownership_lost");
        self.lost.cancel();
    }

    /// Beats now if the last good beat is older than an interval.
    ///
    /// # Errors
    /// [`BeatError::Lost`]: post nothing. [`BeatError::Failed`]: try again later.
    pub(super) async fn renew(&self) -> Result<(), BeatError> {
        // Whoever beats just now holds the lock, for long in an outage: the time is read afterwards.
        let last_good = self.held.lock().await.last_good;
        let age = self.worker.env.mono().since(last_good);
        if age <= self.worker.config.heartbeat_interval || self.is_retired() {
            return Ok(());
        }
        let beaten = self.beat().await;
        if matches!(beaten, Err(BeatError::Lost)) {
            self.lose("attempt_is_anothers");
        }
        beaten
    }

    async fn beat(&self) -> Result<(), BeatError> {
        let Worker {
            env, store, config, ..
        } = self.worker;
        let mut held = self.held.lock().await;
        let sent = env.mono();
        let had_claim = held.claim.is_some();
        self.claim(&mut held).await?;
        if let Some(receipt) = &held.receipt {
            let queue = &self.delivery.queue;
            match store.queues.extend(queue, receipt, config.visibility).await {
                Ok(receipt) => held.receipt = Some(receipt),
                // Another has taken it while no claim said that it was taken, and may even have finished it.
                Err(error) if error.kind == Kind::Gone && !had_claim => {
                    self.withdraw(&mut held).await;
                    return Err(BeatError::Lost);
                }
                Err(error) if matches!(error.kind, Kind::Gone | Kind::NoResource) => {
                    let task = &self.delivery.task;
                    info!(workflow_id = %task.workflow_id, task = %task.task, "receipt_lost_claim_holds");
                    held.receipt = None;
                }
                Err(error) => return Err(error.into()),
            }
        }
        held.last_good = sent;
        Ok(())
    }

    /// Removes a claim that was written too late: nobody may ever meet its message again.
    async fn withdraw(&self, held: &mut Held) {
        let Worker { store, layout, .. } = self.worker;
        let Held { record, claim, .. } = held;
        if let Some(etag) = claim.take() {
            let (id, task) = (&record.workflow_id, &record.task);
            self.worker
                .tidy("claim_not_removed", || {
                    delete_claim(store, layout, id, task, &etag)
                })
                .await;
        }
    }

    /// Inserts or refreshes the claim.
    async fn claim(&self, held: &mut Held) -> Result<(), BeatError> {
        let Worker { store, layout, .. } = self.worker;
        let mut expect = held.claim.clone().map_or(Expect::Absent, Expect::Version);
        for _ in 0..CLAIM_TRIES {
            let error = match write_claim(store, layout, &held.record, &expect).await {
                Ok(etag) => {
                    held.claim = Some(etag);
                    return Ok(());
                }
                Err(error) => error,
            };
            if !matches!(error.kind, Kind::Conflict | Kind::Ambiguous) {
                return Err(error.into());
            }
            // The reply of an earlier write may have been lost: look for the own token before giving up.
            let record = &mut held.record;
            let found = match meet_claim(store, layout, record).await {
                // A newer version has or had the attempt, and only that can tell which: the message is left to it.
                Err(ReadError::Decode { .. }) => return Err(BeatError::Lost),
                found => found?,
            };
            expect = match found {
                Some(found) if found.record.token == record.token => {
                    // A new version that is fresh enough is the one whose reply was lost.
                    let is_new = expect != Expect::Version(found.etag.clone());
                    if error.kind == Kind::Ambiguous && is_new && found.age <= CLAIM_SLACK {
                        held.claim = Some(found.etag);
                        return Ok(());
                    }
                    Expect::Version(found.etag)
                }
                _ if held.claim.is_some() => return Err(BeatError::Lost),
                None => Expect::Absent,
                Some(found) => {
                    adopt(record, judge(&found, record))?;
                    Expect::Version(found.etag)
                }
            };
        }
        let what = StoreError::new(Kind::Conflict, "write claim", "others write it, too");
        Err(what.into())
    }
}

/// Takes over the counts of a claim that nobody holds.
fn adopt(record: &mut ClaimRecord, judged: Judged) -> Result<(), BeatError> {
    match judged {
        Judged::Held(_) | Judged::Newer => return Err(BeatError::Lost),
        Judged::Unclaimed => {}
        Judged::Freed {
            starts,
            interruptions,
        } => {
            record.starts = starts;
            record.interruptions = interruptions;
        }
        Judged::Abandoned {
            starts,
            interruptions,
        } => {
            record.starts = starts.saturating_add(1);
            record.interruptions = interruptions;
        }
    }
    debug!(task = %record.task, starts = record.starts, "claim_taken");
    Ok(())
}
