//! What a workflow must come to, told by a walk over its tasks in order: no events, no counters, nothing of the engine but its words.

use crate::definition::{
    Command, Definition, DepPolicy, OnFailure, QueueName, ResultPolicy, Task, TaskName,
};
use crate::engine::{Status, TaskState};

/// One task of a case. Its parents come before it.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) parents: Vec<usize>,
    pub(super) policy: DepPolicy,
    pub(super) retries: u32,
    /// How attempt `n` ends is answer `n`, counted round.
    pub(super) answers: Vec<Answer>,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Succeeds,
    Fails,
    FailsForGood,
    /// Its message cannot be sent.
    Refused,
}

impl Plan {
    pub(super) fn answer(&self, attempt: u32) -> Answer {
        self.answers[attempt as usize % self.answers.len()]
    }
}

/// The definition of a case; `backwards` writes children before their parents.
pub(super) fn definition_of(
    plans: &[Plan],
    result_policy: ResultPolicy,
    on_failure: OnFailure,
    backwards: bool,
) -> Definition {
    let name = |place: &usize| TaskName::new(format!("t{place}")).unwrap();
    let task = |(place, plan): (usize, &Plan)| Task {
        name: name(&place),
        cmd: Command::Shell("x".to_owned()),
        env: std::collections::BTreeMap::new(),
        cwd: None,
        depends_on: plan.parents.iter().map(name).collect(),
        queue: None,
        dep_policy: plan.policy,
        num_retries: plan.retries,
        timeout_s: None,
        idempotency_key: None,
    };
    let mut tasks: Vec<_> = plans.iter().enumerate().map(task).collect();
    if backwards {
        tasks.reverse();
    }
    Definition {
        name: None,
        description: None,
        default_queue: QueueName::new("default").unwrap(),
        max_parallelism: None,
        result_policy,
        on_failure,
        env: std::collections::BTreeMap::new(),
        tasks,
    }
}

/// A task at the start of a generation or at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stand {
    pub(super) state: TaskState,
    pub(super) attempt: u32,
}

pub(super) const fn is_bad(state: TaskState) -> bool {
    matches!(
        state,
        TaskState::Failed | TaskState::UpstreamFailed | TaskState::Cancelled
    )
}

/// Where every task must stand in the end; tasks that do not start `pending` are kept.
pub(super) fn end_of(plans: &[Plan], start: &[Stand]) -> Vec<Stand> {
    let mut end: Vec<Stand> = Vec::new();
    for (plan, start) in plans.iter().zip(start) {
        end.push(comes_to(plan, *start, &end));
    }
    end
}

/// What one task comes to where its parents have ended as in `end`.
fn comes_to(plan: &Plan, start: Stand, end: &[Stand]) -> Stand {
    let bad = plan
        .parents
        .iter()
        .filter(|parent| is_bad(end[**parent].state))
        .count();
    let good = plan.parents.len() - bad;
    let runs = match plan.policy {
        DepPolicy::All => bad == 0,
        DepPolicy::Any | DepPolicy::AllSettled => good > 0 || plan.parents.is_empty(),
        DepPolicy::Always => true,
        DepPolicy::OnFailure => bad > 0,
        DepPolicy::AtLeast(n) => good >= n as usize,
    };
    let mut stand = start;
    if start.state != TaskState::Pending {
    } else if runs {
        stand = run(plan, start.attempt);
    } else if plan.policy == DepPolicy::OnFailure {
        stand.state = TaskState::Skipped;
    } else {
        stand.state = TaskState::UpstreamFailed;
    }
    stand
}

/// Whether a workflow that a failure has stopped may end so. Who was stopped depends on who was first; that cleanups and notifiers
/// were not, that nobody ran who must not, and that a failure then was the last, does not.
pub(super) fn may_end_so(plans: &[Plan], start: &[Stand], end: &[Stand]) -> bool {
    let fits = |(place, plan): (usize, &Plan)| {
        let (start, is) = (start[place], end[place]);
        let should = comes_to(plan, start, end);
        let survives = matches!(plan.policy, DepPolicy::Always | DepPolicy::OnFailure);
        if is == should || start.state != TaskState::Pending || survives {
            return is == should;
        }
        match is.state {
            TaskState::Cancelled => true,
            TaskState::Failed => {
                should.attempt > is.attempt && plan.answer(is.attempt) == Answer::Fails
            }
            _ => false,
        }
    };
    plans.iter().enumerate().all(fits)
}

fn run(plan: &Plan, mut attempt: u32) -> Stand {
    for tries_left in (0..=plan.retries).rev() {
        attempt += 1;
        let state = match plan.answer(attempt) {
            Answer::Succeeds => TaskState::Completed,
            Answer::Fails if tries_left > 0 => continue,
            Answer::Fails | Answer::FailsForGood | Answer::Refused => TaskState::Failed,
        };
        return Stand { state, attempt };
    }
    unreachable!("the last try returns")
}

/// What the end of all tasks means for the workflow.
pub(super) fn result_of(plans: &[Plan], policy: ResultPolicy, end: &[Stand]) -> Status {
    let is_sink = |place: usize| {
        plans.iter().all(|child| {
            !child.parents.contains(&place)
                || matches!(child.policy, DepPolicy::Always | DepPolicy::OnFailure)
        })
    };
    let counts = |place: usize| policy == ResultPolicy::AllTasksSucceed || is_sink(place);
    let failed = (0..plans.len()).any(|place| counts(place) && is_bad(end[place].state));
    if failed {
        Status::Failed
    } else {
        Status::Completed
    }
}

/// Where every task starts after a retry of the workflow.
pub(super) fn again(plans: &[Plan], end: &[Stand]) -> Vec<Stand> {
    let mut start: Vec<Stand> = Vec::new();
    for (plan, end) in plans.iter().zip(end) {
        let asks_again = matches!(
            plan.policy,
            DepPolicy::Always | DepPolicy::OnFailure | DepPolicy::AllSettled
        );
        let below = plan
            .parents
            .iter()
            .any(|parent| start[*parent].state == TaskState::Pending);
        let mut stand = *end;
        if is_bad(end.state) || (asks_again && below) {
            stand.state = TaskState::Pending;
        }
        start.push(stand);
    }
    start
}
