//! An exhaustive model of the protocol for small sizes: every order of events, with every fault at every point, within stated bounds.
//!
//! It models `docs/protocol.md`, not the code; `docs/model.md` says what is in it, what is left out and why that is safe. What must
//! never happen is looked for at the step that would do it and cites its clause; that all can end is looked for on the graph of all
//! states. That it would find what a clause prevents is shown by leaving the clause out.

mod leader;
mod search;
mod send;
mod state;
mod worker;

use std::time::Instant;

use search::{NO_END, search};
use state::{Book, Left, Message, News, Outcome, State};

/// The steps that may be taken from a state, each with where it leads or what is wrong with it.
type Next = Vec<(Step, Result<State, &'static str>)>;

/// A step, for people who read how something went wrong.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "what a step carries is printed")]
enum Step {
    Lead(u8),
    Stop(u8),
    StopWithPut(u8, Book),
    StopWithSend(Message),
    Load(u8),
    ReadAgain(u8),
    Put(u8, Book),
    PutIsRefused(u8),
    PutIsUnknown(u8, Book),
    PutLandsUnknown(u8, Book),
    LatePutLands,
    Show(u8),
    Receive(u8, News),
    Acknowledge(u8, News),
    Send(Message),
    SendIsUnknown(Message),
    SendArrivesUnknown(Message),
    LateSendLands,
    GivesBack(Message),
    Suspects(Message),
    Claims(Message),
    Starts(Message),
    IsCancelled(Message),
    Beats(Message),
    Posts(Message, Outcome),
    CannotPost(Message, Outcome),
    PostIsUnknown(Message, Outcome),
    RemovesClaim(Message),
    Tidies(Message),
    DeletesOldNews(Message),
    WorkerDies(Message),
    ClaimRunsOut(usize),
    MessageIsShownAgain(Message),
    NewsIsShownAgain(News),
    CancelIsAsked,
}

impl Step {
    /// Whether a leader ends by it.
    const fn is_stop(&self) -> bool {
        matches!(
            self,
            Self::Stop(_) | Self::StopWithPut(..) | Self::StopWithSend(_)
        )
    }

    /// Whether nobody may count on it.
    const fn is_fault(&self) -> bool {
        self.is_stop() || matches!(self, Self::LatePutLands | Self::LateSendLands)
    }
}

/// A clause left out or turned round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    RetriesUnderTheSameNumber,
    PutsWithoutVersion,
    SendsBeforeWriting,
    ForgetsInherited,
    AcknowledgesBeforeWriting,
    NeverAcknowledgesOldNews,
    TrustsMemoryOnUnknownNews,
    ForgetsMarksAtReload,
    TakesNoAnswerForYes,
    ActsBeforeTakingOver,
    IgnoresNewerEpochs,
    SendsInheritedAtOnce,
    ShowsTheEndBeforeItIsStored,
    DoesNotMarkAgain,
    StartsSuspectsAtOnce,
    TakesLiveClaims,
    DeletesBeforePosting,
    SendsAfterCancel,
    GraceNeverEnds,
}

/// A model: its bounds, and what is wrong with it.
#[derive(Debug, Clone, Copy)]
struct Model {
    /// Terms of leadership; the last one does not end.
    terms: u8,
    faults: Left,
    flaw: Option<Flaw>,
}

impl Model {
    fn has(self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Everything that may happen in `state`.
    fn steps(self, state: &State, next: &mut Next) {
        self.leader_steps(state, next);
        self.worker_steps(state, next);
        Self::other_steps(state, next);
    }
}

const NONE: Left = Left {
    crashes: 0,
    losses: 0,
    exposures: 0,
    breaks: 0,
    failures: 0,
    cancels: 0,
};

/// Searches all states within the bounds; nothing may be wrong, and the row of `docs/model.md` must say how many they are.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "how long a search takes is printed, and decides nothing"
)]
fn holds(name: &str, terms: u8, faults: Left) {
    let began = Instant::now();
    let found = search(Model {
        terms,
        faults,
        flaw: None,
    });
    let (states, steps, took) = (found.states, found.steps, began.elapsed());
    println!("{name}: {states} states, {steps} steps, {took:.1?}");
    if let Some((what, way)) = found.wrong {
        let way: Vec<_> = way.iter().map(|step| format!("{step:?}")).collect();
        panic!("{what}\n{}", way.join("\n"));
    }
    assert!(found.done > 0, "no end was reached");
    let row = format!("| {name} | {terms} | {states} | {steps} |");
    assert!(PAGE.contains(&row), "`docs/model.md` has no row `{row}`");
}

const PAGE: &str = include_str!("../../docs/model.md");

#[test]
fn the_protocol_holds_when_a_worker_dies_at_any_point() {
    let faults = Left { crashes: 1, ..NONE };
    holds("a worker dies", 2, faults);
}

