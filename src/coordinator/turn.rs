//! One turn of a workflow: apply the news, write the state, do what the stored state obliges to (P4, P6–P8).
//!
//! Invariants:
//! 1. Nothing of a turn leaves this process before its write is stored.
//! 2. After a rival's write the news is applied to the state read anew, a bounded number of times.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join;

use super::actor::{Actor, GRACE_NOTE_INTERVAL, MARKS_AFTER, News, Trouble};
use super::book::{Fate, Pass};
use super::load::Loaded;
use super::stats::Stats;
use crate::engine::{Applied, Generation, TaskState};
use crate::env::Mono;
use crate::protocol::{Shown, Swap, note};
use crate::record::{RunId, Stamp};
use crate::store::{Kind, StoreError};

/// What memory makes of news.
#[derive(Debug)]
struct Judged {
    /// Results that no state has issued.
    unissued: BTreeSet<usize>,
    /// Whether all of it is of a state that is at hand or of an earlier one; otherwise it may be of a later one.
    is_known: bool,
}

impl Actor {
    /// One turn (P4): apply, write, then acknowledge and send.
    pub(super) async fn turn(&mut self, mut news: News) -> Result<(), Trouble> {
        self.take_slots(&mut news);
        if let Some(until) = self.aside_until {
            // Whoever purges what is broken need not wait until it is looked at again, which may always be while its message is hidden.
            if self.ctx.env.mono() < until && !news.asks_to_purge() {
                self.dispatch.return_credits(&self.ctx, &self.id);
                return self.quarantine(news).await;
            }
            self.aside_until = None;
        }
        // Bounds the requests of all workflows together; who waits here holds nothing.
        let ctx = Arc::clone(&self.ctx);
        let Some(turn) = ctx.may_turn().await else {
            return self.give_back(news).await;
        };
        // What came while it waited shares its write.
        self.more(&mut news);
        self.take_slots(&mut news);
        if news.unlisted {
            self.doubt_memory();
        }
        let mut pass = Pass::default();
        if self.book.is_none() {
            let loaded = match self.load(&mut pass).await {
                Ok(loaded) => loaded,
                Err(error) => return self.turn_unread(news, error, turn).await,
            };
            match loaded {
                Loaded::Yes => {}
                Loaded::Nothing => return self.refuse_unknown(news).await,
                Loaded::Purged(tombstone) => {
                    return self.turn_purged(news, &tombstone, turn).await;
                }
                Loaded::Unrunnable => return self.acknowledge(news, &BTreeSet::new()).await,
                Loaded::NotLeader => return Err(Trouble::Fenced),
            }
        }
        let (drained, repair) = (news.drained, news.repair);
        let lost = std::mem::take(&mut news.lost);
        let unissued = self.apply_and_store(&news, pass).await?;
        if let Some(tombstone) = self.tombstone.take() {
            self.acknowledge(news, &unissued).await?;
            // What is left may be much: others need not wait for it.
            drop(turn);
            return self.clear_away(&tombstone).await;
        }
        if self.row_first {
            self.show_row().await?;
            self.row_first = false;
            self.cancel_if_row_says_so().await?;
        }
        if let Some(book) = &self.book {
            if drained || self.ctx.is_drained() {
                self.dispatch.drained(&self.ctx, book);
            }
            if repair {
                self.dispatch.repair(&self.ctx, book);
            }
            self.dispatch.send_again(&self.ctx, book, &lost);
        }
        let acknowledged = self.acknowledge(news, &unissued);
        let acknowledged = async {
            let acknowledged = acknowledged.await;
            // A queue that hangs must hold up no workflow that sends to another.
            drop(turn);
            acknowledged
        };
        // Neither waits for the other: both follow from what is stored.
        let (acknowledged, sent) = join(acknowledged, self.send()).await;
        acknowledged.and(sent)?;
        if self.is_row_due()
            && let Some(_turn) = ctx.may_turn().await
        {
            self.show_row().await?;
        }
        self.asides.reset();
        Ok(())
    }

