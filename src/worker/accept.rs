//! Makes a delivery out of a received message, or puts aside what is none (P23).

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::{debug, warn};

use super::handle::give_back_delay;
use super::pull::Source;
use super::{Delivery, Worker};
use crate::env::Mono;
use crate::protocol::keep_poison;
use crate::record::{DecodeError, decode_message};
use crate::store::Message;

/// Messages put aside so far.
#[derive(Debug, Default)]
pub(super) struct Undecodable(AtomicU64);

impl Worker {
    /// The delivery that `message` is; none if it was put aside.
    pub(super) async fn accept(
        &self,
        source: &Source,
        message: Message,
        received_at: Mono,
    ) -> Option<Delivery> {
        let queue = &source.queue;
        match decode_message(&message.body) {
            Ok(task) => Some(Delivery {
                queue_name: source.name.clone(),
                queue: queue.clone(),
                message,
                task,
                received_at,
            }),
            Err(error @ DecodeError::Newer { .. }) => {
                let delay = give_back_delay(message.deliveries);
                warn!(%queue, message_id = message.receipt.message_id, %error, ?delay, "message_of_newer_version");
                self.tidy("message_not_given_back", || async {
                    let shown = self.store.queues.extend(queue, &message.receipt, delay);
                    shown.await.map(drop)
                })
                .await;
                self.count(|summary| summary.given_back += 1);
                None
            }
            Err(error @ DecodeError::Nonsense { .. }) => {
                let before = self.undecodable.0.fetch_add(1, Ordering::SeqCst);
                let id = &message.receipt.message_id;
                if before == 0 {
                    warn!(%queue, message_id = id, %error, "message_not_understood_moved_to_poison_queue");
                } else {
                    debug!(%queue, message_id = id, %error, "message_not_understood");
                }
                self.move_to_poison(source, &message).await;
                None
            }
        }
    }

    async fn move_to_poison(&self, source: &Source, message: &Message) {
        let poison = self.layout.task_poison(&source.name);
        let kept = keep_poison(&self.store, &poison, &message.body).await;
        let queue = &source.queue;
        match kept {
            Ok(()) => {
                self.count(|summary| summary.poison += 1);
                self.tidy("message_not_deleted", || {
                    self.store.queues.delete(queue, &message.receipt)
                })
                .await;
            }
            // It comes back by itself and is moved then.
            Err(error) => warn!(%queue, %poison, %error, "poison_not_moved"),
        }
    }
}