#[test]
fn the_protocol_holds_when_any_one_answer_is_lost() {
    let faults = Left { losses: 1, ..NONE };
    holds("an answer is lost", 2, faults);
}

#[test]
fn the_protocol_holds_when_a_message_is_shown_again() {
    let faults = Left {
        exposures: 1,
        ..NONE
    };
    holds("a message is shown again", 2, faults);
}

#[test]
fn the_protocol_holds_when_a_lease_is_broken_under_a_leader() {
    let faults = Left { breaks: 1, ..NONE };
    holds("a lease is broken", 2, faults);
}

#[test]
fn the_protocol_holds_when_an_attempt_fails() {
    let faults = Left {
        failures: 1,
        ..NONE
    };
    holds("an attempt fails", 2, faults);
}

#[test]
fn the_protocol_holds_when_a_cancel_is_asked_for_at_any_point() {
    let faults = Left { cancels: 1, ..NONE };
    holds("a cancel is asked for", 2, faults);
}

#[test]
fn the_protocol_holds_for_one_leader_and_two_faults() {
    let pairs = [
        (
            "two workers die, a message is shown again",
            Left {
                crashes: 2,
                exposures: 1,
                ..NONE
            },
        ),
        ("two answers are lost", Left { losses: 2, ..NONE }),
        (
            "an answer is lost, a worker dies",
            Left {
                losses: 1,
                crashes: 1,
                ..NONE
            },
        ),
        (
            "an answer is lost, a message is shown again",
            Left {
                losses: 1,
                exposures: 1,
                ..NONE
            },
        ),
        (
            "an answer is lost, an attempt fails",
            Left {
                losses: 1,
                failures: 1,
                ..NONE
            },
        ),
        (
            "an answer is lost, a cancel is asked for",
            Left {
                losses: 1,
                cancels: 1,
                ..NONE
            },
        ),
        (
            "a worker dies, a cancel is asked for",
            Left {
                crashes: 1,
                cancels: 1,
                ..NONE
            },
        ),
    ];
    for (name, faults) in pairs {
        holds(name, 1, faults);
    }
}

/// Each flaw, bounds in which it shows, and what is found then. The tests above search these bounds, or wider ones, without a flaw.
fn flaws() -> [(Flaw, u8, Left, &'static str); 19] {
    let failures = Left {
        failures: 1,
        ..NONE
    };
    let losses = Left { losses: 1, ..NONE };
    let breaks = Left { breaks: 1, ..NONE };
    let cancels = Left { cancels: 1, ..NONE };
    let duplicates = Left {
        failures: 1,
        ..losses
    };
    let unsent = Left {
        cancels: 1,
        ..losses
    };
    [
        (Flaw::RetriesUnderTheSameNumber, 1, failures, "P1:"),
        (Flaw::PutsWithoutVersion, 2, NONE, "P12, P14:"),
        (Flaw::SendsBeforeWriting, 1, NONE, "P4:"),
        (Flaw::ForgetsInherited, 2, NONE, NO_END),
        (Flaw::AcknowledgesBeforeWriting, 1, NONE, "P6:"),
        (Flaw::NeverAcknowledgesOldNews, 1, duplicates, NO_END),
        (Flaw::TrustsMemoryOnUnknownNews, 2, breaks, "P7:"),
        (Flaw::ForgetsMarksAtReload, 1, losses, "P18:"),
        (Flaw::TakesNoAnswerForYes, 1, losses, "P4:"),
        (Flaw::ActsBeforeTakingOver, 2, NONE, "P12:"),
        (Flaw::IgnoresNewerEpochs, 2, breaks, "P12, P14:"),
        (Flaw::SendsInheritedAtOnce, 2, NONE, "P12:"),
        (Flaw::ShowsTheEndBeforeItIsStored, 1, NONE, "P16:"),
        (Flaw::DoesNotMarkAgain, 2, NONE, "P18:"),
        (Flaw::StartsSuspectsAtOnce, 2, NONE, "P18:"),
        (Flaw::TakesLiveClaims, 2, NONE, "P19:"),
        (Flaw::DeletesBeforePosting, 1, NONE, "P21:"),
        (Flaw::SendsAfterCancel, 2, cancels, "P30:"),
        (Flaw::GraceNeverEnds, 1, unsent, NO_END),
    ]
}

#[test]
fn a_clause_left_out_is_noticed() {
    for (flaw, terms, faults, clause) in flaws() {
        let found = search(Model {
            terms,
            faults,
            flaw: Some(flaw),
        });
        let (what, way) = found.wrong.unwrap_or(("nothing", Vec::new()));
        println!("{flaw:?}: {what}, after {} steps", way.len());
        assert!(what.starts_with(clause), "{flaw:?}: {what} is found");
        let name = format!("`{flaw:?}`");
        assert!(PAGE.contains(&name), "`docs/model.md` has no {name}");
    }
}
