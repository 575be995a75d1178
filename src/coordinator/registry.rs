//! The actors of one term of leadership, one a workflow.
//!
//! Invariants:
//! 1. A workflow has at most one actor. One whose actor has panicked gets no new one before a growing pause is over. Mail is sent, and an actor retired, under one lock: no mail reaches an actor that has retired.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::actor::Actor;
use super::context::Context;
use super::mail::Mail;
use super::stats::Stats;
use crate::definition::WorkflowId;
use crate::env::{Joined, Mono, TaskHandle};
use crate::protocol::Pauses;

/// All actors.
#[derive(Debug)]
pub(super) struct Registry {
    me: Weak<Registry>,
    actors: Mutex<BTreeMap<WorkflowId, Held>>,
    panicked: Mutex<BTreeMap<WorkflowId, Panicked>>,
}

/// How long there must be nothing to do for looks to become seldom.
const QUIET_AFTER: Duration = Duration::from_secs(300);

/// Since when there was nothing to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quiet(Mono);

impl Quiet {
    pub(super) const fn since(now: Mono) -> Self {
        Self(now)
    }

    /// Whether by now there was no unfinished workflow for long. To be asked often: what happened between two questions is not seen.
    pub(super) fn is_at(&mut self, now: Mono, registry: &Registry) -> bool {
        if registry.len() > 0 {
            self.0 = now;
        }
        now.since(self.0) >= QUIET_AFTER
    }
}

/// A workflow whose actor has panicked.
#[derive(Debug)]
struct Panicked {
    until: Mono,
    pauses: Pauses,
}

#[derive(Debug)]
struct Held {
    mailbox: UnboundedSender<Mail>,
    /// Its actor has loaded it or set it aside.
    settled: Arc<AtomicBool>,
    task: Option<TaskHandle>,
}

impl Registry {
    pub(super) fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            actors: Mutex::default(),
            panicked: Mutex::default(),
        })
    }

    fn actors(&self) -> std::sync::MutexGuard<'_, BTreeMap<WorkflowId, Held>> {
        self.actors
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sends mail to a workflow, whose actor is started if there is none.
    pub(super) fn post(&self, ctx: &Arc<Context>, id: &WorkflowId, mail: Mail) {
        let mut actors = self.actors();
        if let Some(held) = actors.get(id) {
            // An actor that has panicked takes nothing: dropping the mail leaves its message on the queue, for the next actor.
            drop(held.mailbox.send(mail));
            return;
        }
        if self.is_resting(ctx, id) {
            return;
        }
        let (mailbox, inbox) = unbounded_channel();
        mailbox.send(mail).expect("the inbox is at hand");
        let Some(me) = self.me.upgrade() else { return };
        let settled = Arc::new(AtomicBool::new(false));
        let actor = Actor::new(
            Arc::clone(ctx),
            me,
            id.clone(),
            Arc::clone(&settled),
            inbox,
            mailbox.clone(),
        );
        let task = ctx.env.spawn("workflow", actor.run());
        actors.insert(
            id.clone(),
            Held {
                mailbox,
                settled,
                task: Some(task),
            },
        );
    }

    /// Sends mail to every actor there is.
    pub(super) fn post_all(&self, mail: impl Fn() -> Mail) {
        for held in self.actors().values() {
            // Who has ended meanwhile needs none.
            drop(held.mailbox.send(mail()));
        }
    }

    /// Whether the workflow has an actor.
    pub(super) fn holds(&self, id: &WorkflowId) -> bool {
        self.actors()
            .get(id)
            .is_some_and(|held| !held.mailbox.is_closed())
    }

    /// The workflows that have an actor.
    pub(super) fn held(&self) -> BTreeSet<WorkflowId> {
        self.actors().keys().cloned().collect()
    }

    /// Whether every workflow is loaded or set aside.
    pub(super) fn all_settled(&self) -> bool {
        self.actors()
            .values()
            .all(|held| held.settled.load(Ordering::Acquire) || held.mailbox.is_closed())
    }

    /// How many actors there are.
    pub(super) fn len(&self) -> usize {
        self.actors().len()
    }

    /// Forgets the actor that asks, unless mail waits for it.
    pub(super) fn retire(
        &self,
        ctx: &Context,
        id: &WorkflowId,
        inbox: &UnboundedReceiver<Mail>,
    ) -> bool {
        let mut actors = self.actors();
        let quiet = inbox.is_empty();
        if quiet {
            ctx.let_go(id);
            actors.remove(id);
        }
        quiet
    }

    /// Forgets actors that have panicked, and says so.
    pub(super) async fn bury(&self, ctx: &Context) {
        let dead: Vec<_> = {
            let mut actors = self.actors();
            let closed = actors
                .iter_mut()
                .filter(|(_, held)| held.mailbox.is_closed());
            closed
                .map(|(id, held)| (id.clone(), held.task.take()))
                .collect()
        };
        for (id, task) in dead {
            let Some(task) = task else { continue };
            if let Joined::Panicked(message) = task.join().await {
                Stats::count(&ctx.stats.panics);
                let pause = self.rest(ctx, &id);
                tracing::error!(workflow = %id, panic = message, pause_s = pause.as_secs(), "workflow_panicked");
            }
            // Last, and both at once: from then on the workflow may get another actor, which counts anew what it holds.
            let mut actors = self.actors();
            ctx.let_go(&id);
            actors.remove(&id);
        }
    }

    fn panicked(&self) -> std::sync::MutexGuard<'_, BTreeMap<WorkflowId, Panicked>> {
        let panicked = self.panicked.lock();
        panicked.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn is_resting(&self, ctx: &Context, id: &WorkflowId) -> bool {
        let now = ctx.env.mono();
        self.panicked().get(id).is_some_and(|one| now < one.until)
    }

    /// Lets a workflow rest after a panic; the more of them, the longer.
    fn rest(&self, ctx: &Context, id: &WorkflowId) -> Duration {
        let mut panicked = self.panicked();
        let one = panicked.entry(id.clone()).or_insert_with(|| Panicked {
            until: ctx.env.mono(),
            pauses: Pauses::from(Duration::from_secs(1)),
        });
        let pause = one.pauses.next(&ctx.env, None);
        one.until = ctx.env.mono().plus(pause);
        pause
    }

    /// Waits until every actor has ended; they end by themselves when the process stops or is fenced.
    pub(super) async fn all_ended(&self) {
        loop {
            let Some(task) = self.actors().values_mut().find_map(|held| held.task.take()) else {
                return;
            };
            task.join().await;
        }
    }

    /// Drops every actor where it stands.
    pub(super) fn abort_all(&self) {
        for (_, held) in std::mem::take(&mut *self.actors()) {
            if let Some(task) = held.task {
                task.abort();
            }
        }
    }
}
