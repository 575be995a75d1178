//! The message of a task: its spec, with the inputs that were fixed when it became ready. What is too large for a message goes by a
//! blob that the message names.

use std::time::Duration;

use bytes::Bytes;

use super::book::Book;
use super::context::Context;
use crate::definition::QueueName;
use crate::engine::{Attempt, Outcome, Output, TaskIx};
use crate::protocol::send;
use crate::record::{
    Input, InputOutput, Inputs, Record, TaskBody, TaskMessage, TaskSpec, encode, encode_message,
};
use crate::store::{Expect, Kind, MESSAGE_BYTES_MAX, StoreError};

/// Most bytes of parents' outputs that a message carries; more go into a blob.
const INPUT_BYTES_IN_MESSAGE_MAX: usize = 32 * 1024;

/// A task about to be sent.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) task: TaskIx,
    pub(super) attempt: Attempt,
    pub(super) queue: QueueName,
    pub(super) again: bool,
}

/// Sends the message of a task.
pub(super) async fn send_one(
    ctx: &Context,
    book: &Book,
    chosen: &Chosen,
) -> Result<(), StoreError> {
    let queue = ctx.layout.task_queue(&chosen.queue);
    let Some(_place) = ctx.may_send(&chosen.queue).await else {
        // It stays ready: the next leader sends it.
        let what = format!("send to {queue}");
        return Err(StoreError::new(Kind::Unavailable, what, "told to stop"));
    };
    let spec = spec(ctx, book, chosen.task);
    let carried: usize = spec.inputs.values().map(carried_bytes).sum();
    let inline = message(ctx, book, chosen, TaskBody::Inline(spec));
    let text = encode_message(&inline);
    if carried <= INPUT_BYTES_IN_MESSAGE_MAX && text.len() <= MESSAGE_BYTES_MAX {
        return send(&ctx.store, &queue, &text, Duration::ZERO).await;
    }
    let TaskBody::Inline(spec) = inline.body else {
        unreachable!("made inline above")
    };
    let token = ctx.env.uuid().simple().to_string();
    let name = book.runtime.graph().name(chosen.task);
    let definition = &book.definition;
    let execution = ctx.layout.execution(
        &definition.workflow_id,
        definition.run_id,
        name,
        chosen.attempt,
        &token,
    );
    let path = execution.spec();
    ctx.store
        .blobs
        .put(&path, Bytes::from(encode(&spec)), &Expect::Absent, None)
        .await?;
    let message = message(ctx, book, chosen, TaskBody::Blob(path.name().to_owned()));
    send(
        &ctx.store,
        &queue,
        &encode_message(&message),
        Duration::ZERO,
    )
    .await
}

fn message(ctx: &Context, book: &Book, chosen: &Chosen, body: TaskBody) -> TaskMessage {
    TaskMessage {
        schema: TaskMessage::SCHEMA,
        workflow_id: book.definition.workflow_id.clone(),
        run_id: book.definition.run_id,
        generation: book.runtime.generation(),
        epoch: ctx.epoch(),
        task: book.runtime.graph().name(chosen.task).clone(),
        attempt_no: chosen.attempt,
        again: chosen.again,
        survives_stop: book.runtime.graph().survives_stop(chosen.task),
        body,
    }
}

fn spec(ctx: &Context, book: &Book, task: TaskIx) -> TaskSpec {
    let definition = book.what();
    let what = &definition.tasks[task.at()];
    let mut env = definition.env.clone();
    env.extend(
        what.env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    TaskSpec {
        schema: TaskSpec::SCHEMA,
        cmd: what.cmd.clone(),
        env,
        cwd: what.cwd.clone(),
        timeout_s: what.timeout_s,
        idempotency_key: what.idempotency_key.clone(),
        inputs: inputs(ctx, book, task),
    }
}

/// How the dependencies stood when the task was made ready.
fn inputs(ctx: &Context, book: &Book, task: TaskIx) -> Inputs {
    let runtime = &book.runtime;
    let parents = runtime
        .task(task)
        .inputs
        .as_deref()
        .unwrap_or_else(|| runtime.graph().parents(task));
    let parents = parents
        .iter()
        .filter(|parent| !runtime.graph().is_merge(**parent));
    let input = |parent: &TaskIx| {
        let name = runtime.graph().name(*parent);
        let run = runtime.task(*parent);
        let succeeded = run
            .report
            .as_ref()
            .filter(|report| report.outcome == Outcome::Succeeded);
        let output =
            succeeded.and_then(|report| report.output.as_ref().map(|output| (report, output)));
        let output = output.map(|(report, output)| match output {
            Output::Inline(json) => InputOutput::Inline(json.clone()),
            Output::Blob(_) => {
                let definition = &book.definition;
                let (id, run_id) = (&definition.workflow_id, definition.run_id);
                let execution = ctx
                    .layout
                    .execution(id, run_id, name, run.attempt, &report.token);
                InputOutput::Blob(execution.output().name().to_owned())
            }
        });
        (
            name.clone(),
            Input {
                state: run.state,
                output,
            },
        )
    };
    parents.map(input).collect()
}

fn carried_bytes(input: &Input) -> usize {
    match &input.output {
        Some(InputOutput::Inline(json)) => json.get().len(),
        Some(InputOutput::Blob(_)) | None => 0,
    }
}
