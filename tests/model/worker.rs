//! What workers do with task messages, claims and completions, and what time and people do to all of them.

use super::state::{
    A, B, Claim, Doing, Held, Job, Message, News, Outcome, Own, State, TASKS, Task,
};
use super::{Flaw, Model, Next, Step};

/// Starts under a claim after which an attempt fails for good (P23).
const STARTS_MAX: u8 = 2;

impl Model {
    /// What workers may do next.
    pub(super) fn worker_steps(self, state: &State, next: &mut Next) {
        for at in 0..state.workers.len() {
            match state.workers[at] {
                // All that have nothing to do are alike.
                None if at == 0 || state.workers[at - 1].is_some() => {
                    for (place, message) in state.messages.each() {
                        let mut to = *state;
                        to.messages.take(place);
                        self.receive(to, at, message, next);
                    }
                }
                None => {}
                Some(job) => self.work(state, at, job, next),
            }
        }
    }

    /// Judges a message just received (P18, P30).
    fn receive(self, state: State, at: usize, message: Message, next: &mut Next) {
        let task = usize::from(message.task);
        let job = Job {
            message: Message {
                delivered: true,
                ..message
            },
            receipt: true,
            own: Own::No,
            doing: Doing::Running,
        };
        let with = |doing| {
            let mut to = state;
            to.workers[at] = Some(Job { doing, ..job });
            to
        };
        if state.row.is_final {
            next.push((Step::DeletesOldNews(message), discard(state, message)));
            return;
        }
        let cancelled = state.row.cancel;
        let again = message.again || message.delivered;
        let is_old = message.epoch < state.row.epoch;
        let suspect = again || is_old;
        if cancelled && !again {
            next.push((
                Step::IsCancelled(message),
                Ok(with(Doing::Ended(Outcome::Cancelled))),
            ));
            return;
        }
        if !suspect || self.has(Flaw::StartsSuspectsAtOnce) {
            let started = Self::start(with(Doing::Running), at, suspect);
            next.push((Step::Starts(message), started));
            return;
        }
        if !message.delivered && !cancelled {
            let mut to = state;
            to.messages.put(job.message);
            next.push((Step::GivesBack(message), Ok(to)));
            return;
        }
        if !state.stored(task).runs(message.attempt) {
            next.push((Step::DeletesOldNews(message), discard(state, message)));
            return;
        }
        match state.claims[task] {
            Some(claim) if claim.attempt > message.attempt => {
                next.push((Step::DeletesOldNews(message), discard(state, message)));
            }
            Some(claim) if is_held(claim, message.attempt) && !self.has(Flaw::TakesLiveClaims) => {
                // Given back as it is: later.
            }
            _ if cancelled => {
                let to = with(Doing::Ended(Outcome::Cancelled));
                next.push((Step::IsCancelled(message), Ok(to)));
            }
            _ => {
                let to = with(Doing::Claiming { unchanged: true });
                next.push((Step::Suspects(message), Ok(to)));
            }
        }
    }

    fn work(self, state: &State, at: usize, job: Job, next: &mut Next) {
        let message = job.message;
        if state.left.crashes > 0 {
            let mut to = leave(state, at);
            to.left.crashes -= 1;
            next.push((Step::WorkerDies(message), Ok(to)));
        }
        // While a command runs, its claim is written before its message can be shown again (P19, P20).
        let hidden = job.doing == Doing::Running && job.own == Own::No;
        if job.receipt && state.left.exposures > 0 && !hidden {
            let mut to = *state;
            to.left.exposures -= 1;
            to.messages.put(message);
            to.workers[at] = Some(Job {
                receipt: false,
                ..job
            });
            next.push((Step::MessageIsShownAgain(message), Ok(to)));
        }
        match job.doing {
            Doing::Claiming { unchanged } => {
                let to = if unchanged || self.has(Flaw::TakesLiveClaims) {
                    Self::claim(state, at, job).and_then(|mut to| {
                        let starts =
                            to.claims[usize::from(message.task)].map_or(0, |claim| claim.starts);
                        if starts > STARTS_MAX {
                            set(&mut to, at, Doing::Ended(Outcome::FailedForGood));
                            return Ok(to);
                        }
                        set(&mut to, at, Doing::Running);
                        Self::start(to, at, true)
                    })
                } else {
                    Ok(leave(state, at))
                };
                next.push((Step::Claims(message), to));
            }
            Doing::Running => {
                self.beat(state, at, job, next);
                self.end(state, at, job, next);
            }
            Doing::Ended(outcome) => {
                self.beat(state, at, job, next);
                let task = usize::from(message.task);
                let holds = match job.own {
                    Own::No => true,
                    Own::Yes => state.claims[task].is_some_and(|claim| claim.live),
                    Own::Lost => false,
                };
                if holds {
                    let mut to = *state;
                    post(&mut to, message, outcome);
                    set(&mut to, at, Doing::Posted);
                    next.push((Step::Posts(message, outcome), Ok(to)));
                }
            }
            Doing::Posted => tidy(state, at, job, next),
        }
    }

