//! The receive loop: completions and requests from the queue to the actors (P9, P12, P32).

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::context::Context;
use super::mail::Mail;
use super::registry::{Quiet, Registry};
use super::stats::Stats;
use crate::env::{Mono, Pulse};
use crate::protocol::{Delivery, Pauses, Settled, carry_out};
use crate::record::{CompletionRecord, DecodeError, decode_message};
use crate::store::{Kind, Message, StoreError};

/// After a failed receive of many, this many receives take one message each: one that breaks the service's reply is passed alone.
const SINGLE_RECEIVES: u32 = 32;

/// The wait after a receive that has not found as much as it asked for: what ends meanwhile comes with the next, and shares its write.
const PACE: Duration = Duration::from_millis(20);
/// How long after news the wait stays so; then it doubles, up to [`IDLE_SOON`] while news is younger than [`SOON`], then up to
/// `--idle-sleep-s`.
const BRISK: Duration = Duration::from_millis(200);
const IDLE_SOON: Duration = Duration::from_millis(25);
const SOON: Duration = Duration::from_millis(1500);
/// The longest wait where nothing has happened for long: what is submitted then is begun within two seconds.
const IDLE_QUIET: Duration = Duration::from_millis(1500);
/// How many messages for no workflow are put away at once, and how many more wait for that.
const ASIDE_AT_ONCE: usize = 8;

/// Receives until the process stops or the fence closes.
pub(super) async fn receive(ctx: &Arc<Context>, registry: &Arc<Registry>, pulse: &Pulse) {
    let (aside, messages) = channel(ASIDE_AT_ONCE);
    tokio::join!(take(ctx, registry, pulse, aside), put_away(ctx, messages));
}

async fn take(ctx: &Arc<Context>, registry: &Arc<Registry>, pulse: &Pulse, aside: Sender<Aside>) {
    let queue = ctx.layout.completions();
    let mut pauses = Pauses::from(ctx.config.idle_sleep.max(Duration::from_millis(100)));
    let mut failing = false;
    let mut single = 0_u32;
    let mut laps = Laps::default();
    let mut idle = PACE;
    let mut news_at = ctx.env.mono();
    let mut quiet = Quiet::since(news_at);
    while !ctx.stopping.is_cancelled() && ctx.leadership.fence().is_open() {
        pulse.turn(&ctx.env);
        ctx.window.deal(ctx.env.mono());
        let max = if single > 0 { 1 } else { ctx.config.batch_size };
        single = single.saturating_sub(1);
        let asked_at = ctx.env.mono();
        let received = ctx
            .store
            .queues
            .receive(queue, max, ctx.config.visibility_timeout)
            .await;
        ctx.note_receive(ctx.env.mono().since(asked_at));
        let wait = match received {
            Ok(messages) => {
                if failing {
                    tracing::info!("receive_recovered");
                    failing = false;
                    pauses.reset();
                }
                let received_to = laps.note(asked_at, &messages);
                let is_full = messages.len() >= usize::from(max);
                let rest = if messages.is_empty() {
                    let now = ctx.env.mono();
                    let longest = if now.since(news_at) < BRISK {
                        PACE.min(ctx.config.idle_sleep)
                    } else if now.since(news_at) < SOON {
                        IDLE_SOON.min(ctx.config.idle_sleep)
                    } else if quiet.is_at(now, registry) {
                        IDLE_QUIET.max(ctx.config.idle_sleep)
                    } else {
                        ctx.config.idle_sleep
                    };
                    let pause = idle.min(longest);
                    idle = pause * 2;
                    Some((pause, true))
                } else {
                    for message in messages {
                        route(ctx, registry, &aside, message);
                    }
                    idle = PACE;
                    news_at = ctx.env.mono();
                    quiet = Quiet::since(news_at);
                    (!is_full).then_some((PACE, true))
                };
                // Only now are they in the mail of their workflows, before whatever is concluded from this.
                if let Some(to) = received_to {
                    note_received(ctx, registry, to);
                }
                rest
            }
            Err(error) if error.kind == Kind::Fenced => return,
            Err(error) => {
                Stats::count(&ctx.stats.receive_errors);
                if !failing {
                    tracing::error!(error = %error, "receive_failed");
                    failing = true;
                }
                recreate(ctx, &error).await;
                single = SINGLE_RECEIVES;
                Some((pauses.next(&ctx.env, error.retry_after), false))
            }
        };
        if let Some((pause, wakes)) = wait {
            let rest = async {
                if wakes {
                    ctx.store.queues.wait(queue, pause).await;
                } else {
                    ctx.env.sleep(pause).await;
                }
            };
            tokio::select! {
                biased;
                () = rest => {}
                () = ctx.stopping.cancelled() => {}
                () = ctx.leadership.fence().closed().cancelled() => {}
            }
        }
    }
}

