//! Random histories of random workflows: sends, completions out of order and twice, crashes back to what was stored, a cancel, a
//! retry of the workflow. Whatever happens, the end is the reference's.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::cases::{Case, cases};
use super::reference::{
    Answer, Stand, again, definition_of, end_of, is_bad, may_end_so, result_of,
};
use super::shelf::Shelf;
use super::*;
use crate::definition::OnFailure;
use crate::record::Limits;

type Arrow = (TaskState, Cause, TaskState);

/// A coordinator that may crash, and workers that answer late, twice and in any order.
struct History<'c> {
    case: &'c Case,
    runtime: Runtime,
    now: Timestamp,
    dice: u64,
    /// The last stored state.
    shelf: Shelf,
    /// Completions applied since.
    unacknowledged: Vec<AttemptId>,
    /// Attempts sent whose completion is still to come.
    under_way: Vec<AttemptId>,
    /// All that were ever sent.
    sent: BTreeSet<AttemptId>,
    arrows: BTreeSet<Arrow>,
}

impl<'c> History<'c> {
    fn new(case: &'c Case) -> Self {
        let definition = definition_of(
            &case.plans,
            case.result_policy,
            case.on_failure,
            case.backwards,
        );
        let mut runtime = Runtime::start(graph(&definition), &mut Changes::default());
        let limits = |letters, details| Limits { letters, details };
        let limits = [
            limits(4_096, 16_384),
            limits(0, 600),
            limits(2, 0),
            limits(0, 16_384),
        ];
        let mut shelf = Shelf::new(limits[usize::try_from(case.seed % 4).unwrap()]);
        shelf.put(&mut runtime);
        Self {
            case,
            shelf,
            runtime,
            now: Timestamp::UNIX_EPOCH,
            dice: case.seed,
            unacknowledged: Vec::new(),
            under_way: Vec::new(),
            sent: BTreeSet::new(),
            arrows: BTreeSet::new(),
        }
    }

