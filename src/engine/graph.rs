//! The graph of a workflow, fixed for its life: who waits for whom, in two flat arrays of edges.

use std::collections::HashMap;

use super::task::TaskIx;
use crate::definition::{Definition, DepPolicy, ResultPolicy, TaskName};

/// What the engine needs to know of a definition.
#[derive(Debug)]
pub struct Graph {
    names: Vec<TaskName>,
    index: HashMap<TaskName, TaskIx>,
    rules: Vec<Rule>,
    parents: Edges,
    children: Edges,
    result_policy: ResultPolicy,
}

#[derive(Debug, Clone, Copy)]
struct Rule {
    policy: DepPolicy,
    retries: u32,
    is_sink: bool,
}

/// Edges by task: those of task `i` are `targets[offsets[i]..offsets[i + 1]]`.
#[derive(Debug)]
struct Edges {
    offsets: Vec<usize>,
    targets: Vec<TaskIx>,
}

impl Edges {
    fn of(&self, task: TaskIx) -> &[TaskIx] {
        &self.targets[self.offsets[task.at()]..self.offsets[task.at() + 1]]
    }
}

/// A definition whose graph cannot be run. Checked definitions never give one; a stored one is checked again when it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// More tasks than can be numbered.
    #[error("has more than {} tasks", u32::MAX)]
    TooManyTasks,
    /// Two tasks have one name.
    #[error("has two tasks named `{0}`")]
    Duplicate(TaskName),
    /// A task waits for one that is not there.
    #[error("task `{task}` depends on `{dependency}`, which does not exist")]
    Missing {
        /// The task.
        task: TaskName,
        /// What it names.
        dependency: TaskName,
    },
    /// Tasks wait for each other.
    #[error("task `{0}` waits for itself, through its dependencies")]
    Cycle(TaskName),
}

impl Graph {
    /// The graph of `definition`.
    ///
    /// # Errors
    /// The first thing that keeps it from being run.
    pub fn new(definition: &Definition) -> Result<Self, GraphError> {
        let tasks = &definition.tasks;
        let mut names = Vec::with_capacity(tasks.len());
        let mut index = HashMap::with_capacity(tasks.len());
        for (place, task) in (0_u32..).zip(tasks) {
            if place == u32::MAX {
                return Err(GraphError::TooManyTasks);
            }
            if index
                .insert(task.name.clone(), TaskIx::new(place))
                .is_some()
            {
                return Err(GraphError::Duplicate(task.name.clone()));
            }
            names.push(task.name.clone());
        }
        let parents = parent_edges(definition, &index)?;
        let children = reversed(&parents);
        let rules = tasks.iter().enumerate().map(|(at, task)| Rule {
            policy: task.dep_policy,
            retries: task.num_retries,
            is_sink: children.targets[children.offsets[at]..children.offsets[at + 1]]
                .iter()
                .all(|child| {
                    matches!(
                        tasks[child.at()].dep_policy,
                        DepPolicy::Always | DepPolicy::OnFailure
                    )
                }),
        });
        let rules = rules.collect();
        let graph = Self {
            names,
            index,
            rules,
            parents,
            children,
            result_policy: definition.result_policy,
        };
        graph.check_acyclic()?;
        Ok(graph)
    }

    fn check_acyclic(&self) -> Result<(), GraphError> {
        let mut waits: Vec<usize> = self.tasks().map(|task| self.parents(task).len()).collect();
        let mut free: Vec<TaskIx> = self.tasks().filter(|task| waits[task.at()] == 0).collect();
        let mut ordered = 0;
        while let Some(task) = free.pop() {
            ordered += 1;
            for child in self.children(task) {
                waits[child.at()] -= 1;
                if waits[child.at()] == 0 {
                    free.push(*child);
                }
            }
        }
        if ordered == self.len() {
            return Ok(());
        }
        // Walking back along unfinished parents must come around; where it does is on a loop.
        let blocked = |task: &TaskIx| waits[task.at()] > 0;
        let mut at = self
            .tasks()
            .find(|task| blocked(task))
            .expect("an unordered task waits");
        for _ in 0..self.len() {
            at = self
                .parents(at)
                .iter()
                .copied()
                .find(blocked)
                .expect("a waiting task has a waiting parent");
        }
        Err(GraphError::Cycle(self.name(at).clone()))
    }

    /// How many tasks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All tasks, in the order of the definition.
    pub fn tasks(&self) -> impl Iterator<Item = TaskIx> + use<> {
        (0..u32::MAX).take(self.names.len()).map(TaskIx::new)
    }

    /// The name of `task`.
    #[must_use]
    pub fn name(&self, task: TaskIx) -> &TaskName {
        &self.names[task.at()]
    }

    /// The task called `name`.
    #[must_use]
    pub fn find(&self, name: &TaskName) -> Option<TaskIx> {
        self.index.get(name).copied()
    }

    /// What `task` waits for.
    #[must_use]
    pub fn parents(&self, task: TaskIx) -> &[TaskIx] {
        self.parents.of(task)
    }

    /// What waits for `task`.
    #[must_use]
    pub fn children(&self, task: TaskIx) -> &[TaskIx] {
        self.children.of(task)
    }

    /// What `task` asks of its dependencies.
    #[must_use]
    pub fn policy(&self, task: TaskIx) -> DepPolicy {
        self.rules[task.at()].policy
    }

    /// How many failures of `task` are tried again.
    #[must_use]
    pub fn retries(&self, task: TaskIx) -> u32 {
        self.rules[task.at()].retries
    }

    /// Whether a failure of `task` makes the workflow fail.
    #[must_use]
    pub fn decides_result(&self, task: TaskIx) -> bool {
        match self.result_policy {
            ResultPolicy::AllSinksSucceed => self.rules[task.at()].is_sink,
            ResultPolicy::AllTasksSucceed => true,
        }
    }
}

fn parent_edges(
    definition: &Definition,
    index: &HashMap<TaskName, TaskIx>,
) -> Result<Edges, GraphError> {
    let mut offsets = Vec::with_capacity(definition.tasks.len() + 1);
    let mut targets = Vec::new();
    offsets.push(0);
    for task in &definition.tasks {
        for dependency in &task.depends_on {
            let parent = index.get(dependency).ok_or_else(|| GraphError::Missing {
                task: task.name.clone(),
                dependency: dependency.clone(),
            })?;
            targets.push(*parent);
        }
        offsets.push(targets.len());
    }
    Ok(Edges { offsets, targets })
}

fn reversed(edges: &Edges) -> Edges {
    let count = edges.offsets.len() - 1;
    let mut offsets = vec![0; count + 1];
    for target in &edges.targets {
        offsets[target.at() + 1] += 1;
    }
    for at in 0..count {
        offsets[at + 1] += offsets[at];
    }
    let mut next = offsets.clone();
    let mut targets = vec![TaskIx::new(0); edges.targets.len()];
    for (from, window) in (0_u32..).zip(edges.offsets.windows(2)) {
        for target in &edges.targets[window[0]..window[1]] {
            targets[next[target.at()]] = TaskIx::new(from);
            next[target.at()] += 1;
        }
    }
    Edges { offsets, targets }
}
