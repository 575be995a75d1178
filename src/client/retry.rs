//! Asks for another run of what failed (P29).

use std::time::Duration;

use crate::client::control::{Ask, Seen};
use crate::client::{Answer, Client, ClientError, Result};
use crate::definition::WorkflowId;
use crate::engine::TaskState;
use crate::record::{ControlAction, RuntimeRecord};

impl Client {
    /// Asks to run again what is failed, upstream_failed or cancelled, and waits up to `wait` for the answer.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: it has not ended, or has nothing to run again, or another request was faster.
    ///
    /// # Cancel safety
    /// May be dropped at any await: the request is then either sent or not, never half.
    pub async fn retry(&self, id: &WorkflowId, wait: Duration) -> Result<Answer> {
        let refused = |why: String| ClientError::Refused {
            id: id.clone(),
            why,
        };
        let definition = self.definition(id).await?;
        let Some(runtime) = self.runtime(&definition).await? else {
            return Err(refused("has not started yet".to_owned()));
        };
        if !runtime.status.is_final() {
            return Err(refused(format!(
                "has not ended: it is `{}`",
                runtime.status
            )));
        }
        let states =
            runtime
                .task_states()
                .map_err(|source| crate::protocol::ReadError::Decode {
                    place: self.layout.runtime(id).to_string(),
                    source,
                })?;
        if !states.into_iter().any(TaskState::is_dep_failed) {
            return Err(refused(
                "has nothing to run again: no task failed".to_owned(),
            ));
        }
        let ask = Ask {
            action: ControlAction::Retry,
            run_id: runtime.run_id,
            generation: runtime.generation,
            control_seq: runtime.control_seq,
        };
        let request = self.send(id, ask).await?;
        self.answer(id, &ask, request, wait, |runtime| seen(&ask, runtime))
            .await
    }
}

/// A retry is applied only to the state it names. Whose retry moved it on is told by the answers alone; an applied one is kept
/// longer than refused ones.
pub(super) fn seen(ask: &Ask, runtime: &RuntimeRecord) -> Seen {
    let is_named = runtime.generation == ask.generation && runtime.control_seq == ask.control_seq;
    if is_named {
        Seen::Open
    } else {
        Seen::Passed("another request was served meanwhile")
    }
}