    /// A number below `sides`.
    fn roll(&mut self, sides: usize) -> usize {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.dice;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ (x >> 31)) % sides as u64).unwrap()
    }

    /// The plan's place of a task of the definition, and back.
    fn place(&self, at: usize) -> usize {
        if self.case.backwards {
            self.case.plans.len() - 1 - at
        } else {
            at
        }
    }

    /// How all tasks stand, in the order of the plans.
    fn stands(&self) -> Vec<Stand> {
        let stand = |place| {
            let run = &self.runtime.tasks()[self.place(place)];
            Stand {
                state: run.state,
                attempt: run.attempt.number(),
            }
        };
        (0..self.case.plans.len()).map(stand).collect()
    }

    fn outcome(&self, id: AttemptId) -> Outcome {
        match self.case.plans[self.place(id.task.at())].answer(id.attempt.number()) {
            Answer::Succeeds => Outcome::Succeeded,
            Answer::Fails => failed(),
            Answer::FailsForGood => Outcome::Failed(failure(FailureKind::Signal, true)),
            Answer::Refused => unreachable!("was never sent"),
        }
    }

    /// Attempts that the stored state promises to send.
    fn sendable(&self) -> Vec<AttemptId> {
        let graph = Arc::clone(self.runtime.graph());
        let written = self.shelf.get().0.runtime(graph, &mut Changes::default());
        let written = written.unwrap();
        let ready = |task: &TaskIx| {
            let [written, now] = [&written, &self.runtime].map(|runtime| runtime.task(*task));
            (written.state, written.attempt) == (TaskState::Ready, now.attempt)
                && now.state == TaskState::Ready
        };
        let graph = self.runtime.graph();
        let id = |task| AttemptId {
            task,
            generation: self.runtime.generation(),
            attempt: self.runtime.task(task).attempt,
        };
        graph.tasks().filter(ready).map(id).collect()
    }

    /// One move, and a look at what it did.
    fn step(&mut self) {
        let before = self.runtime.clone();
        let crashed = match self.roll(10) {
            0 | 1 => self.store(),
            2..=4 => self.send(),
            5..=7 => self.deliver(),
            8 => self.repeat(),
            _ => self.crash(),
        };
        if !crashed {
            self.compare(&before);
        }
        self.check();
    }

    fn store(&mut self) -> bool {
        self.shelf.put(&mut self.runtime);
        self.unacknowledged.clear();
        let mut changes = Changes::default();
        let (record, _ledger) = self.shelf.get();
        let whole = recorded(&self.runtime);
        assert_eq!(
            (&record.states, &record.tasks),
            (&whole.states, &whole.tasks)
        );
        let graph = Arc::clone(self.runtime.graph());
        let again = record.runtime(graph, &mut changes).unwrap();
        assert!(changes.is_empty(), "nothing was left undrawn");
        assert_eq!(again.tasks(), self.runtime.tasks());
        assert_eq!(again.cancel_applied(), self.runtime.cancel_applied());
        assert_eq!(again.stop_in_force(), self.runtime.stop_in_force());
        assert_eq!(again.grace_used(), self.runtime.grace_used());
        assert_eq!(again.first_failure(), self.runtime.first_failure());
        assert_eq!(again.status(), self.runtime.status());
        false
    }

    fn send(&mut self) -> bool {
        let sendable = self.sendable();
        if sendable.is_empty() {
            return self.store();
        }
        let id = sendable[self.roll(sendable.len())];
        if let Some(due) = self.runtime.task(id.task).due {
            self.now = self.now.max(due.at);
        }
        let plan = &self.case.plans[self.place(id.task.at())];
        if plan.answer(id.attempt.number()) == Answer::Refused {
            let refusal = failure(FailureKind::Send, true);
            let maybe_sent = self.maybe_sent();
            let applied = self.runtime.refuse(
                id.task,
                id.attempt,
                refusal,
                self.now,
                maybe_sent,
                &mut Changes::default(),
            );
            assert_eq!(applied, Applied::Changed);
            return false;
        }
        self.under_way.push(id);
        self.sent.insert(id);
        // The mark may come late or, after a crash, never.
        if self.roll(3) > 0 {
            assert_eq!(
                self.runtime.mark_sent(id.task, id.attempt),
                Applied::Changed
            );
        }
        false
    }

    fn deliver(&mut self) -> bool {
        if self.under_way.is_empty() {
            return self.send();
        }
        let at = self.roll(self.under_way.len());
        let id = if self.roll(4) == 0 {
            self.under_way[at]
        } else {
            self.under_way.swap_remove(at)
        };
        self.apply(id);
        false
    }

    fn repeat(&mut self) -> bool {
        let sent: Vec<_> = self.sent.iter().copied().collect();
        if !sent.is_empty() {
            let id = sent[self.roll(sent.len())];
            self.apply(id);
        }
        false
    }

    fn apply(&mut self, id: AttemptId) {
        let before = stored(&self.runtime);
        let ending = self.runtime.is_ending(id.task);
        let outcome = match self.outcome(id) {
            _ if ending && self.roll(2) == 0 => Outcome::Cancelled(id.generation),
            outcome => outcome,
        };
        let retry = RetryAfter {
            now: self.now,
            delay: Duration::from_secs(1),
        };
        let mut changes = Changes::default();
        let maybe_sent = self.maybe_sent();
        match self
            .runtime
            .apply_report(id, report(outcome), retry, maybe_sent, &mut changes)
        {
            Applied::Changed => self.unacknowledged.push(id),
            Applied::OldNews => {
                assert_eq!(stored(&self.runtime), before, "old news changes nothing");
                assert!(changes.is_empty());
            }
            Applied::Unissued => panic!("{id:?} was sent, so it was stored"),
        }
    }

    fn crash(&mut self) -> bool {
        self.arrows.extend(self.runtime.taken.iter().copied());
        let graph = Arc::clone(self.runtime.graph());
        self.runtime = self.shelf.load(graph, &mut Changes::default());
        // What was not stored was not acknowledged: it comes again.
        self.under_way.append(&mut self.unacknowledged);
        true
    }

    /// Whether an attempt of the present generation was sent.
    fn maybe_sent(&self) -> impl Fn(TaskIx, Attempt) -> bool + use<> {
        let generation = self.runtime.generation();
        let sent = self.sent.clone();
        move |task, attempt| {
            sent.contains(&AttemptId {
                task,
                generation,
                attempt,
            })
        }
    }

    fn cancel(&mut self) {
        let before = self.runtime.clone();
        let maybe_sent = self.maybe_sent();
        let applied = self
            .runtime
            .cancel(self.now, maybe_sent, &mut Changes::default());
        assert_eq!(applied == Applied::OldNews, before.status().is_final());
        self.compare(&before);
        self.check();
        self.store();
    }

    /// Moves until the workflow has ended and that is stored.
    fn run_to_the_end(&mut self) {
        for moves in 0..20_000_u32 {
            if self.runtime.status().is_final() {
                self.store();
                return;
            }
            if self.runtime.generation() == Generation::FIRST
                && self.case.cancel_after == Some(moves)
            {
                self.cancel();
            }
            let cancelling = self.runtime.status() == Status::Cancelling;
            let patience_ends = !cancelling || (moves > 200 && self.roll(4) == 0);
            if self.runtime.grace_used().is_some() && patience_ends && self.roll(20) == 0 {
                assert_eq!(
                    self.runtime.end_grace(&mut Changes::default()),
                    Applied::Changed
                );
                self.check();
            }
            self.step();
        }
        panic!(
            "it never ends: {}",
            String::from_utf8_lossy(&stored(&self.runtime))
        );
    }

    /// Only drawn arrows were taken, attempts only grew, and a cancel lets nothing become ready.
    fn compare(&self, before: &Runtime) {
        for (was, is) in before.tasks().iter().zip(self.runtime.tasks()) {
            let drawn = TRANSITIONS.iter().any(|(from, cause, to)| {
                (*from, *to) == (was.state, is.state) && *cause != Cause::Rerun
            });
            assert!(
                was.state == is.state || drawn,
                "{} became {}",
                was.state,
                is.state
            );
            assert!(was.attempt <= is.attempt);
            if before.cancel_applied().is_some() {
                assert!(is.state != TaskState::Ready || was.attempt == is.attempt);
            }
        }
        let ready = |state: TaskState| matches!(state, TaskState::Pending | TaskState::Ready);
        for task in self.runtime.graph().tasks() {
            let state = self.runtime.task(task).state;
            let stopped =
                self.runtime.is_stopped(task) && before.generation() == self.runtime.generation();
            assert!(
                !(stopped && ready(state)),
                "a stop leaves nothing to be sent"
            );
        }
    }

    /// What holds of every state between events.
    fn check(&self) {
        let runtime = &self.runtime;
        let states = |state| {
            runtime
                .tasks()
                .iter()
                .filter(|task| task.state == state)
                .count()
        };
        for state in TaskState::ALL {
            assert_eq!(runtime.counts().of(state), states(state));
        }
        let ended = runtime.tasks().iter().all(|task| task.state.is_terminal());
        assert_eq!(
            runtime.status().is_final(),
            ended,
            "final means that every task has ended"
        );
        let going = states(TaskState::Ready) + states(TaskState::Dispatched);
        assert!(
            ended || going > 0,
            "nothing goes on and something has not ended"
        );
        for task in runtime.graph().tasks() {
            let run = runtime.task(task);
            assert!(run.due.is_none() || run.state == TaskState::Ready);
            let parents = runtime.graph().parents(task);
            let of = |bad| {
                let counted = |parent: &&TaskIx| {
                    let state = runtime.task(**parent).state;
                    state.is_terminal() && is_bad(state) == bad
                };
                u32::try_from(parents.iter().filter(counted).count()).unwrap()
            };
            let tally = runtime.tallies[task.at()];
            assert_eq!((tally.satisfied, tally.failed), (of(false), of(true)));
            assert_eq!(
                run.root_cause.is_some(),
                run.state == TaskState::UpstreamFailed
            );
            if let Some(root) = run.root_cause {
                assert!(matches!(
                    runtime.task(root).state,
                    TaskState::Failed | TaskState::Cancelled
                ));
            }
        }
        if runtime.cancel_applied().is_none() {
            let failed = states(TaskState::Failed) > 0;
            let called_for = failed && self.case.on_failure == OnFailure::Cancel;
            assert_eq!(runtime.stop_in_force().is_some(), called_for);
        }
        if runtime.status() == Status::Failed && states(TaskState::Failed) > 0 {
            assert!(runtime.first_failure().is_some());
        }
    }

    /// The end of a generation that nobody cancelled is the reference's; where a failure has stopped it, one that may be.
    fn compare_end(&self, start: &[Stand]) {
        let (plans, end) = (&self.case.plans, self.stands());
        let mut result = result_of(plans, self.case.result_policy, &end);
        if self.runtime.stop_in_force().is_some() {
            assert!(may_end_so(plans, start, &end), "{end:?}");
            result = Status::Failed;
        } else {
            assert_eq!(end, end_of(plans, start));
        }
        assert_eq!(self.runtime.status(), result);
    }
}