    /// A heartbeat (P19, P20): writes the claim, or finds that the attempt is another's.
    fn beat(self, state: &State, at: usize, job: Job, next: &mut Next) {
        let found = state.claims[usize::from(job.message.task)];
        let to = match (job.own, found) {
            (Own::Yes, Some(Claim { live: true, .. })) => return,
            (Own::Lost, _) => Ok(leave(state, at)),
            (Own::No, Some(claim))
                if (is_held(claim, job.message.attempt) && !self.has(Flaw::TakesLiveClaims))
                    || claim.attempt > job.message.attempt =>
            {
                Ok(leave(state, at))
            }
            (Own::No | Own::Yes, _) => Self::claim(state, at, job),
        };
        next.push((Step::Beats(job.message), to));
    }

    /// Writes a claim, new or again.
    fn claim(state: &State, at: usize, job: Job) -> Result<State, &'static str> {
        let task = usize::from(job.message.task);
        let attempt = job.message.attempt;
        let mut to = *state;
        let others = |other: &Job| usize::from(other.message.task) == task;
        let mut broken = None;
        for (place, other) in to.workers.iter_mut().enumerate() {
            let Some(other) = other.as_mut().filter(|other| place != at && others(other)) else {
                continue;
            };
            if let Doing::Claiming { unchanged } = &mut other.doing {
                *unchanged = false;
            }
            if other.own == Own::Yes {
                let live = state.claims[task].is_some_and(|claim| is_held(claim, attempt));
                if live {
                    broken = Some("P19: a live claim is taken from its owner");
                }
                other.own = Own::Lost;
            }
        }
        if let Some(what) = broken {
            return Err(what);
        }
        let before = state.claims[task].filter(|claim| claim.attempt == attempt);
        let starts = match (job.own, before) {
            (Own::Yes, Some(claim)) => claim.starts,
            // More than too many is not told apart.
            (_, Some(claim)) => (claim.starts + 1).min(STARTS_MAX + 1),
            (_, None) => 1,
        };
        to.claims[task] = Some(Claim {
            attempt,
            live: true,
            starts,
        });
        to.workers[at] = Some(Job {
            own: Own::Yes,
            ..job
        });
        Ok(to)
    }

    /// What must hold whenever a command starts.
    fn start(state: State, at: usize, suspect: bool) -> Result<State, &'static str> {
        let job = state.workers[at].expect("just started");
        let task = usize::from(job.message.task);
        if state.stored(task).attempt() < job.message.attempt && !state.stored(task).has_ended() {
            return Err("P4: an attempt starts that no stored state has issued");
        }
        if task == B && !matches!(state.stored(A), Task::Completed(_)) {
            return Err("P4: a task starts before its dependency is stored as completed");
        }
        if suspect && job.own != Own::Yes {
            return Err("P18: a suspect starts without its claim");
        }
        Ok(state)
    }

    /// The command ends; posting is one step where nothing comes between.
    fn end(self, state: &State, at: usize, job: Job, next: &mut Next) {
        let message = job.message;
        let outcomes = [
            (Outcome::Succeeded, true),
            (Outcome::Failed, state.left.failures > 0),
            (Outcome::Cancelled, state.row.cancel),
        ];
        for (outcome, may) in outcomes {
            if !may {
                continue;
            }
            let mut ended = *state;
            if outcome == Outcome::Failed {
                ended.left.failures -= 1;
            }
            let mut to = ended;
            if self.has(Flaw::DeletesBeforePosting) {
                to.workers[at] = None;
                next.push((Step::Posts(message, outcome), discard(to, message)));
                continue;
            }
            post(&mut to, message, outcome);
            set(&mut to, at, Doing::Posted);
            next.push((Step::Posts(message, outcome), Ok(to)));
            if ended.left.losses > 0 {
                // It cannot post for a while, or does not know whether it has.
                ended.left.losses -= 1;
                set(&mut ended, at, Doing::Ended(outcome));
                next.push((Step::CannotPost(message, outcome), Ok(ended)));
                post(&mut ended, message, outcome);
                next.push((Step::PostIsUnknown(message, outcome), Ok(ended)));
            }
        }
    }

    /// What time and people may do next.
    pub(super) fn other_steps(state: &State, next: &mut Next) {
        if state.left.cancels > 0 && state.row.epoch > 0 && !state.row.is_final {
            let mut to = *state;
            to.left.cancels -= 1;
            to.row.cancel = true;
            next.push((Step::CancelIsAsked, Ok(to)));
        }
        for task in 0..TASKS {
            // A live worker refreshes its claim, or has stopped its command before it runs out (P20).
            let kept = |job: &&Job| {
                usize::from(job.message.task) == task
                    && job.own == Own::Yes
                    && job.doing == Doing::Running
            };
            let live = state.claims[task].is_some_and(|claim| claim.live);
            if live && !state.workers.iter().flatten().any(|job| kept(&job)) {
                let mut to = *state;
                to.claims[task] = state.claims[task].map(|claim| Claim {
                    live: false,
                    ..claim
                });
                next.push((Step::ClaimRunsOut(task), Ok(to)));
            }
        }
        for (at, news) in state.news.each() {
            let mut to = *state;
            match news.held {
                Held::Visible => continue,
                Held::Hidden => {}
                Held::By(_) if state.left.exposures == 0 => continue,
                Held::By(_) => to.left.exposures -= 1,
            }
            let shown = to.news.get_mut(at);
            shown.held = Held::Visible;
            shown.early = false;
            next.push((Step::NewsIsShownAgain(news), Ok(to)));
        }
    }
}

