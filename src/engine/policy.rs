//! What a dependency policy says, given how the dependencies stand. Two numbers decide, so a completion costs O(1) per edge.

use crate::definition::DepPolicy;

/// How the dependencies of one task stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Dependencies that are completed or skipped.
    pub satisfied: u32,
    /// Dependencies that are failed, upstream_failed or cancelled.
    pub failed: u32,
}

/// What follows for the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum Verdict {
    /// Nothing yet.
    Wait,
    /// It may run.
    Run,
    /// It can never run: `upstream_failed`.
    Block,
    /// It is not needed: `skipped`.
    Skip,
}

/// Judges a task with `parents` dependencies.
pub fn verdict(policy: DepPolicy, parents: u32, tally: Tally) -> Verdict {
    let settled = tally.satisfied + tally.failed >= parents;
    let when_settled = |then: Verdict| if settled { then } else { Verdict::Wait };
    if parents == 0 {
        return match policy {
            DepPolicy::OnFailure => Verdict::Skip,
            DepPolicy::All
            | DepPolicy::Any
            | DepPolicy::AllSettled
            | DepPolicy::Always
            | DepPolicy::AtLeast(_) => Verdict::Run,
        };
    }
    match policy {
        DepPolicy::All if tally.failed > 0 => Verdict::Block,
        DepPolicy::All | DepPolicy::Always => when_settled(Verdict::Run),
        DepPolicy::Any => at_least(1, parents, tally),
        DepPolicy::AtLeast(n) => at_least(n, parents, tally),
        DepPolicy::AllSettled => when_settled(if tally.satisfied > 0 {
            Verdict::Run
        } else {
            Verdict::Block
        }),
        DepPolicy::OnFailure => when_settled(if tally.failed > 0 {
            Verdict::Run
        } else {
            Verdict::Skip
        }),
    }
}

fn at_least(n: u32, parents: u32, tally: Tally) -> Verdict {
    if tally.satisfied >= n {
        Verdict::Run
    } else if parents - tally.failed < n {
        Verdict::Block
    } else {
        Verdict::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole truth table for two dependencies: columns are how they ended (s satisfied, f failed, . not ended).
    #[test]
    fn the_truth_table_for_two_dependencies_holds() {
        use Verdict::{Block, Run, Skip, Wait};
        let columns = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)];
        let table = [
            (DepPolicy::All, [Wait, Wait, Block, Run, Block, Block]),
            (DepPolicy::Any, [Wait, Run, Wait, Run, Run, Block]),
            (DepPolicy::AllSettled, [Wait, Wait, Wait, Run, Run, Block]),
            (DepPolicy::Always, [Wait, Wait, Wait, Run, Run, Run]),
            (DepPolicy::OnFailure, [Wait, Wait, Wait, Skip, Run, Run]),
            (
                DepPolicy::AtLeast(2),
                [Wait, Wait, Block, Run, Block, Block],
            ),
        ];
        for (policy, row) in table {
            for ((satisfied, failed), expected) in columns.into_iter().zip(row) {
                assert_eq!(
                    verdict(policy, 2, Tally { satisfied, failed }),
                    expected,
                    "{policy:?} {satisfied} {failed}"
                );
            }
        }
    }

    #[test]
    fn a_task_without_dependencies_runs_unless_it_waits_for_a_failure() {
        assert_eq!(verdict(DepPolicy::All, 0, Tally::default()), Verdict::Run);
        assert_eq!(
            verdict(DepPolicy::OnFailure, 0, Tally::default()),
            Verdict::Skip
        );
    }
}
