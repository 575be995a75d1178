//! What a job needs before it can start: its spec, wherever that is written, and what its dependencies wrote.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Job, Worker};
use crate::definition::TaskName;
use crate::engine::{Failure, FailureKind, TaskState};
use crate::protocol::{ReadError, read_blob};
use crate::record::{DecodeError, Input, InputOutput, TaskBody, TaskMessage, TaskSpec, Token};

/// Outputs of dependencies read at once.
const READS_AT_ONCE: usize = 8;
/// The most that the inputs of one task may hold.
const INPUTS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Why a job could not be put together.
#[derive(Debug)]
pub(super) enum NotLoaded {
    /// Something could not be read now.
    Later(ReadError),
    /// Something is not there, or not what it should be, and never will be.
    Never(Failure),
}

fn never(message: impl Into<String>) -> NotLoaded {
    NotLoaded::Never(Failure {
        kind: FailureKind::Spawn,
        message: message.into(),
        is_final: false,
    })
}

impl From<ReadError> for NotLoaded {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::Decode {
                source: DecodeError::Nonsense { .. },
                ..
            } => never(format!("what it is to run cannot be read: {error}")),
            _ => Self::Later(error),
        }
    }
}

#[derive(Debug, Serialize)]
struct Shown {
    state: TaskState,
    output: Option<Box<RawValue>>,
}

impl Worker {
    /// The job that a message asks for.
    pub(super) async fn load(&self, task: &TaskMessage, token: Token) -> Result<Job, NotLoaded> {
        let spec = match &task.body {
            TaskBody::Inline(spec) => spec.clone(),
            TaskBody::Blob(name) => self.spilled(name).await?,
        };
        let inputs = self.inputs(&spec.inputs).await?;
        let limit = spec.timeout_s;
        Ok(Job {
            workflow_id: task.workflow_id.clone(),
            task: task.task.clone(),
            attempt: task.attempt_no,
            token,
            command: spec.cmd,
            env: spec.env,
            cwd: spec.cwd,
            // A limit beyond what a duration holds is none.
            time_limit: limit.and_then(|secs| Duration::try_from_secs_f64(secs).ok()),
            grace: self.config.kill_grace,
            inputs,
            idempotency_key: spec.idempotency_key,
        })
    }

    async fn spilled(&self, name: &str) -> Result<TaskSpec, NotLoaded> {
        let path = self.layout.output_named(name);
        let path =
            path.map_err(|error| never(format!("what it is to run has no place: {error}")))?;
        let stored = read_blob(&self.store, &path).await?;
        let stored =
            stored.ok_or_else(|| never(format!("what it is to run is gone: blob `{path}`")))?;
        Ok(stored.record)
    }

    /// The file of inputs: `{"PARENT": {"state": …, "output": JSON or null}}`.
    async fn inputs(&self, inputs: &BTreeMap<TaskName, Input>) -> Result<Bytes, NotLoaded> {
        // Boxed: the compiler cannot show that a closure's own future may cross threads.
        let reads: Vec<_> = inputs
            .iter()
            .map(|(parent, input)| self.shown(parent, input).boxed())
            .collect();
        let shown: BTreeMap<&TaskName, Shown> = stream::iter(reads)
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await?;
        let json = serde_json::to_vec(&shown).expect("texts and JSON that was read as such");
        if json.len() > INPUTS_BYTES_MAX {
            return Err(never(format!(
                "the outputs of its dependencies are {} bytes, above the limit of {INPUTS_BYTES_MAX}",
                json.len()
            )));
        }
        Ok(Bytes::from(json))
    }

    async fn shown<'a>(
        &self,
        parent: &'a TaskName,
        input: &Input,
    ) -> Result<(&'a TaskName, Shown), NotLoaded> {
        let output = match &input.output {
            None => None,
            Some(InputOutput::Inline(json)) => Some(json.clone()),
            Some(InputOutput::Blob(name)) => Some(self.output_of(parent, name).await?),
        };
        let state = input.state;
        Ok((parent, Shown { state, output }))
    }

    async fn output_of(&self, parent: &TaskName, name: &str) -> Result<Box<RawValue>, NotLoaded> {
        let path = self.layout.output_named(name);
        let path = path.map_err(|error| never(format!("output of `{parent}`: {error}")))?;
        let blob = self.store.blobs.get(&path).await.map_err(ReadError::from)?;
        let blob =
            blob.ok_or_else(|| never(format!("the output of `{parent}` is gone: blob `{path}`")))?;
        serde_json::from_slice(&blob.body)
            .map_err(|error| never(format!("the output of `{parent}` is damaged: {error}")))
    }
}
