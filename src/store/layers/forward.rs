//! The three traits for every layer: each method names its request and hands it to [`Layer::around`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Call, Layer, Op};
use crate::store::{
    Blob, BlobPath, Blobs, Container, Continuation, ETag, Expect, Fields, LeaseId, Listed, Message,
    Page, Queue, Queues, Receipt, Result, Row, RowKey, Rows, Store, Table, Value,
};

/// How many bytes of content a reply carries.
pub(super) trait Weight: Send + 'static {
    fn weight(&self) -> usize;
}

impl Weight for () {
    fn weight(&self) -> usize {
        0
    }
}

impl Weight for u64 {
    fn weight(&self) -> usize {
        0
    }
}

impl Weight for ETag {
    fn weight(&self) -> usize {
        0
    }
}

impl Weight for Receipt {
    fn weight(&self) -> usize {
        0
    }
}

impl Weight for String {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl Weight for Listed {
    fn weight(&self) -> usize {
        self.name.len()
    }
}

impl Weight for Blob {
    fn weight(&self) -> usize {
        self.body.len()
    }
}

impl Weight for Message {
    fn weight(&self) -> usize {
        self.body.len()
    }
}

impl Weight for Row {
    fn weight(&self) -> usize {
        fields_weight(&self.fields)
    }
}

impl<T: Weight> Weight for Option<T> {
    fn weight(&self) -> usize {
        self.as_ref().map_or(0, Weight::weight)
    }
}

impl<T: Weight> Weight for Vec<T> {
    fn weight(&self) -> usize {
        self.iter().map(Weight::weight).sum()
    }
}

impl<T: Weight> Weight for Page<T> {
    fn weight(&self) -> usize {
        self.items.weight()
    }
}

fn fields_weight(fields: &Fields) -> usize {
    let value = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Int(_) => 8,
        Value::Bool(_) => 1,
    };
    fields
        .iter()
        .map(|(name, field)| name.len() + value(field))
        .sum()
}

/// A store with a layer around it.
#[derive(Debug)]
struct Wrapped<L> {
    inner: Store,
    layer: Arc<L>,
}

/// Puts `layer` around `inner`.
pub(super) fn wrap<L: Layer>(inner: Store, layer: Arc<L>) -> Store {
    let wrapped = Arc::new(Wrapped { inner, layer });
    Store {
        blobs: wrapped.clone(),
        queues: wrapped.clone(),
        rows: wrapped,
    }
}

fn call(op: Op, subject: [&str; 3]) -> Call<'_> {
    Call {
        op,
        subject,
        sent: 0,
    }
}

fn at_blob(op: Op, path: &BlobPath) -> Call<'_> {
    call(op, [path.container().as_str(), path.name(), ""])
}

fn at_queue(op: Op, queue: &Queue) -> Call<'_> {
    call(op, [queue.as_str(), "", ""])
}

