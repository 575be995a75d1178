//! Fewer tasks in flight before a wide join (`submit --max-fan-in N`).
//!
//! The dependencies of a task that has more than N of them are taken in batches of N. After each batch comes a *merge*: it waits for the
//! end of all of the batch, however they end, runs nothing, and is completed by the coordinator. What is in the next batch waits for it as
//! well. The join keeps its own dependencies, and so its policy and its inputs. Joins that have a batch in common share its merge.
//!
//! Invariants:
//! 1. No loop: batches are taken in one order of all tasks in which each comes after what it waits for, and a merge, whoever shares it,
//!    stands between its batch and tasks that come after all of it.
//! 2. No task ends in another way than without merges: a merge is always completed, and no task waits for one whose policy could be
//!    satisfied by that alone (`any`, `all_settled`, at least some).
//! 3. The tasks of the definition keep their places; merges come last.
//! 4. No two merges wait for the same batch, and no task waits for a merge twice.
//! 5. What comes out is within the limits of a definition, and is counted before it is made.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::limits::{EDGES_MAX, TASKS_MAX};
use super::model::{Command, Definition, DepPolicy, Task};
use super::name::TaskName;

/// With its merges a workflow is larger than a definition may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "with merges before its wide joins the workflow has {tasks} tasks and {dependencies} dependencies; at most {} and {} are taken",
    TASKS_MAX,
    EDGES_MAX
)]
pub struct TooManyMerges {
    /// The tasks, merges among them.
    pub tasks: usize,
    /// The dependencies of all of them together.
    pub dependencies: usize,
}

/// Puts merges before every task with more than `most` dependencies (at least 1). The definition has been checked.
///
/// # Errors
/// The definition with its merges would be refused: ask for larger batches.
pub fn limit_fan_in(mut definition: Definition, most: usize) -> Result<Definition, TooManyMerges> {
    let tasks = &definition.tasks;
    let parents = parents_in_order(tasks);
    let Merges { batches, waits } = Merges::of(tasks, &parents, most);
    let own = tasks.iter().map(|task| task.depends_on.len());
    let added = batches.iter().map(|batch| batch.len());
    let added = added.chain(waits.iter().map(Vec::len));
    check_size(tasks.len() + batches.len(), own.chain(added).sum())?;
    let mut names = Names::of(tasks);
    let merges: Vec<_> = batches
        .iter()
        .map(|batch| {
            let batch = batch.iter().map(|task| tasks[*task].name.clone());
            merge(names.next(), batch.collect())
        })
        .collect();
    for (task, waits) in definition.tasks.iter_mut().zip(waits) {
        let waits = waits.iter().map(|at| merges[*at].name.clone());
        task.depends_on.extend(waits);
    }
    definition.tasks.extend(merges);
    Ok(definition)
}

const fn check_size(tasks: usize, dependencies: usize) -> Result<(), TooManyMerges> {
    if tasks > TASKS_MAX || dependencies > EDGES_MAX {
        return Err(TooManyMerges {
            tasks,
            dependencies,
        });
    }
    Ok(())
}

/// The merges of a workflow before they have names; tasks are told by their places.
struct Merges<'a> {
    /// What each waits for.
    batches: Vec<&'a [usize]>,
    /// For each task the merges that it waits for, by their places in `batches`.
    waits: Vec<Vec<usize>>,
}

impl<'a> Merges<'a> {
    fn of(tasks: &[Task], parents: &'a [Vec<usize>], most: usize) -> Self {
        let mut by_batch: HashMap<&[usize], usize> = HashMap::new();
        let mut batches = Vec::new();
        let mut waits = vec![Vec::new(); tasks.len()];
        for parents in parents.iter().filter(|parents| parents.len() > most) {
            let chunks: Vec<_> = parents.chunks(most.max(1)).collect();
            for (batch, next) in chunks.iter().zip(&chunks[1..]) {
                let next = next.iter().filter(|task| may_wait(&tasks[**task]));
                let next: Vec<_> = next.collect();
                if next.is_empty() {
                    continue;
                }
                let merge = match by_batch.entry(batch) {
                    Entry::Occupied(merge) => *merge.get(),
                    Entry::Vacant(place) => {
                        batches.push(*batch);
                        *place.insert(batches.len() - 1)
                    }
                };
                for task in next {
                    waits[*task].push(merge);
                }
            }
        }
        for waits in &mut waits {
            waits.sort_unstable();
            waits.dedup();
        }
        Self { batches, waits }
    }
}

/// The places of the dependencies of each task, each after what it waits for.
fn parents_in_order(tasks: &[Task]) -> Vec<Vec<usize>> {
    let index: HashMap<_, _> = tasks.iter().map(|task| &task.name).zip(0..).collect();
    let mut parents: Vec<Vec<usize>> = tasks
        .iter()
        .map(|task| task.depends_on.iter().map(|name| index[name]).collect())
        .collect();
    let rank = ranks(&parents);
    for parents in &mut parents {
        parents.sort_unstable_by_key(|parent| rank[*parent]);
    }
    parents
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_may_fill_a_definition_up_to_its_limits() {
        assert_eq!(check_size(TASKS_MAX, EDGES_MAX), Ok(()));
        for (tasks, dependencies) in [(TASKS_MAX + 1, 0), (0, EDGES_MAX + 1)] {
            let error = check_size(tasks, dependencies).unwrap_err();
            let told = error.to_string();
            for number in [tasks, dependencies, TASKS_MAX, EDGES_MAX] {
                assert!(told.contains(&number.to_string()), "{told}");
            }
        }
    }
}
