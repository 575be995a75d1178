//! What a state of the model holds: storage, leaders, workers, requests on the wire, and how many faults may still happen.
//!
//! Everything is small, ordered and `Copy`, and what can make no difference any more is forgotten, so that equal situations are equal
//! states:
//! 1. A version of the state blob is not numbered. Who has read it knows whether it is still *current*; each write makes all others'
//!    knowledge old, which is what an ETag does.
//! 2. A leader is one term; its number is its epoch. A coordinator that restarts is the next term. A term that is over has no memory:
//!    what it leaves are requests on the wire.
//! 3. A message that a worker holds is in its hand and not in the queue; workers are in no order.

/// `a`, and `b` which depends on it.
pub(super) const TASKS: usize = 2;
/// The first task.
pub(super) const A: usize = 0;
/// The task that waits for it.
pub(super) const B: usize = 1;
/// Terms of leadership at most.
pub(super) const TERMS_MAX: usize = 2;
/// Messages in a queue at most; a step beyond is an error of the bounds.
pub(super) const QUEUE_MAX: usize = 4;

/// Where a task stands, and with which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Task {
    Pending,
    Ready(u8),
    Dispatched(u8),
    Completed(u8),
    Failed(u8),
    UpstreamFailed,
    Cancelled(u8),
}

impl Task {
    pub(super) const fn attempt(self) -> u8 {
        match self {
            Self::Pending | Self::UpstreamFailed => 0,
            Self::Ready(attempt)
            | Self::Dispatched(attempt)
            | Self::Completed(attempt)
            | Self::Failed(attempt)
            | Self::Cancelled(attempt) => attempt,
        }
    }

    pub(super) const fn has_ended(self) -> bool {
        match self {
            Self::Pending | Self::Ready(_) | Self::Dispatched(_) => false,
            Self::Completed(_) | Self::Failed(_) | Self::UpstreamFailed | Self::Cancelled(_) => {
                true
            }
        }
    }

    /// Whether this attempt is the one to be run.
    pub(super) const fn runs(self, attempt: u8) -> bool {
        match self {
            Self::Ready(at) | Self::Dispatched(at) => at == attempt,
            _ => false,
        }
    }

    /// Whether news of this attempt is old.
    pub(super) const fn is_past(self, attempt: u8) -> bool {
        self.has_ended() || attempt < self.attempt()
    }
}

/// The state blob, or a leader's copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Book {
    /// The epoch of its writer; 0 where nobody has written it.
    pub(super) epoch: u8,
    pub(super) tasks: [Task; TASKS],
    pub(super) cancel: bool,
}

impl Book {
    pub(super) const EMPTY: Self = Self {
        epoch: 0,
        tasks: [Task::Pending; TASKS],
        cancel: false,
    };

    pub(super) fn is_final(self) -> bool {
        self.tasks.iter().all(|task| task.has_ended())
    }
}

/// The index row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Row {
    pub(super) epoch: u8,
    pub(super) cancel: bool,
    pub(super) is_final: bool,
}

/// A task message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) task: u8,
    pub(super) attempt: u8,
    pub(super) epoch: u8,
    pub(super) again: bool,
    /// Whether it was delivered before.
    pub(super) delivered: bool,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Outcome {
    Succeeded,
    Failed,
    /// Started too often (P23): not tried again.
    FailedForGood,
    Cancelled,
}

/// Who sees a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Held {
    /// Everybody.
    Visible,
    /// The leader of this epoch has it.
    By(u8),
    /// Nobody, until its time is over: its receiver leads no more.
    Hidden,
}

/// A completion message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct News {
    pub(super) task: u8,
    pub(super) attempt: u8,
    pub(super) outcome: Outcome,
    pub(super) held: Held,
    /// It was to be seen when the newest leader began, and ever since.
    pub(super) early: bool,
}

/// The claim on a task; who owns it is known by the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) attempt: u8,
    pub(super) live: bool,
    /// Starts under a claim so far (P23).
    pub(super) starts: u8,
}

/// What a worker believes of the claim on its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Own {
    /// It has written none.
    No,
    /// It is its own.
    Yes,
    /// It believes so, and is wrong by now.
    Lost,
}

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Doing {
    /// It has judged a suspect by state and claim, and will write its claim; whether that is still as it was read.
    Claiming { unchanged: bool },
    /// The command runs.
    Running,
    /// The command has ended, the completion is not (or not surely) posted.
    Ended(Outcome),
    /// The completion is posted, claim and message are to go.
    Posted,
}

/// One execution in the hands of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Job {
    pub(super) message: Message,
    /// Whether its receipt still counts.
    pub(super) receipt: bool,
    pub(super) own: Own,
    pub(super) doing: Doing,
}

