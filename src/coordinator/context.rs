//! What all parts of one term of leadership share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::stats::Stats;
use super::window::Window;
use crate::env::Env;
use crate::protocol::{Layout, Leadership, Loss, ReadError};
use crate::record::Epoch;
use crate::store::Store;

/// Most workflows that take a turn at once.
pub(super) const TURNS_AT_ONCE: usize = 64;

/// One term of leadership. Its store refuses everything once the fence is closed.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) env: Env,
    pub(super) store: Store,
    pub(super) layout: Layout,
    pub(super) config: Config,
    pub(super) leadership: Arc<Leadership>,
    pub(super) stats: Arc<Stats>,
    pub(super) window: Window,
    /// How many workflows may take a turn at once: bounds requests, sockets and memory of all together.
    pub(super) turns: Semaphore,
    /// Set when the process is to stop: finish, do not wait.
    pub(super) stopping: CancellationToken,
    /// Whether the completion queue was drained once since the take-over (P12).
    pub(super) drained: AtomicBool,
}

impl Context {
    pub(super) fn epoch(&self) -> Epoch {
        self.leadership.epoch()
    }

    pub(super) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire)
    }

    /// Decides what a foreign epoch in a document means (P13): this leader stops for good, or epochs have gone back and its own is raised.
    pub(super) async fn met(&self, epoch: Epoch, whose: &str) -> Result<(), ReadError> {
        if self.leadership.still_leads().await? {
            tracing::warn!(met = %epoch, own = %self.epoch(), by = whose, "epoch_went_back");
            self.leadership.raise_epoch(epoch, &self.stopping).await?;
        } else {
            let what = format!("a document names epoch {epoch} of `{whose}`");
            self.leadership.fence().close(Loss::Superseded(what));
        }
        Ok(())
    }
}
