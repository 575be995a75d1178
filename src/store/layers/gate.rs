//! The fence of a process that may lose its right to act.
//!
//! Invariants:
//! 1. While the gate says no, no request is sent, whichever it is; each is [`Kind::Fenced`].

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Call, Layer, Weight, wrap};
use crate::store::{Kind, Result, Store};

/// Says whether requests may be sent now.
pub type Allow = Arc<dyn Fn() -> bool + Send + Sync>;

/// Refuses every request while it is closed.
pub struct Gate {
    allow: Allow,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    /// `store`, open while `allow` says so; it is asked before each request.
    #[must_use]
    pub fn wrap(store: Store, allow: Allow) -> Store {
        wrap(store, Arc::new(Self { allow }))
    }
}

impl Layer for Gate {
    async fn around<'a, T: Weight>(
        &'a self,
        call: Call<'a>,
        send: impl Fn() -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    ) -> Result<T> {
        if (self.allow)() {
            send().await
        } else {
            Err(call.fail(Kind::Fenced, "nothing was sent"))
        }
    }
}
