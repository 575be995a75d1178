//! How an attempt ended, as posted: output and log first, then the completion, then nothing is held any more.
//!
//! Invariants:
//! 1. No attempt is reported as succeeded before its output is stored.
//! 2. A completion always fits into a message.

use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::capture::{STDERR_TAIL_BYTES, safe_text};
use super::heartbeat::Keeper;
use super::key::Slot;
use super::persist::Persisted;
use super::{Delivery, End, Execution, OUTPUT_BYTES_MAX, Worker, Written};
use crate::engine::{AttemptReport, Failure, FailureKind, Origin, Outcome, Output};
use crate::env::Timestamp;
use crate::record::{CompletionResult, KeyRecord, Token};
use crate::store::{BlobPath, Expect, Kind, MESSAGE_BYTES_MAX, StoreError};

/// The largest output that rides in its completion.
const OUTPUT_INLINE_MAX: usize = 4 * 1024;
/// The longest reason of a failure.
const REASON_BYTES_MAX: usize = 1024;

// Escapes at most double what is safe text or JSON, a broken byte becomes three; names and times stay below 2 KiB; base64 adds a third.
const _: () = assert!(
    (2 * OUTPUT_INLINE_MAX + 2 * 3 * STDERR_TAIL_BYTES + 2 * REASON_BYTES_MAX + 4096) * 4 / 3
        < MESSAGE_BYTES_MAX
);

/// How an attempt ended, not posted yet.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) started_at: Option<Timestamp>,
    pub(super) exit_code: Option<i32>,
    output: Option<Bytes>,
    log: Bytes,
    stderr_tail: Option<String>,
    /// Where its success is kept for others with the same key.
    pub(super) slot: Option<Slot>,
    reused_from: Option<Origin>,
}

impl Ended {
    /// An attempt of which nothing ran.
    pub(super) const fn without_run(outcome: Outcome) -> Self {
        Self {
            outcome,
            started_at: None,
            exit_code: None,
            output: None,
            log: Bytes::new(),
            stderr_tail: None,
            slot: None,
            reused_from: None,
        }
    }

    /// An attempt that ends with the success of another.
    pub(super) fn reused(of: KeyRecord, output: Option<Bytes>) -> Self {
        Self {
            exit_code: of.exit_code,
            output,
            reused_from: Some(Origin {
                workflow_id: of.workflow_id,
                task: of.task,
                attempt_no: of.attempt_no,
            }),
            ..Self::without_run(Outcome::Succeeded)
        }
    }

    /// An execution that a cancel or the like ended.
    pub(super) fn overruled(execution: Execution, outcome: Outcome) -> Self {
        Self {
            started_at: execution.started_at,
            log: execution.log,
            ..Self::without_run(outcome)
        }
    }

    /// An execution that ended by itself, or by its time limit.
    pub(super) fn of(execution: Execution, time_limit: Option<Duration>) -> Self {
        let judged = judge(&execution, time_limit);
        let exit_code = match execution.end {
            End::Exited(code) => Some(code),
            _ => None,
        };
        let stderr_tail = Some(safe_text(&execution.stderr_tail));
        let ended = Self {
            exit_code,
            ..Self::overruled(execution, Outcome::Succeeded)
        };
        match judged {
            Ok(output) => Self { output, ..ended },
            Err(failure) => Self {
                outcome: Outcome::Failed(failure),
                stderr_tail: stderr_tail.filter(|tail| !tail.is_empty()),
                ..ended
            },
        }
    }
}

/// A failure, its reason cut to what a message carries.
pub(super) fn failure(kind: FailureKind, reason: &str) -> Failure {
    Failure {
        kind,
        message: safe_text(&reason.as_bytes()[..reason.len().min(REASON_BYTES_MAX)]),
        is_final: false,
    }
}

