//! What leaders do: lead, read, write, acknowledge, send, show, and stop with requests on the wire.

use super::state::{A, B, Book, Held, Leader, News, Outcome, State, TASKS, Task};
use super::{Flaw, Model, Next, Step};

/// Attempts that fail and are tried again, by task.
const RETRIES: [u8; TASKS] = [1, 0];

/// How news changes a task (P1: an attempt that is tried again gets the next number).
fn after(task: usize, attempt: u8, outcome: Outcome, is_cancelled: bool) -> Task {
    match outcome {
        Outcome::Succeeded => Task::Completed(attempt),
        Outcome::Failed if attempt <= RETRIES[task] && !is_cancelled => Task::Ready(attempt + 1),
        Outcome::Failed | Outcome::FailedForGood => Task::Failed(attempt),
        Outcome::Cancelled => Task::Cancelled(attempt),
    }
}

/// Draws what follows from decided parents (P5).
fn settle(book: &mut Book) {
    if book.tasks[A] == Task::Pending && !book.cancel {
        book.tasks[A] = Task::Ready(1);
    }
    if book.tasks[B] == Task::Pending && book.tasks[A].has_ended() {
        book.tasks[B] = match book.tasks[A] {
            Task::Completed(_) => Task::Ready(1),
            _ => Task::UpstreamFailed,
        };
    }
}

impl Model {
    /// What leaders and their requests may do next.
    pub(super) fn leader_steps(self, state: &State, next: &mut Next) {
        self.begin(state, next);
        for at in 0..state.terms {
            if state.leaders[usize::from(at)].leads {
                self.turn(state, at + 1, next);
            }
        }
        if let Some(book) = state.late_put {
            let mut to = *state;
            to.late_put = None;
            next.push((Step::LatePutLands, self.land(&to, book, None)));
        }
        if let Some(message) = state.late_send {
            let mut to = *state;
            to.late_send = None;
            to.messages.put(message);
            next.push((Step::LateSendLands, Ok(to)));
        }
    }

    /// A new term (P11): the lease has run out, which it does when its holder is fenced (P14), or it is broken.
    fn begin(self, state: &State, next: &mut Next) {
        if state.terms == self.terms {
            return;
        }
        let mut to = *state;
        if state.leaders.iter().any(|leader| leader.leads) {
            if state.left.breaks == 0 {
                return;
            }
            to.left.breaks -= 1;
        }
        to.leaders[usize::from(state.terms)].leads = true;
        to.terms += 1;
        for news in to.news.iter_mut() {
            news.early = news.held == Held::Visible;
        }
        next.push((Step::Lead(to.terms), Ok(to)));
    }

    fn turn(self, state: &State, epoch: u8, next: &mut Next) {
        let leader = &state.leaders[usize::from(epoch - 1)];
        let before = next.len();
        for (at, news) in state.news.each() {
            match news.held {
                Held::Visible => {
                    let mut to = *state;
                    let received = to.news.get_mut(at);
                    received.held = Held::By(epoch);
                    received.early &= epoch == state.terms;
                    next.push((Step::Receive(epoch, news), Ok(to)));
                }
                Held::By(by) if by == epoch => self.acknowledge(state, epoch, at, news, next),
                Held::By(_) | Held::Hidden => {}
            }
        }
        if let Some(book) = leader.book {
            self.write(state, epoch, book, next);
            self.show(state, epoch, book, next);
            self.send(state, epoch, book, next);
        } else {
            next.push((Step::Load(epoch), self.load(state, epoch)));
        }
        // A stop with a request on the wire that is lost is a stop without one.
        if epoch < self.terms && !next[before..].iter().any(|(step, _)| step.is_stop()) {
            next.push((Step::Stop(epoch), Ok(stop(state, epoch))));
        }
    }

