//! `dagaz`: a coordinator for DAG-shaped batch pipelines that needs an Azure storage account and nothing else.
//!
//! Start with `docs/architecture.md`. The layers, from the bottom: [`mod@env`], [`store`], [`definition`], [`engine`], [`record`],
//! [`protocol`], then the four services [`coordinator`], [`worker`], [`client`] and [`doctor`], which meet only in storage.

pub mod cli;
pub mod client;
pub mod coordinator;
pub mod definition;
pub mod doctor;
pub mod engine;
pub mod env;
pub mod local;
pub mod protocol;
pub mod record;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod store;
pub mod worker;
