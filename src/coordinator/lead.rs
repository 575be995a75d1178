//! One coordinator process: waiting to lead, terms of leadership, and how they end (P11–P15).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::config::{Config, ConfigError};
use super::context::Context;
use super::receive::receive;
use super::registry::Registry;
use super::sweep::sweep;
use crate::env::{Env, Pulse, TURN_MAX};
use crate::protocol::{
    Candidate, Layout, Leader, Leadership, Loss, Pauses, ReadError, Try, break_lease, note,
    try_to_lead,
};
use crate::record::{JournalAction, JournalRecord, JournalResult, Record};
use crate::store::{Kind, Store, StoreError};

/// The shortest time between two notes of statistics in the sentinel.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(30);
/// How long a standby waits between two looks at the lease.
const STANDBY_INTERVAL: Duration = Duration::from_secs(1);

/// Why a coordinator ended, other than by being told to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoordinatorError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another coordinator leads.
    #[error("another coordinator leads this prefix: {}, for {} s", holder(.0), .0.age.as_secs())]
    Held(Leader),
    /// Another coordinator took over.
    #[error("this coordinator leads no more: {0}")]
    Superseded(String),
    /// The receive loop stood still, so leadership was given up.
    #[error("the receive loop made no turn for {} s, leadership was given up", TURN_MAX.as_secs())]
    Stalled,
    /// The store did not let it begin.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<StoreError> for CoordinatorError {
    fn from(error: StoreError) -> Self {
        Self::Read(error.into())
    }
}

fn holder(leader: &Leader) -> String {
    let name = leader.holder.as_deref().unwrap_or("unknown");
    format!("`{name}` in epoch {}", leader.epoch)
}

/// Coordinates the workflows of a prefix until `stop` is set. Containers, tables and queues exist already; those deleted later are made again.
///
/// # Errors
/// Why it ended before that.
pub async fn run(
    env: Env,
    store: Store,
    layout: Layout,
    config: Config,
    pulse: Arc<Pulse>,
    stop: CancellationToken,
) -> Result<(), CoordinatorError> {
    config.validate()?;
    let mut may_break = config.break_lease;
    let mut has_led = false;
    loop {
        let standing = Standing {
            env: &env,
            store: &store,
            layout: &layout,
            config: &config,
            pulse: &pulse,
            has_led,
            stop: &stop,
        };
        let leader = become_leader(&standing, &mut may_break);
        let leadership = match pulse.wait(&env, leader).await? {
            Some(leadership) => Arc::new(leadership),
            None => return Ok(()),
        };
        has_led = true;
        pulse.lacks_nothing();
        tracing::info!(holder = leadership.holder(), epoch = %leadership.epoch(), "leading");
        let ended = term(&env, &layout, &config, leadership, &pulse, &stop).await;
        pulse.lacks("leadership: lost");
        match ended {
            None => return Ok(()),
            Some(Loss::Superseded(by)) => return Err(CoordinatorError::Superseded(by)),
            Some(Loss::Stalled) => return Err(CoordinatorError::Stalled),
            // Nobody else is known to lead: the way to go on is to stand again.
            Some(Loss::Lapsed) => tracing::error!("leadership_lapsed"),
        }
    }
}

/// What a process that wants to lead goes by.
#[derive(Debug, Clone, Copy)]
struct Standing<'a> {
    env: &'a Env,
    store: &'a Store,
    layout: &'a Layout,
    config: &'a Config,
    pulse: &'a Pulse,
    has_led: bool,
    stop: &'a CancellationToken,
}

