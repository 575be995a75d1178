//! Takes messages from the queues, as many as there are free slots, and starts a handler for each.
//!
//! Invariants:
//! 1. No more commands run, and results wait, than there are slots; no more than as many again are at their last requests.
//! 2. Receive errors end nothing (P32): one line when they begin, one when they are over, growing pauses in between; the other
//!    queues go on.
//! 3. A receive is awaited, unless the worker is told to go at once: what it took must not stay hidden with nobody knowing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, pending, select_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tracing::{error, info};

use super::Worker;
use crate::definition::QueueName;
use crate::env::{Env, Joined, Mono};
use crate::protocol::Layout;
use crate::store::{Kind, Message, Queue, RECEIVE_MAX};

/// The pause when nothing is to be had, while the last event is younger than [`BRISK`]: where a task ended, others become ready. Then it
/// doubles, up to [`IDLE_SOON`] at first, and further once nothing has happened for [`SOON`].
const IDLE_FIRST: Duration = Duration::from_millis(10);
const BRISK: Duration = Duration::from_millis(100);
const IDLE_SOON: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_millis(1500);
/// The wait after a receive that found less than asked for, if something: what becomes ready together comes with one.
const PACE: Duration = Duration::from_millis(20);
/// The first pause after a receive error; it doubles.
const ERROR_FIRST: Duration = Duration::from_millis(500);
/// The longest pause after a receive error.
const ERROR_MAX: Duration = Duration::from_secs(30);
/// Receives of one message each after an error: one message of a batch may be what the service stumbles over.
const SINGLE_RECEIVES: u32 = 8;
/// How often a worker that cannot store looks whether it can again.
const TROUBLE_POLL: Duration = Duration::from_secs(1);
/// How often a wait counts as a turn.
const WAIT_TURNS: Duration = Duration::from_secs(10);
/// How long free slots wait for those whose results are on their way: one receive fills them all.
const GATHER: Duration = Duration::from_millis(20);
/// How long a worker that is told to go at once waits for its handlers.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// A row of receive errors.
#[derive(Debug)]
struct Failing {
    pause: Duration,
    again_at: Mono,
}

/// One queue.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: QueueName,
    pub(super) queue: Queue,
    failing: Option<Failing>,
    single_receives: u32,
}

impl Source {
    fn new(layout: &Layout, name: &QueueName) -> Self {
        Self {
            name: name.clone(),
            queue: layout.task_queue(name),
            failing: None,
            single_receives: 0,
        }
    }

    fn rests_for(&self, now: Mono) -> Duration {
        let failing = self.failing.as_ref();
        failing.map_or(Duration::ZERO, |failing| failing.again_at.since(now))
    }

    async fn receive(&mut self, worker: &Worker, most: u8) -> Vec<Message> {
        let queues = &worker.store.queues;
        let most = if self.single_receives > 0 { 1 } else { most };
        let visibility = worker.config.visibility;
        let mut received = queues.receive(&self.queue, most, visibility).await;
        if matches!(&received, Err(error) if error.kind == Kind::NoResource) {
            tracing::warn!(queue = %self.queue, "queue_was_missing");
            if let Err(error) = queues.create_queue(&self.queue).await {
                received = Err(error);
            } else {
                received = Ok(Vec::new());
            }
        }
        match received {
            Ok(messages) => {
                self.single_receives = self.single_receives.saturating_sub(1);
                if self.failing.take().is_some() {
                    info!(queue = %self.queue, "receive_recovered");
                }
                messages
            }
            Err(error) => {
                if self.failing.is_none() {
                    error!(queue = %self.queue, %error, "receive_failing");
                }
                let pause = self
                    .failing
                    .as_ref()
                    .map_or(ERROR_FIRST, |failing| ERROR_MAX.min(failing.pause * 2));
                let jittered = pause / 2 + worker.env.jitter(pause / 2);
                // A service may ask for a day, and be well again in a minute.
                let asked = error.retry_after.unwrap_or_default().min(ERROR_MAX);
                let wait = jittered.max(asked);
                let again_at = worker.env.mono().plus(wait);
                self.failing = Some(Failing { pause, again_at });
                self.single_receives = SINGLE_RECEIVES;
                Vec::new()
            }
        }
    }
}

/// Pauses while nothing is to be had.
#[derive(Debug)]
struct Idle {
    longest: Duration,
    next: Duration,
    since: Mono,
    happened_at: Mono,
}

