//! Workflows for chaos: what their commands do, and how they must end, told from the definition alone.
//!
//! The rules of the end are written here a second time, and do not ask the engine: who is judged does not judge.

use std::time::Duration;

use serde_json::{Value, json};

use super::dice::Dice;

/// What the command of a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Succeed,
    /// Fails before this attempt, which the retries allow.
    FailBefore(u64),
    Fail,
    /// Runs until its time is over.
    TimeOut,
}

/// When a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    All,
    Any,
    Always,
    OnFailure,
}

#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) does: Does,
    pub(super) retries: u64,
    pub(super) policy: Policy,
    /// Places of earlier tasks.
    pub(super) parents: Vec<usize>,
    millis: u64,
    /// Whether it hands on an output, which children that wait for all check.
    writes: bool,
}

/// What a person asks for after the submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    Nothing,
    /// A cancel so long after the submit.
    Cancel(Duration),
    /// The same, and a retry after the end.
    CancelThenRetry(Duration),
    /// A retry after the end.
    Retry,
}

#[derive(Debug, Clone)]
pub(super) struct Workload {
    pub(super) id: String,
    /// When it is submitted.
    pub(super) at: Duration,
    pub(super) asks: Asks,
    pub(super) tasks: Vec<Task>,
}

impl Task {
    pub(super) fn new(name: &str, does: Does, policy: Policy, parents: &[usize]) -> Self {
        Self {
            name: name.to_owned(),
            does,
            retries: 0,
            policy,
            parents: parents.to_vec(),
            millis: 0,
            writes: false,
        }
    }

    fn roll(dice: &mut Dice, place: usize, count: usize) -> Self {
        // About one failure for good in each workflow, whatever its size: what is below it does not run.
        let does = match dice.place(count * 2) {
            0 => Does::Fail,
            1 => Does::TimeOut,
            _ if dice.below(6) == 0 => Does::FailBefore(2 + dice.below(2)),
            _ => Does::Succeed,
        };
        let retries = match does {
            Does::FailBefore(attempt) => attempt - 1,
            Does::TimeOut => 0,
            Does::Fail | Does::Succeed => dice.below(3),
        };
        let parents = dice.place(4).min(place);
        let mut parents: Vec<_> = (0..parents)
            .map(|_| place - 1 - dice.place(place.min(8)))
            .collect();
        parents.sort_unstable();
        parents.dedup();
        let policy = match dice.below(12) {
            0 => Policy::Any,
            1 => Policy::Always,
            2 => Policy::OnFailure,
            _ => Policy::All,
        };
        Self {
            name: format!("t{place}"),
            does,
            retries,
            policy: if parents.is_empty() {
                Policy::All
            } else {
                policy
            },
            parents,
            millis: match dice.below(4) {
                0 => 1000 + dice.below(2000),
                _ => dice.below(300),
            },
            writes: dice.below(2) == 0,
        }
    }
}

impl Workload {
    /// A workflow of about `size` tasks.
    pub(super) fn roll(
        dice: &mut Dice,
        number: usize,
        at: Duration,
        asks: Asks,
        size: usize,
    ) -> Self {
        let count = size / 2 + 1 + dice.place(size);
        Self {
            id: format!("w{number}"),
            at,
            asks,
            tasks: (0..count)
                .map(|place| Task::roll(dice, place, count))
                .collect(),
        }
    }

    /// The letters of its tasks at the end, as the state blob spells them.
    pub(super) fn letters(&self) -> String {
        let mut letters: Vec<char> = Vec::new();
        for task in &self.tasks {
            let mut parents = task.parents.iter().map(|parent| letters[*parent]);
            let is_satisfied = |letter| letter == 'c' || letter == 's';
            let otherwise = match task.policy {
                Policy::All => (!parents.all(is_satisfied)).then_some('u'),
                Policy::Any => (!parents.any(is_satisfied)).then_some('u'),
                Policy::Always => None,
                Policy::OnFailure => parents.all(is_satisfied).then_some('s'),
            };
            letters.push(otherwise.unwrap_or(match task.does {
                Does::Succeed | Does::FailBefore(_) => 'c',
                Does::Fail | Does::TimeOut => 'f',
            }));
        }
        letters.into_iter().collect()
    }