/// Plays a case through, with a retry of the workflow where there is something to run again; returns the arrows taken.
fn play(case: &Case) -> BTreeSet<Arrow> {
    let mut history = History::new(case);
    let unrun = Stand {
        state: TaskState::Pending,
        attempt: 0,
    };
    history.check();
    history.run_to_the_end();
    let first_end = history.stands();
    if history.runtime.status() == Status::Cancelled {
        assert!(first_end.iter().all(|stand| stand.state.is_terminal()));
    } else {
        history.compare_end(&vec![unrun; case.plans.len()]);
    }
    let start = again(&case.plans, &first_end);
    let applied = history.runtime.rerun(&mut Changes::default());
    if start == first_end {
        assert_eq!(applied, Applied::OldNews, "there was nothing to run again");
    } else {
        assert_eq!(applied, Applied::Changed);
        assert_eq!(history.runtime.generation(), Generation::new(2));
        history.check();
        history.store();
        history.run_to_the_end();
        history.compare_end(&start);
    }
    history.arrows.extend(history.runtime.taken.iter().copied());
    history.arrows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1_500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_comes_to_the_end_of_the_reference(case in cases()) {
        play(&case);
    }
}

#[test]
fn every_arrow_is_taken_and_no_other() {
    let mut taken = BTreeSet::new();
    let mut runner = TestRunner::deterministic();
    for _ in 0..400 {
        let case = cases().new_tree(&mut runner).unwrap().current();
        taken.extend(play(&case));
    }
    // Merges have tests of their own.
    let drawn = TRANSITIONS.iter().copied();
    let drawn: BTreeSet<Arrow> = drawn
        .filter(|(_, cause, _)| *cause != Cause::Merged)
        .collect();
    assert_eq!(taken, drawn);
    assert_eq!(
        drawn.len() + 1,
        TRANSITIONS.len(),
        "no arrow is drawn twice"
    );
}
