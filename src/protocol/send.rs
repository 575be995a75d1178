//! Sending to a queue that may be missing.

use std::time::Duration;

use tracing::warn;

use crate::store::{Kind, Queue, Result, Store};

/// Sends `body`; a missing queue is made, with a warning, and the message sent again.
///
/// # Errors
/// As [`crate::store::Queues::send`]; [`Kind::Ambiguous`] means that the message may be there.
pub async fn send(store: &Store, queue: &Queue, body: &str, delay: Duration) -> Result<()> {
    match store.queues.send(queue, body, delay).await {
        Err(error) if error.kind == Kind::NoResource => {
            warn!(%queue, "queue_was_missing");
            store.queues.create_queue(queue).await?;
            store.queues.send(queue, body, delay).await
        }
        other => other,
    }
}
