//! Sending a message to a queue that may have been deleted meanwhile.

use std::time::Duration;

use crate::store::{Kind, Queue, Result, Store};

/// Sends `body`; a missing queue is made first, with a warning.
///
/// # Errors
/// As [`crate::store::Queues::send`], but for a missing queue.
pub async fn send(store: &Store, queue: &Queue, body: &str, delay: Duration) -> Result<()> {
    match store.queues.send(queue, body, delay).await {
        Err(error) if error.kind == Kind::NoResource => {
            tracing::warn!(queue = %queue, "queue_was_missing");
            store.queues.create_queue(queue).await?;
            store.queues.send(queue, body, delay).await
        }
        other => other,
    }
}
