//! One workflow under its leader: news in, one write at a time, then acknowledgements and sends (P4, P8, P9).
//!
//! Invariants:
//! 1. One turn at a time: apply, write, then acknowledge and send. Nothing of a turn leaves this process before its write is stored.
//! 2. News that a turn could not store is left on the queue, and the memory it was applied to is thrown away.
//! 3. A workflow with unsent or unmarked tasks is not let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::book::Book;
use super::context::Context;
use super::dispatch::Dispatch;
use super::mail::Mail;
use super::registry::Registry;
use super::stats::Stats;
use crate::definition::{QueueName, TaskName, WorkflowId};
use crate::engine::{Attempt, Generation, Status};
use crate::env::Mono;
use crate::protocol::{Cell, Delivery, Outbox, Pauses, Projection, ReadError};
use crate::record::{CompletionResult, ControlAction, ControlRecord, RunId, TombstoneRecord};
use crate::store::{Kind, StoreError};

/// Most pieces of news in one turn.
const NEWS_PER_TURN: usize = 2048;
/// How long the mark "dispatched" may wait for another write before it gets one of its own.
pub(super) const MARKS_AFTER: Duration = Duration::from_secs(1);
/// How long the row of an unfinished workflow may show less than its state: what changes meanwhile, or ends, shares the next projection.
pub(super) const ROW_INTERVAL: Duration = Duration::from_secs(2);
/// The longest time between two notes of used-up cancel grace.
pub(super) const GRACE_NOTE_INTERVAL: Duration = Duration::from_secs(15);

/// The actor of one workflow.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) ctx: Arc<Context>,
    pub(super) id: WorkflowId,
    pub(super) registry: Arc<Registry>,
    /// Set once the workflow is loaded or set aside.
    pub(super) settled: Arc<AtomicBool>,
    pub(super) inbox: UnboundedReceiver<Mail>,
    pub(super) mailbox: UnboundedSender<Mail>,
    pub(super) cell: Cell,
    pub(super) row: Projection,
    pub(super) outbox: Outbox,
    pub(super) dispatch: Dispatch,
    pub(super) book: Option<Book>,
    /// The tombstone that took the place of the state in this turn.
    pub(super) tombstone: Option<TombstoneRecord>,
    /// The row must show the take-over before anything is sent (P12), or be there again.
    pub(super) row_first: bool,
    /// Since when the row shows less than the state.
    pub(super) row_behind_since: Option<Mono>,
    /// The status and the stop that the row shows.
    pub(super) shown: Option<(Status, Option<Generation>)>,
    pub(super) more_to_send: bool,
    pub(super) marks_since: Option<Mono>,
    pub(super) grace_since: Option<Mono>,
    pub(super) aside_until: Option<Mono>,
    pub(super) asides: Pauses,
}

/// News of one turn.
#[derive(Debug, Default)]
pub(super) struct News {
    /// How many pieces it is of.
    pub(super) pieces: usize,
    pub(super) results: Vec<(Box<CompletionResult>, Delivery)>,
    pub(super) controls: Vec<(Box<ControlRecord>, Delivery)>,
    pub(super) cancel: Option<(RunId, Generation)>,
    pub(super) slots: Vec<(QueueName, u32)>,
    pub(super) drained: bool,
    pub(super) repair: bool,
    pub(super) unlisted: bool,
    pub(super) lost: Vec<(TaskName, Attempt)>,
}

/// Why a turn could not be finished.
#[derive(Debug)]
pub(super) enum Trouble {
    /// This leader may not act any more.
    Fenced,
    /// What is stored or what the store says keeps this workflow from going on for now.
    Aside(ReadError),
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(StoreError {
                kind: Kind::Fenced, ..
            }) => Self::Fenced,
            ReadError::Store(_) | ReadError::Decode { .. } => Self::Aside(error),
        }
    }
}

impl Actor {
    pub(super) fn new(
        ctx: Arc<Context>,
        registry: Arc<Registry>,
        id: WorkflowId,
        settled: Arc<AtomicBool>,
        inbox: UnboundedReceiver<Mail>,
        mailbox: UnboundedSender<Mail>,
    ) -> Self {
        let (env, store, layout) = (ctx.env.clone(), ctx.store.clone(), ctx.layout.clone());
        Self {
            cell: Cell::new(
                env.clone(),
                store.clone(),
                layout.clone(),
                id.clone(),
                ctx.config.state_limits,
            ),
            row: Projection::new(env.clone(), store, layout, id.clone()),
            outbox: Outbox::default(),
            dispatch: Dispatch::default(),
            book: None,
            tombstone: None,
            row_first: false,
            row_behind_since: None,
            shown: None,
            more_to_send: false,
            marks_since: None,
            grace_since: None,
            aside_until: None,
            asides: Pauses::from(Duration::from_secs(1)),
            ctx,
            id,
            registry,
            settled,
            inbox,
            mailbox,
        }
    }

