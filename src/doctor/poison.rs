//! Messages that nobody could handle; completions among them that can be handled by now are sent again.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Check, Patient};
use crate::definition::QueueName;
use crate::protocol::{ReadError, read_runtime, send};
use crate::record::{CompletionRecord, decode_message};
use crate::store::{Kind, Queue, RECEIVE_MAX, Result};

/// Characters of a message that are shown.
const SHOWN_CHARS: usize = 60;
/// How long a kept message is hidden while it is looked at.
const HIDDEN: Duration = Duration::from_secs(60);

/// One check for the completion queue and one for each task queue that holds poison.
pub(super) async fn checks(patient: &Patient, queues: &BTreeSet<QueueName>) -> Vec<Check> {
    let layout = &patient.layout;
    let mut checks = vec![check(patient, "poison completions", layout.completions_poison()).await];
    for queue in queues {
        let poison = layout.task_poison(queue);
        checks.push(
            check(
                patient,
                &format!("poison tasks of queue `{queue}`"),
                &poison,
            )
            .await,
        );
    }
    checks
}

async fn check(patient: &Patient, name: &str, queue: &Queue) -> Check {
    let depth = match patient.store.queues.depth(queue).await {
        Ok(depth) => depth,
        // A task queue's poison queue is made by its first poison.
        Err(error) if error.kind == Kind::NoResource => 0,
        Err(error) => return Check::refused(name, &error),
    };
    if depth == 0 {
        return Check::ok(name, "none");
    }
    let first = match patient.store.queues.peek(queue, 1).await {
        Ok(texts) => texts.into_iter().next(),
        Err(error) => return Check::refused(name, &error),
    };
    let first = first.map_or_else(String::new, |text| {
        let shown: String = text.chars().take(SHOWN_CHARS).collect();
        format!(", the first begins with `{shown}`")
    });
    Check::problem(
        name,
        format!("{depth} in `{}`{first}", queue.as_str()),
        "find out who sends them, then clear the queue; completions of a workflow that was mended are sent again by `workflow doctor --fix`",
    )
}

/// Sends kept completions again whose workflows can be read by now; one pass over what is there.
pub(super) async fn send_again(patient: &Patient) -> Check {
    const NAME: &str = "kept completions";
    match pass(patient).await {
        Ok(0) => Check::ok(NAME, "none that can be handled by now"),
        Ok(sent) => Check::ok(NAME, format!("{sent} sent again")),
        Err(error) => Check::refused(NAME, &error),
    }
}

async fn pass(patient: &Patient) -> Result<u64> {
    let (queues, layout) = (&patient.store.queues, &patient.layout);
    let poison = layout.completions_poison();
    let mut left = queues.depth(poison).await?;
    let (mut sent, mut kept) = (0, Vec::new());
    while left > 0 {
        let messages = queues.receive(poison, RECEIVE_MAX, HIDDEN).await?;
        if messages.is_empty() {
            break;
        }
        for message in messages {
            left = left.saturating_sub(1);
            if is_readable(patient, &message.body).await? {
                // A crash between the two leaves two copies; the second is old news.
                send(
                    &patient.store,
                    layout.completions(),
                    &message.body,
                    Duration::ZERO,
                )
                .await?;
                queues.delete(poison, &message.receipt).await?;
                sent += 1;
            } else {
                kept.push(message.receipt);
            }
        }
    }
    for receipt in kept {
        // At the end, so that none is met twice. Who comes too late finds it visible already.
        match queues.extend(poison, &receipt, Duration::ZERO).await {
            Err(error) if error.kind != Kind::Gone => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(sent)
}

/// Whether `body` is a completion of workflows that can be read, in this life of their ids.
async fn is_readable(patient: &Patient, body: &str) -> Result<bool> {
    let Ok(record) = decode_message::<CompletionRecord>(body) else {
        return Ok(false);
    };
    for result in &record.results {
        match read_runtime(&patient.store, &patient.layout, &result.workflow_id).await {
            Ok(Some(found)) if found.record.run_id == result.run_id => {}
            Ok(_) | Err(ReadError::Decode { .. }) => return Ok(false),
            Err(ReadError::Store(error)) => return Err(error),
        }
    }
    Ok(!record.results.is_empty())
}
