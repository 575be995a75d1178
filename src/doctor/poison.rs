//! Messages that nobody could handle.

use std::collections::BTreeSet;

use super::{Check, Patient};
use crate::definition::QueueName;
use crate::store::{Kind, Queue};

/// Characters of a message that are shown.
const SHOWN_CHARS: usize = 60;

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
        "find out who sends them, then clear the queue; nothing else waits for them",
    )
}
