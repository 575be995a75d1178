//! How the state of a workflow is laid out in storage, so that a write costs about what it changes, however many tasks there are (P3).
//!
//! The runtime blob stays the one target of compare-and-swap. What does not change any more is in blobs beside it, each written once
//! and named by the stamp of the write that names it first:
//! - A *snapshot* has the letters of all tasks, and the names of all detail blobs before it.
//! - A *detail blob* has what is to be said of some tasks; of two that speak of one task, the later holds.
//!
//! The runtime blob itself has the letters that differ from the snapshot, the names of the detail blobs after it, and the newest details.
//! A task that is ready or dispatched and of which nothing is said is in its first attempt; a first attempt that succeeded takes a row of
//! at most 64 bytes beside its output.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::id::Stamp;
use super::runtime::{TaskDetail, is_default};
use super::{DecodeError, Record, nonsense};
use crate::definition::WorkflowId;
use crate::engine::{Attempt, AttemptReport, Outcome, Output, TaskIx, TaskState};

/// What the runtime blob of a workflow has beside `states` and `tasks`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packed {
    /// The snapshot; none while all letters are in `states`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Stamp>,
    /// By letter, the places that have another letter than in the snapshot: `0-31 45`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub changed: BTreeMap<String, String>,
    /// The detail blobs that the snapshot does not name, oldest first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub details: Vec<Stamp>,
    /// The workers that `attempts` counts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub workers: Vec<String>,
    /// Of first attempts that succeeded what is in no detail blob.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempts: Vec<AttemptRow>,
}

/// A first attempt that succeeded, of which nothing more is to be said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRow(
    /// The place of its task.
    TaskIx,
    /// Its token, as base64url.
    String,
    /// The worker that ran it, by its place in the list beside.
    usize,
    /// When it ended, in milliseconds since 1970.
    i64,
    /// How long it ran, in milliseconds.
    i64,
    /// 1 if there is a log blob, else 0.
    u8,
    /// Its output, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    Option<Output>,
);

/// A snapshot, schema 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRecord {
    /// 1.
    pub schema: u32,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// One letter a task.
    pub states: String,
    /// All detail blobs so far, oldest first.
    pub details: Vec<Stamp>,
}

impl Record for SnapshotRecord {
    const WHAT: &'static str = "snapshot";
    const SCHEMA: u32 = 1;
}

/// A detail blob, schema 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetailsRecord {
    /// 1.
    pub schema: u32,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// As [`Packed::workers`].
    pub workers: Vec<String>,
    /// As [`Packed::attempts`].
    pub attempts: Vec<AttemptRow>,
    /// As [`tasks`](super::RuntimeRecord::tasks).
    pub tasks: Vec<TaskDetail>,
}

impl Record for DetailsRecord {
    const WHAT: &'static str = "detail blob";
    const SCHEMA: u32 = 1;
}

impl DetailsRecord {
    /// The shortest form of what is to be said of some tasks.
    pub(super) fn pack(workflow_id: WorkflowId, details: Vec<TaskDetail>) -> Self {
        let mut packed = Self {
            schema: Self::SCHEMA,
            workflow_id,
            workers: Vec::new(),
            attempts: Vec::new(),
            tasks: Vec::new(),
        };
        let mut workers = BTreeMap::new();
        for detail in details {
            match row(&detail) {
                None => packed.tasks.push(detail),
                Some((mut row, worker)) => {
                    row.2 = *workers.entry(worker.clone()).or_insert_with(|| {
                        packed.workers.push(worker);
                        packed.workers.len() - 1
                    });
                    packed.attempts.push(row);
                }
            }
        }
        packed
    }

    /// What is said of each task.
    ///
    /// # Errors
    /// [`DecodeError::Nonsense`] if a row cannot be understood.
    pub(super) fn unpack(self) -> Result<Vec<TaskDetail>, DecodeError> {
        let mut details = self.tasks;
        for row in self.attempts {
            let detail = said_by(row, &self.workers);
            details.push(detail.ok_or_else(|| nonsense::<Self>("a row of an attempt is damaged"))?);
        }
        Ok(details)
    }
}

