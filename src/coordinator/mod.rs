//! The coordinator.

mod config;

pub use config::{Config, ConfigError, MAX_OUTSTANDING_AZURE, MAX_OUTSTANDING_EMULATOR};