/// One term of leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact by itself, and all combinations occur"
)]
pub(super) struct Leader {
    /// Whether it may act: it has begun and is not fenced.
    pub(super) leads: bool,
    /// What it knows to be stored.
    pub(super) book: Option<Book>,
    /// Whether that is the version stored now.
    pub(super) current: bool,
    /// Whether the row shows its epoch (P12).
    pub(super) shown: bool,
    /// Whether it has received the completion queue empty (P12).
    pub(super) drained: bool,
    /// Tasks made ready by its own stored write and never begun to be sent.
    pub(super) fresh: [bool; TASKS],
    /// Tasks whose sending it has begun, with no answer.
    pub(super) begun: [bool; TASKS],
    /// The attempts it has sent, until the mark is stored.
    pub(super) sent: [u8; TASKS],
}

impl Leader {
    /// The memory of the state is thrown away; what was sent stays (P8).
    pub(super) fn drop_memory(&mut self) {
        self.book = None;
        self.current = false;
        self.fresh = [false; TASKS];
        self.begun = [false; TASKS];
    }
}

/// How many faults of each kind may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Left {
    /// Workers that die.
    pub(super) crashes: u8,
    /// Requests without an answer to a process that lives on, and stalls before a post.
    pub(super) losses: u8,
    /// Messages shown again while somebody has them.
    pub(super) exposures: u8,
    /// Leases broken under a leader that lives.
    pub(super) breaks: u8,
    /// Attempts that fail.
    pub(super) failures: u8,
    /// Cancel requests.
    pub(super) cancels: u8,
}

/// Some messages, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Bag<T>([Option<T>; QUEUE_MAX]);

impl<T: Copy + Ord> Bag<T> {
    const EMPTY: Self = Self([None; QUEUE_MAX]);

    /// Adds one; a full queue is an error of the bounds, never a silent loss.
    pub(super) fn put(&mut self, item: T) {
        let free = self.0.iter().position(Option::is_none);
        self.0[free.expect("`QUEUE_MAX` is too small for these bounds")] = Some(item);
    }

    /// Removes the one at `at`.
    pub(super) fn take(&mut self, at: usize) -> T {
        self.0[at].take().expect("looked up before")
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut T {
        self.0[at].as_mut().expect("looked up before")
    }

    /// All with their places; of equal ones the first.
    pub(super) fn each(&self) -> impl Iterator<Item = (usize, T)> {
        let new = |at: &usize| *at == 0 || self.0[*at] != self.0[*at - 1];
        let found = |at: usize| self.0[at].map(|item| (at, item));
        (0..QUEUE_MAX).filter(new).filter_map(found)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// All there is at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) blob: Option<Book>,
    pub(super) row: Row,
    pub(super) messages: Bag<Message>,
    pub(super) news: Bag<News>,
    pub(super) claims: [Option<Claim>; TASKS],
    /// Terms begun so far.
    pub(super) terms: u8,
    pub(super) leaders: [Leader; TERMS_MAX],
    pub(super) workers: [Option<Job>; 2],
    /// A put on the wire that nobody waits for, while what it replaces is stored.
    pub(super) late_put: Option<Book>,
    /// A send on the wire that nobody waits for.
    pub(super) late_send: Option<Message>,
    /// Attempts whose sending was ever begun, a bit for each, by task.
    pub(super) ever_sent: [u8; TASKS],
    pub(super) left: Left,
}

impl State {
    pub(super) const fn first(left: Left) -> Self {
        const LEADER: Leader = Leader {
            leads: false,
            book: None,
            current: false,
            shown: false,
            drained: false,
            fresh: [false; TASKS],
            begun: [false; TASKS],
            sent: [0; TASKS],
        };
        Self {
            blob: None,
            row: Row {
                epoch: 0,
                cancel: false,
                is_final: false,
            },
            messages: Bag::EMPTY,
            news: Bag::EMPTY,
            claims: [None; TASKS],
            terms: 0,
            leaders: [LEADER; TERMS_MAX],
            workers: [None; 2],
            late_put: None,
            late_send: None,
            ever_sent: [0; TASKS],
            left,
        }
    }

    /// Where the stored state has a task.
    pub(super) fn stored(&self, task: usize) -> Task {
        self.blob.map_or(Task::Pending, |book| book.tasks[task])
    }

    /// Whether all is over: the state and the row are final, and nothing is on a queue or in hand.
    pub(super) fn is_done(&self) -> bool {
        self.blob.is_some_and(Book::is_final)
            && self.row.is_final
            && self.messages.is_empty()
            && self.news.is_empty()
            && self.workers == [None; 2]
    }

    /// Forgets what makes no difference any more, and puts what has no order into one.
    pub(super) fn in_order(mut self) -> Self {
        for task in 0..TASKS {
            // Whoever meets the claim of an attempt that is past judges by the state before he looks at it.
            let past =
                self.claims[task].is_some_and(|claim| self.stored(task).is_past(claim.attempt));
            let mut jobs = self.workers.iter().flatten();
            if past && !jobs.any(|job| usize::from(job.message.task) == task) {
                self.claims[task] = None;
            }
        }
        self.messages.0.sort_unstable();
        self.news.0.sort_unstable();
        self.workers.sort_unstable();
        self
    }
}
