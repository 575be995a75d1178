//! What each refusal of the services becomes, and what it tells people to do.

use std::time::Duration;

use super::*;

fn at(now: &str) -> Circumstances {
    Circumstances {
        service: "Queue",
        by_role: true,
        host_looks_like_account: false,
        now: now.parse().unwrap(),
    }
}

const NOW: &str = "2026-01-01T12:00:00Z";

fn reply(status: u16, code: &str) -> Reply {
    Reply {
        status,
        code: Some(code.to_owned()).filter(|code| !code.is_empty()),
        message: Some("Because.".to_owned()),
        request_id: Some("r-1".to_owned()),
        date: Some(NOW.parse().unwrap()),
        retry_after: None,
    }
}

fn any_error() -> azure_core::Error {
    azure_core::Error::message(ErrorKind::Other, "unread")
}

fn error(effect: Effect, outcome: Outcome) -> StoreError {
    store_error("op", effect, outcome, &any_error(), at(NOW))
}

#[test]
fn every_refusal_has_its_kind() {
    for (status, code, read, write) in [
        (404, "BlobNotFound", Kind::NotFound, Kind::NotFound),
        (404, "ResourceNotFound", Kind::NotFound, Kind::NotFound),
        (404, "EntityNotFound", Kind::NotFound, Kind::NotFound),
        (404, "ContainerNotFound", Kind::NoResource, Kind::NoResource),
        (404, "QueueNotFound", Kind::NoResource, Kind::NoResource),
        (404, "TableNotFound", Kind::NoResource, Kind::NoResource),
        (404, "MessageNotFound", Kind::Gone, Kind::Gone),
        (400, "PopReceiptMismatch", Kind::Gone, Kind::Gone),
        (409, "BlobAlreadyExists", Kind::Conflict, Kind::Conflict),
        (409, "EntityAlreadyExists", Kind::Conflict, Kind::Conflict),
        (409, "LeaseAlreadyPresent", Kind::Conflict, Kind::Conflict),
        (412, "ConditionNotMet", Kind::Conflict, Kind::Conflict),
        (412, "", Kind::Conflict, Kind::Conflict),
        (
            409,
            "ContainerBeingDeleted",
            Kind::Unavailable,
            Kind::Unavailable,
        ),
        (
            409,
            "QueueBeingDeleted",
            Kind::Unavailable,
            Kind::Unavailable,
        ),
        (
            401,
            "NoAuthenticationInformation",
            Kind::Denied,
            Kind::Denied,
        ),
        (403, "AuthenticationFailed", Kind::Denied, Kind::Denied),
        (429, "", Kind::Throttled, Kind::Throttled),
        (503, "ServerBusy", Kind::Throttled, Kind::Throttled),
        (500, "OperationTimedOut", Kind::Unavailable, Kind::Ambiguous),
        (500, "InternalError", Kind::Unavailable, Kind::Ambiguous),
        (502, "", Kind::Unavailable, Kind::Ambiguous),
        (504, "", Kind::Unavailable, Kind::Ambiguous),
        (408, "", Kind::Unavailable, Kind::Ambiguous),
        (400, "InvalidInput", Kind::Invalid, Kind::Invalid),
        (413, "RequestBodyTooLarge", Kind::Invalid, Kind::Invalid),
        (304, "ConditionNotMet", Kind::Invalid, Kind::Invalid),
        // Done, but with an answer that says nothing.
        (200, "", Kind::Corrupt, Kind::Ambiguous),
        (204, "", Kind::Corrupt, Kind::Ambiguous),
    ] {
        for (effect, kind) in [(Effect::Read, read), (Effect::Write, write)] {
            let error = error(effect, Outcome::Replied(reply(status, code)));
            assert_eq!(error.kind, kind, "{effect:?} {status} {code}");
            assert!(error.detail.starts_with(format!("{status} {code}").trim()));
            assert!(error.detail.contains("request id r-1"), "{error}");
        }
    }
}

#[test]
fn only_a_request_without_connection_certainly_did_nothing() {
    let unreached = || Outcome::Unreached("Connection refused".to_owned());
    let lost = || Outcome::Lost("connection reset".to_owned());
    assert_eq!(error(Effect::Write, unreached()).kind, Kind::Unavailable);
    assert_eq!(error(Effect::Read, unreached()).kind, Kind::Unavailable);
    assert_eq!(error(Effect::Write, lost()).kind, Kind::Ambiguous);
    assert_eq!(error(Effect::Read, lost()).kind, Kind::Unavailable);
}

#[test]
fn a_missing_token_is_a_denial_and_a_silent_identity_service_is_not() {
    let unsent = |error: &azure_core::Error| {
        store_error("op", Effect::Write, Outcome::NotSent, error, at(NOW)).kind
    };
    let denied = azure_core::Error::message(ErrorKind::Credential, "no sources");
    assert_eq!(unsent(&denied), Kind::Denied);
    let lines = azure_core::Error::message(ErrorKind::Credential, "one\ntwo");
    let text = store_error("op", Effect::Read, Outcome::NotSent, &lines, at(NOW)).detail;
    assert_eq!(text, "one; two");
    let silent = azure_core::Error::message(ErrorKind::Io, "no token in time");
    let wrapped = azure_core::Error::full(ErrorKind::Credential, silent, "no bearer token");
    assert_eq!(unsent(&wrapped), Kind::Unavailable);
}

#[test]
fn a_denial_names_the_wrong_clock_or_the_missing_role() {
    let denied = |now| {
        let outcome = Outcome::Replied(reply(403, "AuthorizationPermissionMismatch"));
        store_error("op", Effect::Read, outcome, &any_error(), at(now)).detail
    };
    assert!(denied(NOW).contains("`Storage Queue Data Contributor`"));
    assert!(denied("2026-01-01T12:20:00Z").contains("20 min ahead"));
    assert!(denied("2026-01-01T11:30:00Z").contains("30 min behind"));
}

#[test]
fn the_wait_that_the_service_asks_for_is_passed_on() {
    let mut busy = reply(503, "ServerBusy");
    busy.retry_after = Some(Duration::from_secs(7));
    let error = error(Effect::Write, Outcome::Replied(busy));
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
    assert!(error.is_transient());
}

#[test]
fn secrets_in_texts_are_taken_out() {
    for (text, clean) in [
        (
            "http://h/c?sp=r&sig=ab%3D&se=1 failed",
            "http://h/c?sp=r&sig=***&se=1 failed",
        ),
        (
            "AccountName=a;AccountKey=xyz==;B=c",
            "AccountName=a;AccountKey=***;B=c",
        ),
        (
            "sent SharedKey acct:abc=, got sig=1",
            "sent SharedKey *** got sig=***",
        ),
        ("Bearer ey.J.k", "Bearer ***"),
        ("nothing here", "nothing here"),
    ] {
        assert_eq!(redacted(text), clean);
    }
}
