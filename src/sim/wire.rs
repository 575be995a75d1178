//! The way between a process and the service: requests take time, get lost, land late, and go on when their sender has died.
//!
//! Invariants:
//! 1. A request that is on its way belongs to the service: dropping its future recalls nothing.
//! 2. What the caller learns is what a real one would: a write without a reply is [`Kind::Ambiguous`], whatever became of it.
//! 3. The oracle sees each write at the moment it is carried out, with the moment at which it was sent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::channel::oneshot;

use super::faults::{Ends, Fate, Faults, REQUEST_TIMEOUT};
use super::oracle::{Oracle, Sent};
use super::process::Process;
use super::scheduler::Scheduler;
use crate::env::Env;
use crate::store::layers::Op;
use crate::store::{
    Blob, BlobPath, Blobs, Container, Continuation, ETag, Expect, Fields, Kind, LeaseId, Listed,
    Message, Page, Queue, Queues, Receipt, Result, Row, RowKey, Rows, Store, StoreError, Table,
};

/// The service, as all wires reach it.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) scheduler: Scheduler,
    pub(super) service: Process,
    pub(super) store: Store,
    pub(super) faults: Faults,
    pub(super) oracle: Arc<Oracle>,
}

/// The service as one process reaches it.
#[derive(Debug, Clone)]
struct Wire {
    network: Arc<Network>,
    client: Process,
    env: Env,
}

/// The store that `client` is given.
pub(super) fn store(network: &Arc<Network>, client: &Process) -> Store {
    let wire = Arc::new(Wire {
        network: Arc::clone(network),
        client: client.clone(),
        env: client.env(),
    });
    Store {
        blobs: wire.clone(),
        queues: wire.clone(),
        rows: wire,
    }
}

/// What the service needs to carry a request out.
struct Carry {
    store: Store,
    oracle: Arc<Oracle>,
    sent: Sent,
    fate: Fate,
}

fn failed(op: Op, path: &str, kind: Kind, detail: &str) -> StoreError {
    StoreError::new(kind, format!("{op} {path}"), detail)
}

fn no_reply(op: Op, path: &str) -> StoreError {
    let kind = if op.is_read() {
        Kind::Unavailable
    } else {
        Kind::Ambiguous
    };
    failed(op, path, kind, "simulated: no reply")
}

impl Wire {
    async fn call<T, F>(
        &self,
        op: Op,
        path: impl fmt::Display,
        carry_out: impl FnOnce(Carry) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let path = path.to_string();
        let network = &self.network;
        let at = network.scheduler.now();
        let fate = network.faults.draw(self.client.id, op, at);
        let reply = self.deliver(op, path.clone(), fate, at, carry_out);
        let limit = REQUEST_TIMEOUT;
        match fate.ends {
            Ends::Reply(_) => match self.env.timeout(limit, reply).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) | Err(_) => Err(no_reply(op, &path)),
            },
            Ends::NoReply(after) => {
                self.env.sleep(after).await;
                Err(no_reply(op, &path))
            }
            Ends::Unreachable(after) => {
                self.env.sleep(after).await;
                Err(failed(
                    op,
                    &path,
                    Kind::Unavailable,
                    "simulated: not reached",
                ))
            }
            Ends::Throttled(after, retry_after) => {
                self.env.sleep(after).await;
                Err(StoreError {
                    retry_after,
                    ..failed(op, &path, Kind::Throttled, "simulated: slow down")
                })
            }
        }
    }

    /// Puts the request on its way.
    fn deliver<T, F>(
        &self,
        op: Op,
        path: String,
        fate: Fate,
        at: Duration,
        carry_out: impl FnOnce(Carry) -> F + Send + 'static,
    ) -> oneshot::Receiver<Result<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let scheduler = self.network.scheduler.clone();
        let who = Arc::clone(&self.client.name);
        let Some(arrives) = fate.arrives else {
            scheduler
                .trace
                .event(at, &who, &format!("{op} {path}: lost"));
            return told;
        };
        let env = self.network.service.env();
        let carry = Carry {
            store: self.network.store.clone(),
            oracle: Arc::clone(&self.network.oracle),
            sent: Sent {
                at,
                by: self.client.id,
                is_answered: fate.is_answered(),
            },
            fate,
        };
        self.network.service.start("request", async move {
            env.sleep(arrives).await;
            let result = carry_out(carry).await;
            let what = match (&result, fate.ends) {
                (Ok(_), Ends::Reply(_)) => "done".to_owned(),
                (Ok(_), _) => "done, but the sender does not know".to_owned(),
                (Err(error), _) => format!("{:?}", error.kind),
            };
            let now = scheduler.now();
            scheduler
                .trace
                .event(now, &who, &format!("{op} {path}: {what}"));
            if let Ends::Reply(after) = fate.ends {
                env.sleep(after).await;
            }
            // The sender may have given up or died.
            tell.send(result).ok();
        });
        told
    }
}

