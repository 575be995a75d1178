//! Drawing what follows: from one task's end to all that it decides, by a worklist, each edge once.
//!
//! Every change of a task goes through `Runtime::step`, or comes with one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::effects::Changes;
use super::policy::{Verdict, verdict};
use super::runtime::{Runtime, tally};
use super::task::{Cause, TaskIx, TaskState};

impl Runtime {
    /// Moves `task` along the arrow of `cause` and adjusts the counts.
    pub(super) fn step(&mut self, task: TaskIx, cause: Cause) {
        let from = self.tasks[task.at()].state;
        let to = from
            .after(cause)
            .expect("the caller has looked at the state");
        self.steps += 1;
        #[cfg(test)]
        self.taken.push((from, cause, to));
        self.tasks[task.at()].state = to;
        self.tasks[task.at()].due = None;
        self.touched.push(task);
        self.counts.shift(from, to);
        if self.graph.decides_result(task) {
            self.failures_that_decide += usize::from(to.is_dep_failed());
            self.failures_that_decide -= usize::from(from.is_dep_failed());
        }
        if !self.graph.survives_stop(task) {
            self.stoppable += usize::from(!to.is_terminal());
            self.stoppable -= usize::from(!from.is_terminal());
        }
    }

    /// Draws everything that follows from pending tasks as they stand.
    pub(super) fn settle_all(&mut self, changes: &mut Changes) {
        let mut ended = VecDeque::new();
        for task in self.graph.tasks() {
            self.judge(task, None, changes, &mut ended);
        }
        self.drain(ended, changes);
    }

    /// Draws everything that follows from the end of `task`.
    pub(super) fn settle(&mut self, task: TaskIx, changes: &mut Changes) {
        changes.ended.push(task);
        self.drain(VecDeque::from([task]), changes);
    }

    pub(super) fn drain(&mut self, mut ended: VecDeque<TaskIx>, changes: &mut Changes) {
        while let Some(task) = ended.pop_front() {
            self.tally_children(task);
            let graph = Arc::clone(&self.graph);
            for child in graph.children(task) {
                self.judge(*child, Some(task), changes, &mut ended);
            }
        }
    }

    fn tally_children(&mut self, task: TaskIx) {
        let state = self.tasks[task.at()].state;
        for child in self.graph.children(task) {
            self.steps += 1;
            tally(&mut self.tallies[child.at()], state);
        }
    }

    /// Decides a pending task, after `parent` has ended.
    fn judge(
        &mut self,
        task: TaskIx,
        parent: Option<TaskIx>,
        changes: &mut Changes,
        ended: &mut VecDeque<TaskIx>,
    ) {
        self.steps += 1;
        if self.tasks[task.at()].state != TaskState::Pending || self.cancel.is_some() {
            return;
        }
        let parents = u32::try_from(self.graph.parents(task).len()).unwrap_or(u32::MAX);
        match verdict(self.graph.policy(task), parents, self.tallies[task.at()]) {
            Verdict::Wait => {}
            // Whoever put the stop in force withdraws it.
            Verdict::Run if self.is_ending(task) => {}
            Verdict::Run if self.graph.is_merge(task) => {
                self.end_unrun(task, Cause::Merged, changes, ended);
            }
            Verdict::Run => {
                self.step(task, Cause::Released);
                self.issue(task, changes);
            }
            Verdict::Block => {
                let failed = parent.filter(|parent| self.tasks[parent.at()].state.is_dep_failed());
                let failed = failed.or_else(|| self.a_failed_parent(task));
                let root =
                    failed.map(|parent| self.tasks[parent.at()].root_cause.unwrap_or(parent));
                self.tasks[task.at()].root_cause = root;
                self.end_unrun(task, Cause::Blocked, changes, ended);
            }
            Verdict::Skip => {
                self.tasks[task.at()].reason = Some("no dependency failed".to_owned());
                self.end_unrun(task, Cause::Unneeded, changes, ended);
            }
        }
    }

    fn end_unrun(
        &mut self,
        task: TaskIx,
        cause: Cause,
        changes: &mut Changes,
        ended: &mut VecDeque<TaskIx>,
    ) {
        self.step(task, cause);
        changes.ended.push(task);
        ended.push_back(task);
    }

    fn a_failed_parent(&self, task: TaskIx) -> Option<TaskIx> {
        let mut parents = self.graph.parents(task).iter().copied();
        parents.find(|parent| self.tasks[parent.at()].state.is_dep_failed())
    }

    /// Gives a ready task its next attempt and fixes its inputs.
    pub(super) fn issue(&mut self, task: TaskIx, changes: &mut Changes) {
        let parents = self.graph.parents(task);
        let tally = self.tallies[task.at()];
        let all_ended = (tally.satisfied + tally.failed) as usize >= parents.len();
        let ended = |parent: &TaskIx| self.tasks[parent.at()].state.is_terminal();
        let inputs = if all_ended {
            None
        } else {
            self.steps += parents.len() as u64;
            Some(parents.iter().copied().filter(ended).collect())
        };
        let run = &mut self.tasks[task.at()];
        run.attempt = run.attempt.next();
        run.inputs = inputs;
        changes.ready.push(task);
    }
}
