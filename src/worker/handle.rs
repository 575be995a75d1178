//! What becomes of one message, from its receipt to one of the ways out (P21).

use std::ops::ControlFlow;
use std::time::Duration;

use futures::future::join;
use tracing::{debug, error, info, warn};

use super::heartbeat::{Held, Keeper};
use super::load::NotLoaded;
use super::observe::{TaskEnded, TaskStarted};
use super::persist::Persisted;
use super::report::{Ended, failure};
use super::suspect::Verdict;
use super::{Delivery, End, Execution, Job, Signals, Worker};
use crate::engine::{FailureKind, Outcome};
use crate::protocol::{Pauses, ReadError, delete_claim, send, write_claim};
use crate::record::{ClaimRecord, Token};
use crate::store::{ETag, Expect, Result as StoreResult};
use tokio_util::sync::CancellationToken;

/// The longest pause before a message that could not be judged is shown again.
const GIVE_BACK_MAX: Duration = Duration::from_secs(60);
/// How long a slot rests after a start for which this machine had no room.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(1);
/// How often the last requests of a message are tried: what they leave undone, others tidy up.
const TIDY_TRIES: u32 = 6;
/// The pause between those tries, and the first between tries to judge a message.
const TIDY_PAUSE: Duration = Duration::from_millis(500);

/// The ways out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Way {
    /// The end was posted; claim and message are removed.
    Posted,
    /// The message is shown again after a time; a claim is freed.
    GivenBack(Duration),
    /// As [`Self::GivenBack`], at once, and counted as an interruption.
    Interrupted,
    /// Old news: claim and message are removed.
    OldNews,
    /// The message is left as it is.
    Left,
}

/// Who ended a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ender {
    Cancel,
    Loss,
    Eviction,
    Kill,
}

/// How long a message is put aside that could not be judged: the longer, the more often it was tried.
pub(super) fn give_back_delay(deliveries: u32) -> Duration {
    let secs = 1_u64.checked_shl(deliveries).unwrap_or(u64::MAX);
    Duration::from_secs(secs).min(GIVE_BACK_MAX)
}

impl Worker {
    /// Handles one task message to its way out.
    pub(super) async fn handle(&self, delivery: &Delivery) -> Way {
        let task = &delivery.task;
        let verdict = match self.judge_patiently(delivery).await {
            Ok(verdict) => verdict,
            Err(error) => {
                warn!(workflow_id = %task.workflow_id, task = %task.task, %error, "message_not_judged");
                Verdict::GiveBack(give_back_delay(delivery.message.deliveries))
            }
        };
        match verdict {
            Verdict::Start(record, claim) => {
                let keeper = Keeper::new(self, delivery, record, claim);
                self.keep(&keeper, self.execute(&keeper, delivery)).await
            }
            Verdict::Cancelled(record, claim) => {
                let ended = Ended::without_run(Outcome::Cancelled(task.generation));
                self.end_unstarted(delivery, record, claim, ended).await
            }
            Verdict::TooOften(record, claim) => {
                let starts = record.starts.saturating_sub(1);
                let reason = format!(
                    "started {starts} times and never ended: it may kill its workers (`--max-deliveries`)"
                );
                let mut failure = failure(FailureKind::Deliveries, &reason);
                failure.is_final = true;
                error!(workflow_id = %task.workflow_id, task = %task.task, attempt_no = %task.attempt_no, starts, "poison_task");
                let ended = Ended::without_run(Outcome::Failed(failure));
                self.end_unstarted(delivery, record, claim, ended).await
            }
            Verdict::OldNews => {
                info!(workflow_id = %task.workflow_id, task = %task.task, attempt_no = %task.attempt_no, "old_news");
                if let Err(error) = self.remove_old_claim(delivery).await {
                    warn!(%error, "claim_not_removed");
                }
                self.tidy("message_not_deleted", || self.delete(delivery, None))
                    .await;
                Way::OldNews
            }
            Verdict::GiveBack(delay) => {
                self.tidy("message_not_given_back", || {
                    self.show(delivery, None, delay)
                })
                .await;
                Way::GivenBack(delay)
            }
        }
    }