    /// Takes at once the steps whose time makes no difference, so that there are fewer orders to look at:
    /// 1. That a leader has received the queue empty only allows it things, so it learns that as soon as it may.
    /// 2. Where nobody else can write, reading earlier or later reads the same.
    /// 3. Where a leader cannot stop any more and its messages are not shown again, it acknowledges as soon as it may.
    pub(super) fn hurry(self, mut state: State) -> State {
        for epoch in 1..=state.terms {
            let at = usize::from(epoch - 1);
            if !state.leaders[at].leads {
                continue;
            }
            let others = state.leaders.iter().filter(|leader| leader.leads).count() > 1;
            let alone = !others && state.late_put.is_none() && state.left.breaks == 0;
            if alone && state.leaders[at].book.is_none() {
                // What goes wrong in it is found by the step itself.
                state = self.load(&state, epoch).unwrap_or(state);
            }
            let Some(book) = state.leaders[at].book else {
                continue;
            };
            let waits = |news: &News| match news.held {
                Held::Visible => true,
                Held::By(by) if by == epoch => {
                    !book.tasks[usize::from(news.task)].is_past(news.attempt)
                }
                Held::By(_) | Held::Hidden => false,
            };
            if !state.news.iter().any(waits) {
                state.leaders[at].drained = true;
            }
            if epoch == self.terms && state.left.exposures == 0 {
                let done = |news: &News| self.may_acknowledge(&state, epoch, *news);
                let done: Vec<_> = state.news.each().filter(|(_, news)| done(news)).collect();
                for (place, _) in done {
                    state.news.take(place);
                }
            }
        }
        state
    }

