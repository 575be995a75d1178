//! The state machine of one workflow: state and event in, state or refusal out. Pure: no clock, no dice, no storage.
//!
//! The coordinator, recovery, `validate` and the simulator all run this code.
//!
//! Invariants:
//! 1. States change only along [`TRANSITIONS`]; only [`Cause::Rerun`] leaves a terminal state.
//! 2. Old news changes nothing and is told apart from news of something never issued ([`Applied`]).
//! 3. A completion costs a bounded number of steps per edge below the task, once per edge over the whole run; nothing is rescanned, nothing recurses.
//! 4. When nothing is `ready` or `dispatched`, every task has ended.
//! 5. `attempt` of a task only grows, also over retries of the workflow.

mod early;
mod effects;
mod events;
mod graph;
mod outcome;
mod policy;
mod retry;
mod runtime;
mod settle;
mod status;
mod task;

#[cfg(test)]
mod tests;

pub use effects::{Applied, Changes};
pub use graph::Graph;
pub use outcome::{AttemptReport, Failure, FailureKind, Origin, Outcome, Output};
pub use policy::{Tally, Verdict, verdict};
pub use retry::{RETRY_DELAY_MAX, retry_delay_limit};
pub use runtime::{AttemptId, Cancel, Due, Parts, RetryAfter, Runtime, StopAfter, TaskRun};
pub use status::{Counts, Status};
pub use task::{Attempt, Cause, Generation, NUMBER_MAX, TRANSITIONS, TaskIx, TaskState};