fn at_row<'a>(op: Op, table: &'a Table, key: &'a RowKey) -> Call<'a> {
    call(op, [table.as_str(), key.partition(), key.row()])
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<L: Layer> Blobs for Wrapped<L> {
    async fn create_container(&self, container: &Container) -> Result<()> {
        let call = call(Op::ContainerCreate, [container.as_str(), "", ""]);
        let send = || self.inner.blobs.create_container(container);
        self.layer.around(call, send).await
    }

    async fn get(&self, path: &BlobPath) -> Result<Option<Blob>> {
        let send = || self.inner.blobs.get(path);
        self.layer.around(at_blob(Op::BlobGet, path), send).await
    }

    async fn put(
        &self,
        path: &BlobPath,
        body: Bytes,
        expect: &Expect,
        lease: Option<LeaseId>,
    ) -> Result<ETag> {
        let call = Call {
            sent: body.len(),
            ..at_blob(Op::BlobPut, path)
        };
        let send = || self.inner.blobs.put(path, body.clone(), expect, lease);
        self.layer.around(call, send).await
    }

    async fn delete(&self, path: &BlobPath, etag: &ETag) -> Result<()> {
        let send = || self.inner.blobs.delete(path, etag);
        self.layer.around(at_blob(Op::BlobDelete, path), send).await
    }

    async fn list(
        &self,
        container: &Container,
        prefix: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Listed>> {
        let call = call(Op::BlobList, [container.as_str(), prefix, ""]);
        let send = || self.inner.blobs.list(container, prefix, after);
        self.layer.around(call, send).await
    }

    async fn acquire_lease(&self, path: &BlobPath, id: LeaseId, secs: u8) -> Result<()> {
        let call = at_blob(Op::LeaseAcquire, path);
        let send = || self.inner.blobs.acquire_lease(path, id, secs);
        self.layer.around(call, send).await
    }

    async fn renew_lease(&self, path: &BlobPath, id: LeaseId) -> Result<()> {
        let send = || self.inner.blobs.renew_lease(path, id);
        self.layer.around(at_blob(Op::LeaseRenew, path), send).await
    }

    async fn release_lease(&self, path: &BlobPath, id: LeaseId) -> Result<()> {
        let call = at_blob(Op::LeaseRelease, path);
        let send = || self.inner.blobs.release_lease(path, id);
        self.layer.around(call, send).await
    }

    async fn break_lease(&self, path: &BlobPath) -> Result<()> {
        let send = || self.inner.blobs.break_lease(path);
        self.layer.around(at_blob(Op::LeaseBreak, path), send).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<L: Layer> Queues for Wrapped<L> {
    async fn create_queue(&self, queue: &Queue) -> Result<()> {
        let send = || self.inner.queues.create_queue(queue);
        self.layer
            .around(at_queue(Op::QueueCreate, queue), send)
            .await
    }

    async fn send(&self, queue: &Queue, body: &str, delay: Duration) -> Result<()> {
        let call = Call {
            sent: body.len(),
            ..at_queue(Op::QueueSend, queue)
        };
        let send = || self.inner.queues.send(queue, body, delay);
        self.layer.around(call, send).await
    }

    async fn receive(&self, queue: &Queue, max: u8, visibility: Duration) -> Result<Vec<Message>> {
        let call = at_queue(Op::QueueReceive, queue);
        let send = || self.inner.queues.receive(queue, max, visibility);
        self.layer.around(call, send).await
    }

    async fn extend(
        &self,
        queue: &Queue,
        receipt: &Receipt,
        visibility: Duration,
    ) -> Result<Receipt> {
        let call = at_queue(Op::QueueExtend, queue);
        let send = || self.inner.queues.extend(queue, receipt, visibility);
        self.layer.around(call, send).await
    }

    async fn delete(&self, queue: &Queue, receipt: &Receipt) -> Result<()> {
        let send = || self.inner.queues.delete(queue, receipt);
        self.layer
            .around(at_queue(Op::QueueDelete, queue), send)
            .await
    }

    async fn depth(&self, queue: &Queue) -> Result<u64> {
        let send = || self.inner.queues.depth(queue);
        self.layer
            .around(at_queue(Op::QueueDepth, queue), send)
            .await
    }

    async fn peek(&self, queue: &Queue, max: u8) -> Result<Vec<String>> {
        let send = || self.inner.queues.peek(queue, max);
        self.layer
            .around(at_queue(Op::QueuePeek, queue), send)
            .await
    }

    async fn wait(&self, queue: &Queue, at_most: Duration) {
        self.inner.queues.wait(queue, at_most).await;
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<L: Layer> Rows for Wrapped<L> {
    async fn create_table(&self, table: &Table) -> Result<()> {
        let call = call(Op::TableCreate, [table.as_str(), "", ""]);
        let send = || self.inner.rows.create_table(table);
        self.layer.around(call, send).await
    }

    async fn get(&self, table: &Table, key: &RowKey) -> Result<Option<Row>> {
        let send = || self.inner.rows.get(table, key);
        self.layer
            .around(at_row(Op::RowGet, table, key), send)
            .await
    }

    async fn write(
        &self,
        table: &Table,
        key: &RowKey,
        fields: &Fields,
        expect: &Expect,
    ) -> Result<ETag> {
        let call = Call {
            sent: fields_weight(fields),
            ..at_row(Op::RowWrite, table, key)
        };
        let send = || self.inner.rows.write(table, key, fields, expect);
        self.layer.around(call, send).await
    }

    async fn delete(&self, table: &Table, key: &RowKey, etag: &ETag) -> Result<()> {
        let send = || self.inner.rows.delete(table, key, etag);
        self.layer
            .around(at_row(Op::RowDelete, table, key), send)
            .await
    }

    async fn query(
        &self,
        table: &Table,
        partition: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Row>> {
        let call = call(Op::RowQuery, [table.as_str(), partition, ""]);
        let send = || self.inner.rows.query(table, partition, after);
        self.layer.around(call, send).await
    }
}
