//! The one seam to the outside: blobs, queues and rows, under contracts that two implementations keep.
//!
//! [`memory`] serves `workflow run`, tests and the simulator; [`azure`] serves a storage account or the emulator. One
//! conformance suite ([`conformance`]) runs every numbered clause on both. This layer moves bytes it does not understand.
//!
//! Invariants:
//! 1. No unconditional write of shared state exists: the argument is an [`Expect`] or an [`ETag`].
//! 2. "I do not know" is a kind of its own ([`Kind::Ambiguous`]): the write may have been carried out, now or later.
//! 3. No implementation repeats a request by itself; repeating is the business of [`layers::retry`] and of the protocol.
//! 4. Every request ends: each has a time-out.
//! 5. Times that come with a reply are the service's own (`Date`), and are compared only with times of the same service.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use uuid::Uuid;

use crate::env::Timestamp;

pub mod azure;
pub mod conformance;
mod error;
pub mod layers;
pub mod memory;
mod name;

pub use error::{Kind, StoreError};
pub use name::{BlobPath, Container, NameError, Queue, RowKey, Table};

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Longest message text in bytes, after every encoding.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Most messages of one [`Queues::receive`].
pub const RECEIVE_MAX: u8 = 32;
/// Longest text of one row field in UTF-16 code units.
pub const FIELD_UNITS_MAX: usize = 32 * 1024;
/// Shortest and longest blob lease in seconds.
pub const LEASE_SECS: std::ops::RangeInclusive<u8> = 15..=60;
/// Longest visibility time-out or delay of a message.
pub const VISIBILITY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The version of a blob or row, opaque; printed as the service prints it, quotes included.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ETag(String);

impl ETag {
    /// Takes over what the service calls this version.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text as the service writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a writer believes is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Absent,
    /// Exactly this version.
    Version(ETag),
}

/// The id of one acquisition of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(pub Uuid);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A blob as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The content, from one version (never torn).
    pub body: Bytes,
    /// The version of the content.
    pub etag: ETag,
    /// Whether a lease is held on it at the moment.
    pub leased: bool,
    /// Service time of its last change.
    pub changed_at: Timestamp,
    /// Service time of this reply.
    pub read_at: Timestamp,
}

/// A blob as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name within the container.
    pub name: String,
    /// Its version.
    pub etag: ETag,
    /// Service time of its last change, perhaps in whole seconds.
    pub changed_at: Timestamp,
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in the order of the service.
    pub items: Vec<T>,
    /// Where the next page starts; none at the end.
    pub next: Option<Continuation>,
}

/// Where a listing goes on, opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation(pub String);

