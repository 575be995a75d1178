//! Sending the ready tasks of one workflow: which, in what order, and what becomes of those that cannot be sent.
//!
//! Invariants:
//! 1. Each ready task is in exactly one place: in line, waiting for its time, inherited, or being sent.
//! 2. A slot of the window is held for each task sent and unfinished, and for no other; one found lost stands in line for another.
//! 3. A task that cannot be sent now steps aside with a growing pause; the others go on.
//! 4. Queues take turns: none waits for the line of another to be empty, however few may be sent at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::mpsc::UnboundedSender;

use super::book::Book;
use super::context::Context;
use super::lost::Out;
use super::mail::Mail;
use super::message::{Chosen, send_one};
use super::stats::Stats;
use crate::definition::{QueueName, TaskName, WorkflowId};
use crate::engine::{Attempt, Failure, FailureKind, TaskIx, TaskState};
use crate::env::Mono;
use crate::protocol::{Outbox, Pauses};
use crate::store::Kind;

/// Most tasks sent in one go before news is looked at again.
const SENDS_PER_TURN: usize = 256;
/// Requests of one workflow on the wire at once.
const SENDS_AT_ONCE: usize = 8;
/// The ready tasks of one workflow.
#[derive(Debug, Default)]
pub(super) struct Dispatch {
    line: BTreeMap<QueueName, VecDeque<TaskIx>>,
    later: BTreeSet<(Mono, TaskIx)>,
    inherited: Vec<TaskIx>,
    known: BTreeMap<TaskIx, Mono>,
    slots: BTreeMap<TaskIx, QueueName>,
    /// Dispatched tasks that are sent again.
    lost: BTreeSet<TaskIx>,
    credits: BTreeMap<QueueName, u32>,
    /// The queue that was served first the last time.
    first_queue: Option<QueueName>,
    pauses: BTreeMap<TaskIx, Pauses>,
}

/// What came of sending.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Tasks that can never be sent, and why.
    pub(super) refused: Vec<(TaskIx, Attempt, Failure)>,
    /// Whether more could be sent at once.
    pub(super) more: bool,
    /// Whether this leader may not send any more.
    pub(super) fenced: bool,
}

impl Dispatch {
    /// Takes in a state just loaded: what is ready and not known as sent waits until the completion queue was drained; what is
    /// dispatched holds slots. What was in line before is forgotten.
    pub(super) fn reload(&mut self, ctx: &Context, book: &Book, own: &BTreeSet<TaskIx>) {
        self.line.clear();
        self.later.clear();
        self.inherited.clear();
        self.known.clear();
        self.lost.clear();
        let (now, id) = (ctx.env.mono(), &book.definition.workflow_id);
        for task in book.runtime.graph().tasks() {
            match book.runtime.task(task).state {
                TaskState::Ready if !own.contains(&task) => {
                    self.known.insert(task, now);
                    self.inherited.push(task);
                }
                TaskState::Dispatched => {
                    let queue = book.queue(task);
                    ctx.sendings.adopt(queue, &out(book, task), now);
                    if self.slots.insert(task, queue.clone()).is_none() {
                        ctx.window.adopt(queue, id);
                    }
                }
                TaskState::Ready
                | TaskState::Pending
                | TaskState::Completed
                | TaskState::Failed
                | TaskState::UpstreamFailed
                | TaskState::Skipped
                | TaskState::Cancelled => {}
            }
        }
        self.release_unheld(ctx, book);
    }

    /// Gives back the slots of tasks that are not dispatched.
    fn release_unheld(&mut self, ctx: &Context, book: &Book) {
        let held = |task: TaskIx| book.runtime.task(task).state == TaskState::Dispatched;
        self.slots.retain(|task, queue| {
            let keep = held(*task);
            if !keep {
                ctx.sendings.ended(queue, &out(book, *task), false);
                ctx.window.give_back(queue, &book.definition.workflow_id, 1);
            }
            keep
        });
    }

    /// Gives back slots that were granted and are not used.
    pub(super) fn return_credits(&mut self, ctx: &Context, id: &WorkflowId) {
        for (queue, count) in std::mem::take(&mut self.credits) {
            ctx.window.give_back(&queue, id, count);
        }
    }

    /// Forgets all that waits to be sent: nothing of a cancelled workflow is, and what can never be sent must not be due for ever.
    pub(super) fn give_up(&mut self, ctx: &Context, id: &WorkflowId) {
        self.line.clear();
        self.later.clear();
        self.inherited.clear();
        self.lost.clear();
        self.return_credits(ctx, id);
    }

    /// Stands inherited tasks in line: nothing that is already known of them can be waiting any more.
    pub(super) fn drained(&mut self, ctx: &Context, book: &Book) {
        for task in std::mem::take(&mut self.inherited) {
            self.enqueue(ctx, book, task);
        }
    }