    /// Its status at the end: the tasks decide that no other but cleanups depends on.
    pub(super) fn status(&self) -> &'static str {
        let is_cleanup = |task: &Task| matches!(task.policy, Policy::Always | Policy::OnFailure);
        let is_parent = |place| {
            let mut others = self.tasks.iter().filter(|task| !is_cleanup(task));
            others.any(|task| task.parents.contains(&place))
        };
        let letters = self.letters();
        let tasks = self.tasks.iter().zip(letters.chars()).enumerate();
        let mut sinks = tasks.filter(|(place, _)| !is_parent(*place));
        if sinks.all(|(_, (_, letter))| letter == 'c' || letter == 's') {
            "completed"
        } else {
            "failed"
        }
    }

    /// How many attempts the task at `place` has, if nobody asks for a retry.
    pub(super) fn attempts(&self, place: usize, letter: char) -> u64 {
        let task = &self.tasks[place];
        match (letter, task.does) {
            ('u' | 's', _) => 0,
            (_, Does::Succeed) => 1,
            (_, Does::FailBefore(attempt)) => attempt,
            (_, Does::Fail | Does::TimeOut) => task.retries + 1,
        }
    }

    /// The definition; its commands note their starts and ends in files of the folder `notes`.
    pub(super) fn definition(&self, notes: &str) -> Value {
        let names = |places: &[usize]| -> Vec<&str> {
            places.iter().map(|at| &*self.tasks[*at].name).collect()
        };
        let task = |task: &Task| {
            let policy = match task.policy {
                Policy::All => "all",
                Policy::Any => "any",
                Policy::Always => "always",
                Policy::OnFailure => "on_failure",
            };
            let mut definition = json!({
                "name": task.name, "cmd": self.script(task), "depends_on": names(&task.parents), "dep_policy": policy,
                "num_retries": task.retries,
            });
            if task.does == Does::TimeOut {
                definition["timeout_s"] = json!(1);
            }
            definition
        };
        let tasks: Vec<_> = self.tasks.iter().map(task).collect();
        json!({"env": {"NOTES": notes}, "tasks": tasks})
    }

    fn script(&self, task: &Task) -> String {
        // One short write to a file opened for appending: lines of two executions do not mix.
        let note = "note() { echo \"$1 $WORKFLOW_ATTEMPT $token ${EPOCHREALTIME/[.,]/}\" >> \"$NOTES/$WORKFLOW_ID.$WORKFLOW_TASK\"; }";
        let token = "token=${WORKFLOW_OUTPUT%/*}; token=${token##*-}";
        let mut lines = vec![note.to_owned(), token.to_owned(), "note start".to_owned()];
        if task.policy == Policy::All {
            let letters: Vec<_> = self.letters().chars().collect();
            let completed = task.parents.iter().filter(|at| letters[**at] == 'c');
            let parents = completed.map(|at| &self.tasks[*at]);
            for parent in parents.filter(|parent| parent.writes) {
                let text = format!("\"from {} {}\"", self.id, parent.name);
                lines.push(format!("grep -qF '{text}' \"$WORKFLOW_INPUTS\" || exit 9"));
            }
        }
        let Task { millis, .. } = task;
        lines.push(match task.does {
            Does::TimeOut => "sleep 600".to_owned(),
            _ => format!("sleep {}.{:03}", millis / 1000, millis % 1000),
        });
        if task.writes {
            let text = format!("\"from {} {}\"", self.id, task.name);
            lines.push(format!("echo '{text}' > \"$WORKFLOW_OUTPUT\""));
        }
        lines.push("note end".to_owned());
        lines.push(match task.does {
            Does::Succeed => "exit 0".to_owned(),
            Does::FailBefore(attempt) => format!("[ \"$WORKFLOW_ATTEMPT\" -ge {attempt} ]"),
            Does::Fail | Does::TimeOut => "exit 1".to_owned(),
        });
        lines.join("\n")
    }
}