    /// Reads the state (P5, P7, P13).
    fn load(self, state: &State, epoch: u8) -> Result<State, &'static str> {
        let book = state.blob.unwrap_or(Book::EMPTY);
        if book.epoch > epoch && !self.has(Flaw::IgnoresNewerEpochs) {
            // The sentinel names another leader.
            return Ok(stop(state, epoch));
        }
        let mut to = *state;
        let leader = &mut to.leaders[usize::from(epoch - 1)];
        leader.book = Some(book);
        leader.current = true;
        if book.epoch < epoch && !book.is_final() {
            leader.shown = false;
        }
        if self.has(Flaw::ActsBeforeTakingOver) {
            leader.shown = true;
        }
        if self.has(Flaw::ForgetsMarksAtReload) {
            leader.sent = [0; TASKS];
            leader.fresh = [true; TASKS];
        }
        for (_, news) in state.news.each() {
            if news.held == Held::By(epoch) && is_unissued(book, news) {
                return Err("P7: a good completion goes to poison");
            }
        }
        Ok(to)
    }

    /// Applies all news in hand and writes (P4, P8, P10, P12, P30).
    fn write(self, state: &State, epoch: u8, book: Book, next: &mut Next) {
        let leader = &state.leaders[usize::from(epoch - 1)];
        let held = |news: &&News| news.held == Held::By(epoch);
        if state
            .news
            .iter()
            .filter(held)
            .any(|news| is_unissued(book, *news))
        {
            let again = if self.has(Flaw::TrustsMemoryOnUnknownNews) {
                Err("P7: a good completion goes to poison")
            } else {
                let mut to = *state;
                to.leaders[usize::from(epoch - 1)].drop_memory();
                Ok(to)
            };
            next.push((Step::ReadAgain(epoch), again));
            return;
        }
        let plain = self.apply(state, epoch, book);
        let mut written = vec![plain];
        if !plain.is_final() {
            let may_cancel = leader.shown && state.row.cancel && !plain.cancel;
            if may_cancel {
                let mut cancelled = plain;
                self.cancel(&mut cancelled, leader);
                settle(&mut cancelled);
                written.push(cancelled);
            }
            if book.cancel && !self.has(Flaw::GraceNeverEnds) {
                let mut ended = plain;
                for task in &mut ended.tasks {
                    if !task.has_ended() {
                        *task = Task::Cancelled(task.attempt());
                    }
                }
                written.push(ended);
            }
        }
        for new in written {
            let takes_over = book.epoch < epoch && !book.is_final();
            if new.tasks != book.tasks || new.cancel != book.cancel || takes_over {
                self.put(state, epoch, Book { epoch, ..new }, next);
            }
        }
    }

    /// The state as it is after the news in hand and the marks.
    pub(super) fn apply(self, state: &State, epoch: u8, book: Book) -> Book {
        let leader = &state.leaders[usize::from(epoch - 1)];
        let mut new = book;
        for news in state
            .news
            .iter()
            .filter(|news| news.held == Held::By(epoch))
        {
            let at = usize::from(news.task);
            if new.tasks[at].runs(news.attempt) {
                if news.outcome == Outcome::Cancelled && !new.cancel {
                    self.cancel(&mut new, leader);
                }
                let now = after(at, news.attempt, news.outcome, new.cancel);
                new.tasks[at] = match now {
                    Task::Ready(_) if self.has(Flaw::RetriesUnderTheSameNumber) => {
                        Task::Ready(news.attempt)
                    }
                    other => other,
                };
            }
        }
        settle(&mut new);
        for (at, task) in new.tasks.iter_mut().enumerate() {
            if *task == Task::Ready(leader.sent[at]) {
                *task = Task::Dispatched(leader.sent[at]);
            }
        }
        new
    }

    /// Applies a cancel: what was certainly not sent ends, the rest counts as dispatched (P30).
    fn cancel(self, book: &mut Book, leader: &Leader) {
        book.cancel = true;
        let known = leader.book.unwrap_or(Book::EMPTY);
        for (at, task) in book.tasks.iter_mut().enumerate() {
            *task = match *task {
                Task::Pending => Task::Cancelled(0),
                Task::Ready(attempt) if !self.has(Flaw::SendsAfterCancel) => {
                    // What became ready in this very pass was never stored.
                    let maybe_sent = known.tasks[at] == *task && !leader.fresh[at];
                    if maybe_sent {
                        Task::Dispatched(attempt)
                    } else {
                        Task::Cancelled(attempt)
                    }
                }
                other => other,
            };
        }
    }

    /// One write of the state, and how it may end.
    fn put(self, state: &State, epoch: u8, new: Book, next: &mut Next) {
        let at = usize::from(epoch - 1);
        let leader = &state.leaders[at];
        if !leader.current && !self.has(Flaw::PutsWithoutVersion) {
            // A rival has written: read and apply again.
            let mut to = *state;
            to.leaders[at].drop_memory();
            next.push((Step::PutIsRefused(epoch), Ok(to)));
            return;
        }
        next.push((Step::Put(epoch, new), self.land(state, new, Some(epoch))));
        if epoch < self.terms {
            // It stops while the put is on the wire; one that was there before is lost.
            let mut to = stop(state, epoch);
            to.late_put = Some(new);
            next.push((Step::StopWithPut(epoch, new), Ok(to)));
        }
        if state.left.losses > 0 {
            // No answer, nor any to the question for the stamp: the memory is thrown away, the put may land yet.
            let mut to = *state;
            to.left.losses -= 1;
            to.late_put = Some(new);
            to.leaders[at].drop_memory();
            if self.has(Flaw::TakesNoAnswerForYes) {
                to.leaders[at].book = Some(new);
            }
            next.push((Step::PutIsUnknown(epoch, new), Ok(to)));
            // It has landed, and its writer does not learn that.
            let landed = self.land(state, new, None).map(|mut to| {
                to.left.losses -= 1;
                to.leaders[at].drop_memory();
                to
            });
            next.push((Step::PutLandsUnknown(epoch, new), landed));
        }
    }

    /// A put takes effect: all others' versions are old. `answered` learns it.
    fn land(self, state: &State, new: Book, answered: Option<u8>) -> Result<State, &'static str> {
        let old = state.blob.unwrap_or(Book::EMPTY);
        if new.epoch < old.epoch {
            return Err("P12, P14: a leader writes after another has taken over");
        }
        if old.cancel && !new.cancel {
            return Err("P30: a cancel is taken back");
        }
        for (was, is) in old.tasks.into_iter().zip(new.tasks) {
            if was.has_ended() && was != is {
                return Err("P4: a task that has ended changes");
            }
            let again = matches!((was, is), (Task::Dispatched(_), Task::Ready(_)));
            if is.attempt() < was.attempt() && is.attempt() > 0
                || again && is.attempt() == was.attempt()
            {
                return Err("P1: an attempt number does not grow");
            }
        }
        let mut to = *state;
        to.blob = Some(new);
        if !self.has(Flaw::PutsWithoutVersion) {
            // It names a version that is no longer stored.
            to.late_put = None;
        }
        for leader in &mut to.leaders {
            leader.current = false;
        }
        if let Some(epoch) = answered {
            let leader = &mut to.leaders[usize::from(epoch - 1)];
            let known = leader.book.unwrap_or(Book::EMPTY);
            for (at, task) in new.tasks.iter().enumerate() {
                let ready = matches!(task, Task::Ready(_));
                let changed = known.tasks[at] != *task;
                leader.fresh[at] = ready && (changed || leader.fresh[at]);
                leader.begun[at] = ready && !changed && leader.begun[at];
            }
            leader.sent = [0; TASKS];
            leader.book = Some(new);
            leader.current = true;
        }
        Ok(to)
    }

    /// Whether a completion is contained in what this leader knows to be stored (P6).
    fn may_acknowledge(self, state: &State, epoch: u8, news: News) -> bool {
        let leader = &state.leaders[usize::from(epoch - 1)];
        let Some(book) = leader.book.filter(|book| leader.shown || book.is_final()) else {
            return false;
        };
        let task = book.tasks[usize::from(news.task)];
        let is_older = news.attempt < task.attempt();
        news.held == Held::By(epoch)
            && task.is_past(news.attempt)
            && !(is_older && self.has(Flaw::NeverAcknowledgesOldNews))
    }

    /// Deletes a completion.
    fn acknowledge(self, state: &State, epoch: u8, at: usize, news: News, next: &mut Next) {
        let has_memory = state.leaders[usize::from(epoch - 1)].book.is_some();
        let at_once = has_memory && self.has(Flaw::AcknowledgesBeforeWriting);
        if !at_once && !self.may_acknowledge(state, epoch, news) {
            return;
        }
        let mut to = *state;
        to.news.take(at);
        let acknowledged = if state.stored(usize::from(news.task)).is_past(news.attempt) {
            Ok(to)
        } else {
            Err("P6: a completion is acknowledged that no stored state contains")
        };
        next.push((Step::Acknowledge(epoch, news), acknowledged));
    }

    /// Shows epoch and end in the index row (P12, P16).
    fn show(self, state: &State, epoch: u8, book: Book, next: &mut Next) {
        let leader = &state.leaders[usize::from(epoch - 1)];
        let first = !leader.shown && book.epoch == epoch;
        let early = self.has(Flaw::ShowsTheEndBeforeItIsStored);
        let shown_final = book.is_final() || early && self.apply(state, epoch, book).is_final();
        if !first && (state.row.is_final || !shown_final) {
            return;
        }
        let mut to = *state;
        if state.row.epoch > epoch {
            to = stop(state, epoch);
        } else {
            to.row.epoch = epoch;
            to.row.is_final |= shown_final;
            to.leaders[usize::from(epoch - 1)].shown = true;
        }
        let is_final = state.blob.is_some_and(Book::is_final);
        let result = if to.row.is_final && !is_final {
            Err("P16: the row is final before the state")
        } else {
            Ok(to)
        };
        next.push((Step::Show(epoch), result));
    }
}

/// Whether the state that is known has not issued what the news speaks of.
fn is_unissued(book: Book, news: News) -> bool {
    let task = book.tasks[usize::from(news.task)];
    !task.has_ended() && news.attempt > task.attempt()
}

/// The end of a term: its memory is gone, what it holds is hidden until its time is over.
pub(super) fn stop(state: &State, epoch: u8) -> State {
    let mut to = *state;
    to.leaders[usize::from(epoch - 1)] = Leader::default();
    for news in to.news.iter_mut() {
        if news.held == Held::By(epoch) {
            news.held = Held::Hidden;
        }
    }
    to
}
