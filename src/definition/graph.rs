//! The graph rules: dependencies exist, no task depends on itself, no dependency twice, no loop.
//!
//! The same search serves the reader of a text, which has spans to show, and whoever loads a stored definition, which is checked
//! again before anything is made of it.
//!
//! Invariants:
//! 1. No recursion: a chain of a million tasks needs no stack.
//! 2. Time and memory are linear in tasks and dependencies.

use std::collections::{HashMap, VecDeque};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use super::model::Definition;
use super::name::TaskName;

/// A definition whose tasks do not form a graph without loops.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Two tasks have one name.
    #[error("two tasks are called `{task}`")]
    DuplicateTask {
        /// The name.
        task: TaskName,
    },
    /// A dependency is no task of the workflow.
    #[error("task `{task}` depends on `{dependency}`, which does not exist")]
    MissingDependency {
        /// The task that depends.
        task: TaskName,
        /// What does not exist.
        dependency: TaskName,
    },
    /// A dependency is named twice.
    #[error("task `{task}` names its dependency `{dependency}` twice")]
    DuplicateDependency {
        /// The task that depends.
        task: TaskName,
        /// What is named twice.
        dependency: TaskName,
    },
    /// A task depends on itself.
    #[error("task `{task}` depends on itself")]
    SelfDependency {
        /// The task.
        task: TaskName,
    },
    /// Tasks wait for each other.
    #[error("{}", describe_loop(&.path.iter().map(TaskName::as_str).collect::<Vec<_>>()))]
    Cycle {
        /// The loop: each depends on the next, the last on the first.
        path: Vec<TaskName>,
    },
}

/// A loop in words, its middle left out when it is long.
pub(super) fn describe_loop(names: &[&str]) -> String {
    const ENDS: usize = 5;
    let first = names.first().copied().unwrap_or_default();
    let text = if names.len() > 2 * ENDS + 1 {
        let (head, tail) = (&names[..ENDS], &names[names.len() - ENDS..]);
        let between = names.len() - 2 * ENDS;
        format!(
            "{} -> … {between} more … -> {}",
            head.join(" -> "),
            tail.join(" -> ")
        )
    } else {
        names.join(" -> ")
    };
    format!("dependency loop: `{text} -> {first}` (each depends on the next)")
}

/// Checks the graph of a definition that was read from storage.
///
/// # Errors
/// The first rule that is broken.
pub fn check_graph(definition: &Definition) -> Result<(), GraphError> {
    let tasks = &definition.tasks;
    let mut index = HashMap::with_capacity(tasks.len());
    for (at, task) in tasks.iter().enumerate() {
        if index.insert(&task.name, at).is_some() {
            let task = task.name.clone();
            return Err(GraphError::DuplicateTask { task });
        }
    }
    let mut edges = Edges::default();
    let mut seen_by = vec![usize::MAX; tasks.len()];
    for (at, task) in tasks.iter().enumerate() {
        for dependency in &task.depends_on {
            let (task, dependency) = (task.name.clone(), dependency.clone());
            match index.get(&dependency) {
                None => return Err(GraphError::MissingDependency { task, dependency }),
                Some(found) if *found == at => return Err(GraphError::SelfDependency { task }),
                Some(found) if seen_by[*found] == at => {
                    return Err(GraphError::DuplicateDependency { task, dependency });
                }
                Some(found) => {
                    seen_by[*found] = at;
                    edges.push(*found);
                }
            }
        }
        edges.close_task();
    }
    match edges.loops(1).into_iter().next() {
        None => Ok(()),
        Some(path) => {
            let path = path.into_iter().map(|at| tasks[at].name.clone()).collect();
            Err(GraphError::Cycle { path })
        }
    }
}

/// The dependencies of each task, by index, in one list.
#[derive(Debug, Default)]
pub(super) struct Edges {
    targets: Vec<u32>,
    ends: Vec<u32>,
}

impl Edges {
    /// Adds a dependency to the task at hand.
    pub(super) fn push(&mut self, target: usize) {
        self.targets.push(index(target));
    }

    /// Ends the task at hand; the next dependency belongs to the next task.
    pub(super) fn close_task(&mut self) {
        self.ends.push(index(self.targets.len()));
    }

    fn of(&self, task: usize) -> impl Iterator<Item = usize> + '_ {
        let start = task.checked_sub(1).map_or(0, |before| self.ends[before]);
        let range = start as usize..self.ends[task] as usize;
        self.targets[range].iter().map(|target| *target as usize)
    }

    /// Up to `most` loops, one for each group of tasks that wait for each other, in the order of the tasks. Each is a shortest
    /// loop through the first task of its group.
    pub(super) fn loops(&self, most: usize) -> Vec<Vec<usize>> {
        let tasks = self.ends.len();
        let mut graph = DiGraph::<(), ()>::with_capacity(tasks, self.targets.len());
        for _ in 0..tasks {
            graph.add_node(());
        }
        for task in 0..tasks {
            for target in self.of(task) {
                graph.add_edge(NodeIndex::new(task), NodeIndex::new(target), ());
            }
        }
        let mut firsts: Vec<usize> = kosaraju_scc(&graph)
            .into_iter()
            .filter(|group| group.len() > 1)
            .filter_map(|group| group.into_iter().map(NodeIndex::index).min())
            .collect();
        drop(graph);
        firsts.sort_unstable();
        firsts.truncate(most);
        firsts
            .into_iter()
            .map(|first| self.loop_through(first))
            .collect()
    }

    /// A shortest loop through a task that is on one: breadth first, until an edge leads back.
    fn loop_through(&self, first: usize) -> Vec<usize> {
        let mut came_from = HashMap::from([(first, first)]);
        let mut queue = VecDeque::from([first]);
        while let Some(task) = queue.pop_front() {
            for target in self.of(task) {
                if target == first {
                    let mut path = vec![task];
                    let mut at = task;
                    while at != first {
                        at = came_from[&at];
                        path.push(at);
                    }
                    path.reverse();
                    return path;
                }
                if let std::collections::hash_map::Entry::Vacant(place) = came_from.entry(target) {
                    place.insert(task);
                    queue.push_back(target);
                }
            }
        }
        Vec::new()
    }
}

/// An index as stored: tasks and dependencies are far fewer than `u32` can count.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("the limits of a definition keep counts below u32")
}

#[cfg(test)]
mod tests;