    /// Judges a message, again and again where the store is busy, for a quarter of the time that the message is hidden: a suspect takes
    /// several reads, and each round over the queue would double its delay.
    async fn judge_patiently(&self, delivery: &Delivery) -> Result<Verdict, ReadError> {
        let until = delivery.received_at.plus(self.config.visibility / 4);
        let mut pauses = Pauses::from(TIDY_PAUSE);
        loop {
            let error = match self.judge_message(delivery).await {
                Err(ReadError::Store(error)) if error.is_transient() => error,
                judged => return judged,
            };
            let pause = pauses.next(&self.env, error.retry_after);
            if self.stop.drain.is_cancelled() || self.env.mono().plus(pause) > until {
                return Err(error.into());
            }
            tokio::select! {
                biased;
                () = self.stop.drain.cancelled() => {}
                () = self.env.sleep(pause) => {}
            }
        }
    }

    /// Does `work` while the message is kept, then what the way out asks for.
    async fn keep(&self, keeper: &Keeper<'_>, work: impl Future<Output = Way>) -> Way {
        let worked = async {
            let way = work.await;
            keeper.finish();
            way
        };
        let ((), way) = join(keeper.run(), worked).await;
        let _without_a_slot = self.ends.leaves();
        self.leave(keeper.delivery(), &keeper.held().await, way)
            .await;
        way
    }

    /// Posts the end of an attempt that does not run.
    async fn end_unstarted(
        &self,
        delivery: &Delivery,
        record: ClaimRecord,
        claim: Option<ETag>,
        ended: Ended,
    ) -> Way {
        let token = record.token;
        let poison = matches!(&ended.outcome, Outcome::Failed(_));
        let keeper = Keeper::new(self, delivery, record, claim);
        keeper.command_ended();
        let work = async {
            if poison {
                self.keep_copy(&keeper).await;
            }
            self.end(&keeper, delivery, token, ended).await
        };
        self.keep(&keeper, work).await
    }

    /// Keeps a copy of a poison task's message where people look for it.
    async fn keep_copy(&self, keeper: &Keeper<'_>) {
        let delivery = keeper.delivery();
        let queue = self.layout.task_poison(&delivery.queue_name);
        let body = &delivery.message.body;
        let copy = || send(&self.store, &queue, body, Duration::ZERO);
        match self.persist(keeper, "poison copy", copy).await {
            Persisted::Stored => self.count(|summary| summary.poison += 1),
            other => warn!(task = %delivery.task.task, ?other, "poison_copy_not_kept"),
        }
    }