    fn take_slots(&mut self, news: &mut News) {
        for (queue, count) in std::mem::take(&mut news.slots) {
            self.dispatch.granted(queue, count);
        }
    }

    /// Acts on a request that waited on the row while nobody led.
    async fn cancel_if_row_says_so(&mut self) -> Result<(), Trouble> {
        let run = self.book.as_ref().map(|book| book.definition.run_id);
        if let Some(asked) = run.zip(self.row.cancel_requested()) {
            let news = News {
                cancel: Some(asked),
                ..News::default()
            };
            self.apply_and_store(&news, Pass::default()).await?;
        }
        Ok(())
    }

    /// Applies the news and stores what changed, again while a rival writes; tells which results no state has issued.
    pub(super) async fn apply_and_store(
        &mut self,
        news: &News,
        mut pass: Pass,
    ) -> Result<BTreeSet<usize>, Trouble> {
        let mut rivals = 0;
        let mut reread = false;
        loop {
            let Judged { unissued, is_known } = self.apply(news, &mut pass);
            if !is_known && !reread {
                // What memory does not know may yet be in storage (P7). What storage does not know either is not to come: news is
                // received before its state is read.
                reread = true;
            } else {
                match self.store(&mut pass).await? {
                    Swap::Stored => {
                        self.follow_up(&pass).await?;
                        for entry in &pass.answered {
                            note(&self.ctx.env, &self.ctx.store, &self.ctx.layout, entry).await;
                        }
                        return Ok(unissued);
                    }
                    Swap::Rival if rivals < self.ctx.config.flush_retry_limit => rivals += 1,
                    Swap::Rival => {
                        return Err(self.trouble(Kind::Conflict, "met rivals again and again"));
                    }
                }
                Stats::count(&self.ctx.stats.state_conflicts);
            }
            self.drop_memory();
            pass = Pass::default();
            match self.load(&mut pass).await? {
                Loaded::Yes => {}
                Loaded::NotLeader => return Err(Trouble::Fenced),
                Loaded::Nothing | Loaded::Purged(_) | Loaded::Unrunnable => {
                    return Err(self.trouble(Kind::NotFound, "gone meanwhile"));
                }
            }
        }
    }

    pub(super) fn trouble(&self, kind: Kind, detail: &str) -> Trouble {
        let operation = format!("put blob {}", self.ctx.layout.runtime(&self.id));
        Trouble::Aside(StoreError::new(kind, operation, detail).into())
    }

    /// Applies all news to the book.
    fn apply(&mut self, news: &News, pass: &mut Pass) -> Judged {
        let Self {
            ctx,
            book: Some(book),
            outbox,
            grace_since,
            ..
        } = self
        else {
            return Judged {
                unissued: BTreeSet::new(),
                is_known: true,
            };
        };
        let mut is_known = true;
        let had_cancel = book.runtime.cancel_applied().is_some();
        for (control, _) in &news.controls {
            let fate = book.apply_control(&ctx.env, outbox, control, pass);
            is_known &= fate == Fate::Handled;
        }
        // A row of an earlier run of the id may have been read before that was purged.
        let of_run = |(run, _): &(RunId, Generation)| *run == book.definition.run_id;
        if let Some((_, generation)) = news.cancel.filter(of_run) {
            // Why not needs no answer: the request stays on the row and is old by its generation.
            drop(book.cancel(&ctx.env, outbox, generation, pass));
        }
        let mut unissued = BTreeSet::new();
        for (at, (result, _)) in news.results.iter().enumerate() {
            let fate = book.apply_result(&ctx.env, outbox, result, pass);
            is_known &= fate == Fate::Handled;
            if fate == Fate::Unissued {
                unissued.insert(at);
            }
        }
        if book.runtime.cancel_applied().is_some() && !had_cancel {
            // Its grace is a new one, whatever was used of that of a stop.
            *grace_since = None;
        }
        Judged { unissued, is_known }
    }

