//! The graph of a workflow, fixed for its life: who waits for whom, in two flat arrays of edges.

use std::collections::HashMap;

use super::task::TaskIx;
use crate::definition::{
    Command, Definition, DepPolicy, GraphError, OnFailure, ResultPolicy, TaskName, check_graph,
};

/// What the engine needs to know of a definition.
#[derive(Debug)]
pub struct Graph {
    names: Vec<TaskName>,
    index: HashMap<TaskName, TaskIx>,
    rules: Vec<Rule>,
    parents: Edges,
    children: Edges,
    result_policy: ResultPolicy,
    on_failure: OnFailure,
}

#[derive(Debug, Clone, Copy)]
struct Rule {
    policy: DepPolicy,
    retries: u32,
    is_sink: bool,
    is_merge: bool,
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

impl Graph {
    /// The graph of `definition`, which is checked again: a stored one may be anything.
    ///
    /// # Errors
    /// What keeps it from being run.
    pub fn new(definition: &Definition) -> Result<Self, GraphError> {
        check_graph(definition)?;
        let tasks = &definition.tasks;
        let names: Vec<_> = tasks.iter().map(|task| task.name.clone()).collect();
        let places = (0_u32..).map(TaskIx::new);
        let index: HashMap<_, _> = names.iter().cloned().zip(places).collect();
        let parents = parent_edges(definition, &index);
        let children = reversed(&parents);
        let waits_for_any_end = |child: &TaskIx| tasks[child.at()].dep_policy.waits_for_any_end();
        let rules = (0_u32..)
            .map(TaskIx::new)
            .zip(tasks)
            .map(|(at, task)| Rule {
                policy: task.dep_policy,
                retries: task.num_retries,
                is_sink: children.of(at).iter().all(waits_for_any_end),
                is_merge: task.cmd == Command::Merge,
            });
        let rules = rules.collect();
        Ok(Self {
            names,
            index,
            rules,
            parents,
            children,
            result_policy: definition.result_policy,
            on_failure: definition.on_failure,
        })
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

    /// Whether `task` runs nothing and is completed by itself once it may run.
    #[must_use]
    pub fn is_merge(&self, task: TaskIx) -> bool {
        self.rules[task.at()].is_merge
    }

    /// Whether a failure stops the tasks that do not depend on it.
    #[must_use]
    pub const fn stops_on_failure(&self) -> bool {
        match self.on_failure {
            OnFailure::Continue => false,
            OnFailure::Cancel => true,
        }
    }

    /// Whether `task` runs also when a failure stops the others.
    #[must_use]
    pub fn survives_stop(&self, task: TaskIx) -> bool {
        self.policy(task).waits_for_any_end()
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

fn parent_edges(definition: &Definition, index: &HashMap<TaskName, TaskIx>) -> Edges {
    let mut offsets = Vec::with_capacity(definition.tasks.len() + 1);
    let mut targets = Vec::new();
    offsets.push(0);
    for task in &definition.tasks {
        targets.extend(task.depends_on.iter().map(|parent| index[parent]));
        offsets.push(targets.len());
    }
    Edges { offsets, targets }
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
