//! Blobs and their leases.
//!
//! Invariants:
//! 1. A blob is read in one request, so what is read is of one version.
//! 2. Every write names what it expects; none is sent that the emulator would carry out and Azure refuse.

use std::time::Duration;

use async_trait::async_trait;
use azure_core::LeaseStatus;
use azure_core::error::{Error, ErrorKind};
use azure_core::prelude::{
    IfMatchCondition, LeaseBreakPeriod, LeaseDuration, LeaseId as Lease, NextMarker,
    ProposedLeaseId,
};
use azure_storage_blobs::blob::BlobProperties;
use azure_storage_blobs::prelude::{BlobClient, BlobServiceClient};
use bytes::Bytes;
use futures::StreamExt;

use super::call::{Call, Caller};
use super::timestamp;
use super::transport::Reply;
use crate::env::Timestamp;
use crate::store::{
    Blob, BlobPath, Blobs, Container, Continuation, ETag, Expect, Kind, LEASE_SECS, LeaseId,
    Listed, Page, Result,
};

/// Read in one request, whatever the size: the pages of a read in several are not of one version. No blob of one `put` is larger.
const READ_BYTES_MAX: u64 = 8 << 30;

/// Blob storage of one account.
#[derive(Debug)]
pub(super) struct AzureBlobs {
    client: BlobServiceClient,
    caller: Caller,
}

impl AzureBlobs {
    pub(super) const fn new(client: BlobServiceClient, caller: Caller) -> Self {
        Self { client, caller }
    }

    fn blob(&self, path: &BlobPath) -> BlobClient {
        self.client
            .container_client(path.container().as_str())
            .blob_client(path.name())
    }
}

/// The service leaves out the quotes of versions in listings, the emulator does not.
fn listed(call: &Call, blob: &azure_storage_blobs::blob::Blob) -> Result<Listed> {
    let etag = blob.properties.etag.to_string();
    let etag = format!("\"{}\"", etag.trim_matches('"'));
    Ok(Listed {
        name: blob.name.clone(),
        etag: ETag::new(etag),
        changed_at: changed_at(call, &blob.properties)?,
    })
}

fn changed_at(call: &Call, properties: &BlobProperties) -> Result<Timestamp> {
    timestamp(properties.last_modified)
        .ok_or_else(|| call.refused(Kind::Corrupt, "a time out of all bounds"))
}

fn condition(expect: &Expect) -> IfMatchCondition {
    match expect {
        Expect::Absent => IfMatchCondition::NotMatch("*".to_owned()),
        Expect::Version(etag) => IfMatchCondition::Match(etag.as_str().to_owned()),
    }
}

/// A blob as a read has found it.
fn found(call: &Call, properties: &BlobProperties, body: Bytes, reply: &Reply) -> Result<Blob> {
    Ok(Blob {
        body,
        etag: ETag::new(properties.etag.to_string()),
        leased: properties.lease_status == Some(LeaseStatus::Locked),
        changed_at: changed_at(call, properties)?,
        read_at: call.service_time(reply)?,
    })
}