    /// Writes the book if it must be written.
    pub(super) async fn store(&mut self, pass: &mut Pass) -> Result<Swap, Trouble> {
        if let Some(by) = &pass.purged {
            return self.bury(by).await;
        }
        let now = self.ctx.env.mono();
        let waited = |since: Mono| now.since(since) >= MARKS_AFTER;
        let marks_due = self.outbox.has_unstored_marks()
            && (self.ctx.stopping.is_cancelled() || self.marks_since.is_some_and(waited));
        self.use_grace(now, pass);
        let Self {
            ctx,
            book: Some(book),
            outbox,
            ..
        } = self
        else {
            return Ok(Swap::Stored);
        };
        outbox.mark(&mut book.runtime);
        if !pass.changed && !marks_due {
            return Ok(Swap::Stored);
        }
        if pass.reopens {
            let shown = self
                .row
                .reopen(&book.index(ctx.epoch(), ctx.env.wall()), &ctx.stopping)
                .await?;
            if let Shown::Met(epoch) = shown {
                ctx.met(epoch, "the index row").await?;
                return Ok(Swap::Rival);
            }
        }
        let stamp = Stamp::new(ctx.env.uuid());
        let record = book.record(ctx.epoch(), ctx.leadership.holder(), stamp, ctx.env.wall());
        let revision = record.revision;
        let touched = book.runtime.take_touched();
        let mut bytes = 0;
        let swap = self
            .cell
            .swap_tasks(record, &book.runtime, &touched, &mut bytes, &ctx.stopping);
        let swap = swap.await?;
        Stats::count(&ctx.stats.state_writes);
        Stats::add(&ctx.stats.state_bytes, bytes);
        if swap == Swap::Stored {
            book.revision = revision;
            outbox.marks_stored();
            self.marks_since = None;
            self.row_is_behind();
        }
        Ok(swap)
    }

    /// Notes how much of the grace of a cancel or a stop is used up, and ends it when it is over.
    fn use_grace(&mut self, now: Mono, pass: &mut Pass) {
        let left = self.grace_left();
        let Some(book) = &mut self.book else { return };
        let Some(left) = left else {
            self.grace_since = None;
            return;
        };
        let since = *self.grace_since.get_or_insert(now);
        if left.is_zero() && book.runtime.end_grace(&mut pass.changes) == Applied::Changed {
            tracing::warn!(workflow = %self.id, "cancel_grace_over");
            pass.changed = true;
        }
        if pass.changed || now.since(since) >= GRACE_NOTE_INTERVAL {
            book.runtime.use_grace(now.since(since));
            self.grace_since = Some(now);
            pass.changed = true;
        }
    }

    /// What a stored pass obliges to.
    async fn follow_up(&mut self, pass: &Pass) -> Result<(), Trouble> {
        let Self {
            ctx,
            book: Some(book),
            outbox,
            dispatch,
            ..
        } = self
        else {
            return Ok(());
        };
        Stats::add(&ctx.stats.completions_applied, pass.applied);
        Stats::add(&ctx.stats.completions_old_news, pass.old_news);
        let ended = pass.changes.ended.iter().map(|task| {
            // A worker has told so; what else ends a task says nothing of its message.
            let was_taken = matches!(
                book.runtime.task(*task).state,
                TaskState::Completed | TaskState::Failed
            );
            (*task, was_taken)
        });
        let mut ready = pass.changes.ready.clone();
        ready.retain(|task| book.runtime.task(*task).state == TaskState::Ready);
        dispatch.ended(
            ctx,
            book,
            ended.chain(ready.iter().map(|task| (*task, true))),
        );
        let mut placed = BTreeSet::new();
        for task in ready {
            if placed.insert(task) {
                outbox.made_ready(task, book.runtime.task(task).attempt);
                dispatch.enqueue(ctx, book, task);
            }
        }
        if let Some(generation) = pass.cancelled {
            let (run, epoch) = (book.definition.run_id, ctx.epoch());
            let row = &mut self.row;
            let asked = row.request_cancel(run, epoch, generation, &ctx.stopping);
            if let Shown::Met(epoch) = asked.await? {
                return Err(self.met_by_row(epoch).await?);
            }
        }
        Ok(())
    }
}
