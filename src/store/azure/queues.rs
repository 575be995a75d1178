//! Queues and their messages.
//!
//! Invariants:
//! 1. What is rewritten is rewritten before the request is signed ([`Mend`]): the queue crate cannot say "never expires", sends the text anew with
//!    every heartbeat, and writes letters as they are, some of which do not survive ([`escaped`]).
//! 2. A text that would not come back as it was is refused before it is sent: the crate drops white space at the ends when it reads, and the
//!    emulator takes control characters that make every later read of the queue fail.
//! 3. Times are rounded up to seconds: no message becomes visible early.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::headers::CONTENT_LENGTH;
use azure_core::{Body, ClientOptions, Context, Method, Policy, Request, Response};
use azure_storage_queues::{PopReceipt, PopReceiptClient, QueueClient, QueueServiceClient};

use super::call::{Call, Caller};
use super::timestamp;
use crate::store::{
    Kind, MESSAGE_BYTES_MAX, Message, Queue, Queues, RECEIVE_MAX, Receipt, Result, StoreError,
    VISIBILITY_MAX,
};

/// Stands for "never" until [`Mend`] writes what the service understands.
const FOR_EVER: Duration = Duration::from_secs(u64::MAX);

/// `options` with [`Mend`] in the pipeline.
pub(super) fn mended(mut options: ClientOptions) -> ClientOptions {
    options.per_call_policies_mut().push(Arc::new(Mend));
    options
}

/// Rewrites requests before they are signed: messages live for ever, texts are plain ASCII, heartbeats have no body.
#[derive(Debug)]
struct Mend;

#[async_trait]
impl Policy for Mend {
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> azure_core::Result<Response> {
        let for_ever = format!("messagettl={}", FOR_EVER.as_secs());
        if let Some(query) = request.url().query()
            && query.contains(&for_ever)
        {
            let query = query.replace(&for_ever, "messagettl=-1");
            request.url_mut().set_query(Some(&query));
        }
        if *request.method() == Method::Post
            && let Body::Bytes(body) = request.body()
            && let Ok(text) = std::str::from_utf8(body)
        {
            let body = escaped(text);
            request.insert_header(CONTENT_LENGTH, body.len().to_string());
            request.set_body(body);
        }
        // The only PUT below `/messages/` is the heartbeat; without a body it keeps the text.
        if *request.method() == Method::Put && request.url().path().contains("/messages/") {
            request.set_body(azure_core::EMPTY_BODY);
            request.insert_header(CONTENT_LENGTH, "0");
        }
        next[0].send(context, request, &next[1..]).await
    }
}

/// XML with a number in place of every carriage return, which a reader of XML may take for a plain line end, and of every letter beyond
/// ASCII, which the emulator breaks when it lies across two pieces of a request.
fn escaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() && c != '\r' {
            plain.push(c);
        } else {
            write!(plain, "&#{};", u32::from(c)).expect("a String takes all text");
        }
    }
    plain
}

/// Queue storage of one account.
#[derive(Debug)]
pub(super) struct AzureQueues {
    client: QueueServiceClient,
    caller: Caller,
}

impl AzureQueues {
    pub(super) const fn new(client: QueueServiceClient, caller: Caller) -> Self {
        Self { client, caller }
    }

    fn queue(&self, queue: &Queue) -> QueueClient {
        self.client.queue_client(queue.as_str())
    }

    fn message(&self, queue: &Queue, receipt: &Receipt) -> PopReceiptClient {
        let receipt = PopReceipt::new(receipt.message_id.clone(), receipt.pop.clone());
        self.queue(queue).pop_receipt_client(receipt)
    }
}

/// Whole seconds, rounded up: a message must not come back early.
fn seconds(call: &Call, least: u64, duration: Duration) -> Result<Duration> {
    let secs = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    let allowed = least..=VISIBILITY_MAX.as_secs();
    if allowed.contains(&secs) {
        return Ok(Duration::from_secs(secs));
    }
    let (least, most) = allowed.into_inner();
    Err(call.refused(
        Kind::Invalid,
        format!("a message is hidden for {least} to {most} s, not {secs}"),
    ))
}

fn batch(call: &Call, max: u8) -> Result<u8> {
    if (1..=RECEIVE_MAX).contains(&max) {
        return Ok(max);
    }
    Err(call.refused(
        Kind::Invalid,
        format!("1 to {RECEIVE_MAX} messages at once, not {max}"),
    ))
}

