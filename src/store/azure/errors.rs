//! What a failed call means for its caller.
//!
//! Invariants:
//! 1. The judgement rests on what the transport saw, never on the error texts of the crates above it.
//! 2. A write without a clear answer is [`Kind::Ambiguous`]; only what certainly did nothing is called something else.
//! 3. Error code and request id of the service are kept; keys, signatures and connection strings are not (invariant 3 of the transport,
//!    and [`redacted`] over the whole).

use azure_core::error::ErrorKind;

use super::transport::{Outcome, Reply};
use crate::env::Timestamp;
use crate::store::{Kind, StoreError};

/// What a request does to the stored state, as far as a lost reply matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing that a repetition would not repeat harmlessly. Receiving messages counts here: what a lost reply hid comes back.
    Read,
    /// Something.
    Write,
}

impl Effect {
    /// The kind of a request whose outcome is not known.
    const fn unknown(self) -> Kind {
        match self {
            Self::Read => Kind::Unavailable,
            Self::Write => Kind::Ambiguous,
        }
    }
}

/// The circumstances of a call that an error text draws on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    /// `Blob`, `Queue` or `Table`.
    pub(super) service: &'static str,
    /// Whether roles decide, not a key or a signature.
    pub(super) by_role: bool,
    /// Whether the emulator may have taken the host name for an account.
    pub(super) host_looks_like_account: bool,
    /// This machine's clock.
    pub(super) now: Timestamp,
}

/// A clock that is off by more is named as the likely cause of a refusal (the service allows 15 min).
const CLOCK_SKEW_SECS: i64 = 600;

/// The error of a call.
pub(super) fn store_error(
    operation: &str,
    effect: Effect,
    outcome: Outcome,
    error: &azure_core::Error,
    at: Circumstances,
) -> StoreError {
    let new = |kind, detail: &str| StoreError::new(kind, operation, redacted(detail));
    match outcome {
        Outcome::Unreached(text) => new(Kind::Unavailable, &text),
        Outcome::Lost(text) => new(effect.unknown(), &text),
        Outcome::NotSent => unsent(operation, error),
        Outcome::Replied(reply) if reply.status < 300 => {
            let kind = match effect {
                Effect::Read => Kind::Corrupt,
                Effect::Write => Kind::Ambiguous,
            };
            new(
                kind,
                &format!("{}, but the rest is not understood", described(&reply)),
            )
        }
        Outcome::Replied(reply) => {
            let kind = classify(effect, reply.status, reply.code.as_deref().unwrap_or(""));
            let mut detail = described(&reply);
            if let Some(hint) = hint(kind, &reply, at) {
                detail = format!("{detail}; {hint}");
            }
            StoreError {
                retry_after: reply.retry_after,
                ..new(kind, &detail)
            }
        }
    }
}

/// The kind of a refusal.
fn classify(effect: Effect, status: u16, code: &str) -> Kind {
    match (status, code) {
        (404, "BlobNotFound" | "ResourceNotFound" | "EntityNotFound") => Kind::NotFound,
        (404, "MessageNotFound") | (400, "PopReceiptMismatch") => Kind::Gone,
        (404, _) => Kind::NoResource,
        // The old one is still being removed; the service says so for half a minute and more.
        (409, code) if code.ends_with("BeingDeleted") || code.ends_with("BeingCreated") => {
            Kind::Unavailable
        }
        (409 | 412, _) => Kind::Conflict,
        (401 | 403 | 407, _) => Kind::Denied,
        (429 | 503, _) => Kind::Throttled,
        (408 | 500.., _) => effect.unknown(),
        (_, _) => Kind::Invalid,
    }
}

/// A call that failed before the wire: credentials, as a rule.
fn unsent(operation: &str, error: &azure_core::Error) -> StoreError {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    let mut unreached = false;
    while let Some(error) = cause {
        unreached |= error
            .downcast_ref::<azure_core::Error>()
            .is_some_and(|error| *error.kind() == ErrorKind::Io);
        cause = error.source();
    }
    let kind = match error.kind() {
        _ if unreached => Kind::Unavailable,
        ErrorKind::Credential => Kind::Denied,
        _ => Kind::Invalid,
    };
    StoreError::new(kind, operation, redacted(&super::transport::chain(error)))
}

/// Status, code, message and request id.
fn described(reply: &Reply) -> String {
    let mut text = reply.status.to_string();
    for (before, part) in [
        (" ", &reply.code),
        (": ", &reply.message),
        ("; request id ", &reply.request_id),
    ] {
        if let Some(part) = part {
            text.push_str(before);
            text.push_str(part);
        }
    }
    text
}

/// What to look at, where the reply lets guess it.
fn hint(kind: Kind, reply: &Reply, at: Circumstances) -> Option<String> {
    let code = reply.code.as_deref().unwrap_or("");
    if kind == Kind::Denied {
        let ahead = reply
            .date
            .map_or(0, |date| at.now.as_second() - date.as_second());
        if ahead.abs() > CLOCK_SKEW_SECS {
            let (minutes, side) = (ahead.abs() / 60, if ahead > 0 { "ahead" } else { "behind" });
            return Some(format!(
                "this machine's clock is {minutes} min {side} of the service's: set it right"
            ));
        }
        if at.by_role && code.contains("Permission") {
            let service = at.service;
            return Some(format!(
                "the identity needs the role `Storage {service} Data Contributor` on the account; a new role takes some minutes"
            ));
        }
    }
    if kind == Kind::Unavailable && code.ends_with("BeingDeleted") {
        return Some("one of this name is still being deleted: this takes a minute".to_owned());
    }
    if reply.status == 400 && code == "InvalidHeaderValue" {
        return Some("an emulator that does not know this API version must be updated".to_owned());
    }
    if at.host_looks_like_account && matches!(reply.status, 400 | 403 | 404) {
        return Some(
            "the emulator takes a dotted host name for an account unless it is started with `--disableProductStyleUrl`"
                .to_owned(),
        );
    }
    None
}

/// `text` with the value of every `sig=`, `AccountKey=` and `SharedKey` taken out. A second line of defence: no text is known to hold one.
fn redacted(text: &str) -> String {
    let mut left = text;
    let mut clean = String::with_capacity(text.len());
    let marks = ["sig=", "AccountKey=", "SharedKey ", "Bearer "];
    while let Some((at, mark)) = marks
        .iter()
        .filter_map(|mark| left.find(mark).map(|at| (at, mark)))
        .min()
    {
        let end = at + mark.len();
        clean.push_str(&left[..end]);
        clean.push_str("***");
        left =
            left[end..].trim_start_matches(|c: char| !c.is_whitespace() && !"&;\"'<>)".contains(c));
    }
    clean.push_str(left);
    clean
}

#[cfg(test)]
mod tests;
