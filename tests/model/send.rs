//! How a leader sends, and what must hold whenever it begins to.

use super::leader::stop;
use super::state::{Book, Message, News, State, TASKS, Task};
use super::{Flaw, Model, Next, Step};

impl Model {
    /// Sends what is ready (P4, P12, P18, P30).
    pub(super) fn send(self, state: &State, epoch: u8, book: Book, next: &mut Next) {
        let at = usize::from(epoch - 1);
        let leader = &state.leaders[at];
        let book = if self.has(Flaw::SendsBeforeWriting) {
            self.apply(state, epoch, book)
        } else {
            book
        };
        if !leader.shown || book.cancel && !self.has(Flaw::SendsAfterCancel) {
            return;
        }
        for task in 0..TASKS {
            let Task::Ready(attempt) = book.tasks[task] else {
                continue;
            };
            let inherited = !leader.fresh[task] && !leader.begun[task];
            let may = !inherited || leader.drained || self.has(Flaw::SendsInheritedAtOnce);
            if inherited && self.has(Flaw::ForgetsInherited) || leader.sent[task] == attempt || !may
            {
                continue;
            }
            let message = Message {
                task: u8::try_from(task).expect("two tasks"),
                attempt,
                epoch,
                again: !leader.fresh[task] && !self.has(Flaw::DoesNotMarkAgain),
                delivered: false,
            };
            let mut begun = *state;
            begun.ever_sent[task] |= 1 << attempt;
            begun.leaders[at].fresh[task] = false;
            begun.leaders[at].begun[task] = true;
            let wrong = wrong_to_send(state, book, message, inherited);
            let result = |to: State| wrong.map_or(Ok(to), Err);
            let mut sent = begun;
            sent.leaders[at].begun[task] = false;
            sent.leaders[at].sent[task] = attempt;
            sent.messages.put(message);
            next.push((Step::Send(message), result(sent)));
            if state.left.losses > 0 {
                let mut unknown = begun;
                unknown.left.losses -= 1;
                unknown.messages.put(message);
                next.push((Step::SendArrivesUnknown(message), result(unknown)));
            }
            if epoch < self.terms {
                let mut to = stop(&begun, epoch);
                to.late_send = Some(message);
                next.push((Step::StopWithSend(message), result(to)));
            }
            if state.left.losses > 0 {
                let mut to = begun;
                to.left.losses -= 1;
                to.late_send = Some(message);
                next.push((Step::SendIsUnknown(message), result(to)));
            }
        }
    }
}

/// What is wrong with beginning to send this now.
fn wrong_to_send(
    state: &State,
    known: Book,
    message: Message,
    inherited: bool,
) -> Option<&'static str> {
    let task = usize::from(message.task);
    let book = state.blob.unwrap_or(Book::EMPTY);
    // Who gave up a put that lands later does not know of the cancel: what it sends then is marked, and the state is asked first.
    let may_not_know = message.again && !known.cancel;
    let is_newest = message.epoch == state.terms;
    let waits = |news: &&News| (news.task, news.attempt) == (message.task, message.attempt);
    if book.tasks[task].attempt() < message.attempt {
        Some("P4: a task is sent that no stored state has issued")
    } else if is_newest && book.cancel && !may_not_know {
        Some("P30: a task is sent after the write that applies a cancel")
    } else if is_newest && (book.epoch, state.row.epoch) != (message.epoch, message.epoch) {
        Some("P12: a leader sends before state and row have its epoch")
    } else if !message.again
        && message.epoch >= state.row.epoch
        && state.ever_sent[task] & 1 << message.attempt != 0
    {
        Some("P18: a second sending is not marked")
    } else if is_newest && inherited && state.news.iter().filter(waits).any(|news| news.early) {
        Some("P12: an inherited task is sent though its end was waiting at the take-over")
    } else {
        None
    }
}
