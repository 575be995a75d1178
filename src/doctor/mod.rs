//! Looks over a prefix and says what is wrong and what to do. Changes nothing, unless asked to make what is missing and to send
//! again what was kept.
//!
//! Invariants:
//! 1. Every check ends in a [`Check`]: a fault of the store is a finding, never an error of the examination.
//! 2. What costs grows with what is unfinished, not with what was ever run.
//! 3. Ages are told by the service's clock, but for that of a waiting task, which its text says.
//! 4. What is missing or does not answer keeps only what needs it from being looked at, and that is said.

use jiff::Timestamp;
use serde::Serialize;

use crate::env::Env;
use crate::protocol::{Layout, note};
use crate::record::{JournalAction, JournalRecord, JournalResult, Record};
use crate::store::{Kind, Store, StoreError};

mod coordinator;
mod poison;
mod services;
mod stuck;
mod workflows;

#[cfg(test)]
mod tests;

/// What is examined.
#[derive(Debug, Clone)]
pub struct Patient {
    /// The outside world.
    pub env: Env,
    /// The three services; not in a layer that repeats requests, so that an examination ends soon.
    pub store: Store,
    /// The names of the prefix.
    pub layout: Layout,
    /// The account and its addresses, for people.
    pub described: String,
    /// Who examines, for the journal, as `user@host`.
    pub actor: String,
    /// When the signature that opens the account ends.
    pub expires_at: Option<Timestamp>,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All is well.
    Ok,
    /// Somebody should look.
    Warn,
    /// Something does not work.
    Problem,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it stands.
    pub status: Verdict,
    /// What was found, in one sentence.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(Verdict::Ok, name, message, None)
    }

    fn warn(name: impl Into<String>, message: impl Into<String>, help: &str) -> Self {
        Self::of(Verdict::Warn, name, message, Some(help))
    }

    fn problem(name: impl Into<String>, message: impl Into<String>, help: &str) -> Self {
        Self::of(Verdict::Problem, name, message, Some(help))
    }

    fn of(
        status: Verdict,
        name: impl Into<String>,
        message: impl Into<String>,
        help: Option<&str>,
    ) -> Self {
        Self {
            name: name.into(),
            status,
            message: message.into(),
            help: help.map(str::to_owned),
        }
    }

    /// A request that did not succeed.
    fn refused(name: impl Into<String>, error: &StoreError) -> Self {
        let help = match error.kind {
            Kind::Denied => {
                "grant this identity the data contributor role of this service, or check the key or signature"
            }
            Kind::NoResource => "run `workflow doctor --fix`",
            Kind::NotFound
            | Kind::Conflict
            | Kind::Gone
            | Kind::Ambiguous
            | Kind::Throttled
            | Kind::Unavailable
            | Kind::Invalid
            | Kind::Corrupt
            | Kind::Fenced => {
                "check the addresses, the network, and on the emulator that it runs with a location on disk"
            }
        };
        Self::problem(name, error.to_string(), help)
    }
}

/// Examines everything; with `fix`, makes what is missing first, and sends kept completions again.
pub async fn examine(patient: &Patient, fix: bool) -> Vec<Check> {
    let mut checks = vec![configuration(patient), names(patient)];
    if fix {
        checks.push(match patient.layout.create(&patient.store).await {
            Ok(()) => {
                note_fix(patient).await;
                Check::ok("fix", "all containers, tables and queues are there now")
            }
            Err(error) => Check::refused("fix", &error),
        });
    }
    let mut services = services::look(patient).await;
    checks.append(&mut services.checks);
    let layout = &patient.layout;
    let has_blobs = services.has(layout.workflows().as_str());
    let leads = has_blobs.then_some(coordinator::check(patient));
    let leader = match leads {
        Some(leads) => leads.await,
        None => coordinator::Found::unseen(layout.workflows().as_str()),
    };
    let mut found = if has_blobs && services.has(layout.index().as_str()) {
        workflows::look(patient, leader.is_led).await
    } else {
        workflows::Found::unseen()
    };
    checks.extend(coordinator::checks(leader, found.open));
    checks.append(&mut found.checks);
    if services.has_queues {
        if fix {
            checks.push(poison::send_again(patient).await);
        }
        checks.extend(poison::checks(patient, &found.queues).await);
    }
    checks
}

/// A signature that ends sooner is worth a warning.
pub const SIGNATURE_SOON: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
async fn note_fix(patient: &Patient) {
    let entry = JournalRecord {
        schema: JournalRecord::SCHEMA,
        at: patient.env.wall(),
        actor: patient.actor.clone(),
        action: JournalAction::DoctorFix,
        workflow_id: None,
        request_id: None,
        result: JournalResult::Applied,
        detail: None,
    };
    note(&patient.env, &patient.store, &patient.layout, &entry).await;
}

fn configuration(patient: &Patient) -> Check {
    let name = "configuration";
    let described = &patient.described;
    match patient.expires_at {
        Some(end) if end <= patient.env.wall() => Check::problem(
            name,
            format!("{described}: the signature ended at {end}"),
            "get a new signature and set AZURE_STORAGE_CONNECTION_STRING",
        ),
        Some(end) if end.duration_since(patient.env.wall()) < SIGNATURE_SOON => Check::warn(
            name,
            format!("{described}: the signature ends at {end}"),
            "get a signature that lasts longer than the work",
        ),
        Some(_) | None => Check::ok(name, described),
    }
}

/// The names were checked when the layout was made; here they are shown.
fn names(patient: &Patient) -> Check {
    let layout = &patient.layout;
    Check::ok(
        "names",
        format!(
            "containers {}, {}, {}; tables {}, {}, {}; queues {}, {}-q-QUEUE",
            layout.workflows().as_str(),
            layout.outputs().as_str(),
            layout.logs().as_str(),
            layout.index().as_str(),
            layout.claims().as_str(),
            layout.journal().as_str(),
            layout.completions().as_str(),
            layout.prefix(),
        ),
    )
}
