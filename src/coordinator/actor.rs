//! One workflow under its leader: news in, one write at a time, then acknowledgements and sends (P4, P8, P9).
//!
//! Invariants:
//! 1. One turn at a time: apply, write, then acknowledge and send. Nothing of a turn leaves this process before its write is stored.
//! 2. News that a turn could not store is left on the queue, and the memory it was applied to is thrown away.
//! 3. A workflow with unsent or unmarked tasks is not let go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::book::{Book, Fate, Pass};
use super::context::Context;
use super::dispatch::Dispatch;
use super::load::Loaded;
use super::mail::Mail;
use super::registry::Registry;
use super::stats::Stats;
use crate::definition::{QueueName, WorkflowId};
use crate::engine::{Applied, Generation, TaskState};
use crate::env::Mono;
use crate::protocol::{Cell, Delivery, Outbox, Pauses, Projection, ReadError, Settled, Shown, Swap, carry_out};
use crate::record::{CompletionResult, ControlRecord, Stamp};
use crate::store::{Kind, StoreError};

/// Most pieces of news in one turn.
const NEWS_PER_TURN: usize = 2048;
/// How long a workflow must be quiet before the mark "dispatched" gets a write of its own.
const MARKS_AFTER: Duration = Duration::from_secs(1);
/// The shortest time between two projections of an unfinished workflow to its row.
const ROW_INTERVAL: Duration = Duration::from_secs(2);
/// The longest time between two notes of used-up cancel grace.
const GRACE_NOTE_INTERVAL: Duration = Duration::from_secs(15);
/// Acknowledgements of one workflow on the wire at once.
const ACKS_AT_ONCE: usize = 8;

/// The actor of one workflow.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) ctx: Arc<Context>,
    pub(super) id: WorkflowId,
    registry: Arc<Registry>,
    inbox: UnboundedReceiver<Mail>,
    mailbox: UnboundedSender<Mail>,
    pub(super) cell: Cell,
    pub(super) row: Projection,
    pub(super) outbox: Outbox,
    pub(super) dispatch: Dispatch,
    pub(super) book: Option<Book>,
    /// The row must show the take-over before anything is sent (P12).
    pub(super) row_first: bool,
    /// The row shows less than the state.
    pub(super) row_behind: bool,
    row_shown_at: Option<Mono>,
    more_to_send: bool,
    last_turn: Mono,
    grace_since: Option<Mono>,
    aside_until: Option<Mono>,
    asides: Pauses,
}

/// News of one turn.
#[derive(Debug, Default)]
struct News {
    results: Vec<(Box<CompletionResult>, Delivery)>,
    controls: Vec<(Box<ControlRecord>, Delivery)>,
    cancel: Option<Generation>,
    slots: Vec<(QueueName, u32)>,
    drained: bool,
    repair: bool,
}

/// Why a turn could not be finished.
#[derive(Debug)]
enum Trouble {
    /// This leader may not act any more.
    Fenced,
    /// What is stored or what the store says keeps this workflow from going on for now.
    Aside(ReadError),
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(StoreError { kind: Kind::Fenced, .. }) => Self::Fenced,
            ReadError::Store(_) | ReadError::Decode { .. } => Self::Aside(error),
        }
    }
}

impl Actor {
    pub(super) fn new(
        ctx: Arc<Context>,
        registry: Arc<Registry>,
        id: WorkflowId,
        inbox: UnboundedReceiver<Mail>,
        mailbox: UnboundedSender<Mail>,
    ) -> Self {
        let (env, store, layout) = (ctx.env.clone(), ctx.store.clone(), ctx.layout.clone());
        Self {
            cell: Cell::new(env.clone(), store.clone(), layout.clone(), id.clone()),
            row: Projection::new(env.clone(), store, layout, id.clone()),
            outbox: Outbox::default(),
            dispatch: Dispatch::default(),
            book: None,
            row_first: false,
            row_behind: false,
            row_shown_at: None,
            more_to_send: false,
            last_turn: env.mono(),
            grace_since: None,
            aside_until: None,
            asides: Pauses::from(Duration::from_secs(1)),
            ctx,
            id,
            registry,
            inbox,
            mailbox,
        }
    }

    /// Serves the workflow until it has ended and nothing more comes, or this process stops leading.
    pub(super) async fn run(mut self) {
        loop {
            let news = tokio::select! {
                biased;
                () = self.ctx.leadership.fence().closed().cancelled() => return,
                () = self.ctx.stopping.cancelled() => return self.stop().await,
                news = self.next() => news,
            };
            match self.turn(news).await {
                Ok(()) => {}
                Err(Trouble::Fenced) => return,
                Err(Trouble::Aside(error)) => self.set_aside(&error),
            }
            self.last_turn = self.ctx.env.mono();
            if self.may_go() && self.registry.retire(&self.id, &self.inbox) {
                self.dispatch.close(&self.ctx);
                return;
            }
        }
    }