    /// Stands a ready task in line, or lets it wait for its time.
    pub(super) fn enqueue(&mut self, ctx: &Context, book: &Book, task: TaskIx) {
        let now = ctx.env.mono();
        self.known.insert(task, now);
        match book.runtime.task(task).due {
            Some(due) => {
                let limit = Duration::from_millis(due.delay_ms);
                let left =
                    Duration::try_from(due.at.duration_since(ctx.env.wall())).unwrap_or_default();
                self.later.insert((now.plus(left.min(limit)), task));
            }
            None => self
                .line
                .entry(book.queue(task).clone())
                .or_default()
                .push_back(task),
        }
    }

    /// Notes attempts that ended, and whether a worker had their messages, which tells how far their queues are.
    pub(super) fn ended(
        &mut self,
        ctx: &Context,
        book: &Book,
        ended: impl IntoIterator<Item = (TaskIx, bool)>,
    ) {
        let mut gone = BTreeSet::new();
        for (task, was_taken) in ended {
            if self.note_end(ctx, book, task, was_taken) {
                gone.insert(task);
            }
        }
        // Together: a cancel ends all of a long line.
        self.unplace(&gone);
    }

    /// Frees the slot of a task; returns whether it still stands where tasks wait.
    fn note_end(&mut self, ctx: &Context, book: &Book, task: TaskIx, was_taken: bool) -> bool {
        ctx.sendings
            .ended(book.queue(task), &out(book, task), was_taken);
        let is_placed = self.known.remove(&task).is_some() | self.lost.remove(&task);
        self.pauses.remove(&task);
        if let Some(queue) = self.slots.remove(&task) {
            let id = &book.definition.workflow_id;
            ctx.window.give_back(&queue, id, 1);
        }
        is_placed
    }

    /// Takes tasks out of wherever they wait, which looks at all that do.
    fn unplace(&mut self, gone: &BTreeSet<TaskIx>) {
        if gone.is_empty() {
            return;
        }
        self.inherited.retain(|task| !gone.contains(task));
        self.later.retain(|(_, task)| !gone.contains(task));
        for line in self.line.values_mut() {
            line.retain(|task| !gone.contains(task));
        }
    }

    /// Notes slots that the window has granted.
    pub(super) fn granted(&mut self, queue: QueueName, count: u32) {
        *self.credits.entry(queue).or_default() += count;
    }

    /// When the next waiting task may be sent.
    pub(super) fn next_due(&self) -> Option<Mono> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Ready-repair (P25): what is ready, in no line and not known as sent for longer than the threshold stands in line again.
    pub(super) fn repair(&mut self, ctx: &Context, book: &Book) {
        let now = ctx.env.mono();
        let runtime = &book.runtime;
        let lost = runtime.graph().tasks().filter(|task| {
            let ready = runtime.task(*task).state == TaskState::Ready;
            ready && !self.known.contains_key(task)
        });
        for task in lost.collect::<Vec<_>>() {
            // Seen unattended for the first time: the threshold runs from now.
            self.later
                .insert((now.plus(ctx.config.ready_repair_threshold), task));
            self.known.insert(task, now);
            tracing::warn!(workflow = %book.definition.workflow_id, task = %runtime.graph().name(task), "ready_task_unattended");
        }
    }

    /// Stands dispatched tasks whose messages are gone in line again (P26), unless they are no longer what was found lost.
    pub(super) fn send_again(&mut self, ctx: &Context, book: &Book, lost: &[(TaskName, Attempt)]) {
        for (name, attempt) in lost {
            let Some(task) = book.runtime.graph().find(name) else {
                continue;
            };
            let run = book.runtime.task(task);
            let is_current = run.state == TaskState::Dispatched && run.attempt == *attempt;
            if !is_current || book.runtime.is_ending(task) {
                continue;
            }
            // Who has no slot stands in line already.
            if let Some(queue) = self.slots.remove(&task) {
                let id = &book.definition.workflow_id;
                ctx.window.give_back(&queue, id, 1);
                self.line.entry(queue).or_default().push_back(task);
                self.lost.insert(task);
                Stats::count(&ctx.stats.dispatches_lost);
                tracing::warn!(workflow = %book.definition.workflow_id, task = %name, attempt = %attempt, "task_message_lost");
            }
        }
    }