impl Idle {
    fn new(env: &Env, longest: Duration) -> Self {
        Self {
            longest,
            next: IDLE_FIRST.min(longest),
            since: env.mono(),
            happened_at: env.mono(),
        }
    }

    /// Something happened: look again soon.
    fn reset(&mut self, env: &Env) {
        *self = Self::new(env, self.longest);
    }

    fn pause(&mut self, env: &Env) -> Duration {
        // The pauses before have spread workers over time: the longest need not.
        let share = if self.next < self.longest { 2 } else { 16 };
        let spread = self.next / share;
        let pause = self.next.saturating_sub(spread) + env.jitter(spread);
        let quiet = env.mono().since(self.happened_at);
        let longest = if quiet < BRISK {
            IDLE_FIRST
        } else if quiet < SOON {
            IDLE_SOON
        } else {
            self.longest
        };
        self.next = longest.min(self.longest).min(self.next * 2);
        pause
    }
}

type Handlers = FuturesUnordered<BoxFuture<'static, Joined>>;

/// Takes and handles tasks until the worker is told to stop, or had nothing to do for its idle time-out.
pub(super) async fn pull(worker: &Arc<Worker>) {
    let Worker {
        env,
        stop,
        config,
        layout,
        ..
    } = &**worker;
    let mut sources: Vec<Source> = config
        .queues
        .iter()
        .map(|name| Source::new(layout, name))
        .collect();
    let mut handlers = Handlers::new();
    let mut idle = Idle::new(env, config.max_idle_backoff);
    let mut gathers_until = None;
    while !stop.drain.is_cancelled() {
        worker.observer.turned();
        while let Some(Some(joined)) = handlers.next().now_or_never() {
            note(joined);
            idle.reset(env);
        }
        let free = free_slots(worker, &handlers);
        if free == 0 || worker.trouble.is_there() {
            let wait = if free == 0 {
                Duration::MAX
            } else {
                TROUBLE_POLL
            };
            idle.reset(env);
            wait_for(
                worker,
                &mut handlers,
                &mut idle,
                free,
                env.sleep(wait.min(DAY)),
            )
            .await;
            continue;
        }
        if worker.ends.posting() > 0 {
            let until = *gathers_until.get_or_insert_with(|| env.mono().plus(GATHER));
            let left = until.since(env.mono());
            if !left.is_zero() {
                wait_for(worker, &mut handlers, &mut idle, free, env.sleep(left)).await;
                continue;
            }
        }
        gathers_until = None;
        let (taken, is_full) = tokio::select! {
            biased;
            taken = take(worker, &mut sources, free, &mut handlers) => taken,
            () = stop.kill.cancelled() => break,
        };
        // The next round begins with another queue.
        sources.rotate_left(1);
        let now = env.mono();
        let is_failing = sources.iter().any(|source| source.failing.is_some());
        if taken > 0 || is_failing || !handlers.is_empty() {
            idle.since = now;
        }
        if taken > 0 {
            idle.reset(env);
            if !is_full {
                rest(worker, &sources, &mut handlers, &mut idle, PACE).await;
            }
            continue;
        }
        let mut pause = idle.pause(env);
        if let Some(limit) = config.idle_timeout {
            let left = limit.saturating_sub(now.since(idle.since));
            if left.is_zero() {
                info!("idle_timeout");
                break;
            }
            pause = pause.min(left);
        }
        if pause <= IDLE_FIRST {
            rest(worker, &sources, &mut handlers, &mut idle, pause).await;
        } else {
            let next_look = look_at_any(worker, &sources, pause);
            wait_for(worker, &mut handlers, &mut idle, free, next_look).await;
        }
    }
    drain(worker, handlers).await;
}

/// How many more commands may run: those at their last requests hold no slot, while they are not too many.
fn free_slots(worker: &Worker, handlers: &Handlers) -> usize {
    let (slots, held) = (usize::from(worker.config.slots), handlers.len());
    let busy = held.saturating_sub(worker.ends.leaving());
    slots
        .saturating_sub(busy)
        .min((2 * slots).saturating_sub(held))
}

