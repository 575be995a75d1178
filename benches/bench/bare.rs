//! Counted requests made once more with nothing in between: what the transport and the service need for them alone. A measure, no floor:
//! one kind follows the other.

use std::time::Duration;

use bytes::Bytes;
use dagaz::definition::WorkflowId;
use dagaz::store::layers::Op;
use dagaz::store::{ETag, Expect};
use futures::StreamExt as _;

use super::Place;
use super::figures::{Counts, cpu_of_threads, of};

/// Requests at once.
pub(crate) const AT_ONCE: usize = 8;

/// How long they took, and the processor time of this process, in seconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bare {
    pub(crate) sends: f64,
    /// Receives, deletions and writes.
    pub(crate) rest: f64,
    pub(crate) cpu_of_rest: f64,
}

/// Carries out requests, a few at once; none may fail.
pub(crate) async fn all<T>(
    requests: impl Iterator<Item = impl Future<Output = dagaz::store::Result<T>>>,
) {
    let mut replies = futures::stream::iter(requests).buffer_unordered(AT_ONCE);
    while let Some(reply) = replies.next().await {
        reply.unwrap();
    }
}

/// The messages and blob writes of `recorded`, at most `depth` messages on the queue at once. Receives that would find nothing are left
/// out, and so are the few requests of other kinds.
pub(crate) async fn bare(place: &Place, recorded: &Counts, depth: u64) -> Bare {
    let (deletes, receives) = (
        of(recorded, Op::QueueDelete),
        of(recorded, Op::QueueReceive),
    );
    let puts = of(recorded, Op::BlobPut);
    let messages = deletes.requests;
    let text = |bytes: u64| "x".repeat(usize::try_from(bytes).unwrap());
    let (queue, queues) = (place.layout.completions(), &place.store.queues);
    let body = text(receives.received / messages);
    let state = Bytes::from(text(puts.sent / puts.requests));
    let path = place.layout.runtime(&WorkflowId::new("bare").unwrap());
    let mut etag: Option<ETag> = None;
    let (mut gone, mut written) = (0, 0);
    let mut took = Bare::default();
    while gone < messages {
        let more = depth.min(messages - gone);
        let began = place.env.mono();
        all((0..more).map(|_| queues.send(queue, &body, Duration::ZERO))).await;
        took.sends += place.env.mono().since(began).as_secs_f64();
        let (began, cpu_before) = (place.env.mono(), cpu_of_threads(|_| true));
        let until = gone + more;
        while gone < until {
            let hidden = Duration::from_secs(60);
            let found = queues.receive(queue, 32, hidden).await.unwrap();
            gone += found.len() as u64;
            let delete = all(found
                .iter()
                .map(|message| queues.delete(queue, &message.receipt)));
            // The writes in proportion, as they ran beside the deletions.
            let put = async {
                while written < puts.requests * gone / messages {
                    let expect = etag.take().map_or(Expect::Absent, Expect::Version);
                    let put = place.store.blobs.put(&path, state.clone(), &expect, None);
                    etag = Some(put.await.unwrap());
                    written += 1;
                }
            };
            futures::future::join(delete, put).await;
        }
        took.rest += place.env.mono().since(began).as_secs_f64();
        took.cpu_of_rest += cpu_of_threads(|_| true) - cpu_before;
    }
    took
}