    /// Waits for news or for something that is due.
    async fn next(&mut self) -> News {
        let mut news = News::default();
        let due = self.due();
        let sleep = async {
            match due {
                Some(at) => self.ctx.env.sleep(at.since(self.ctx.env.mono())).await,
                None => std::future::pending().await,
            }
        };
        let first = tokio::select! {
            mail = self.inbox.recv() => mail,
            () = sleep => None,
        };
        let mut taken = 0;
        let mut mail = first;
        while let Some(piece) = mail {
            news.add(piece);
            taken += 1;
            mail = if taken < NEWS_PER_TURN { self.inbox.try_recv().ok() } else { None };
        }
        news
    }

    /// When something is to be done without news.
    fn due(&self) -> Option<Mono> {
        let now = self.ctx.env.mono();
        if let Some(until) = self.aside_until {
            return Some(until);
        }
        self.book.as_ref()?;
        if self.more_to_send {
            return Some(now);
        }
        let quiet = self.outbox.has_unstored_marks().then(|| self.last_turn.plus(MARKS_AFTER));
        let row = self.row_behind.then(|| self.row_shown_at.map_or(now, |at| at.plus(ROW_INTERVAL)));
        let grace = self.grace_left().map(|left| now.plus(left.min(GRACE_NOTE_INTERVAL)));
        [quiet, row, grace, self.dispatch.next_due()].into_iter().flatten().min()
    }

    fn grace_left(&self) -> Option<Duration> {
        let used = self.grace_since.map_or(Duration::ZERO, |since| self.ctx.env.mono().since(since));
        self.book.as_ref()?.grace_left(self.ctx.config.cancel_grace, used)
    }

    /// Whether nothing is left to do for the workflow.
    fn may_go(&self) -> bool {
        if self.aside_until.is_some() {
            return false;
        }
        self.book.as_ref().is_none_or(|book| book.runtime.status().is_final() && !self.row_behind)
    }

    /// Steps aside after something that time may mend; others are not delayed.
    fn set_aside(&mut self, error: &ReadError) {
        let pause = self.asides.next(&self.ctx.env, None);
        tracing::error!(workflow = %self.id, error = %error, pause_s = pause.as_secs(), "workflow_set_aside");
        Stats::count(&self.ctx.stats.workflows_broken);
        self.drop_memory();
        self.aside_until = Some(self.ctx.env.mono().plus(pause));
    }

    fn drop_memory(&mut self) {
        Stats::count(&self.ctx.stats.memory_dropped);
        self.book = None;
        self.outbox.state_dropped();
        self.row.forget();
    }