    /// Chooses what is sent now, taking slots for it.
    fn choose(
        &mut self,
        ctx: &Context,
        book: &Book,
        outbox: &mut Outbox,
        id: &WorkflowId,
        mailbox: &UnboundedSender<Mail>,
    ) -> Vec<Chosen> {
        let now = ctx.env.mono();
        while let Some((at, task)) = self.later.first().copied().filter(|(at, _)| *at <= now) {
            self.later.remove(&(at, task));
            self.line
                .entry(book.queue(task).clone())
                .or_default()
                .push_back(task);
        }
        let parallel = book
            .what()
            .max_parallelism
            .map_or(usize::MAX, |max| max as usize);
        let mut room = SENDS_PER_TURN.min(parallel.saturating_sub(self.slots.len()));
        for line in self.line.values_mut() {
            line.retain(|task| match book.runtime.task(*task).state {
                TaskState::Ready => true,
                // What was found lost before it was stopped is let lie.
                TaskState::Dispatched => self.lost.contains(task) && !book.runtime.is_ending(*task),
                TaskState::Pending
                | TaskState::Completed
                | TaskState::Failed
                | TaskState::UpstreamFailed
                | TaskState::Skipped
                | TaskState::Cancelled => false,
            });
        }
        self.line.retain(|_, line| !line.is_empty());
        let queues = self.queues_in_turn();
        let mut chosen = Vec::new();
        // Each queue has its share first; what some have no use for, others may have.
        for is_shared in [true, false] {
            for (place, queue) in queues.iter().enumerate() {
                let share = room.div_ceil(queues.len() - place);
                let most = if is_shared { share } else { room };
                let waiting = self.line.get(queue).map_or(0, VecDeque::len);
                let want = u32::try_from(waiting.min(most)).unwrap_or(u32::MAX);
                if want == 0 {
                    continue;
                }
                let mut have = self.credits.remove(queue).unwrap_or(0);
                if have < want {
                    have += ctx.window.take(queue, want - have, id, mailbox);
                }
                let now_sent = have.min(want);
                if have > now_sent {
                    self.granted(queue.clone(), have - now_sent);
                }
                room -= now_sent as usize;
                let line = self.line.entry(queue.clone()).or_default();
                for task in line.drain(..now_sent as usize) {
                    let attempt = book.runtime.task(task).attempt;
                    self.slots.insert(task, queue.clone());
                    let again = outbox.begin(task, attempt);
                    chosen.push(Chosen {
                        task,
                        attempt,
                        queue: queue.clone(),
                        again,
                    });
                }
            }
        }
        self.line.retain(|_, line| !line.is_empty());
        self.return_credits(ctx, id);
        chosen
    }

    /// The queues for which tasks stand in line, beginning after the one that was first the last time.
    fn queues_in_turn(&mut self) -> Vec<QueueName> {
        let mut queues: Vec<_> = self.line.keys().cloned().collect();
        if let Some(before) = &self.first_queue {
            let at = queues.partition_point(|queue| queue <= before);
            queues.rotate_left(at);
        }
        self.first_queue = queues.first().cloned().or(self.first_queue.take());
        queues
    }

    /// Sends what may be sent now; what was sent is noted in `outbox`.
    pub(super) async fn send(
        &mut self,
        ctx: &Context,
        book: &Book,
        outbox: &mut Outbox,
        id: &WorkflowId,
        mailbox: &UnboundedSender<Mail>,
    ) -> Sent {
        let began = ctx.env.mono();
        let chosen = self.choose(ctx, book, outbox, id, mailbox);
        let more = chosen.len() == SENDS_PER_TURN;
        let mut sends = futures::stream::iter(chosen.into_iter().map(|chosen| async {
            let result = send_one(ctx, book, &chosen).await;
            (chosen, result)
        }))
        .buffer_unordered(SENDS_AT_ONCE);
        let mut sent = Sent {
            more,
            ..Sent::default()
        };
        while let Some((
            Chosen {
                task,
                attempt,
                queue,
                again,
            },
            result,
        )) = sends.next().await
        {
            match result {
                Ok(()) => {
                    outbox.sent(task, attempt);
                    ctx.sendings
                        .sent(&queue, &out(book, task), began, ctx.env.mono());
                    self.known.remove(&task);
                    self.lost.remove(&task);
                    self.pauses.remove(&task);
                    Stats::count(&ctx.stats.tasks_sent);
                    Stats::add(&ctx.stats.tasks_sent_again, u64::from(again));
                }
                Err(error) if error.kind == Kind::Invalid => {
                    // It was taken out of the line to be sent.
                    self.note_end(ctx, book, task, false);
                    let message = format!("its message cannot be sent: {error}");
                    sent.refused.push((
                        task,
                        attempt,
                        Failure {
                            kind: FailureKind::Send,
                            message,
                            is_final: true,
                        },
                    ));
                }
                Err(error) => {
                    sent.fenced |= error.kind == Kind::Fenced;
                    Stats::count(&ctx.stats.send_errors);
                    if error.is_transient() && !again {
                        // Certainly nothing was sent, so the next sending is still the first.
                        outbox.made_ready(task, attempt);
                    }
                    let first = Duration::from_millis(200);
                    let pauses = self
                        .pauses
                        .entry(task)
                        .or_insert_with(|| Pauses::from(first));
                    let pause = pauses.next(&ctx.env, error.retry_after);
                    tracing::warn!(workflow = %id, task = %book.runtime.graph().name(task), error = %error, "task_not_sent");
                    self.slots.remove(&task);
                    ctx.window.give_back(&queue, id, 1);
                    self.later.insert((ctx.env.mono().plus(pause), task));
                }
            }
        }
        sent
    }
}

/// What is out of a task.
fn out(book: &Book, task: TaskIx) -> Out {
    Out {
        id: book.definition.workflow_id.clone(),
        task: book.runtime.graph().name(task).clone(),
        attempt: book.runtime.task(task).attempt,
    }
}

#[cfg(test)]
mod tests;