/// A queue that was deleted is made again.
async fn recreate(ctx: &Context, error: &StoreError) {
    if error.kind == Kind::NoResource {
        tracing::warn!("completion_queue_was_missing");
        if let Err(error) = ctx
            .store
            .queues
            .create_queue(ctx.layout.completions())
            .await
        {
            tracing::debug!(error = %error, "completion_queue_not_made");
        }
    }
}

/// How far the completion queue was received, in laps: each is over when the queue is empty, or past what was inserted before it.
#[derive(Debug, Default)]
struct Laps {
    began: Option<(Mono, Timestamp)>,
}

impl Laps {
    /// Takes in what a request of `asked_at` has received. What was inserted before the moment returned has been received.
    fn note(&mut self, asked_at: Mono, messages: &[Message]) -> Option<Mono> {
        let Some(first) = messages.first() else {
            self.began = None;
            return Some(asked_at);
        };
        // Service time is compared with service time alone.
        let (began_at, began) = *self.began.get_or_insert((asked_at, first.read_at));
        let is_past = messages.iter().any(|message| message.inserted_at > began);
        if is_past {
            self.began = None;
        }
        is_past.then_some(began_at)
    }
}

/// Notes how far the queue was received; the first time is told to all (P12).
fn note_received(ctx: &Context, registry: &Registry, to: Mono) {
    if ctx.received_to().replace(to).is_none() {
        registry.post_all(|| Mail::Drained);
    }
}

/// A message for no workflow.
#[derive(Debug)]
struct Aside {
    message: Message,
    /// Why it is garbage; none if it says nothing.
    garbage: Option<DecodeError>,
}

/// Moves garbage to the poison queue and deletes what says nothing. Beside the loop: a queue that hangs holds up no completion, and no stop.
/// What is not put away comes back by itself.
async fn put_away(ctx: &Context, mut messages: Receiver<Aside>) {
    let all = stream::poll_fn(|context| messages.poll_recv(context))
        .for_each_concurrent(ASIDE_AT_ONCE, |aside| put_one_away(ctx, aside));
    tokio::select! {
        biased;
        () = ctx.stopping.cancelled() => {}
        () = all => {}
    }
}

async fn put_one_away(ctx: &Context, Aside { message, garbage }: Aside) {
    let id = message.receipt.message_id.clone();
    let settled = match &garbage {
        Some(_) => Settled::Poison(message.receipt, message.body),
        None => Settled::Delete(message.receipt),
    };
    match (carry_out(&ctx.store, &ctx.layout, settled).await, garbage) {
        (Ok(()), Some(why)) => {
            Stats::count(&ctx.stats.poison_messages);
            tracing::warn!(message_id = id, error = %why, "message_moved_to_poison");
        }
        (Ok(()), None) => {}
        (Err(error), Some(_)) => {
            tracing::warn!(message_id = id, error = %error, "message_not_moved");
        }
        (Err(error), None) => tracing::debug!(error = %error, "empty_message_not_deleted"),
    }
}

/// Hands the entries of a message to the actors of their workflows.
fn route(ctx: &Arc<Context>, registry: &Arc<Registry>, aside: &Sender<Aside>, message: Message) {
    let put_away = |message, garbage| {
        if aside.try_send(Aside { message, garbage }).is_err() {
            tracing::debug!("message_left");
        }
    };
    Stats::count(&ctx.stats.received_messages);
    let record: CompletionRecord = match decode_message(&message.body) {
        Ok(record) => record,
        Err(DecodeError::Newer { found, known }) => {
            // Left for a coordinator that understands it (B14).
            Stats::count(&ctx.stats.newer_messages);
            tracing::warn!(
                message_id = message.receipt.message_id,
                schema = found,
                known,
                "message_of_newer_version"
            );
            return;
        }
        Err(error @ DecodeError::Nonsense { .. }) => {
            put_away(message, Some(error));
            return;
        }
    };
    let entries = record.results.len() + usize::from(record.control.is_some());
    if entries == 0 {
        put_away(message, None);
        return;
    }
    let mut deliveries = Delivery::split(message, entries).into_iter();
    let mut next = || deliveries.next().expect("one for each entry");
    for result in record.results {
        let id = result.workflow_id.clone();
        registry.post(ctx, &id, Mail::Result(Box::new(result), next()));
    }
    if let Some(control) = record.control {
        let id = control.workflow_id.clone();
        registry.post(ctx, &id, Mail::Control(Box::new(control), next()));
    }
}
