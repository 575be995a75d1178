//! What integration tests share.

pub(crate) mod azurite;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod sources;
pub(crate) mod stack;
pub(crate) mod wire;