    async fn execute(&self, keeper: &Keeper<'_>, delivery: &Delivery) -> Way {
        let task = &delivery.task;
        let token = keeper.record().await.token;
        let loaded = tokio::select! {
            biased;
            () = keeper.lost.cancelled() => return Way::Left,
            () = self.stop.drain.cancelled() => return Way::GivenBack(Duration::ZERO),
            loaded = self.load(task, token) => loaded,
        };
        let job = match loaded {
            Ok(job) => job,
            Err(NotLoaded::Later(error)) => {
                warn!(workflow_id = %task.workflow_id, task = %task.task, %error, "job_not_loaded");
                keeper.command_ended();
                return Way::GivenBack(give_back_delay(delivery.message.deliveries));
            }
            Err(NotLoaded::Never(failed)) => {
                keeper.command_ended();
                let ended =
                    Ended::without_run(Outcome::Failed(failure(failed.kind, &failed.message)));
                return self.end(keeper, delivery, token, ended).await;
            }
        };
        let slot = match self.reuse(keeper, delivery, &job).await {
            ControlFlow::Break(way) => return way,
            ControlFlow::Continue(slot) => slot,
        };
        let started = TaskStarted::of(task);
        self.observer.started(&started);
        info!(workflow_id = %task.workflow_id, task = %task.task, attempt_no = %task.attempt_no, "task_started");
        let (execution, stopped_by) = self.run(keeper, delivery, &job).await;
        let stopped = execution.end == End::Stopped;
        match stopped_by {
            Some(Ender::Loss | Ender::Kill) => Way::Left,
            Some(Ender::Cancel) if stopped => {
                let outcome = Outcome::Cancelled(task.generation);
                let ended = Ended::overruled(execution, outcome);
                self.end(keeper, delivery, token, ended).await
            }
            Some(Ender::Eviction) if stopped => {
                let interruptions = keeper.record().await.interruptions.saturating_add(1);
                if interruptions < self.config.max_interruptions {
                    return Way::Interrupted;
                }
                let reason = format!("interrupted {interruptions} times (`--max-interruptions`)");
                let outcome = Outcome::Failed(failure(FailureKind::Interruptions, &reason));
                let ended = Ended::overruled(execution, outcome);
                self.end(keeper, delivery, token, ended).await
            }
            Some(Ender::Cancel | Ender::Eviction) | None => {
                if let End::NoRoom(why) = &execution.end {
                    warn!(workflow_id = %task.workflow_id, task = %task.task, why, "no_room_for_task");
                    // The slot rests, or a long queue would pass through it in no time and come back as a whole.
                    tokio::select! {
                        biased;
                        () = self.stop.drain.cancelled() => {}
                        () = self.env.sleep(NO_ROOM_PAUSE) => {}
                    }
                    return Way::GivenBack(give_back_delay(delivery.message.deliveries));
                }
                let mut ended = Ended::of(execution, job.time_limit);
                ended.slot = slot;
                self.end(keeper, delivery, token, ended).await
            }
        }
    }

    /// Runs the job, and ends it when it must not go on.
    async fn run(
        &self,
        keeper: &Keeper<'_>,
        delivery: &Delivery,
        job: &Job,
    ) -> (Execution, Option<Ender>) {
        let watched = self.workflows.watch(&delivery.task);
        let signals = Signals {
            stop: CancellationToken::new(),
            kill: self.stop.kill.clone(),
        };
        let running = self.executor.run(job, &signals);
        tokio::pin!(running);
        let stopped_by = async {
            tokio::select! {
                biased;
                () = self.stop.kill.cancelled() => Ender::Kill,
                () = keeper.lost.cancelled() => Ender::Loss,
                () = watched.cancelled.cancelled() => Ender::Cancel,
                () = self.evict.cancelled() => Ender::Eviction,
            }
        };
        let (execution, stopped_by) = tokio::select! {
            biased;
            execution = &mut running => (execution, None),
            stopped_by = stopped_by => {
                debug!(workflow_id = %job.workflow_id, task = %job.task, ?stopped_by, "task_stopping");
                if stopped_by == Ender::Cancel {
                    keeper.retire(self.env.mono().plus(self.config.kill_grace));
                }
                signals.stop.cancel();
                (running.await, Some(stopped_by))
            }
        };
        keeper.command_ended();
        // What came while the job was ending overrules why it was ended.
        if self.stop.kill.is_cancelled() {
            (execution, Some(Ender::Kill))
        } else if keeper.lost.is_cancelled() {
            (execution, Some(Ender::Loss))
        } else {
            (execution, stopped_by)
        }
    }