/// The output of a job that ended well, or why it did not.
fn judge(execution: &Execution, time_limit: Option<Duration>) -> Result<Option<Bytes>, Failure> {
    let fail = |kind, reason: String| Err(failure(kind, &reason));
    match &execution.end {
        End::Exited(0) => {}
        End::Exited(code) => return fail(FailureKind::Exit, format!("exit code {code}")),
        End::Signalled(signal) => {
            return fail(FailureKind::Signal, format!("ended by signal {signal}"));
        }
        End::TimedOut => {
            let secs = time_limit.unwrap_or_default().as_secs_f64();
            return fail(FailureKind::Timeout, format!("timed out after {secs} s"));
        }
        End::Stopped => return fail(FailureKind::Signal, "stopped by its worker".to_owned()),
        End::Refused(why) | End::NoRoom(why) => return fail(FailureKind::Spawn, why.clone()),
    }
    match &execution.written {
        Written::Nothing => Ok(None),
        Written::TooLarge(bytes) => fail(
            FailureKind::Output,
            format!("its output has {bytes} bytes, above the limit of {OUTPUT_BYTES_MAX}"),
        ),
        Written::Unreadable(why) => fail(
            FailureKind::Output,
            format!("its output cannot be read: {why}"),
        ),
        Written::Bytes(bytes) => match serde_json::from_slice::<&RawValue>(bytes) {
            Ok(json) => Ok(Some(bytes.slice_ref(json.get().as_bytes()))),
            Err(error) => fail(
                FailureKind::Output,
                format!("its output is not JSON: {error}"),
            ),
        },
    }
}

/// A report tells times to the millisecond, which is what the state has room for.
fn whole_ms(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

impl Worker {
    /// Stores what the attempt left and posts how it ended; `ended` says afterwards what was posted.
    pub(super) async fn report(
        &self,
        keeper: &Keeper<'_>,
        delivery: &Delivery,
        token: Token,
        ended: &mut Ended,
    ) -> Persisted {
        let task = &delivery.task;
        let (id, run, attempt) = (&task.workflow_id, task.run_id, task.attempt_no);
        let named = token.to_string();
        let paths = self.layout.execution(id, run, &task.task, attempt, &named);
        let mut has_log = !ended.log.is_empty();
        if has_log {
            match self.upload(keeper, "log", &paths.log(), &ended.log).await {
                Persisted::Stored => {}
                Persisted::Refused(error) => {
                    has_log = false;
                    if ended.outcome == Outcome::Succeeded {
                        ended.outcome = not_stored("log", &error);
                    }
                }
                other => return other,
            }
        }
        let mut output = None;
        if let (Outcome::Succeeded, Some(json)) = (&ended.outcome, &ended.output) {
            if json.len() <= OUTPUT_INLINE_MAX {
                let json = serde_json::from_slice(json).expect("judged to be JSON");
                output = Some(Output::Inline(json));
            } else {
                match self.upload(keeper, "output", &paths.output(), json).await {
                    Persisted::Stored => {
                        let bytes = u64::try_from(json.len()).unwrap_or(u64::MAX);
                        output = Some(Output::Blob(bytes));
                    }
                    Persisted::Refused(error) => ended.outcome = not_stored("output", &error),
                    other => return other,
                }
            }
        }
        let report = AttemptReport {
            outcome: ended.outcome.clone(),
            token: named,
            worker: self.config.name.to_string(),
            started_at: ended.started_at.map(whole_ms),
            ended_at: whole_ms(self.env.wall()),
            exit_code: ended.exit_code,
            output,
            has_log,
            stderr_tail: ended.stderr_tail.take(),
            reused_from: ended.reused_from.take(),
        };
        if let (Outcome::Succeeded, Some(slot)) = (&report.outcome, &ended.slot) {
            self.keep_success(delivery, slot, token, &report).await;
        }
        let result = CompletionResult {
            workflow_id: id.clone(),
            run_id: run,
            generation: task.generation,
            task: task.task.clone(),
            attempt_no: attempt,
            report,
        };
        let post = || self.poster.post(result.clone(), &keeper.lost);
        self.persist(keeper, "completion", post).await
    }

    async fn upload(
        &self,
        keeper: &Keeper<'_>,
        what: &'static str,
        path: &BlobPath,
        body: &Bytes,
    ) -> Persisted {
        let upload = || self.put(path, body);
        self.persist(keeper, what, upload).await
    }

    async fn put(&self, path: &BlobPath, body: &Bytes) -> Result<(), StoreError> {
        match self.put_once(path, body).await {
            Err(error) if error.kind == Kind::NoResource => {
                self.store.blobs.create_container(path.container()).await?;
                self.put_once(path, body).await
            }
            other => other,
        }
    }

    async fn put_once(&self, path: &BlobPath, body: &Bytes) -> Result<(), StoreError> {
        let put = self
            .store
            .blobs
            .put(path, body.clone(), &Expect::Absent, None);
        match put.await {
            Ok(_) => Ok(()),
            // Nobody else writes to a path with this token: an earlier try has arrived.
            Err(error) if error.kind == Kind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn not_stored(what: &str, error: &StoreError) -> Outcome {
    let reason = format!("its {what} could not be stored: {error}");
    Outcome::Failed(failure(FailureKind::Upload, &reason))
}
