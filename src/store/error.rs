//! Why a store operation did not succeed, and what that obliges the caller to.

use std::fmt;
use std::time::Duration;

/// What went wrong, as far as a caller must tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The blob or row named is not there.
    NotFound,
    /// The container, queue or table is not there: create it, or say so.
    NoResource,
    /// The expectation was not met: read again before deciding anything.
    Conflict,
    /// The receipt no longer entitles to this message: somebody else may have it.
    Gone,
    /// A write may have been carried out, or may yet be: find out before repeating it.
    Ambiguous,
    /// The service asks to slow down; nothing was done.
    Throttled,
    /// The service could not be reached, or a read got no answer; nothing was done.
    Unavailable,
    /// Credentials are missing, wrong, expired or lack a role.
    Denied,
    /// The request breaks a rule of the service (size, name, range): repeating it is useless.
    Invalid,
    /// The reply could not be understood.
    Corrupt,
    /// This process may not act any more; nothing was sent. Final.
    Fenced,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "not found",
            Self::NoResource => "no such container, queue or table",
            Self::Conflict => "stored state is another",
            Self::Gone => "message is another's",
            Self::Ambiguous => "outcome unknown",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Denied => "access denied",
            Self::Invalid => "refused as invalid",
            Self::Corrupt => "reply not understood",
            Self::Fenced => "no longer entitled to act",
        })
    }
}

/// An operation that did not succeed. Holds no secret: neither keys nor signed addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {kind}{}", detail_text(.detail))]
pub struct StoreError {
    /// What it means for the caller.
    pub kind: Kind,
    /// What was tried and on what, as `put blob p-workflows/w.json`.
    pub operation: String,
    /// What the service said: status, error code, request id, message.
    pub detail: String,
    /// How long the service asked to wait.
    pub retry_after: Option<Duration>,
}

fn detail_text(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    }
}

impl StoreError {
    /// An error of `kind` while `operation` was tried.
    #[must_use]
    pub fn new(kind: Kind, operation: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind,
            operation: operation.into(),
            detail: detail.into(),
            retry_after: None,
        }
    }

    /// Whether the same request may simply be sent again later: nothing was done.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::Throttled | Kind::Unavailable)
    }
}