    /// Reports the end of an attempt.
    pub(super) async fn end(
        &self,
        keeper: &Keeper<'_>,
        delivery: &Delivery,
        token: Token,
        mut ended: Ended,
    ) -> Way {
        let persisted = {
            let _on_its_way = self.ends.posts();
            self.report(keeper, delivery, token, &mut ended).await
        };
        let seen = TaskEnded::of(&delivery.task, &ended.outcome);
        match persisted {
            Persisted::Stored => {
                info!(workflow_id = %seen.workflow_id, task = %seen.task, attempt_no = %seen.attempt_no, outcome = seen.word(), "task_ended");
                self.observer.ended(&seen);
                self.count(|summary| summary.count(&seen.outcome));
                Way::Posted
            }
            Persisted::GivenUp if self.evict.is_cancelled() => Way::Interrupted,
            Persisted::Lost | Persisted::GivenUp => Way::Left,
            Persisted::Refused(error) => {
                error!(workflow_id = %seen.workflow_id, task = %seen.task, %error, "completion_refused");
                Way::Left
            }
        }
    }

    /// The last requests of a message that was kept.
    async fn leave(&self, delivery: &Delivery, held: &Held, way: Way) {
        match way {
            Way::Posted | Way::OldNews => {
                // Where the receipt was lost, the message may come back before the result is stored: the claim then still says that the
                // attempt is taken, and whoever meets the message as old news removes both.
                if let (Some(etag), Some(_)) = (&held.claim, &held.receipt) {
                    let id = &held.record.workflow_id;
                    let task = &held.record.task;
                    self.tidy("claim_not_removed", || {
                        delete_claim(&self.store, &self.layout, id, task, etag)
                    })
                    .await;
                }
                self.tidy("message_not_deleted", || self.delete(delivery, Some(held)))
                    .await;
            }
            Way::GivenBack(delay) => {
                if held.claim.is_some() {
                    self.free(held, held.record.interruptions).await;
                }
                self.tidy("message_not_given_back", || {
                    self.show(delivery, Some(held), delay)
                })
                .await;
            }
            Way::Interrupted => {
                self.free(held, held.record.interruptions.saturating_add(1))
                    .await;
                self.tidy("message_not_given_back", || {
                    self.show(delivery, Some(held), Duration::ZERO)
                })
                .await;
            }
            Way::Left => {}
        }
    }

    /// Gives the claim up, so that the next start is no new one; inserts it where there is none yet, for its counts.
    async fn free(&self, held: &Held, interruptions: u32) {
        let record = ClaimRecord {
            freed: true,
            interruptions,
            ..held.record.clone()
        };
        let expect = held.claim.clone().map_or(Expect::Absent, Expect::Version);
        self.tidy("claim_not_freed", || async {
            write_claim(&self.store, &self.layout, &record, &expect)
                .await
                .map(drop)
        })
        .await;
    }

    async fn delete(&self, delivery: &Delivery, held: Option<&Held>) -> StoreResult<()> {
        match delivery.receipt(held) {
            Some(receipt) => self.store.queues.delete(&delivery.queue, receipt).await,
            None => Ok(()),
        }
    }

    async fn show(
        &self,
        delivery: &Delivery,
        held: Option<&Held>,
        delay: Duration,
    ) -> StoreResult<()> {
        match delivery.receipt(held) {
            Some(receipt) => {
                let shown = self.store.queues.extend(&delivery.queue, receipt, delay);
                shown.await.map(drop)
            }
            None => Ok(()),
        }
    }

    /// Tries a request a few times, with growing pauses: a message that was not removed comes back, and may be there before the state tells
    /// that it is old. Once where the worker must go; what stays undone is tidied up by whoever meets it next.
    pub(super) async fn tidy<F>(&self, event: &'static str, request: impl Fn() -> F)
    where
        F: Future<Output = StoreResult<()>>,
    {
        let mut pauses = Pauses::from(TIDY_PAUSE);
        for tried in 1.. {
            let Err(error) = request().await else { return };
            let must_go = self.evict.is_cancelled() || self.stop.kill.is_cancelled();
            if !error.is_transient() || tried >= TIDY_TRIES || must_go {
                warn!(event, %error, "left_undone");
                return;
            }
            tokio::select! {
                biased;
                () = self.stop.kill.cancelled() => {}
                () = self.evict.cancelled() => {}
                () = self.env.sleep(pauses.next(&self.env, error.retry_after)) => {}
            }
        }
    }
}
