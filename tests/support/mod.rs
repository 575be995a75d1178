//! What integration tests share.
