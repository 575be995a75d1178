//! Those who submit workflows, ask for cancels and retries, and wait for the end, each in a thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::diary::Diary;
use super::oracle::Answers;
use super::workload::{Asks, Workload};
use crate::support::stack::Stack;

/// What they share.
#[derive(Debug)]
pub(super) struct People<'a> {
    pub(super) stack: &'a Stack,
    pub(super) diary: &'a Diary,
    pub(super) give_up: Duration,
    /// How many still have something to do.
    pub(super) busy: AtomicUsize,
    pub(super) problems: Mutex<Vec<String>>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Applied,
    Refused,
    /// Stored, or not known.
    Open,
}

impl People<'_> {
    /// Submits a workflow, asks for what is to be asked, and waits for its end.
    pub(super) fn follow(&self, workload: &Workload) -> Answers {
        let answers = self.live(workload);
        self.busy.fetch_sub(1, Ordering::SeqCst);
        answers
    }

    fn live(&self, workload: &Workload) -> Answers {
        let Workload { id, at, asks, .. } = workload;
        let file = self.stack.path(&format!("{id}.json"));
        let definition = workload.definition(self.diary.notes().to_str().unwrap());
        std::fs::write(&file, definition.to_string()).unwrap();
        self.diary.wait_until(*at);
        while self.ask(&["submit", "--id", id, &file], &[0, 6]) != Some(0) {
            if self.is_late() {
                self.wrong(format!("{id} could not be submitted"));
                return Answers::default();
            }
        }
        let mut answers = Answers::default();
        if let Asks::Cancel(wait) | Asks::CancelThenRetry(wait) = asks {
            self.diary.wait_until(self.diary.elapsed() + *wait);
            answers.is_cancelled = self.request("cancel", id) != Answer::Refused;
            answers.is_touched = answers.is_cancelled;
        }
        self.wait(id);
        if let Asks::Retry | Asks::CancelThenRetry(_) = asks {
            let answer = self.request("retry", id);
            answers.is_touched |= answer != Answer::Refused;
            answers.is_cancelled &= answer != Answer::Applied;
            self.wait(id);
        }
        answers
    }

    fn wait(&self, id: &str) {
        while !matches!(
            self.ask(&["watch", id, "--timeout-s", "30"], &[0, 10, 11, 12, 6]),
            Some(0 | 10 | 11)
        ) {
            if self.is_late() {
                let status = self.stack.run(&["status", id]);
                self.wrong(format!("{id} has not ended: {}", status.stdout));
                return;
            }
        }
    }

    fn request(&self, action: &str, id: &str) -> Answer {
        let ran = self.stack.run(&[action, id, "--output", "json"]);
        let answer = match ran.code {
            Some(0) if ran.json()["answer"] == "applied" => Answer::Applied,
            Some(0 | 6) => Answer::Open,
            Some(7) => Answer::Refused,
            _ => {
                self.wrong(format!("{action} {id}: {ran:?}"));
                Answer::Open
            }
        };
        self.diary.note(&format!("{action} {id}: {answer:?}"));
        answer
    }

    fn ask(&self, args: &[&str], expected: &[i32]) -> Option<i32> {
        let ran = self.stack.run(args);
        if !ran.code.is_some_and(|code| expected.contains(&code)) {
            self.wrong(format!("{args:?}: {ran:?}"));
        }
        ran.code
    }

    fn is_late(&self) -> bool {
        self.diary.elapsed() > self.give_up
    }

    fn wrong(&self, what: String) {
        self.diary.note(&format!("WRONG: {what}"));
        self.problems.lock().unwrap().push(what);
    }
}
