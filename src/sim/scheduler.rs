//! An executor whose every choice comes from a seed: which ready task runs next, and what time it is.
//!
//! Invariants:
//! 1. One task is polled at a time, chosen among those that are ready; virtual time passes only by the cost of a poll, or to the next
//!    timer when nothing is ready.
//! 2. Tasks belong to processes. Killing a process drops all its tasks where they stand; a paused one is not polled while time goes on.
//! 3. No future is polled or dropped under the lock: it may come back here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::BoxFuture;

use super::dice::Dice;
use super::trace::Trace;
use crate::env::Joined;

/// What one poll costs, so that a loop without a wait moves time too.
const POLL_COST: Duration = Duration::from_micros(2);

/// A simulated process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProcessId(pub(super) u32);

type TaskId = u64;

/// A timer, by when it ends and when it was set.
pub(super) type TimerKey = (Duration, u64);

struct Task {
    process: ProcessId,
    name: &'static str,
    /// None while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Arc<TaskWaker>,
    end: oneshot::Sender<Joined>,
}

struct TaskWaker {
    id: TaskId,
    queued: AtomicBool,
    woken: Arc<Mutex<Vec<TaskId>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            hold(&self.woken).push(self.id);
        }
    }
}

struct State {
    now: Duration,
    dice: Dice,
    polls: u64,
    numbers: u64,
    tasks: BTreeMap<TaskId, Task>,
    ready: Vec<TaskId>,
    /// Ready, but of a paused process.
    parked: Vec<TaskId>,
    paused: BTreeSet<ProcessId>,
    timers: BTreeMap<TimerKey, Waker>,
    panics: Vec<String>,
    /// Who was polled last, to name what turns without end.
    last: (ProcessId, &'static str),
}

/// The executor; clones are the same one.
#[derive(Clone)]
pub(super) struct Scheduler {
    state: Arc<Mutex<State>>,
    woken: Arc<Mutex<Vec<TaskId>>>,
    pub(super) trace: Arc<Trace>,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scheduler {
    pub(super) fn new(dice: Dice, trace: Arc<Trace>) -> Self {
        let state = State {
            now: Duration::ZERO,
            dice,
            polls: 0,
            numbers: 0,
            tasks: BTreeMap::new(),
            ready: Vec::new(),
            parked: Vec::new(),
            paused: BTreeSet::new(),
            timers: BTreeMap::new(),
            panics: Vec::new(),
            last: (ProcessId(0), ""),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            woken: Arc::default(),
            trace,
        }
    }

    /// The virtual time since the start.
    pub(super) fn now(&self) -> Duration {
        hold(&self.state).now
    }

    /// How many polls there were.
    pub(super) fn polls(&self) -> u64 {
        hold(&self.state).polls
    }

    /// Which task of which process was polled last.
    pub(super) fn last(&self) -> (ProcessId, &'static str) {
        hold(&self.state).last
    }

    /// What panicked.
    pub(super) fn panics(&self) -> Vec<String> {
        hold(&self.state).panics.clone()
    }

    pub(super) fn spawn(
        &self,
        process: ProcessId,
        name: &'static str,
        future: BoxFuture<'static, ()>,
    ) -> (TaskId, oneshot::Receiver<Joined>) {
        let (end, ended) = oneshot::channel();
        let mut state = hold(&self.state);
        state.numbers += 1;
        let id = state.numbers;
        let waker = Arc::new(TaskWaker {
            id,
            queued: AtomicBool::new(false),
            woken: Arc::clone(&self.woken),
        });
        let task = Task {
            process,
            name,
            future: Some(future),
            waker: Arc::clone(&waker),
            end,
        };
        state.tasks.insert(id, task);
        drop(state);
        waker.wake();
        (id, ended)
    }

    /// Drops a task where it stands.
    pub(super) fn abort(&self, id: TaskId) {
        let task = hold(&self.state).tasks.remove(&id);
        finish(task, Joined::Aborted);
    }

    /// Drops all tasks of a process where they stand, and lets it be unpaused again.
    pub(super) fn kill(&self, process: ProcessId) {
        let dead: Vec<Task> = {
            let mut state = hold(&self.state);
            state.paused.remove(&process);
            let of = |task: &Task| task.process == process;
            let ids: Vec<TaskId> = state
                .tasks
                .iter()
                .filter(|(_, task)| of(task))
                .map(|(id, _)| *id)
                .collect();
            ids.iter().filter_map(|id| state.tasks.remove(id)).collect()
        };
        for task in dead {
            finish(Some(task), Joined::Aborted);
        }
    }

    /// Drops everything.
    pub(super) fn clear(&self) {
        loop {
            let (tasks, timers) = {
                let mut state = hold(&self.state);
                (
                    std::mem::take(&mut state.tasks),
                    std::mem::take(&mut state.timers),
                )
            };
            if tasks.is_empty() {
                return;
            }
            drop(timers);
            for task in tasks.into_values() {
                finish(Some(task), Joined::Aborted);
            }
        }
    }

    /// Stops polling a process.
    pub(super) fn pause(&self, process: ProcessId) {
        hold(&self.state).paused.insert(process);
    }

    /// Goes on polling it.
    pub(super) fn resume(&self, process: ProcessId) {
        let mut state = hold(&self.state);
        state.paused.remove(&process);
        let parked = std::mem::take(&mut state.parked);
        state.ready.extend(parked);
    }

    /// A new key for a timer that ends at `at`.
    pub(super) fn timer_key(&self, at: Duration) -> TimerKey {
        let mut state = hold(&self.state);
        state.numbers += 1;
        (at, state.numbers)
    }

    /// Whether the timer is over; if not, `waker` is called then.
    pub(super) fn poll_timer(&self, key: TimerKey, waker: &Waker) -> Poll<()> {
        let mut state = hold(&self.state);
        if state.now >= key.0 {
            state.timers.remove(&key);
            return Poll::Ready(());
        }
        state.timers.insert(key, waker.clone());
        Poll::Pending
    }

    pub(super) fn drop_timer(&self, key: TimerKey) {
        hold(&self.state).timers.remove(&key);
    }

    /// Makes `change` with the dice.
    pub(super) fn roll<T>(&self, change: impl FnOnce(&mut Dice) -> T) -> T {
        change(&mut hold(&self.state).dice)
    }

    /// Polls one task or moves time; false when there is nothing to do at all.
    pub(super) fn step(&self) -> bool {
        let Some((id, process, name, mut future, waker)) = self.choose() else {
            return self.move_time();
        };
        self.trace.poll(process.0, id);
        waker.queued.store(false, Ordering::SeqCst);
        let std_waker = Waker::from(waker);
        let mut context = Context::from_waker(&std_waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        match polled {
            Ok(Poll::Pending) => {
                let mut state = hold(&self.state);
                if let Some(task) = state.tasks.get_mut(&id) {
                    task.future = Some(future);
                } else {
                    drop(state);
                    drop(future);
                }
            }
            Ok(Poll::Ready(())) => {
                drop(future);
                let task = hold(&self.state).tasks.remove(&id);
                finish(task, Joined::Done);
            }
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(ToString::to_string)
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_default();
                drop(future);
                let task = {
                    let mut state = hold(&self.state);
                    state.panics.push(format!("`{name}` panicked: {text}"));
                    state.tasks.remove(&id)
                };
                finish(task, Joined::Panicked(text));
            }
        }
        true
    }

    #[expect(
        clippy::type_complexity,
        reason = "taken apart at once by its one caller"
    )]
    fn choose(
        &self,
    ) -> Option<(
        TaskId,
        ProcessId,
        &'static str,
        BoxFuture<'static, ()>,
        Arc<TaskWaker>,
    )> {
        let mut state = hold(&self.state);
        state.ready.append(&mut hold(&self.woken));
        while !state.ready.is_empty() {
            let State { ready, dice, .. } = &mut *state;
            let id = ready.swap_remove(dice.place(ready.len()));
            let State {
                tasks,
                paused,
                parked,
                ..
            } = &mut *state;
            let Some(task) = tasks.get_mut(&id) else {
                continue;
            };
            if paused.contains(&task.process) {
                parked.push(id);
                continue;
            }
            let future = task
                .future
                .take()
                .expect("only one task is polled at a time");
            let chosen = (id, task.process, task.name, future, Arc::clone(&task.waker));
            state.last = (chosen.1, chosen.2);
            state.polls += 1;
            state.now += POLL_COST;
            return Some(chosen);
        }
        None
    }

    /// Moves time to the next timer and wakes all that are over then.
    fn move_time(&self) -> bool {
        let mut state = hold(&self.state);
        let Some((at, _)) = state.timers.first_key_value().map(|(key, _)| *key) else {
            return false;
        };
        state.now = state.now.max(at);
        let now = state.now;
        while let Some(entry) = state.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            entry.remove().wake();
        }
        true
    }
}

fn finish(task: Option<Task>, how: Joined) {
    if let Some(Task { future, end, .. }) = task {
        drop(future);
        // Nobody may want to know.
        end.send(how).ok();
    }
}