/// Refuses what would not come back as it was sent, or not at all.
fn check_text(call: &Call, text: &str) -> Result<()> {
    let refuse = |detail: String| Err(call.refused(Kind::Invalid, detail));
    if text.len() > MESSAGE_BYTES_MAX {
        return refuse(format!(
            "a text of {} bytes is above {MESSAGE_BYTES_MAX}",
            text.len()
        ));
    }
    if text.trim() != text {
        return refuse("a text cannot begin or end with white space".to_owned());
    }
    let outside_xml = |c: char| {
        (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    if let Some(c) = text.chars().find(|c| outside_xml(*c)) {
        return refuse(format!("a text cannot hold the character {c:?}"));
    }
    Ok(())
}

fn corrupt(call: &Call) -> StoreError {
    call.refused(Kind::Corrupt, "a number or time out of all bounds")
}

#[async_trait]
impl Queues for AzureQueues {
    async fn create_queue(&self, queue: &Queue) -> Result<()> {
        let call = Call::write(format!("create queue {queue}"), 0);
        let client = self.queue(queue);
        let made = self.caller.run(&call, |context| {
            client.create().context(context).into_future()
        });
        match made.await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == Kind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn send(&self, queue: &Queue, body: &str, delay: Duration) -> Result<()> {
        let call = Call::write(format!("send to queue {queue}"), 0);
        check_text(&call, body)?;
        let builder = self
            .queue(queue)
            .put_message(body)
            .visibility_timeout(seconds(&call, 0, delay)?)
            .ttl(FOR_EVER);
        self.caller
            .run(&call, |context| builder.context(context).into_future())
            .await?;
        Ok(())
    }

    async fn receive(&self, queue: &Queue, max: u8, visibility: Duration) -> Result<Vec<Message>> {
        let call = Call::read(format!("receive from queue {queue}"));
        let builder = self
            .queue(queue)
            .get_messages()
            .number_of_messages(batch(&call, max)?)
            .visibility_timeout(seconds(&call, 1, visibility)?);
        let received = self
            .caller
            .run(&call, |context| builder.context(context).into_future());
        let (received, reply) = received.await?;
        let read_at = call.service_time(&reply)?;
        received
            .messages
            .into_iter()
            .map(|message| {
                Ok(Message {
                    receipt: Receipt {
                        message_id: message.message_id,
                        pop: message.pop_receipt,
                    },
                    body: message.message_text,
                    deliveries: u32::try_from(message.dequeue_count)
                        .ok()
                        .ok_or_else(|| corrupt(&call))?,
                    inserted_at: timestamp(message.insertion_time).ok_or_else(|| corrupt(&call))?,
                    read_at,
                })
            })
            .collect()
    }

    async fn extend(
        &self,
        queue: &Queue,
        receipt: &Receipt,
        visibility: Duration,
    ) -> Result<Receipt> {
        let call = Call::write(format!("extend message of queue {queue}"), 0);
        let builder = self
            .message(queue, receipt)
            .update("", seconds(&call, 0, visibility)?);
        let extended = self
            .caller
            .run(&call, |context| builder.context(context).into_future());
        let (extended, _) = extended.await?;
        Ok(Receipt {
            message_id: receipt.message_id.clone(),
            pop: extended.pop_receipt,
        })
    }

    async fn delete(&self, queue: &Queue, receipt: &Receipt) -> Result<()> {
        let call = Call::write(format!("delete message of queue {queue}"), 0);
        let client = self.message(queue, receipt);
        self.caller
            .run(&call, |context| {
                client.delete().context(context).into_future()
            })
            .await?;
        Ok(())
    }

    async fn depth(&self, queue: &Queue) -> Result<u64> {
        let call = Call::read(format!("count messages of queue {queue}"));
        let client = self.queue(queue);
        let counted = self.caller.run(&call, |context| {
            client.get_metadata().context(context).into_future()
        });
        let (metadata, _) = counted.await?;
        u64::try_from(metadata.approximate_messages_count)
            .ok()
            .ok_or_else(|| corrupt(&call))
    }

    async fn peek(&self, queue: &Queue, max: u8) -> Result<Vec<String>> {
        let call = Call::read(format!("peek at queue {queue}"));
        let builder = self
            .queue(queue)
            .peek_messages()
            .number_of_messages(batch(&call, max)?);
        let peeked = self
            .caller
            .run(&call, |context| builder.context(context).into_future());
        let (peeked, _) = peeked.await?;
        Ok(peeked
            .messages
            .into_iter()
            .map(|message| message.message_text)
            .collect())
    }

    async fn wait(&self, _queue: &Queue, at_most: Duration) {
        self.caller.env.sleep(at_most).await;
    }
}