    /// One turn (P4): apply, write, then acknowledge and send.
    async fn turn(&mut self, mut news: News) -> Result<(), Trouble> {
        if let Some(until) = self.aside_until {
            if self.ctx.env.mono() < until {
                // Dropping the news leaves it on its queue.
                return Ok(());
            }
            self.aside_until = None;
        }
        let mut pass = Pass::default();
        if self.book.is_none() {
            match self.load(&mut pass).await? {
                Loaded::Yes => {}
                Loaded::Nothing => return self.refuse_unknown(news).await,
                Loaded::Unrunnable => return self.acknowledge(news, &BTreeSet::new()).await,
                Loaded::NotLeader => return Err(Trouble::Fenced),
            }
        }
        for (queue, count) in std::mem::take(&mut news.slots) {
            self.dispatch.granted(queue, count);
        }
        let (drained, repair) = (news.drained, news.repair);
        let unissued = self.apply_and_store(&news, pass).await?;
        self.asides.reset();
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
        }
        self.acknowledge(news, &unissued).await?;
        self.send().await?;
        self.project().await
    }

    /// Acts on a request that waited on the row while nobody led.
    async fn cancel_if_row_says_so(&mut self) -> Result<(), Trouble> {
        if let Some(generation) = self.row.cancel_requested() {
            let news = News { cancel: Some(generation), ..News::default() };
            self.apply_and_store(&news, Pass::default()).await?;
        }
        Ok(())
    }

    /// Applies the news and stores what changed, again while a rival writes; tells which results no state has issued.
    async fn apply_and_store(&mut self, news: &News, mut pass: Pass) -> Result<BTreeSet<usize>, Trouble> {
        let mut rivals = 0;
        let mut reread = false;
        loop {
            let unissued = self.apply(news, &mut pass);
            if !unissued.is_empty() && !reread {
                // What memory does not know may yet be in storage (P7).
                reread = true;
            } else {
                match self.store(&mut pass).await? {
                    Swap::Stored => {
                        self.follow_up(&pass).await?;
                        return Ok(unissued);
                    }
                    Swap::Rival if rivals < self.ctx.config.flush_retry_limit => rivals += 1,
                    Swap::Rival => return Err(self.trouble(Kind::Conflict, "met rivals again and again")),
                }
                Stats::count(&self.ctx.stats.state_conflicts);
            }
            self.drop_memory();
            pass = Pass::default();
            match self.load(&mut pass).await? {
                Loaded::Yes => {}
                Loaded::NotLeader => return Err(Trouble::Fenced),
                Loaded::Nothing | Loaded::Unrunnable => return Err(self.trouble(Kind::NotFound, "gone meanwhile")),
            }
        }
    }

    fn trouble(&self, kind: Kind, detail: &str) -> Trouble {
        let operation = format!("put blob {}", self.ctx.layout.runtime(&self.id));
        Trouble::Aside(StoreError::new(kind, operation, detail).into())
    }

    /// Applies all news to the book.
    fn apply(&mut self, news: &News, pass: &mut Pass) -> BTreeSet<usize> {
        let Self { ctx, book: Some(book), outbox, .. } = self else { return BTreeSet::new() };
        for (control, _) in &news.controls {
            book.apply_control(&ctx.env, outbox, control, pass);
        }
        if let Some(generation) = news.cancel {
            // Why not needs no answer: the request stays on the row and is old by its generation.
            drop(book.cancel(&ctx.env, outbox, generation, pass));
        }
        let mut unissued = BTreeSet::new();
        for (at, (result, _)) in news.results.iter().enumerate() {
            if book.apply_result(&ctx.env, outbox, result, pass) == Fate::Unissued {
                unissued.insert(at);
            }
        }
        unissued
    }

    /// Writes the book if it must be written.
    async fn store(&mut self, pass: &mut Pass) -> Result<Swap, Trouble> {
        let now = self.ctx.env.mono();
        let quiet = now.since(self.last_turn) >= MARKS_AFTER || self.ctx.stopping.is_cancelled();
        let marks_due = self.outbox.has_unstored_marks() && quiet;
        self.use_grace(now, pass);
        let Self { ctx, book: Some(book), outbox, .. } = self else { return Ok(Swap::Stored) };
        outbox.mark(&mut book.runtime);
        if !pass.changed && !marks_due {
            return Ok(Swap::Stored);
        }
        if pass.reopens {
            let shown = self.row.reopen(&book.index(ctx.epoch(), ctx.env.wall()), &ctx.stopping).await?;
            if let Shown::Met(epoch) = shown {
                ctx.met(epoch, "the index row").await?;
                return Ok(Swap::Rival);
            }
        }
        let stamp = Stamp::new(ctx.env.uuid());
        let record = book.record(ctx.epoch(), ctx.leadership.holder(), stamp, ctx.env.wall());
        let mut bytes = 0;
        let swap = self.cell.swap(&record, &mut bytes, &ctx.stopping).await?;
        Stats::count(&ctx.stats.state_writes);
        Stats::add(&ctx.stats.state_bytes, bytes);
        if swap == Swap::Stored {
            book.revision = record.revision;
            outbox.marks_stored();
            self.row_behind = true;
        }
        Ok(swap)
    }

    /// Notes how much of the cancel grace is used up, and ends it when it is over.
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
        let Self { ctx, book: Some(book), outbox, dispatch, .. } = self else { return Ok(()) };
        Stats::add(&ctx.stats.completions_applied, pass.applied);
        Stats::add(&ctx.stats.completions_old_news, pass.old_news);
        for task in &pass.changes.ended {
            dispatch.ended(ctx, *task);
        }
        for task in &pass.changes.ready {
            let run = book.runtime.task(*task);
            if run.state == TaskState::Ready {
                dispatch.ended(ctx, *task);
                outbox.made_ready(*task, run.attempt);
                dispatch.enqueue(ctx, book, *task);
            }
        }
        if let Some(generation) = pass.cancelled {
            self.row.request_cancel(generation, &ctx.stopping).await?;
        }
        Ok(())
    }

    /// Acknowledges what is stored (P6) and moves to poison what no state has issued (P7).
    async fn acknowledge(&self, news: News, unissued: &BTreeSet<usize>) -> Result<(), Trouble> {
        let mut settled = Vec::with_capacity(news.results.len() + news.controls.len());
        for (at, (result, delivery)) in news.results.into_iter().enumerate() {
            if unissued.contains(&at) {
                tracing::warn!(workflow = %self.id, task = %result.task, attempt = %result.attempt_no, "completion_of_unissued_attempt");
                Stats::count(&self.ctx.stats.poison_messages);
                settled.push(delivery.poisoned());
            } else {
                settled.push(delivery.handled());
            }
        }
        for (_, delivery) in news.controls {
            Stats::count(&self.ctx.stats.requests_answered);
            settled.push(delivery.handled());
        }
        self.carry_out(settled).await
    }

    async fn carry_out(&self, settled: Vec<Settled>) -> Result<(), Trouble> {
        let ctx = &self.ctx;
        let mut acks = futures::stream::iter(settled)
            .map(|settled| carry_out(&ctx.store, &ctx.layout, settled))
            .buffer_unordered(ACKS_AT_ONCE);
        while let Some(result) = acks.next().await {
            match result {
                Ok(()) => {}
                Err(error) if error.kind == Kind::Fenced => return Err(Trouble::Fenced),
                // The message comes back and is old news then.
                Err(error) => tracing::warn!(workflow = %self.id, error = %error, "message_not_acknowledged"),
            }
        }
        Ok(())
    }

    /// News of a workflow that was never submitted, or is gone.
    async fn refuse_unknown(&mut self, news: News) -> Result<(), Trouble> {
        let all = (0..news.results.len()).collect();
        for (control, _) in &news.controls {
            tracing::warn!(workflow = %self.id, action = control.action.word(), "request_for_unknown_workflow");
        }
        self.acknowledge(news, &all).await
    }

    /// Sends what may be sent; what can never be sent fails, and what follows from that is stored and sent too.
    async fn send(&mut self) -> Result<(), Trouble> {
        loop {
            let Self { ctx, book: Some(book), outbox, dispatch, .. } = self else { return Ok(()) };
            if book.runtime.cancel_applied().is_some() {
                self.more_to_send = false;
                return Ok(());
            }
            let sent = dispatch.send(ctx, book, outbox, &self.id, &self.mailbox).await;
            self.more_to_send = sent.more;
            if sent.fenced {
                return Err(Trouble::Fenced);
            }
            if sent.refused.is_empty() {
                return Ok(());
            }
            let mut pass = Pass::default();
            for (task, attempt, failure) in sent.refused {
                if book.runtime.refuse(task, attempt, failure, &mut pass.changes) == Applied::Changed {
                    pass.changed = true;
                }
            }
            self.apply_and_store(&News::default(), pass).await?;
        }
    }

    /// Shows the state in the row: a final one at once, another now and then.
    async fn project(&mut self) -> Result<(), Trouble> {
        let Some(book) = &self.book else { return Ok(()) };
        let waited = |at: Mono| self.ctx.env.mono().since(at) >= ROW_INTERVAL;
        if !self.row_behind || !(book.runtime.status().is_final() || self.row_shown_at.is_none_or(waited)) {
            return Ok(());
        }
        self.show_row().await
    }

    async fn show_row(&mut self) -> Result<(), Trouble> {
        let Self { ctx, book: Some(book), row, .. } = self else { return Ok(()) };
        let record = book.index(ctx.epoch(), ctx.env.wall());
        let is_final = record.status.is_final();
        let shown = if is_final {
            row.finish(&record, &ctx.stopping).await?
        } else {
            row.show(&record, &ctx.stopping).await?
        };
        if let Shown::Met(epoch) = shown {
            ctx.met(epoch, "the index row").await?;
            return Err(self.trouble(Kind::Conflict, "the index row is of a later epoch"));
        }
        if is_final {
            tracing::info!(workflow = %self.id, status = %record.status, "workflow_ended");
            Stats::count(&ctx.stats.workflows_ended);
        }
        self.row_behind = false;
        self.row_shown_at = Some(ctx.env.mono());
        Ok(())
    }

    /// Ends in order (P15): marks are stored, news not looked at is given back.
    async fn stop(mut self) {
        let mut left = Vec::new();
        while let Ok(mail) = self.inbox.try_recv() {
            match mail {
                Mail::Result(_, delivery) | Mail::Control(_, delivery) => left.push(delivery.left()),
                Mail::TakeUp | Mail::CancelRequested(_) | Mail::Slots { .. } | Mail::Drained | Mail::Repair => {}
            }
        }
        let given_back = self.carry_out(left).await;
        let stored = match self.store(&mut Pass::default()).await {
            Ok(_) if self.row_behind => self.show_row().await,
            Ok(_) => Ok(()),
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = given_back.and(stored) {
            tracing::warn!(workflow = %self.id, trouble = ?trouble, "stopped_with_something_undone");
        }
    }
}

impl News {
    fn add(&mut self, mail: Mail) {
        match mail {
            Mail::Result(result, delivery) => self.results.push((result, delivery)),
            Mail::Control(control, delivery) => self.controls.push((control, delivery)),
            Mail::TakeUp => {}
            Mail::CancelRequested(generation) => self.cancel = self.cancel.max(Some(generation)),
            Mail::Slots { queue, count } => self.slots.push((queue, count)),
            Mail::Drained => self.drained = true,
            Mail::Repair => self.repair = true,
        }
    }
}
