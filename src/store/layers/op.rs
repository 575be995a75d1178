//! The requests that there are, by name.

use std::fmt;

/// Which request of which service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// `Blobs::create_container`
    ContainerCreate,
    /// `Blobs::get`
    BlobGet,
    /// `Blobs::put`
    BlobPut,
    /// `Blobs::delete`
    BlobDelete,
    /// `Blobs::list`
    BlobList,
    /// `Blobs::acquire_lease`
    LeaseAcquire,
    /// `Blobs::renew_lease`
    LeaseRenew,
    /// `Blobs::release_lease`
    LeaseRelease,
    /// `Blobs::break_lease`
    LeaseBreak,
    /// `Queues::create_queue`
    QueueCreate,
    /// `Queues::send`
    QueueSend,
    /// `Queues::receive`
    QueueReceive,
    /// `Queues::extend`
    QueueExtend,
    /// `Queues::delete`
    QueueDelete,
    /// `Queues::depth`
    QueueDepth,
    /// `Queues::peek`
    QueuePeek,
    /// `Rows::create_table`
    TableCreate,
    /// `Rows::get`
    RowGet,
    /// `Rows::write`
    RowWrite,
    /// `Rows::delete`
    RowDelete,
    /// `Rows::query`
    RowQuery,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::ContainerCreate,
        Self::BlobGet,
        Self::BlobPut,
        Self::BlobDelete,
        Self::BlobList,
        Self::LeaseAcquire,
        Self::LeaseRenew,
        Self::LeaseRelease,
        Self::LeaseBreak,
        Self::QueueCreate,
        Self::QueueSend,
        Self::QueueReceive,
        Self::QueueExtend,
        Self::QueueDelete,
        Self::QueueDepth,
        Self::QueuePeek,
        Self::TableCreate,
        Self::RowGet,
        Self::RowWrite,
        Self::RowDelete,
        Self::RowQuery,
    ];

    /// Service and operation, for people and for counts.
    #[must_use]
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::ContainerCreate => ("blob", "create container"),
            Self::BlobGet => ("blob", "get"),
            Self::BlobPut => ("blob", "put"),
            Self::BlobDelete => ("blob", "delete"),
            Self::BlobList => ("blob", "list"),
            Self::LeaseAcquire => ("blob", "acquire lease"),
            Self::LeaseRenew => ("blob", "renew lease"),
            Self::LeaseRelease => ("blob", "release lease"),
            Self::LeaseBreak => ("blob", "break lease"),
            Self::QueueCreate => ("queue", "create"),
            Self::QueueSend => ("queue", "send"),
            Self::QueueReceive => ("queue", "receive"),
            Self::QueueExtend => ("queue", "extend"),
            Self::QueueDelete => ("queue", "delete"),
            Self::QueueDepth => ("queue", "depth"),
            Self::QueuePeek => ("queue", "peek"),
            Self::TableCreate => ("table", "create"),
            Self::RowGet => ("table", "get"),
            Self::RowWrite => ("table", "write"),
            Self::RowDelete => ("table", "delete"),
            Self::RowQuery => ("table", "query"),
        }
    }

    /// Whether it changes nothing, so that a lost reply leaves no doubt. A receive hides messages: it is not one of these.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(
            self,
            Self::BlobGet
                | Self::BlobList
                | Self::QueueDepth
                | Self::QueuePeek
                | Self::RowGet
                | Self::RowQuery
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (service, operation) = self.words();
        write!(f, "{service} {operation}")
    }
}