#[async_trait]
impl Blobs for Wire {
    async fn create_container(&self, container: &Container) -> Result<()> {
        let c = container.clone();
        self.call(Op::ContainerCreate, container, |carry| async move {
            carry.store.blobs.create_container(&c).await
        })
        .await
    }

    async fn get(&self, path: &BlobPath) -> Result<Option<Blob>> {
        let p = path.clone();
        self.call(Op::BlobGet, path, |carry| async move {
            carry.store.blobs.get(&p).await
        })
        .await
    }

    async fn put(
        &self,
        path: &BlobPath,
        body: Bytes,
        expect: &Expect,
        lease: Option<LeaseId>,
    ) -> Result<ETag> {
        let (p, expect) = (path.clone(), expect.clone());
        self.call(Op::BlobPut, path, move |carry| async move {
            let put = carry.store.blobs.put(&p, body.clone(), &expect, lease);
            let etag = put.await?;
            carry.oracle.blob_put(carry.sent, &p, &body);
            Ok(etag)
        })
        .await
    }

    async fn delete(&self, path: &BlobPath, etag: &ETag) -> Result<()> {
        let (p, etag) = (path.clone(), etag.clone());
        self.call(Op::BlobDelete, path, move |carry| async move {
            carry.store.blobs.delete(&p, &etag).await?;
            carry.oracle.blob_deleted(&p);
            Ok(())
        })
        .await
    }

    async fn list(
        &self,
        container: &Container,
        prefix: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Listed>> {
        let (c, prefix, after) = (container.clone(), prefix.to_owned(), after.cloned());
        self.call(Op::BlobList, container, move |carry| async move {
            carry.store.blobs.list(&c, &prefix, after.as_ref()).await
        })
        .await
    }

    async fn acquire_lease(&self, path: &BlobPath, id: LeaseId, secs: u8) -> Result<()> {
        let p = path.clone();
        self.call(Op::LeaseAcquire, path, move |carry| async move {
            carry.store.blobs.acquire_lease(&p, id, secs).await
        })
        .await
    }

    async fn renew_lease(&self, path: &BlobPath, id: LeaseId) -> Result<()> {
        let p = path.clone();
        self.call(Op::LeaseRenew, path, move |carry| async move {
            carry.store.blobs.renew_lease(&p, id).await
        })
        .await
    }

    async fn release_lease(&self, path: &BlobPath, id: LeaseId) -> Result<()> {
        let p = path.clone();
        self.call(Op::LeaseRelease, path, move |carry| async move {
            carry.store.blobs.release_lease(&p, id).await
        })
        .await
    }

    async fn break_lease(&self, path: &BlobPath) -> Result<()> {
        let p = path.clone();
        self.call(Op::LeaseBreak, path, move |carry| async move {
            carry.store.blobs.break_lease(&p).await
        })
        .await
    }
}

#[async_trait]
impl Queues for Wire {
    async fn create_queue(&self, queue: &Queue) -> Result<()> {
        let q = queue.clone();
        self.call(Op::QueueCreate, queue, |carry| async move {
            carry.store.queues.create_queue(&q).await
        })
        .await
    }

    async fn send(&self, queue: &Queue, body: &str, delay: Duration) -> Result<()> {
        let (q, body) = (queue.clone(), body.to_owned());
        self.call(Op::QueueSend, queue, move |carry| async move {
            let mut delay = delay + carry.fate.delayed;
            if carry.oracle.is_request(&q, &body) {
                delay += carry.fate.request_delayed;
            }
            let queues = carry.store.queues;
            if !(carry.fate.vanishes && carry.oracle.is_task_queue(&q)) {
                queues.send(&q, &body, delay).await?;
            }
            carry.oracle.message_sent(carry.sent, &q, &body, delay);
            if let Some(later) = carry.fate.doubled {
                queues.send(&q, &body, later).await?;
            }
            Ok(())
        })
        .await
    }

