//! Which account, where its three services are, and what opens them.
//!
//! Invariants:
//! 1. Nothing here touches the network or the process environment: texts in, configuration or a named problem out.
//! 2. A secret is held in [`Secret`], whose debug text is redacted, and no problem text quotes one.
//! 3. The three base addresses are without a slash at their end, so that joined paths never hold two in a row.

use azure_core::auth::Secret;

use super::connection;
use crate::env::Timestamp;

/// The account that the emulator knows without being told.
pub(super) const EMULATOR_ACCOUNT: &str = azure_storage::EMULATOR_ACCOUNT;
/// The emulator's usual ports: blob, queue, table.
pub(super) const EMULATOR_PORTS: [u16; 3] = [10000, 10001, 10002];

/// A setting that does not lead to a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ConfigError {
    /// What is wrong, naming the setting.
    pub problem: String,
    /// What to do next.
    pub help: String,
}

impl ConfigError {
    pub(super) fn new(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            help: help.into(),
        }
    }
}

/// Base addresses of the three services, without a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Of blob storage.
    pub blob: String,
    /// Of queue storage.
    pub queue: String,
    /// Of table storage.
    pub table: String,
}

impl Endpoints {
    /// Addresses by service name, `protocol://account.service.suffix`.
    pub(super) fn of_account(protocol: &str, account: &str, suffix: &str) -> Self {
        let of = |service: &str| format!("{protocol}://{account}.{service}.{suffix}");
        Self {
            blob: of("blob"),
            queue: of("queue"),
            table: of("table"),
        }
    }

    /// The emulator at `host` on its usual ports.
    pub(super) fn of_emulator(host: &str) -> Self {
        let [blob, queue, table] =
            EMULATOR_PORTS.map(|port| format!("http://{host}:{port}/{EMULATOR_ACCOUNT}"));
        Self { blob, queue, table }
    }

    pub(super) fn all(&self) -> [&str; 3] {
        [&self.blob, &self.queue, &self.table]
    }
}

/// What opens the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credential {
    /// The account's key.
    Key(Secret),
    /// A shared access signature, as a query without the question mark.
    Sas(Secret),
    /// What `azure_identity` finds: environment, workload identity, managed identity, Azure CLI.
    Identity,
}

/// Everything that [`open`](super::AzureStore::open) needs. Its debug text holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureConfig {
    /// None where a signature for addresses of one's own does not say.
    pub(super) account: Option<String>,
    pub(super) endpoints: Endpoints,
    pub(super) credential: Credential,
    pub(super) expires_at: Option<Timestamp>,
}

impl AzureConfig {
    /// Reads `store` (the words of `--store`) together with the value of `AZURE_STORAGE_CONNECTION_STRING`, where there is one.
    /// Also returns the prefix, unchecked.
    ///
    /// # Errors
    /// What is missing, malformed or contradictory.
    pub fn resolve(
        store: &str,
        connection_string: Option<&str>,
    ) -> Result<(Self, String), ConfigError> {
        let (account, prefix) = words(store)?;
        let connection = match connection_string.map(connection::clean).transpose()? {
            Some(Some(text)) => Some(connection::parse(text)?),
            Some(None) | None => None,
        };
        let config = match (account, connection) {
            (None, None) => {
                return Err(ConfigError::new(
                    format!(
                        "`--store {prefix}` names no account, and AZURE_STORAGE_CONNECTION_STRING is not set"
                    ),
                    format!(
                        "write `--store ACCOUNT/{prefix}`, `--store {EMULATOR_ACCOUNT}/{prefix}` for the emulator, or set the connection string"
                    ),
                ));
            }
            (Some(named), Some(config)) if config.account.as_ref().is_some_and(|a| a != named) => {
                return Err(ConfigError::new(
                    format!(
                        "`--store {store}` names account `{named}`, AZURE_STORAGE_CONNECTION_STRING names `{}`",
                        config.account()
                    ),
                    format!("write `--store {prefix}`, or unset AZURE_STORAGE_CONNECTION_STRING"),
                ));
            }
            (_, Some(config)) => config,
            (Some(EMULATOR_ACCOUNT), None) => Self::emulator("127.0.0.1"),
            (Some(account), None) => Self {
                account: Some(account.to_owned()),
                endpoints: Endpoints::of_account("https", account, "core.windows.net"),
                credential: Credential::Identity,
                expires_at: None,
            },
        };
        Ok((config, prefix.to_owned()))
    }

    /// The emulator at `host` on its usual ports, with its well-known key.
    pub(super) fn emulator(host: &str) -> Self {
        Self {
            account: Some(EMULATOR_ACCOUNT.to_owned()),
            endpoints: Endpoints::of_emulator(host),
            credential: Credential::Key(Secret::new(azure_storage::EMULATOR_ACCOUNT_KEY)),
            expires_at: None,
        }
    }

    /// The name of the account; the address of its blobs where nothing names it.
    #[must_use]
    pub fn account(&self) -> &str {
        self.account.as_deref().unwrap_or(&self.endpoints.blob)
    }

    /// Where the three services are.
    #[must_use]
    pub const fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// When the shared access signature ends, where one is used and says so.
    #[must_use]
    pub const fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// Whether this is the emulator: its addresses hold the account in the path.
    #[must_use]
    pub fn is_emulator(&self) -> bool {
        self.endpoints
            .blob
            .ends_with(&format!("/{}", self.account()))
    }

    /// Whether the emulator would take the host name for an account, as it does with every dotted name that is no address.
    pub(super) fn host_looks_like_account(&self) -> bool {
        let host = url::Url::parse(&self.endpoints.blob)
            .ok()
            .and_then(|url| url.domain().map(|name| name.contains('.')));
        self.is_emulator() && host == Some(true)
    }
}

/// Splits `ACCOUNT/PREFIX` or `PREFIX`.
fn words(store: &str) -> Result<(Option<&str>, &str), ConfigError> {
    let help =
        "write `--store ACCOUNT/PREFIX`, or `--store PREFIX` with AZURE_STORAGE_CONNECTION_STRING";
    let (account, prefix) = match store.split('/').collect::<Vec<_>>()[..] {
        [prefix] => (None, prefix),
        [account, prefix] => (Some(account), prefix),
        _ => {
            return Err(ConfigError::new(
                format!("`--store {store}` has more than one slash"),
                help,
            ));
        }
    };
    if prefix.is_empty() {
        return Err(ConfigError::new(
            format!("`--store {store}` has no prefix"),
            help,
        ));
    }
    if let Some(account) = account {
        check_account("--store", account)?;
    }
    Ok((account, prefix))
}

/// Checks the name of an account: 3–24 lower-case letters and digits.
pub(super) fn check_account(setting: &str, account: &str) -> Result<(), ConfigError> {
    let plain = account
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if plain && (3..=24).contains(&account.len()) {
        return Ok(());
    }
    Err(ConfigError::new(
        format!(
            "{setting}: `{account}` is not the name of a storage account: those have 3 to 24 lower-case letters and digits"
        ),
        "give the account's own name, without host or path",
    ))
}