impl AzureBlobs {
    /// A blob without bytes, which somebody else has damaged: whoever reads it says so.
    async fn empty(&self, path: &BlobPath, call: &Call) -> Result<Option<Blob>> {
        let client = self.blob(path);
        let looked = self.caller.run(call, |context| {
            client.get_properties().context(context).into_future()
        });
        match looked.await {
            Ok((looked, reply)) if looked.blob.properties.content_length == 0 => {
                found(call, &looked.blob.properties, Bytes::new(), &reply).map(Some)
            }
            Ok(_) => Err(call.refused(Kind::Unavailable, "it changed while it was read")),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Blobs for AzureBlobs {
    async fn create_container(&self, container: &Container) -> Result<()> {
        let call = Call::write(format!("create container {container}"), 0);
        let client = self.client.container_client(container.as_str());
        let made = self.caller.run(&call, |context| {
            client.create().context(context).into_future()
        });
        match made.await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == Kind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn get(&self, path: &BlobPath) -> Result<Option<Blob>> {
        let call = Call::read(format!("get blob {path}"));
        let client = self.blob(path);
        let read = self.caller.run(&call, |context| async move {
            let builder = client.get().chunk_size(READ_BYTES_MAX).context(context);
            let mut pages = builder.into_stream();
            let page = pages
                .next()
                .await
                .unwrap_or_else(|| Err(Error::message(ErrorKind::DataConversion, "no page")))?;
            if page.remaining_range.is_some() {
                return Err(Error::message(ErrorKind::DataConversion, "not the whole"));
            }
            Ok((page.blob.properties, page.data.collect().await?))
        });
        let ((properties, body), reply) = match read.await {
            Ok(read) => read,
            Err(error) if error.kind == Kind::NotFound => return Ok(None),
            // Nobody here writes an empty blob, and the service refuses to read any range of one.
            Err(error) if error.detail.starts_with("416 ") => return self.empty(path, &call).await,
            Err(error) => return Err(error),
        };
        found(&call, &properties, body, &reply).map(Some)
    }

    async fn put(
        &self,
        path: &BlobPath,
        body: Bytes,
        expect: &Expect,
        lease: Option<LeaseId>,
    ) -> Result<ETag> {
        let call = Call::write(format!("put blob {path}"), body.len());
        if body.is_empty() {
            return Err(call.refused(Kind::Invalid, "an empty blob could not be read again"));
        }
        if lease.is_some() && *expect == Expect::Absent {
            // Azure refuses this with 412; the emulator writes the blob.
            return Err(call.refused(Kind::Conflict, "a blob that is not there has no lease"));
        }
        let mut builder = self
            .blob(path)
            .put_block_blob(body)
            .content_type("application/json")
            .if_match(condition(expect));
        if let Some(LeaseId(id)) = lease {
            builder = builder.lease_id(Lease::from(id));
        }
        let written = self
            .caller
            .run(&call, |context| builder.context(context).into_future());
        let (written, _) = written.await?;
        Ok(ETag::new(written.etag))
    }

    async fn delete(&self, path: &BlobPath, etag: &ETag) -> Result<()> {
        let call = Call::write(format!("delete blob {path}"), 0);
        let client = self.blob(path);
        let builder = client
            .delete()
            .if_match(IfMatchCondition::Match(etag.as_str().to_owned()));
        let deleted = self
            .caller
            .run(&call, |context| builder.context(context).into_future());
        match deleted.await {
            Ok(_) => Ok(()),
            // A condition on a blob that is not there fails like any other: only a look tells the two apart.
            Err(error) if error.kind == Kind::Conflict => {
                let look = self.caller.run(&call, |context| {
                    client.get_properties().context(context).into_future()
                });
                match look.await {
                    Err(missing) if missing.kind == Kind::NotFound => Err(missing),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn list(
        &self,
        container: &Container,
        prefix: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Listed>> {
        let call = Call::read(format!("list blobs {container}/{prefix}*"));
        let mut builder = self
            .client
            .container_client(container.as_str())
            .list_blobs();
        if !prefix.is_empty() {
            builder = builder.prefix(prefix.to_owned());
        }
        if let Some(Continuation(marker)) = after {
            builder = builder.marker(NextMarker::from(marker.clone()));
        }
        let page = self.caller.run(&call, |context| async move {
            let mut pages = builder.context(context).into_stream();
            pages
                .next()
                .await
                .unwrap_or_else(|| Err(Error::message(ErrorKind::DataConversion, "no page")))
        });
        let (page, _) = page.await?;
        Ok(Page {
            items: page
                .blobs
                .blobs()
                .map(|blob| listed(&call, blob))
                .collect::<Result<_>>()?,
            next: page
                .next_marker
                .map(|marker| Continuation(marker.as_str().to_owned())),
        })
    }

    async fn acquire_lease(&self, path: &BlobPath, LeaseId(id): LeaseId, secs: u8) -> Result<()> {
        let call = Call::lease(format!("acquire lease {path}"));
        if !LEASE_SECS.contains(&secs) {
            let (least, most) = (LEASE_SECS.start(), LEASE_SECS.end());
            return Err(call.refused(
                Kind::Invalid,
                format!("a lease lasts {least} to {most} s, not {secs}"),
            ));
        }
        let builder = self
            .blob(path)
            .acquire_lease(LeaseDuration::Seconds(secs))
            .proposed_lease_id(ProposedLeaseId::from(Lease::from(id)));
        self.caller
            .run(&call, |context| builder.context(context).into_future())
            .await?;
        Ok(())
    }

    async fn renew_lease(&self, path: &BlobPath, LeaseId(id): LeaseId) -> Result<()> {
        let call = Call::lease(format!("renew lease {path}"));
        let client = self.blob(path).blob_lease_client(Lease::from(id));
        self.caller
            .run(&call, |context| {
                client.renew().context(context).into_future()
            })
            .await?;
        Ok(())
    }

    async fn release_lease(&self, path: &BlobPath, LeaseId(id): LeaseId) -> Result<()> {
        let call = Call::lease(format!("release lease {path}"));
        let client = self.blob(path).blob_lease_client(Lease::from(id));
        self.caller
            .run(&call, |context| {
                client.release().context(context).into_future()
            })
            .await?;
        Ok(())
    }

    async fn break_lease(&self, path: &BlobPath) -> Result<()> {
        let call = Call::lease(format!("break lease {path}"));
        let builder = self
            .blob(path)
            .break_lease()
            .lease_break_period(LeaseBreakPeriod::from(Duration::ZERO));
        self.caller
            .run(&call, |context| builder.context(context).into_future())
            .await?;
        Ok(())
    }
}