    async fn receive(&self, queue: &Queue, max: u8, visibility: Duration) -> Result<Vec<Message>> {
        let q = queue.clone();
        self.call(Op::QueueReceive, queue, move |carry| async move {
            let hidden = (visibility / carry.fate.sooner).max(Duration::from_secs(1));
            let messages = carry.store.queues.receive(&q, max, hidden).await?;
            for message in &messages {
                carry.oracle.message_received(carry.sent, &q, message);
            }
            Ok(messages)
        })
        .await
    }

    async fn extend(
        &self,
        queue: &Queue,
        receipt: &Receipt,
        visibility: Duration,
    ) -> Result<Receipt> {
        let (q, receipt) = (queue.clone(), receipt.clone());
        self.call(Op::QueueExtend, queue, move |carry| async move {
            let hidden = visibility / carry.fate.sooner;
            carry.store.queues.extend(&q, &receipt, hidden).await
        })
        .await
    }

    async fn delete(&self, queue: &Queue, receipt: &Receipt) -> Result<()> {
        let (q, receipt) = (queue.clone(), receipt.clone());
        self.call(Op::QueueDelete, queue, move |carry| async move {
            carry.store.queues.delete(&q, &receipt).await?;
            carry.oracle.message_deleted(&q, &receipt);
            Ok(())
        })
        .await
    }

    async fn depth(&self, queue: &Queue) -> Result<u64> {
        let q = queue.clone();
        self.call(Op::QueueDepth, queue, |carry| async move {
            carry.store.queues.depth(&q).await
        })
        .await
    }

    async fn peek(&self, queue: &Queue, max: u8) -> Result<Vec<String>> {
        let q = queue.clone();
        self.call(Op::QueuePeek, queue, move |carry| async move {
            carry.store.queues.peek(&q, max).await
        })
        .await
    }

    /// As with a remote store: nothing tells that a message has come.
    async fn wait(&self, _queue: &Queue, at_most: Duration) {
        self.env.sleep(at_most).await;
    }
}

#[async_trait]
impl Rows for Wire {
    async fn create_table(&self, table: &Table) -> Result<()> {
        let t = table.clone();
        self.call(Op::TableCreate, table, |carry| async move {
            carry.store.rows.create_table(&t).await
        })
        .await
    }

    async fn get(&self, table: &Table, key: &RowKey) -> Result<Option<Row>> {
        let (t, k) = (table.clone(), key.clone());
        self.call(Op::RowGet, format!("{table}/{key}"), |carry| async move {
            carry.store.rows.get(&t, &k).await
        })
        .await
    }

    async fn write(
        &self,
        table: &Table,
        key: &RowKey,
        fields: &Fields,
        expect: &Expect,
    ) -> Result<ETag> {
        let (t, k) = (table.clone(), key.clone());
        let (fields, expect) = (fields.clone(), expect.clone());
        let path = format!("{table}/{key}");
        self.call(Op::RowWrite, path, move |carry| async move {
            let etag = carry.store.rows.write(&t, &k, &fields, &expect).await?;
            let row = carry.store.rows.get(&t, &k).await?;
            carry.oracle.row_written(carry.sent, &t, row);
            Ok(etag)
        })
        .await
    }

    async fn delete(&self, table: &Table, key: &RowKey, etag: &ETag) -> Result<()> {
        let (t, k, etag) = (table.clone(), key.clone(), etag.clone());
        let path = format!("{table}/{key}");
        self.call(Op::RowDelete, path, move |carry| async move {
            carry.store.rows.delete(&t, &k, &etag).await?;
            carry.oracle.row_deleted(&t, &k);
            Ok(())
        })
        .await
    }

    async fn query(
        &self,
        table: &Table,
        partition: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Row>> {
        let (t, partition, after) = (table.clone(), partition.to_owned(), after.cloned());
        self.call(Op::RowQuery, table, move |carry| async move {
            carry.store.rows.query(&t, &partition, after.as_ref()).await
        })
        .await
    }
}