/// A long time, for waits that something else ends.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Waits until it is worth receiving again, also where slots are freed meanwhile: there was less than asked for, so that they need no look of
/// their own.
async fn rest(
    worker: &Worker,
    sources: &[Source],
    handlers: &mut Handlers,
    idle: &mut Idle,
    pause: Duration,
) {
    let next_look = look_at_any(worker, sources, pause);
    tokio::pin!(next_look);
    loop {
        tokio::select! {
            biased;
            () = worker.stop.drain.cancelled() => return,
            Some(joined) = handlers.next(), if !handlers.is_empty() => {
                note(joined);
                idle.reset(&worker.env);
            }
            () = &mut next_look => return,
        }
    }
}

/// Waits until it is worth receiving from one of `sources` again.
async fn look_at_any(worker: &Worker, sources: &[Source], pause: Duration) {
    let looks = sources
        .iter()
        .map(|source| look(worker, source, pause).boxed());
    select_all(looks).await;
}

/// Waits until it is worth receiving from `source` again.
async fn look(worker: &Worker, source: &Source, pause: Duration) {
    let rest = source.rests_for(worker.env.mono());
    if rest.is_zero() {
        worker.store.queues.wait(&source.queue, pause).await;
    } else {
        worker.env.sleep(rest).await;
    }
}

/// Waits for `over`, more free slots than `free`, or the word to stop.
async fn wait_for(
    worker: &Worker,
    handlers: &mut Handlers,
    idle: &mut Idle,
    free: usize,
    over: impl Future<Output = ()>,
) {
    tokio::pin!(over);
    loop {
        if free_slots(worker, handlers) > free {
            return idle.reset(&worker.env);
        }
        tokio::select! {
            biased;
            () = worker.stop.drain.cancelled() => return,
            Some(joined) = handlers.next(), if !handlers.is_empty() => note(joined),
            () = worker.ends.changed() => {}
            () = &mut over => return,
            never = turn_on(worker) => match never {},
        }
    }
}

/// Marks turns while the loop waits, however long it means to.
async fn turn_on(worker: &Worker) -> Infallible {
    loop {
        worker.observer.turned();
        worker.env.sleep(WAIT_TURNS).await;
    }
}

/// Receives once from each queue; tells how many messages, and whether one gave all it was asked for, so that more may be there.
async fn take(
    worker: &Arc<Worker>,
    sources: &mut [Source],
    free: usize,
    handlers: &mut Handlers,
) -> (usize, bool) {
    let (mut taken, mut is_full) = (0, false);
    for source in sources {
        let most = u8::try_from(free - taken)
            .unwrap_or(RECEIVE_MAX)
            .min(RECEIVE_MAX);
        let rests = !source.rests_for(worker.env.mono()).is_zero();
        if most == 0 || rests || worker.stop.drain.is_cancelled() {
            continue;
        }
        let asked_at = worker.env.mono();
        let messages = source.receive(worker, most).await;
        is_full |= messages.len() >= usize::from(most);
        for message in messages {
            taken += 1;
            worker.observer.turned();
            if let Some(delivery) = worker.accept(source, message, asked_at).await {
                let of_handler = worker.clone();
                let handle = worker.env.spawn("task", async move {
                    let way = of_handler.handle(&delivery).await;
                    of_handler.note(&delivery, way);
                });
                handlers.push(handle.join().boxed());
            }
        }
    }
    (taken, is_full)
}

fn note(joined: Joined) {
    if let Joined::Panicked(why) = joined {
        // Its message comes back by itself.
        error!(why, "handler_panicked");
    }
}

/// Ends the drain time, which counts from the word to stop: also while a receive is awaited, for as long as a request may take.
pub(super) async fn evict_in_time(worker: &Worker) -> Infallible {
    worker.stop.drain.cancelled().await;
    worker.env.sleep(worker.config.drain_timeout).await;
    worker.evict.cancel();
    pending().await
}

/// Lets running tasks end, until they are stopped and given back at the end of the drain time.
async fn drain(worker: &Worker, mut handlers: Handlers) {
    let Worker { env, stop, .. } = worker;
    info!(running = handlers.len(), "draining");
    let all = async {
        while let Some(joined) = handlers.next().await {
            note(joined);
        }
    };
    tokio::pin!(all);
    tokio::select! {
        biased;
        () = &mut all => return,
        () = stop.kill.cancelled() => {}
        never = turn_on(worker) => match never {},
    }
    // Process groups are killed at once; what still talks to the store is left.
    env.timeout(KILL_WAIT, all).await.ok();
}
