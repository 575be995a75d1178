//! Follows a workflow to its end by reading it again and again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::read::Stage;
use crate::client::view::{TaskView, WorkflowView};
use crate::client::{Client, ClientError, Result};
use crate::definition::{TaskName, WorkflowId};
use crate::env::Mono;
use crate::protocol::Kept;
use crate::record::DefinitionRecord;

/// The pause after something changed, and where pauses start to grow.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A read that took long is not repeated sooner than this many times its length.
const REST_FACTOR: u32 = 3;

/// A workflow that changed since it was last looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The workflow now.
    pub view: WorkflowView,
    /// The tasks that changed, as places in `view.tasks`; all of them the first time.
    pub changed: Vec<usize>,
}

impl Update {
    /// The tasks that changed.
    pub fn changed_tasks(&self) -> impl Iterator<Item = &TaskView> {
        self.changed.iter().map(|at| &self.view.tasks[*at])
    }
}

/// Tells whether a queued task runs: for who knows it sooner than the claims.
#[derive(Clone)]
pub struct Running(pub Arc<dyn Fn(&TaskName) -> bool + Send + Sync>);

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

/// A watch over one workflow.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    definition: Arc<DefinitionRecord>,
    last: Option<WorkflowView>,
    kept: Kept,
    pause: Duration,
    pause_min: Duration,
    pause_max: Duration,
    runs: Option<Running>,
    limit: Option<Duration>,
    started: Mono,
    in_trouble: bool,
}

impl Client {
    /// Begins to watch a workflow, for at most `limit`.
    ///
    /// # Errors
    /// [`ClientError::NoWorkflow`], or what keeps it from being read.
    pub async fn watch(&self, id: &WorkflowId, limit: Option<Duration>) -> Result<Watch> {
        Ok(Watch {
            definition: self.definition(id).await?,
            last: None,
            kept: Kept::default(),
            pause: Duration::ZERO,
            pause_min: PAUSE_MIN,
            pause_max: PAUSE_MAX,
            runs: None,
            limit,
            started: self.env.mono(),
            in_trouble: false,
            client: self.clone(),
        })
    }
}

impl Watch {
    /// For a store in this process, where looking costs little: looks after `pause` while things change, and after ten times that
    /// at the latest. `runs` tells which queued tasks run.
    #[must_use]
    pub fn nearby(mut self, pause: Duration, runs: Running) -> Self {
        self.pause_min = pause;
        self.pause_max = pause * 10;
        self.runs = Some(runs);
        self
    }

    /// Waits for the next change; none once the end was shown. A store that does not answer for a while is waited for.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`], or what will not change by waiting.
    ///
    /// # Cancel safety
    /// May be dropped at any await and called again; no change is lost.
    pub async fn next(&mut self) -> Result<Option<Update>> {
        if let Some(last) = &self.last
            && last.summary.status.is_final()
        {
            return Ok(None);
        }
        loop {
            self.rest().await?;
            let before = self.client.env.mono();
            let view = match self.look().await {
                Ok(view) => view,
                Err(error)
                    if error
                        .store()
                        .is_some_and(crate::store::StoreError::is_transient) =>
                {
                    if !self.in_trouble {
                        tracing::warn!(%error, "watch_interrupted");
                    }
                    self.in_trouble = true;
                    self.pause = self.pause_max;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.in_trouble {
                tracing::warn!("recovered");
                self.in_trouble = false;
            }
            let took = self.client.env.mono().since(before);
            if let Some(changed) = changes(self.last.as_ref(), &view) {
                self.pause = self.pause_min.max(took * REST_FACTOR);
                self.last = Some(view.clone());
                return Ok(Some(Update { view, changed }));
            }
            let longer = (self.pause * 2).clamp(self.pause_min, self.pause_max);
            self.pause = longer.max(took * REST_FACTOR);
        }
    }

    async fn look(&self) -> Result<WorkflowView> {
        let stage = Stage {
            definition: Arc::clone(&self.definition),
            runtime: self
                .client
                .runtime_again(&self.definition, &self.kept)
                .await?,
        };
        let mut view = self.client.view(&stage).await?;
        if let Some(Running(runs)) = &self.runs {
            view.mark_running(|name| runs(name));
        }
        Ok(view)
    }

    /// Pauses, up to the end of the time given.
    async fn rest(&self) -> Result<()> {
        let env = &self.client.env;
        let Some(limit) = self.limit else {
            env.sleep(self.pause).await;
            return Ok(());
        };
        let left = limit.saturating_sub(env.mono().since(self.started));
        if left.is_zero() && (self.last.is_some() || self.in_trouble) {
            return Err(ClientError::TimedOut {
                id: self.definition.workflow_id.clone(),
                limit,
            });
        }
        env.sleep(self.pause.min(left)).await;
        Ok(())
    }
}

/// The places of tasks that differ; none when nothing worth telling does.
fn changes(last: Option<&WorkflowView>, now: &WorkflowView) -> Option<Vec<usize>> {
    let Some(last) = last else {
        return Some((0..now.tasks.len()).collect());
    };
    let pairs = last.tasks.iter().zip(&now.tasks).enumerate();
    let differ = pairs.filter(|(_, (old, new))| old != new);
    let changed: Vec<usize> = differ.map(|(at, _)| at).collect();
    let same = changed.is_empty()
        && last.summary.status == now.summary.status
        && last.summary.reason == now.summary.reason;
    (!same).then_some(changed)
}
