//! From `--store` to a store: the one place where the command line meets Azure.

use std::time::Duration;

use super::Context;
use super::error::CliError;
use crate::client::Client;
use crate::doctor::SIGNATURE_SOON;
use crate::env::real;
use crate::protocol::Layout;
use crate::store::Store;
use crate::store::azure::{AzureConfig, AzureStore};
use crate::store::layers::retry::{Policy, Retry};

/// How long a command waits for a store that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// An opened store. No request has been made.
#[derive(Debug)]
pub(super) struct Opened {
    /// The three services, without any retry.
    pub(super) store: Store,
    /// The names of the prefix.
    pub(super) layout: Layout,
    /// What led there.
    pub(super) config: AzureConfig,
}

/// Opens what `--store` names.
pub(super) fn open(context: &Context) -> Result<Opened, CliError> {
    let Some(words) = &context.global.store else {
        return Err(CliError::usage(
            "no store is named: neither `--store` nor WORKFLOW_STORE is set",
        )
        .help(
            "give `--store ACCOUNT/PREFIX`, or `--store devstoreaccount1/PREFIX` for the emulator; `workflow run FILE` needs no store",
        ));
    };
    let connection = real::var("AZURE_STORAGE_CONNECTION_STRING");
    let (config, prefix) = AzureConfig::resolve(words.trim(), connection.as_deref())?;
    let layout = Layout::new(&prefix)?;
    let store = AzureStore::open(&config, context.env.clone())?;
    Ok(Opened {
        store,
        layout,
        config,
    })
}

/// Says when a signature will not last: work may take longer than it does.
pub(super) fn warn_of_end(context: &Context, config: &AzureConfig) {
    let Some(ends_at) = config.expires_at() else {
        return;
    };
    if ends_at.duration_since(context.env.wall()) < SIGNATURE_SOON {
        tracing::warn!(
            %ends_at,
            "signature_ends_soon: get one that lasts longer than the work"
        );
    }
}

/// The same store, with some patience: what was not carried out is tried again for a while.
pub(super) fn patient(context: &Context, store: &Store) -> Store {
    Retry::wrap(store.clone(), context.env.clone(), Policy::within(PATIENCE))
}

/// A client of what `--store` names, with some patience.
pub(super) fn client(context: &Context) -> Result<Client, CliError> {
    let Opened { store, layout, .. } = open(context)?;
    let store = patient(context, &store);
    Ok(Client::new(
        context.env.clone(),
        store,
        layout,
        real::actor(),
    ))
}
