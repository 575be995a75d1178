//! A storage account, or the emulator of one, by the three service crates of the Azure SDK.
//!
//! The crates stay inside this folder, so that a successor replaces one folder. What they lack is mended here: a pooled transport with
//! time-outs ([`transport`]), errors that tell what was sent ([`errors`]), messages that never expire and heartbeats without a body
//! ([`queues`]), quoted row keys ([`rows`]), reads of one piece ([`blobs`]), and checks of what the emulator lets pass and Azure does not.
//!
//! Invariants:
//! 1. A method makes exactly one request, or none when its arguments break a rule of the service. (One exception: a delete of a blob that
//!    meets a conflict looks whether there is a blob.)
//! 2. Nothing is retried here.
//! 3. No error text, debug text or log line holds a key, a signature or a token. The crates themselves log whole requests at debug level:
//!    the targets `azure_core` and `reqwest` are to be capped at `info` by whoever sets up logging.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::auth::{AccessToken, TokenCredential};
use azure_core::error::ErrorKind;
use azure_core::{ClientOptions, RetryOptions, TransportOptions};
use azure_data_tables::clients::TableServiceClientBuilder;
use azure_storage::{CloudLocation, StorageCredentials};
use azure_storage_blobs::prelude::ClientBuilder;
use azure_storage_queues::QueueServiceClientBuilder;

use self::call::Caller;
use self::config::Credential;
use crate::env::{Env, Timestamp};
use crate::store::Store;

mod blobs;
mod call;
mod config;
mod connection;
mod errors;
mod queues;
mod rows;
mod transport;

#[cfg(test)]
mod tests;

pub use config::{AzureConfig, ConfigError, Endpoints};

/// Longest wait for a token; a slow identity service must not hold a request for ever.
const TOKEN_MAX: Duration = Duration::from_secs(10);

/// The store on a storage account.
#[derive(Debug)]
pub struct AzureStore;

impl AzureStore {
    /// Makes the clients of the three services. No request is sent.
    ///
    /// # Errors
    /// When no credentials are found for an account without key or signature, or no HTTP client can be made.
    pub fn open(config: &AzureConfig, env: Env) -> Result<Store, ConfigError> {
        let transport = Arc::new(transport::Transport::new(config, env.clone())?);
        let credentials = credentials(config, &env)?;
        let options = || {
            ClientOptions::new(TransportOptions::new_custom_policy(transport.clone()))
                .retry(RetryOptions::none())
        };
        let location = |uri: &str| CloudLocation::Custom {
            account: config.account.clone().unwrap_or_default(),
            uri: uri.to_owned(),
        };
        let endpoints = config.endpoints();
        let blobs = ClientBuilder::with_location(location(&endpoints.blob), credentials.clone())
            .client_options(options())
            .blob_service_client();
        let queues = QueueServiceClientBuilder::with_location(
            location(&endpoints.queue),
            credentials.clone(),
        )
        .client_options(queues::mended(options()))
        .build();
        let tables =
            TableServiceClientBuilder::with_location(location(&endpoints.table), credentials)
                .client_options(options())
                .build();
        Ok(Store {
            blobs: Arc::new(blobs::AzureBlobs::new(
                blobs,
                Caller::new("Blob", config, env.clone()),
            )),
            queues: Arc::new(queues::AzureQueues::new(
                queues,
                Caller::new("Queue", config, env.clone()),
            )),
            rows: Arc::new(rows::AzureRows::new(
                tables,
                Caller::new("Table", config, env),
            )),
        })
    }
}

fn credentials(config: &AzureConfig, env: &Env) -> Result<StorageCredentials, ConfigError> {
    match &config.credential {
        Credential::Key(key) => Ok(StorageCredentials::access_key(
            config.account.clone().unwrap_or_default(),
            key.clone(),
        )),
        // The error would quote the signature.
        Credential::Sas(query) => StorageCredentials::sas_token(query.secret())
            .ok()
            .ok_or_else(|| {
                ConfigError::new(
                    "SharedAccessSignature cannot be read as a query",
                    "copy it whole from the portal",
                )
            }),
        Credential::Identity => {
            let inner = azure_identity::create_credential().map_err(|error| {
                ConfigError::new(
                    format!("no credentials for account `{}`: {error}", config.account()),
                    "sign in by `az login`, give the machine an identity, or set AZURE_STORAGE_CONNECTION_STRING",
                )
            })?;
            Ok(StorageCredentials::token_credential(Arc::new(Bounded {
                inner,
                env: env.clone(),
            })))
        }
    }
}

/// A credential that answers in time.
struct Bounded {
    inner: Arc<dyn TokenCredential>,
    env: Env,
}

impl fmt::Debug for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").finish_non_exhaustive()
    }
}

#[async_trait]
impl TokenCredential for Bounded {
    async fn get_token(&self, scopes: &[&str]) -> azure_core::Result<AccessToken> {
        let token = self.env.timeout(TOKEN_MAX, self.inner.get_token(scopes));
        token.await.unwrap_or_else(|_| {
            Err(azure_core::Error::message(
                ErrorKind::Io,
                "the identity service gave no token in time",
            ))
        })
    }

    async fn clear_cache(&self) -> azure_core::Result<()> {
        self.inner.clear_cache().await
    }
}

/// A time of the crates as one of ours.
fn timestamp(time: time::OffsetDateTime) -> Option<Timestamp> {
    Timestamp::from_nanosecond(time.unix_timestamp_nanos()).ok()
}
