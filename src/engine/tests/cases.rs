//! Random workflows, and what happens to them: what the histories of `random` are drawn from.

use proptest::prelude::*;

use super::reference::{Answer, Plan};
use crate::definition::{DepPolicy, OnFailure, ResultPolicy};

#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) plans: Vec<Plan>,
    pub(super) result_policy: ResultPolicy,
    pub(super) on_failure: OnFailure,
    pub(super) backwards: bool,
    /// After so many moves the workflow is cancelled.
    pub(super) cancel_after: Option<u32>,
    pub(super) seed: u64,
}

fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let answer = prop_oneof![
        8 => Just(Answer::Succeeds),
        5 => Just(Answer::Fails),
        1 => Just(Answer::FailsForGood),
        1 => Just(Answer::Refused),
    ];
    prop::collection::vec(answer, 1..5)
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let raw = (any::<u16>(), any::<u16>(), 0..8_u32, 0..3_u32, answers());
    prop::collection::vec(raw, 1..11).prop_map(|raw| {
        let plan =
            |(place, (some, more, policy, retries, answers)): (usize, (u16, u16, u32, u32, _))| {
                // Two draws, so that few parents are likelier than many.
                let parents: Vec<usize> = (0..place)
                    .filter(|parent| some & more & (1 << parent) != 0)
                    .collect();
                let count = u32::try_from(parents.len()).unwrap();
                let policy = match policy {
                    0 => DepPolicy::Any,
                    1 => DepPolicy::AllSettled,
                    2 => DepPolicy::Always,
                    3 => DepPolicy::OnFailure,
                    4 | 5 if count > 0 => DepPolicy::AtLeast(u32::from(some) % count + 1),
                    _ => DepPolicy::All,
                };
                Plan {
                    parents,
                    policy,
                    retries,
                    answers,
                }
            };
        raw.into_iter().enumerate().map(plan).collect()
    })
}

pub(super) fn cases() -> impl Strategy<Value = Case> {
    let result_policy = prop_oneof![
        Just(ResultPolicy::AllSinksSucceed),
        Just(ResultPolicy::AllTasksSucceed)
    ];
    let cancel_after = prop::option::weighted(0.4, 0..40_u32);
    let on_failure = prop_oneof![Just(OnFailure::Continue), Just(OnFailure::Cancel)];
    (
        plans(),
        result_policy,
        on_failure,
        any::<bool>(),
        cancel_after,
        any::<u64>(),
    )
        .prop_map(
            |(plans, result_policy, on_failure, backwards, cancel_after, seed)| Case {
                plans,
                result_policy,
                on_failure,
                backwards,
                cancel_after,
                seed,
            },
        )
}