fn whole_ms(at: Timestamp) -> Option<i64> {
    let ms = at.as_millisecond();
    Timestamp::from_millisecond(ms)
        .is_ok_and(|whole| whole == at)
        .then_some(ms)
}

/// The row that says all that a detail does, and the worker that it names; none if it cannot.
fn row(detail: &TaskDetail) -> Option<(AttemptRow, String)> {
    let report = detail.report.as_deref()?;
    let token = Uuid::try_parse(&report.token).ok()?;
    let ended = whole_ms(report.ended_at)?;
    let ran = ended.checked_sub(whole_ms(report.started_at?)?)?;
    let row = AttemptRow(
        detail.place,
        URL_SAFE_NO_PAD.encode(token),
        0,
        ended,
        ran,
        u8::from(report.has_log),
        report.output.clone(),
    );
    let worker = report.worker.clone();
    let said = said_by(row.clone(), std::slice::from_ref(&worker));
    (said.as_ref() == Some(detail)).then_some((row, worker))
}

fn said_by(row: AttemptRow, workers: &[String]) -> Option<TaskDetail> {
    let AttemptRow(place, token, worker, ended, ran, log, output) = row;
    let token: [u8; 16] = URL_SAFE_NO_PAD.decode(token).ok()?.try_into().ok()?;
    let ended_at = Timestamp::from_millisecond(ended).ok()?;
    let report = AttemptReport {
        outcome: Outcome::Succeeded,
        token: Uuid::from_bytes(token).simple().to_string(),
        worker: workers.get(worker)?.clone(),
        started_at: Some(
            ended_at
                .checked_sub(SignedDuration::from_millis(ran))
                .ok()?,
        ),
        ended_at,
        exit_code: Some(0),
        output,
        has_log: match log {
            0 => false,
            1 => true,
            _ => return None,
        },
        stderr_tail: None,
        reused_from: None,
    };
    Some(TaskDetail {
        attempt_no: Attempt::new(1),
        report: Some(Box::new(report)),
        ..TaskDetail::nothing(place)
    })
}

/// Rising places as text: `0-31 45`.
pub(super) fn ranges(places: &[TaskIx]) -> String {
    let mut text = String::new();
    let close = |text: &mut String, from: usize, to: usize| {
        let blank = if text.is_empty() { "" } else { " " };
        text.push_str(blank);
        text.push_str(&from.to_string());
        if to > from {
            text.push('-');
            text.push_str(&to.to_string());
        }
    };
    let mut open: Option<(usize, usize)> = None;
    for at in places.iter().map(|place| place.at()) {
        open = match open {
            Some((from, to)) if at == to + 1 => Some((from, at)),
            Some((from, to)) => {
                close(&mut text, from, to);
                Some((at, at))
            }
            None => Some((at, at)),
        };
    }
    if let Some((from, to)) = open {
        close(&mut text, from, to);
    }
    text
}

/// The places that such a text names, each below `count`; none if it is no such text.
pub(super) fn places(text: &str, count: usize) -> Option<Vec<TaskIx>> {
    let mut found: Vec<TaskIx> = Vec::new();
    for range in text.split(' ') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (from.parse::<u32>().ok()?, to.parse::<u32>().ok()?);
        let follows = found.last().is_none_or(|last| *last < TaskIx::new(from));
        if from > to || TaskIx::new(to).at() >= count || !follows {
            return None;
        }
        found.extend((from..=to).map(TaskIx::new));
    }
    Some(found)
}

/// What is to be understood of a task of which nothing is said.
pub(super) fn untold(place: TaskIx, state: TaskState) -> TaskDetail {
    let attempt = match state {
        TaskState::Ready | TaskState::Dispatched => Attempt::new(1),
        TaskState::Pending
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::UpstreamFailed
        | TaskState::Skipped
        | TaskState::Cancelled => Attempt::NONE,
    };
    TaskDetail {
        attempt_no: attempt,
        ..TaskDetail::nothing(place)
    }
}