/// Whole documents under compare-and-swap, and leases on them.
///
/// # Contract
/// - **B1** `put` with [`Expect::Absent`] succeeds exactly once for all callers at once; the others get [`Kind::Conflict`].
/// - **B2** `put` with [`Expect::Version`] succeeds only if that is the stored version, exactly once for all callers at once;
///   else, also when the blob is missing, [`Kind::Conflict`].
/// - **B3** `get` returns the whole of one version with the [`ETag`] that the `put` returned; `None` when there is no such blob.
/// - **B4** each successful `put` gives a new [`ETag`].
/// - **B5** an empty body is refused with [`Kind::Invalid`].
/// - **B6** `delete` removes exactly the version named; else [`Kind::Conflict`]; a missing blob is [`Kind::NotFound`].
/// - **B7** `list` gives every name below the prefix once, in byte order, over all pages, with the version that `delete` takes.
/// - **B8** a missing container is [`Kind::NoResource`]; `create_container` succeeds also when it exists.
/// - **B9** `acquire_lease` on a blob leased under another id is [`Kind::Conflict`], under the same id success; of all callers at
///   once one wins; a missing blob is [`Kind::NotFound`].
/// - **B10** while a lease is held, `put` and `delete` without its id, or with another, are [`Kind::Conflict`]; with it they succeed; `get` needs none.
/// - **B11** `renew_lease` extends the lease of that id; once it was broken, released or taken by another it is [`Kind::Conflict`].
/// - **B12** after `release_lease`, after `break_lease` (which ends it at once) and after its time a lease can be acquired anew.
/// - **B13** `break_lease` without a lease to break is [`Kind::Conflict`].
/// - **B14** a `put` with a lease id on a blob without that lease is [`Kind::Conflict`].
/// - **B15** bodies of at least 32 MiB can be stored and read in one piece.
#[async_trait]
pub trait Blobs: fmt::Debug + Send + Sync {
    /// Makes the container, or finds it there.
    async fn create_container(&self, container: &Container) -> Result<()>;
    /// Reads one blob whole.
    async fn get(&self, path: &BlobPath) -> Result<Option<Blob>>;
    /// Writes one blob whole and returns its new version.
    async fn put(
        &self,
        path: &BlobPath,
        body: Bytes,
        expect: &Expect,
        lease: Option<LeaseId>,
    ) -> Result<ETag>;
    /// Deletes the version `etag`.
    async fn delete(&self, path: &BlobPath, etag: &ETag) -> Result<()>;
    /// Blobs whose names begin with `prefix`, a page at a time.
    async fn list(
        &self,
        container: &Container,
        prefix: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Listed>>;
    /// Takes a lease of `secs` seconds ([`LEASE_SECS`]) under the caller's own id.
    async fn acquire_lease(&self, path: &BlobPath, id: LeaseId, secs: u8) -> Result<()>;
    /// Extends the lease by its length from now.
    async fn renew_lease(&self, path: &BlobPath, id: LeaseId) -> Result<()>;
    /// Gives the lease back.
    async fn release_lease(&self, path: &BlobPath, id: LeaseId) -> Result<()>;
    /// Ends whatever lease is held, at once.
    async fn break_lease(&self, path: &BlobPath) -> Result<()>;
}

/// What entitles its holder to extend or delete one delivery of a message. Changes with each extension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The message, over all its deliveries.
    pub message_id: String,
    /// This delivery.
    pub pop: String,
}

/// A message as received: invisible to others until its time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// For extending and deleting.
    pub receipt: Receipt,
    /// The text.
    pub body: String,
    /// How often it has been received, this time included.
    pub deliveries: u32,
    /// Service time of its insertion.
    pub inserted_at: Timestamp,
    /// Service time of this reply.
    pub read_at: Timestamp,
}

/// Queues with visibility time-outs; at-least-once, order not promised.
///
/// # Contract
/// - **Q1** what was sent is received with the same text, byte for byte, with `deliveries` counted from 1; a text that XML cannot carry (white
///   space at an end, control characters other than tab and line ends) is refused with [`Kind::Invalid`].
/// - **Q2** a received message is invisible for the visibility time, then comes back with `deliveries` raised.
/// - **Q3** `send` with a delay keeps the message invisible for that time.
/// - **Q4** `receive` returns at most the number asked for (1 to [`RECEIVE_MAX`]), nothing when nothing is visible.
/// - **Q5** `extend` sets the visibility from now (zero: visible at once), keeps the text and `deliveries`, and returns a new receipt; the old one is [`Kind::Gone`].
/// - **Q6** `delete` with the current receipt removes the message for good; again, or with an older receipt: [`Kind::Gone`].
/// - **Q7** `extend` of a deleted message, or of one that somebody else has received since, is [`Kind::Gone`].
/// - **Q8** a text above [`MESSAGE_BYTES_MAX`] is refused with [`Kind::Invalid`], one of exactly that size accepted.
/// - **Q9** a missing queue is [`Kind::NoResource`]; `create_queue` succeeds also when it exists.
/// - **Q10** `depth` counts all messages, invisible ones too; it may lag on a real service.
/// - **Q11** messages do not expire.
/// - **Q12** of all callers that receive at once each visible message goes to exactly one.
/// - **Q13** `peek` shows visible messages without receiving them.
#[async_trait]
pub trait Queues: fmt::Debug + Send + Sync {
    /// Makes the queue, or finds it there.
    async fn create_queue(&self, queue: &Queue) -> Result<()>;
    /// Appends a message that becomes visible after `delay` (at most [`VISIBILITY_MAX`]).
    async fn send(&self, queue: &Queue, body: &str, delay: Duration) -> Result<()>;
    /// Takes up to `max` visible messages and hides them for `visibility` (1 s to [`VISIBILITY_MAX`]).
    async fn receive(&self, queue: &Queue, max: u8, visibility: Duration) -> Result<Vec<Message>>;
    /// Hides a received message for `visibility` from now, or shows it at once (zero).
    async fn extend(
        &self,
        queue: &Queue,
        receipt: &Receipt,
        visibility: Duration,
    ) -> Result<Receipt>;
    /// Removes a received message.
    async fn delete(&self, queue: &Queue, receipt: &Receipt) -> Result<()>;
    /// About how many messages there are, invisible ones included.
    async fn depth(&self, queue: &Queue) -> Result<u64>;
    /// Texts of up to `max` (1 to [`RECEIVE_MAX`]) visible messages.
    async fn peek(&self, queue: &Queue, max: u8) -> Result<Vec<String>>;
    /// Waits until it is worth receiving again, `at_most` that long: a remote store just waits, one in this process may
    /// return as soon as a message becomes visible.
    async fn wait(&self, queue: &Queue, at_most: Duration);
}

