//! The leader's own clock on its leadership: nothing is issued once the lease may have ended (P14).
//!
//! Invariants:
//! 1. Open only while the last good renewal was *sent* less than three quarters of the lease ago, by a clock that counts suspended time.
//! 2. Closing is final for one term of leadership, also where its time was over for a moment only: who has met it closed has given up.

use std::sync::Mutex;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::env::{Env, Mono};

/// Why a term of leadership ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The lease could not be renewed in time.
    Lapsed,
    /// Another coordinator leads, or the lease was broken or taken.
    Superseded(String),
    /// The work loop made no turn for too long.
    Stalled,
}

#[derive(Debug)]
struct Inside {
    closes_at: Mono,
    loss: Option<Loss>,
}

/// Says whether this leader may still act.
#[derive(Debug)]
pub struct Fence {
    env: Env,
    open_for: Duration,
    inside: Mutex<Inside>,
    closed: CancellationToken,
}

impl Fence {
    /// A fence for a lease of `lease`, acquired by a request sent at `sent_at`.
    #[must_use]
    pub fn new(env: Env, lease: Duration, sent_at: Mono) -> Self {
        let open_for = lease * 3 / 4;
        let inside = Mutex::new(Inside {
            closes_at: sent_at.plus(open_for),
            loss: None,
        });
        Self {
            env,
            open_for,
            inside,
            closed: CancellationToken::new(),
        }
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes a good renewal that was sent at `sent_at`.
    pub fn renewed(&self, sent_at: Mono) {
        let mut inside = self.inside();
        inside.closes_at = inside.closes_at.max(sent_at.plus(self.open_for));
    }

    /// Closes it for good; the first reason counts.
    pub fn close(&self, loss: Loss) {
        self.inside().loss.get_or_insert(loss);
        self.closed.cancel();
    }

    /// Whether this leader may act now. Once it was not, a renewal whose reply comes late opens nothing again.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let inside = self.inside();
        let (is_lost, is_over) = (inside.loss.is_some(), self.env.mono() >= inside.closes_at);
        drop(inside);
        if is_over && !is_lost {
            self.close(Loss::Lapsed);
        }
        !is_lost && !is_over
    }

    /// How long it stays open without another renewal.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.inside().closes_at.since(self.env.mono())
    }

    /// Why it was closed; none while it was not.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.inside().loss.clone()
    }

    /// Set when it is closed.
    #[must_use]
    pub const fn closed(&self) -> &CancellationToken {
        &self.closed
    }
}
