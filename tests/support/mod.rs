//! What integration tests share.

pub(crate) mod azurite;
pub(crate) mod process;
pub(crate) mod sources;
pub(crate) mod stack;
