//! Idempotency keys: a success stored under a key stands for a run of every task with that key on that queue.
//!
//! Best effort, and only until its workflow is removed: two tasks that run at the same time do not see each other.
//!
//! Invariants:
//! 1. Whatever goes wrong with a key fails no attempt: at worst the command runs.
//! 2. The first success stays; only what cannot be used any more is replaced.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tracing::{debug, info, warn};

use super::handle::Way;
use super::heartbeat::Keeper;
use super::report::Ended;
use super::{Delivery, Job, OUTPUT_BYTES_MAX, Worker};
use crate::engine::{AttemptReport, Output};
use crate::protocol::{ReadError, understand};
use crate::record::{DecodeError, KeyRecord, Token, encode};
use crate::store::{BlobPath, Expect, Kind, Result as StoreResult};

/// How often a request about a key is tried.
const TRIES: u32 = 3;
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Where a success is to be stored, and what is there now.
#[derive(Debug)]
pub(super) struct Slot {
    path: BlobPath,
    expect: Expect,
}

/// What is stored under a key.
#[derive(Debug)]
enum Found {
    Success(Box<Ended>),
    Nothing(Expect),
}

impl Worker {
    /// Ends the attempt with what is stored under the key of its task. Where nothing is, it has to run, and its own success is to be
    /// stored in the slot.
    pub(super) async fn reuse(
        &self,
        keeper: &Keeper<'_>,
        delivery: &Delivery,
        job: &Job,
    ) -> ControlFlow<Way, Option<Slot>> {
        let Some(key) = &job.idempotency_key else {
            return ControlFlow::Continue(None);
        };
        let path = self.layout.key(&delivery.queue_name, key);
        let found = tokio::select! {
            biased;
            () = keeper.lost.cancelled() => return ControlFlow::Break(Way::Left),
            () = self.stop.drain.cancelled() => return ControlFlow::Break(Way::GivenBack(Duration::ZERO)),
            found = self.a_few_times(|| self.find(&path)) => found,
        };
        match found {
            Ok(Found::Success(ended)) => {
                keeper.command_ended();
                info!(workflow_id = %job.workflow_id, task = %job.task, attempt_no = %job.attempt, key, "result_reused");
                ControlFlow::Break(self.end(keeper, delivery, job.token, *ended).await)
            }
            Ok(Found::Nothing(expect)) => ControlFlow::Continue(Some(Slot { path, expect })),
            Err(error) => {
                warn!(workflow_id = %job.workflow_id, task = %job.task, %path, %error, "key_not_read");
                let expect = Expect::Absent;
                ControlFlow::Continue(Some(Slot { path, expect }))
            }
        }
    }

    async fn find(&self, path: &BlobPath) -> StoreResult<Found> {
        let blob = match self.store.blobs.get(path).await {
            Ok(Some(blob)) => blob,
            Ok(None) => return Ok(Found::Nothing(Expect::Absent)),
            Err(error) if error.kind == Kind::NoResource => {
                return Ok(Found::Nothing(Expect::Absent));
            }
            Err(error) => return Err(error),
        };
        let record: KeyRecord = match understand(path, &blob) {
            Ok(record) => record,
            Err(error) => {
                warn!(%error, "key_not_understood");
                // What a newer version wrote is not ours to replace.
                let newer = matches!(
                    &error,
                    ReadError::Decode {
                        source: DecodeError::Newer { .. },
                        ..
                    }
                );
                return Ok(Found::Nothing(if newer {
                    Expect::Absent
                } else {
                    Expect::Version(blob.etag)
                }));
            }
        };
        let output = match &record.output {
            None => None,
            Some(Output::Inline(json)) => Some(Bytes::copy_from_slice(json.get().as_bytes())),
            Some(Output::Blob(bytes)) => {
                let json = self.large_output(&record, *bytes).await?;
                if json.is_none() {
                    warn!(%path, "output_of_key_is_gone");
                    return Ok(Found::Nothing(Expect::Version(blob.etag)));
                }
                json
            }
        };
        Ok(Found::Success(Box::new(Ended::reused(record, output))))
    }

    /// The large output of a stored success; none if it is not what it was.
    async fn large_output(&self, of: &KeyRecord, bytes: u64) -> StoreResult<Option<Bytes>> {
        if bytes > OUTPUT_BYTES_MAX {
            return Ok(None);
        }
        let token = of.token.to_string();
        let (id, run, attempt) = (&of.workflow_id, of.run_id, of.attempt_no);
        let paths = self.layout.execution(id, run, &of.task, attempt, &token);
        let blob = self.store.blobs.get(&paths.output()).await?;
        Ok(blob.map(|blob| blob.body).filter(|body| {
            let is_whole = u64::try_from(body.len()) == Ok(bytes);
            is_whole && serde_json::from_slice::<&RawValue>(body).is_ok()
        }))
    }

    /// Stores a success under the key of its task, before it is told.
    pub(super) async fn keep_success(
        &self,
        delivery: &Delivery,
        slot: &Slot,
        token: Token,
        report: &AttemptReport,
    ) {
        let task = &delivery.task;
        let record = KeyRecord {
            schema: 1,
            workflow_id: task.workflow_id.clone(),
            run_id: task.run_id,
            task: task.task.clone(),
            attempt_no: task.attempt_no,
            token,
            exit_code: report.exit_code,
            output: report.output.clone(),
        };
        let body = Bytes::from(encode(&record));
        let Slot { path, expect } = slot;
        let put = || self.store.blobs.put(path, body.clone(), expect, None);
        match self.a_few_times(put).await {
            Ok(_) => {}
            // An earlier try has arrived, or another success came first, which is as good.
            Err(error) if error.kind == Kind::Conflict => debug!(%path, "key_was_stored"),
            Err(error) => {
                warn!(workflow_id = %task.workflow_id, task = %task.task, %path, %error, "key_not_stored");
            }
        }
    }

    /// Tries a request that may be repeated.
    async fn a_few_times<T, F>(&self, request: impl Fn() -> F) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let mut tried = 1;
        loop {
            match request().await {
                Err(error)
                    if tried < TRIES
                        && (error.is_transient() || error.kind == Kind::Ambiguous)
                        && !self.stop.kill.is_cancelled() =>
                {
                    tried += 1;
                    self.env.sleep(PAUSE).await;
                }
                result => return result,
            }
        }
    }
}
