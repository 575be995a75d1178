//! Fewer tasks in flight before a wide join (`submit --max-fan-in N`).
//!
//! The dependencies of a task that has more than N of them are taken in batches of N. After each batch comes a *merge*: it waits for the
//! end of all of the batch, however they end, runs nothing, and is completed by the coordinator. What is in the next batch waits for it as
//! well. The join keeps its own dependencies, and so its policy and its inputs.
//!
//! Invariants:
//! 1. No loop: batches are taken in one order of all tasks in which each comes after what it waits for, and a merge stands between its
//!    batch and the next.
//! 2. No task ends in another way than without merges: a merge is always completed, and no task waits for one whose policy could be
//!    satisfied by that alone (`any`, `all_settled`, at least some).
//! 3. The tasks of the definition keep their places; merges come last.

use std::collections::{HashMap, HashSet};

use super::model::{Command, Definition, DepPolicy, Task};
use super::name::TaskName;

/// Puts merges before every task with more than `most` dependencies (at least 1). The definition has been checked.
#[must_use]
pub fn limit_fan_in(mut definition: Definition, most: usize) -> Definition {
    let tasks = &definition.tasks;
    let index: HashMap<_, _> = tasks.iter().map(|task| &task.name).zip(0..).collect();
    let parents: Vec<Vec<usize>> = tasks
        .iter()
        .map(|task| task.depends_on.iter().map(|name| index[name]).collect())
        .collect();
    let rank = ranks(&parents);
    let mut names = Names::of(tasks);
    let mut merges = Vec::new();
    let mut waits: Vec<Vec<TaskName>> = vec![Vec::new(); tasks.len()];
    for parents in parents.iter().filter(|parents| parents.len() > most) {
        let mut parents = parents.clone();
        parents.sort_unstable_by_key(|parent| rank[*parent]);
        let batches: Vec<_> = parents.chunks(most.max(1)).collect();
        for (batch, next) in batches.iter().zip(&batches[1..]) {
            let next = next.iter().filter(|task| may_wait(&tasks[**task]));
            let next: Vec<_> = next.collect();
            if next.is_empty() {
                continue;
            }
            let name = names.next();
            for task in next {
                waits[*task].push(name.clone());
            }
            let batch = batch.iter().map(|task| tasks[*task].name.clone());
            merges.push(merge(name, batch.collect()));
        }
    }
    for (task, waits) in definition.tasks.iter_mut().zip(waits) {
        task.depends_on.extend(waits);
    }
    definition.tasks.extend(merges);
    definition
}

/// Whether nothing but time changes for a task that waits for a merge as well.
const fn may_wait(task: &Task) -> bool {
    match task.dep_policy {
        DepPolicy::All | DepPolicy::Always | DepPolicy::OnFailure => true,
        DepPolicy::Any | DepPolicy::AllSettled | DepPolicy::AtLeast(_) => false,
    }
}

fn merge(name: TaskName, depends_on: Vec<TaskName>) -> Task {
    Task {
        name,
        cmd: Command::Merge,
        env: std::collections::BTreeMap::new(),
        cwd: None,
        depends_on,
        queue: None,
        dep_policy: DepPolicy::Always,
        num_retries: 0,
        timeout_s: None,
        idempotency_key: None,
    }
}

/// The place of each task in an order in which it comes after what it waits for.
fn ranks(parents: &[Vec<usize>]) -> Vec<usize> {
    let mut children = vec![Vec::new(); parents.len()];
    for (task, parents) in parents.iter().enumerate() {
        for parent in parents {
            children[*parent].push(task);
        }
    }
    let mut left: Vec<_> = parents.iter().map(Vec::len).collect();
    let mut line: Vec<_> = (0..parents.len()).filter(|task| left[*task] == 0).collect();
    let mut rank = vec![0; parents.len()];
    let mut at = 0;
    while let Some(&task) = line.get(at) {
        rank[task] = at;
        at += 1;
        for child in &children[task] {
            left[*child] -= 1;
            if left[*child] == 0 {
                line.push(*child);
            }
        }
    }
    rank
}

/// Names that no task has.
struct Names {
    taken: HashSet<TaskName>,
    count: usize,
}

impl Names {
    fn of(tasks: &[Task]) -> Self {
        Self {
            taken: tasks.iter().map(|task| task.name.clone()).collect(),
            count: 0,
        }
    }

    fn next(&mut self) -> TaskName {
        loop {
            self.count += 1;
            let name = TaskName::new(format!("merge-{}", self.count));
            let name = name.expect("letters, a dash and digits");
            if !self.taken.contains(&name) {
                return name;
            }
        }
    }
}