/// A field of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text of at most [`FIELD_UNITS_MAX`] UTF-16 units.
    Text(String),
    /// A 64-bit number.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

/// Fields of a row by name (`[A-Za-z][A-Za-z0-9_]*`).
pub type Fields = BTreeMap<String, Value>;

/// A row as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Where it is.
    pub key: RowKey,
    /// Its version.
    pub etag: ETag,
    /// Its fields.
    pub fields: Fields,
    /// Service time of its last change.
    pub changed_at: Timestamp,
    /// Service time of this reply.
    pub read_at: Timestamp,
}

/// Rows of named fields under compare-and-swap.
///
/// # Contract
/// - **R1** `write` with [`Expect::Absent`] inserts exactly once for all callers at once; the others get [`Kind::Conflict`].
/// - **R2** `write` with [`Expect::Version`] merges: named fields are replaced, others stay; only if that is the stored version, exactly
///   once for all callers at once; else, also when the row is missing, [`Kind::Conflict`].
/// - **R3** `get` returns what was written, texts, numbers over the whole 64-bit range and truth values alike; `None` when there is no such row.
/// - **R4** each successful `write` gives a new [`ETag`], by which the next one succeeds.
/// - **R5** `delete` removes exactly the version named; else [`Kind::Conflict`]; a missing row is [`Kind::NotFound`].
/// - **R6** `query` gives every row of the partition once, in key order, over all pages, and no other.
/// - **R7** a missing table is [`Kind::NoResource`]; `create_table` succeeds also when it exists.
/// - **R8** a text above [`FIELD_UNITS_MAX`] is refused with [`Kind::Invalid`].
/// - **R9** keys keep their spelling: apostrophes, spaces, percent signs and letters beyond ASCII come back as written.
/// - **R10** `changed_at` and `read_at` are of one clock: a row just written and read differs by about the time between.
#[async_trait]
pub trait Rows: fmt::Debug + Send + Sync {
    /// Makes the table, or finds it there.
    async fn create_table(&self, table: &Table) -> Result<()>;
    /// Reads one row.
    async fn get(&self, table: &Table, key: &RowKey) -> Result<Option<Row>>;
    /// Inserts or merges and returns the new version.
    async fn write(
        &self,
        table: &Table,
        key: &RowKey,
        fields: &Fields,
        expect: &Expect,
    ) -> Result<ETag>;
    /// Deletes the version `etag`.
    async fn delete(&self, table: &Table, key: &RowKey, etag: &ETag) -> Result<()>;
    /// Rows of one partition, a page at a time.
    async fn query(
        &self,
        table: &Table,
        partition: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Row>>;
}

/// The three services of one account.
#[derive(Debug, Clone)]
pub struct Store {
    /// Blob storage.
    pub blobs: Arc<dyn Blobs>,
    /// Queue storage.
    pub queues: Arc<dyn Queues>,
    /// Table storage.
    pub rows: Arc<dyn Rows>,
}
