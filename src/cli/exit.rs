//! How the process ends: every exit code there is.

/// The end of a command. The numbers are part of the interface and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exit {
    /// Done.
    Ok,
    /// Something that should not happen: a fault of ours.
    Internal,
    /// Something stored is damaged, or a newer version wrote it.
    Unreadable,
    /// The command line is wrong.
    Usage,
    /// The definition is wrong.
    InvalidDefinition,
    /// There is no such workflow, task, output or prefix.
    NotFound,
    /// Credentials are missing, wrong or lack a role.
    Denied,
    /// The store does not answer.
    Unreachable,
    /// The request does not fit what is there.
    Conflict,
    /// Another coordinator leads.
    OtherLeader,
    /// The workflow failed.
    WorkflowFailed,
    /// The workflow was cancelled.
    WorkflowCancelled,
    /// The time given to a wait was over.
    TimedOut,
    /// `doctor` found problems.
    ProblemsFound,
    /// This signal ended the process before it was done.
    Signal(u8),
}

impl Exit {
    /// The number that the process returns.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Internal | Self::Unreadable => 1,
            Self::Usage => 2,
            Self::InvalidDefinition => 3,
            Self::NotFound => 4,
            Self::Denied => 5,
            Self::Unreachable => 6,
            Self::Conflict => 7,
            Self::OtherLeader => 8,
            Self::WorkflowFailed => 10,
            Self::WorkflowCancelled => 11,
            Self::TimedOut => 12,
            Self::ProblemsFound => 13,
            Self::Signal(number) => 128 + (number & 0x7f),
        }
    }

    /// The word for it in `error.kind` of JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Internal => "internal",
            Self::Unreadable => "unreadable",
            Self::Usage => "usage",
            Self::InvalidDefinition => "invalid_definition",
            Self::NotFound => "not_found",
            Self::Denied => "denied",
            Self::Unreachable => "unreachable",
            Self::Conflict => "conflict",
            Self::OtherLeader => "other_leader",
            Self::WorkflowFailed => "workflow_failed",
            Self::WorkflowCancelled => "workflow_cancelled",
            Self::TimedOut => "timed_out",
            Self::ProblemsFound => "problems_found",
            Self::Signal(_) => "signal",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_pinned() {
        let pinned = [
            (Exit::Ok, 0, "ok"),
            (Exit::Internal, 1, "internal"),
            (Exit::Unreadable, 1, "unreadable"),
            (Exit::Usage, 2, "usage"),
            (Exit::InvalidDefinition, 3, "invalid_definition"),
            (Exit::NotFound, 4, "not_found"),
            (Exit::Denied, 5, "denied"),
            (Exit::Unreachable, 6, "unreachable"),
            (Exit::Conflict, 7, "conflict"),
            (Exit::OtherLeader, 8, "other_leader"),
            (Exit::WorkflowFailed, 10, "workflow_failed"),
            (Exit::WorkflowCancelled, 11, "workflow_cancelled"),
            (Exit::TimedOut, 12, "timed_out"),
            (Exit::ProblemsFound, 13, "problems_found"),
            (Exit::Signal(2), 130, "signal"),
            (Exit::Signal(15), 143, "signal"),
        ];
        for (exit, code, word) in pinned {
            assert_eq!((exit.code(), exit.word()), (code, word), "{exit:?}");
        }
    }
}