/// Tries to lead until it does; none when told to stop.
async fn become_leader(
    standing: &Standing<'_>,
    may_break: &mut bool,
) -> Result<Option<Leadership>, CoordinatorError> {
    let Standing {
        env,
        store,
        layout,
        config,
        pulse,
        has_led,
        stop,
    } = *standing;
    let candidate = Candidate {
        holder: config.holder.clone(),
        lease: config.lease_duration,
    };
    let mut pauses = Pauses::from(Duration::from_millis(500));
    let mut waiting_for: Option<Option<String>> = None;
    while !stop.is_cancelled() {
        let pause = match try_to_lead(env, store, layout, &candidate, stop).await {
            Ok(Try::Leads(leadership)) => return Ok(Some(*leadership)),
            Ok(Try::Held(leader)) if *may_break => {
                *may_break = false;
                let broken = break_lease(store, layout).await?;
                tracing::warn!(holder = holder(&leader), broken, "lease_broken");
                if broken {
                    let entry = JournalRecord {
                        schema: JournalRecord::SCHEMA,
                        at: env.wall(),
                        actor: config.actor.clone(),
                        action: JournalAction::BreakLease,
                        workflow_id: None,
                        request_id: None,
                        result: JournalResult::Applied,
                        detail: Some(format!("of {}", holder(&leader))),
                    };
                    note(env, store, layout, &entry).await;
                }
                continue;
            }
            Ok(Try::Held(leader)) if config.standby => {
                pulse.lacks(format!("leadership: standby, {} leads", holder(&leader)));
                if waiting_for.as_ref() != Some(&leader.holder) {
                    tracing::info!(
                        holder = holder(&leader),
                        age_s = leader.age.as_secs(),
                        "standing_by"
                    );
                    waiting_for = Some(leader.holder);
                }
                STANDBY_INTERVAL
            }
            Ok(Try::Held(leader)) => return Err(CoordinatorError::Held(leader)),
            Err(error) if config.standby || has_led => {
                tracing::warn!(error = %error, "cannot_stand");
                if matches!(&error, ReadError::Store(error) if error.kind == Kind::NoResource) {
                    recreate(store, layout).await;
                }
                pauses.next(env, None)
            }
            Err(error) => return Err(error.into()),
        };
        tokio::select! {
            biased;
            () = env.sleep(pause) => {}
            () = stop.cancelled() => {}
        }
    }
    Ok(None)
}

/// What was deleted is made again; what was in it is gone.
async fn recreate(store: &Store, layout: &Layout) {
    match layout.create(store).await {
        Ok(()) => tracing::warn!("storage_was_missing"),
        Err(error) => tracing::warn!(error = %error, "storage_not_made"),
    }
}

/// One term; none when it ended because the process was told to stop.
async fn term(
    env: &Env,
    layout: &Layout,
    config: &Config,
    leadership: Arc<Leadership>,
    pulse: &Pulse,
    stop: &CancellationToken,
) -> Option<Loss> {
    let fence = Arc::clone(leadership.fence());
    let ctx = Arc::new(Context::new(
        env,
        layout,
        config,
        Arc::clone(&leadership),
        stop,
    ));
    let registry = Registry::new();
    pulse.turn(env);
    let work = async {
        tokio::join!(
            receive(&ctx, &registry, pulse),
            sweep(&ctx, &registry),
            report(&ctx)
        );
        pulse.wait(env, registry.all_ended()).await;
    };
    let keep = async {
        // Renewing goes on while the work ends in order, but no stall is looked for then.
        leadership
            .keep(|| stop.is_cancelled() || pulse.is_alive(env))
            .await;
    };
    tokio::select! {
        biased;
        () = work => {}
        () = keep => {}
    }
    registry.abort_all();
    match fence.loss() {
        Some(loss) => {
            tracing::error!(loss = ?loss, "leadership_lost");
            Some(loss)
        }
        None if stop.is_cancelled() && ctx.in_doubt.load(Ordering::Acquire) => {
            // A write may still be on its way: whoever leads next must not begin before it can arrive no more.
            tracing::warn!("lease_left_to_run_out");
            None
        }
        None if stop.is_cancelled() => {
            if leadership.release(ctx.stats.snapshot()).await {
                tracing::info!("lease_released");
            }
            None
        }
        None => {
            fence.close(Loss::Lapsed);
            Some(Loss::Lapsed)
        }
    }
}

/// Logs the statistics now and then, and stores them in the sentinel.
async fn report(ctx: &Context) {
    let mut stored_at = ctx.env.mono();
    let (mut logged, mut stored) = (BTreeMap::new(), BTreeMap::new());
    loop {
        tokio::select! {
            biased;
            () = ctx.env.sleep(ctx.config.stats_interval) => {}
            () = ctx.stopping.cancelled() => return,
            () = ctx.leadership.fence().closed().cancelled() => return,
        }
        let stats = ctx.stats.snapshot();
        if stats != logged {
            tracing::info!(stats = ?stats, "statistics");
            logged.clone_from(&stats);
        }
        // Apart from the log: what came too soon after the last is stored later, also where nothing has changed since.
        if stats != stored && ctx.env.mono().since(stored_at) >= STATISTICS_INTERVAL {
            stored_at = ctx.env.mono();
            let storing = ctx
                .leadership
                .store_statistics(stats.clone(), &ctx.stopping);
            match storing.await {
                Ok(()) => stored = stats,
                Err(error) => tracing::debug!(error = %error, "statistics_not_stored"),
            }
        }
    }
}
