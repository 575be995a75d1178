//! What a stored state obliges to: acknowledging, sending, projecting, and ending in order (P4, P6, P15, P16).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt as _;

use super::actor::{Actor, News, ROW_INTERVAL, Trouble};
use super::book::Pass;
use super::stats::Stats;
use crate::engine::Applied;
use crate::env::Mono;
use crate::protocol::{Delivery, Settled, Shown, Swap, carry_out};
use crate::record::Epoch;
use crate::store::Kind;

/// So often a completion of a workflow that is set aside comes before it is moved to the poison queue.
const QUARANTINE_DELIVERIES: u32 = 10;
/// Acknowledgements of one workflow on the wire at once.
const ACKS_AT_ONCE: usize = 8;

impl Actor {
    /// Acknowledges what is stored (P6) and moves to poison what no state has issued (P7).
    pub(super) fn acknowledge(
        &self,
        news: News,
        unissued: &BTreeSet<usize>,
    ) -> impl Future<Output = Result<(), Trouble>> + Send + use<> {
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
        self.carry_out(settled)
    }

    pub(super) fn carry_out(
        &self,
        settled: Vec<Settled>,
    ) -> impl Future<Output = Result<(), Trouble>> + Send + use<> {
        let (ctx, id) = (Arc::clone(&self.ctx), self.id.clone());
        async move {
            let mut acks = futures::stream::iter(settled)
                .map(|settled| carry_out(&ctx.store, &ctx.layout, settled))
                .buffer_unordered(ACKS_AT_ONCE);
            while let Some(result) = acks.next().await {
                match result {
                    Ok(()) => {}
                    Err(error) if error.kind == Kind::Fenced => return Err(Trouble::Fenced),
                    // The message comes back and is old news then.
                    Err(error) => {
                        tracing::warn!(workflow = %id, error = %error, "message_not_acknowledged");
                    }
                }
            }
            Ok(())
        }
    }

    /// News of a workflow that is set aside: left on the queue, until it has come so often that it is kept in the poison queue, as it
    /// is, for the day on which the workflow is mended (P9).
    pub(super) async fn quarantine(&self, news: News) -> Result<(), Trouble> {
        let mut settled = Vec::new();
        for (result, delivery) in news.results {
            if delivery.deliveries() >= QUARANTINE_DELIVERIES {
                tracing::warn!(workflow = %self.id, task = %result.task, "completion_quarantined");
                Stats::count(&self.ctx.stats.poison_messages);
                settled.push(delivery.poisoned());
            }
            // Dropping the delivery leaves its message on the queue.
        }
        self.carry_out(settled).await
    }

    /// News of a workflow that was never submitted, or is gone.
    pub(super) async fn refuse_unknown(&mut self, news: News) -> Result<(), Trouble> {
        tracing::warn!(workflow = %self.id, "no_definition");
        let all = (0..news.results.len()).collect();
        for (control, _) in &news.controls {
            tracing::warn!(workflow = %self.id, action = control.action.word(), "request_for_unknown_workflow");
        }
        self.acknowledge(news, &all).await
    }

    /// Sends what may be sent; what can never be sent fails, and what follows from that is stored and sent too.
    pub(super) async fn send(&mut self) -> Result<(), Trouble> {
        loop {
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
            if book.runtime.cancel_applied().is_some() {
                dispatch.give_up(ctx, &self.id);
                self.more_to_send = false;
                return Ok(());
            }
            let sent = dispatch
                .send(ctx, book, outbox, &self.id, &self.mailbox)
                .await;
            self.more_to_send = sent.more;
            if outbox.has_unstored_marks() {
                self.marks_since.get_or_insert(ctx.env.mono());
            }
            if sent.fenced {
                return Err(Trouble::Fenced);
            }
            if sent.refused.is_empty() {
                return Ok(());
            }
            let mut pass = Pass::default();
            for (task, attempt, failure) in sent.refused {
                let maybe_sent = |task, attempt| outbox.maybe_sent(task, attempt);
                let now = ctx.env.wall();
                let changes = &mut pass.changes;
                let refused = book
                    .runtime
                    .refuse(task, attempt, failure, now, maybe_sent, changes);
                pass.changed |= refused == Applied::Changed;
            }
            self.apply_and_store(&News::default(), pass).await?;
        }
    }

    /// Whether the row must show the state: another status, for whoever asked for it, and a stop, which workers wait for, at once; what only
    /// counts, now and then.
    pub(super) fn is_row_due(&self) -> bool {
        let Some(book) = &self.book else {
            return false;
        };
        let status = book.runtime.status();
        let urgent = status.is_final() || self.shown != Some((status, book.stopping()));
        let due = |since: Mono| urgent || self.ctx.env.mono().since(since) >= ROW_INTERVAL;
        self.row_behind_since.is_some_and(due)
    }

    pub(super) fn row_is_behind(&mut self) {
        let now = self.ctx.env.mono();
        self.row_behind_since.get_or_insert(now);
    }

    pub(super) async fn show_row(&mut self) -> Result<(), Trouble> {
        let Self {
            ctx,
            book: Some(book),
            row,
            ..
        } = self
        else {
            return Ok(());
        };
        let record = book.index(ctx.epoch(), ctx.env.wall());
        let is_final = record.status.is_final();
        let shown = if is_final {
            row.finish(&record, &ctx.stopping).await?
        } else {
            row.show(&record, &ctx.stopping).await?
        };
        if let Shown::Met(epoch) = shown {
            return Err(self.met_by_row(epoch).await?);
        }
        if is_final {
            tracing::info!(workflow = %self.id, status = %record.status, "workflow_ended");
            Stats::count(&ctx.stats.workflows_ended);
        }
        self.row_behind_since = None;
        self.shown = Some((record.status, record.stopping));
        Ok(())
    }

    /// What it means that the row is of the later `epoch`.
    pub(super) async fn met_by_row(&self, epoch: Epoch) -> Result<Trouble, Trouble> {
        self.ctx.met(epoch, "the index row").await?;
        Ok(self.trouble(Kind::Conflict, "the index row is of a later epoch"))
    }

    /// Gives back what is not looked at any more (P15).
    pub(super) async fn give_back(&self, news: News) -> Result<(), Trouble> {
        let results = news.results.into_iter().map(|(_, delivery)| delivery);
        let controls = news.controls.into_iter().map(|(_, delivery)| delivery);
        self.carry_out(results.chain(controls).map(Delivery::left).collect())
            .await
    }

    /// Ends in order (P15): marks are stored, news not looked at is given back.
    pub(super) async fn stop(mut self) {
        let mut news = News::default();
        while let Ok(mail) = self.inbox.try_recv() {
            news.add(mail);
        }
        let given_back = self.give_back(news).await;
        let stored = match self.store(&mut Pass::default()).await {
            Ok(Swap::Stored) if self.row_behind_since.is_some() => self.show_row().await,
            Ok(Swap::Stored | Swap::Rival) => Ok(()),
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = given_back.and(stored) {
            tracing::warn!(workflow = %self.id, trouble = ?trouble, "stopped_with_something_undone");
        }
        if self.cell.is_in_doubt() {
            tracing::warn!(workflow = %self.id, "state_write_of_unknown_outcome");
            self.ctx.in_doubt.store(true, Ordering::Release);
        }
    }
}
