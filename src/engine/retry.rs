//! How long a failed task waits before its next attempt, and what a retry of the workflow runs again.

use std::time::Duration;

use super::graph::Graph;
use super::runtime::TaskRun;
use super::task::TaskState;
use crate::definition::DepPolicy;

/// The longest wait before another attempt.
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// The limit from which the wait after failure number `failures` (from 1) is drawn uniformly: 1 s, doubling, capped.
#[must_use]
pub fn retry_delay_limit(failures: u32) -> Duration {
    let secs = 1_u64
        .checked_shl(failures.saturating_sub(1))
        .unwrap_or(u64::MAX);
    RETRY_DELAY_MAX.min(Duration::from_secs(secs))
}

/// Which tasks a retry runs again: what is failed, upstream_failed or cancelled, and the `always`, `on_failure` and
/// `all_settled` tasks that wait for a task that is run again (their answer may change). The rest keeps its result.
pub(super) fn rerun_set(graph: &Graph, tasks: &[TaskRun]) -> Vec<bool> {
    let mut rerun: Vec<bool> = tasks
        .iter()
        .map(|task| task.state.is_dep_failed())
        .collect();
    let mut work: Vec<_> = graph.tasks().filter(|task| rerun[task.at()]).collect();
    while let Some(task) = work.pop() {
        // It only kept the next batch back.
        if graph.is_merge(task) {
            continue;
        }
        for child in graph.children(task) {
            let follows = match graph.policy(*child) {
                DepPolicy::Always | DepPolicy::OnFailure | DepPolicy::AllSettled => true,
                DepPolicy::All | DepPolicy::Any | DepPolicy::AtLeast(_) => false,
            };
            if follows && !rerun[child.at()] && tasks[child.at()].state != TaskState::Pending {
                rerun[child.at()] = true;
                work.push(*child);
            }
        }
    }
    rerun
}