    /// Serves the workflow until it has ended and nothing more comes, or this process stops leading.
    pub(super) async fn run(mut self) {
        let ctx = Arc::clone(&self.ctx);
        loop {
            let news = tokio::select! {
                biased;
                () = ctx.leadership.fence().closed().cancelled() => return,
                () = ctx.stopping.cancelled() => return self.stop().await,
                news = self.next() => news,
            };
            match self.turn(news).await {
                Ok(()) => {}
                Err(Trouble::Fenced) => return,
                Err(Trouble::Aside(error)) => self.set_aside(&error),
            }
            self.settled.store(true, Ordering::Release);
            if self.may_go() && self.registry.retire(&ctx, &self.id, &self.inbox) {
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
            biased;
            mail = self.inbox.recv() => mail,
            () = sleep => None,
        };
        if let Some(mail) = first {
            news.add(mail);
            self.more(&mut news);
        }
        news
    }

    /// Adds what has come meanwhile.
    pub(super) fn more(&mut self, news: &mut News) {
        while news.pieces < NEWS_PER_TURN
            && let Ok(mail) = self.inbox.try_recv()
        {
            news.add(mail);
        }
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
        let marks = self.marks_since.map(|since| since.plus(MARKS_AFTER));
        let row = self.row_behind_since.map(|since| since.plus(ROW_INTERVAL));
        let grace = self
            .grace_left()
            .map(|left| now.plus(left.min(GRACE_NOTE_INTERVAL)));
        [marks, row, grace, self.dispatch.next_due()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn grace_left(&self) -> Option<Duration> {
        let used = self
            .grace_since
            .map_or(Duration::ZERO, |since| self.ctx.env.mono().since(since));
        self.book
            .as_ref()?
            .grace_left(self.ctx.config.cancel_grace, used)
    }

    /// Whether nothing is left to do for the workflow.
    fn may_go(&self) -> bool {
        if self.aside_until.is_some() {
            return false;
        }
        self.book
            .as_ref()
            .is_none_or(|book| book.runtime.status().is_final() && self.row_behind_since.is_none())
    }

    /// Steps aside after something that time may mend; others are not delayed.
    fn set_aside(&mut self, error: &ReadError) {
        let pause = self.asides.next(&self.ctx.env, None);
        tracing::error!(workflow = %self.id, error = %error, pause_s = pause.as_secs(), "workflow_set_aside");
        Stats::count(&self.ctx.stats.workflows_broken);
        self.drop_memory();
        self.aside_until = Some(self.ctx.env.mono().plus(pause));
    }

    /// Reads an unfinished workflow anew: its row is gone, and perhaps all of it. What is there gets a row again.
    pub(super) fn doubt_memory(&mut self) {
        let book = self.book.as_ref();
        if book.is_some_and(|book| !book.runtime.status().is_final()) {
            tracing::warn!(workflow = %self.id, "row_was_missing");
            self.drop_memory();
            self.row_first = true;
        }
    }

    pub(super) fn drop_memory(&mut self) {
        Stats::count(&self.ctx.stats.memory_dropped);
        self.book = None;
        self.marks_since = None;
        self.dispatch.return_credits(&self.ctx, &self.id);
        self.outbox.state_dropped();
        self.row.forget();
    }
}

impl News {
    pub(super) fn add(&mut self, mail: Mail) {
        self.pieces += 1;
        match mail {
            Mail::Result(result, delivery) => self.results.push((result, delivery)),
            Mail::Control(control, delivery) => self.controls.push((control, delivery)),
            Mail::TakeUp => {}
            Mail::CancelRequested(run, generation) => self.cancel = Some((run, generation)),
            Mail::Slots { queue, count } => self.slots.push((queue, count)),
            Mail::Drained => self.drained = true,
            Mail::Repair => self.repair = true,
            Mail::Unlisted => self.unlisted = true,
            Mail::Lost(mut lost) => self.lost.append(&mut lost),
        }
    }

    /// Whether there is a request to purge the workflow.
    pub(super) fn asks_to_purge(&self) -> bool {
        let mut controls = self.controls.iter();
        controls.any(|(control, _)| control.action == ControlAction::Purge)
    }
}