/// Removes claim and message after the post, in this order (P19).
fn tidy(state: &State, at: usize, job: Job, next: &mut Next) {
    let mut to = *state;
    if job.own == Own::Yes && job.receipt {
        to.claims[usize::from(job.message.task)] = None;
        forget_readings(&mut to, job.message.task);
        to.workers[at] = Some(Job {
            own: Own::No,
            ..job
        });
        next.push((Step::RemovesClaim(job.message), Ok(to)));
        return;
    }
    to.workers[at] = None;
    let to = if job.receipt {
        discard_message(to, job.message)
    } else {
        Ok(to)
    };
    next.push((Step::Tidies(job.message), to));
}

fn set(state: &mut State, at: usize, doing: Doing) {
    if let Some(job) = &mut state.workers[at] {
        job.doing = doing;
    }
}

fn post(state: &mut State, message: Message, outcome: Outcome) {
    state.news.put(News {
        task: message.task,
        attempt: message.attempt,
        outcome,
        held: Held::Visible,
        early: false,
    });
}

/// The worker lets go; its message is shown after a time.
fn leave(state: &State, at: usize) -> State {
    let mut to = *state;
    if let Some(job) = to.workers[at].take().filter(|job| job.receipt) {
        to.messages.put(job.message);
    }
    to
}

const fn is_held(claim: Claim, attempt: u8) -> bool {
    claim.live && claim.attempt == attempt
}

/// Whoever has read the claim has read what is no longer so.
fn forget_readings(state: &mut State, task: u8) {
    for job in state.workers.iter_mut().flatten() {
        if let Doing::Claiming { unchanged } = &mut job.doing {
            *unchanged &= job.message.task != task;
        }
    }
}

/// Removes old news: the claim of its attempt, then the message (P18).
fn discard(mut state: State, message: Message) -> Result<State, &'static str> {
    let claim = &mut state.claims[usize::from(message.task)];
    if claim.is_some_and(|claim| claim.attempt == message.attempt) {
        *claim = None;
        forget_readings(&mut state, message.task);
        for job in state.workers.iter_mut().flatten() {
            let same = (job.message.task, job.message.attempt) == (message.task, message.attempt);
            if same && job.own == Own::Yes {
                job.own = Own::Lost;
            }
        }
    }
    discard_message(state, message)
}

fn discard_message(state: State, message: Message) -> Result<State, &'static str> {
    let task = usize::from(message.task);
    let same = |news: &News| (news.task, news.attempt) == (message.task, message.attempt);
    if state.stored(task).is_past(message.attempt) || state.news.iter().any(same) {
        Ok(state)
    } else {
        Err("P21: a task message is deleted with nothing posted")
    }
}
