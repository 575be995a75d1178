//! The state of one workflow in the memory of its leader, and how news is applied to it. No request is made here.
//!
//! Invariants:
//! 1. A pass is applied to a state just loaded or just stored; if it is not stored, the book is thrown away with it.
//! 2. Nothing that a pass says may be acted on before its state is stored.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::purge::Purger;
use crate::definition::{Definition, QueueName};
use crate::engine::{
    Applied, AttemptId, Changes, Generation, Outcome, RetryAfter, Runtime, TaskIx, TaskState,
    retry_delay_limit,
};
use crate::env::Env;
use crate::protocol::Outbox;
use crate::record::{
    CompletionResult, ControlAction, ControlRecord, ControlResult, ControlSeq, DefinitionRecord,
    Epoch, IndexRecord, JournalRecord, JournalResult, Record, Revision, RuntimeRecord, Stamp,
};

/// A workflow as its leader knows it.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) definition: Arc<DefinitionRecord>,
    pub(super) runtime: Runtime,
    pub(super) revision: Revision,
    created_at: Timestamp,
    control_seq: ControlSeq,
    control_results: Vec<ControlResult>,
}

/// What is to become of the message behind a piece of news, once the state is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Handled,
    /// The state never issued what the news speaks of.
    Unissued,
    /// It is of another life of the id: one that was purged, or one that a later leader has begun.
    OtherLife,
}

/// What a pass over news did.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Whether the state must be stored.
    pub(super) changed: bool,
    /// What follows from it.
    pub(super) changes: Changes,
    /// The workflow leaves a final state: its row must be opened first.
    pub(super) reopens: bool,
    /// A cancel came by message: the row is to show it.
    pub(super) cancelled: Option<Generation>,
    /// A purge was applied: the state is to become a tombstone.
    pub(super) purged: Option<Purger>,
    /// Answers, for the journal.
    pub(super) answered: Vec<JournalRecord>,
    pub(super) applied: u64,
    pub(super) old_news: u64,
}

/// The journal entry of an answer.
pub(super) fn answer(env: &Env, asked: &ControlRecord, refused: Option<String>) -> JournalRecord {
    JournalRecord {
        schema: JournalRecord::SCHEMA,
        at: env.wall(),
        actor: asked.actor.clone(),
        action: asked.action.into(),
        workflow_id: Some(asked.workflow_id.clone()),
        request_id: Some(asked.request_id),
        result: if refused.is_none() {
            JournalResult::Applied
        } else {
            JournalResult::Refused
        },
        detail: refused,
    }
}

/// The answer to a request that a purge was faster than; a purge itself has got what it asked for.
pub(super) fn refused_by_purge(env: &Env, asked: &ControlRecord) -> Option<JournalRecord> {
    match asked.action {
        ControlAction::Cancel | ControlAction::Retry => Some(answer(
            env,
            asked,
            Some("it was purged meanwhile".to_owned()),
        )),
        ControlAction::Submit | ControlAction::Purge => None,
    }
}

impl Book {
    /// The book of a workflow that starts now.
    pub(super) fn new(definition: Arc<DefinitionRecord>, runtime: Runtime, now: Timestamp) -> Self {
        Self {
            definition,
            runtime,
            revision: Revision::new(0),
            created_at: now,
            control_seq: ControlSeq::new(0),
            control_results: Vec::new(),
        }
    }

    /// The book of a stored state.
    pub(super) fn restored(
        definition: Arc<DefinitionRecord>,
        runtime: Runtime,
        record: RuntimeRecord,
    ) -> Self {
        Self {
            definition,
            runtime,
            revision: record.revision,
            created_at: record.created_at,
            control_seq: record.control_seq,
            control_results: record.control_results,
        }
    }

    pub(super) fn what(&self) -> &Definition {
        &self.definition.definition
    }

    /// The queue of a task.
    pub(super) fn queue(&self, task: TaskIx) -> &QueueName {
        let definition = self.what();
        definition.tasks[task.at()]
            .queue
            .as_ref()
            .unwrap_or(&definition.default_queue)
    }

    /// Applies how an attempt ended.
    pub(super) fn apply_result(
        &mut self,
        env: &Env,
        outbox: &Outbox,
        news: &CompletionResult,
        pass: &mut Pass,
    ) -> Fate {
        if news.run_id != self.definition.run_id {
            pass.old_news += 1;
            return Fate::OtherLife;
        }
        let Some(task) = self.runtime.graph().find(&news.task) else {
            return Fate::Unissued;
        };
        let id = AttemptId {
            task,
            generation: news.generation,
            attempt: news.attempt_no,
        };
        // Where a stop ends the task, that is what the worker speaks of; a request, if there is one, is read from the row.
        let by_request =
            self.runtime.place_of(id) == Applied::Changed && !self.runtime.is_stopped(task);
        if let (true, Outcome::Cancelled(generation)) = (by_request, &news.report.outcome) {
            // The worker has read the request on the row before this leader did.
            self.cancel(env, outbox, *generation, pass);
        }
        let failures = self.runtime.task(task).failures.saturating_add(1);
        let delay = env.jitter(retry_delay_limit(failures));
        let retry = RetryAfter {
            now: env.wall(),
            delay,
        };
        let maybe_sent = |task, attempt| outbox.maybe_sent(task, attempt);
        match self.runtime.apply_report(
            id,
            news.report.clone(),
            retry,
            maybe_sent,
            &mut pass.changes,
        ) {
            Applied::Changed => {
                pass.changed = true;
                pass.applied += 1;
                Fate::Handled
            }
            Applied::OldNews => {
                pass.old_news += 1;
                Fate::Handled
            }
            Applied::Unissued => Fate::Unissued,
        }
    }

    /// Applies a cancel of `generation`; tells why not.
    pub(super) fn cancel(
        &mut self,
        env: &Env,
        outbox: &Outbox,
        generation: Generation,
        pass: &mut Pass,
    ) -> Option<String> {
        let status = self.runtime.status();
        if generation != self.runtime.generation() {
            return Some("it was retried meanwhile".to_owned());
        }
        if status.is_final() {
            return Some(format!("it is already {status}"));
        }
        let maybe_sent = |task, attempt| outbox.maybe_sent(task, attempt);
        if self
            .runtime
            .cancel(env.wall(), maybe_sent, &mut pass.changes)
            == Applied::Changed
        {
            pass.changed = true;
        }
        None
    }

    /// Applies a request, once, and keeps its answer.
    pub(super) fn apply_control(
        &mut self,
        env: &Env,
        outbox: &Outbox,
        asked: &ControlRecord,
        pass: &mut Pass,
    ) -> Fate {
        if asked.run_id != self.definition.run_id {
            pass.old_news += 1;
            return Fate::OtherLife;
        }
        let known = self
            .control_results
            .iter()
            .any(|result| result.request_id == asked.request_id);
        if known {
            pass.old_news += 1;
            return Fate::Handled;
        }
        if pass.purged.is_some() {
            pass.old_news += 1;
            pass.answered.extend(refused_by_purge(env, asked));
            return Fate::Handled;
        }
        let refused = match asked.action {
            // To be taken up is all it asks for, and that has happened.
            ControlAction::Submit => return Fate::Handled,
            ControlAction::Cancel => {
                let refused = self.cancel(env, outbox, asked.generation, pass);
                pass.cancelled = if refused.is_none() {
                    Some(asked.generation)
                } else {
                    pass.cancelled
                };
                refused
            }
            ControlAction::Retry => self.rerun(asked, pass),
            ControlAction::Purge => self.purge(asked, pass),
        };
        if refused.is_none() {
            self.control_seq = self.control_seq.next();
        }
        tracing::info!(
            workflow = %asked.workflow_id,
            action = asked.action.word(),
            actor = asked.actor,
            refused = refused.as_deref(),
            "request_answered"
        );
        pass.answered.push(answer(env, asked, refused.clone()));
        self.control_results.push(ControlResult {
            request_id: asked.request_id,
            action: asked.action,
            actor: asked.actor.clone(),
            answered_at: env.wall(),
            refused,
        });
        if self.control_results.len() > RuntimeRecord::CONTROL_RESULTS_MAX {
            // Whoever was refused can tell that from the state; that a request was applied, nothing but its answer tells.
            let mut results = self.control_results.iter();
            let refused = results.position(|result| result.refused.is_some());
            self.control_results.remove(refused.unwrap_or(0));
        }
        pass.changed = true;
        Fate::Handled
    }

    /// Judges a purge: only of what has ended, as the asker saw it.
    fn purge(&self, asked: &ControlRecord, pass: &mut Pass) -> Option<String> {
        let status = self.runtime.status();
        if !status.is_final() {
            return Some(format!("it is still {status}"));
        }
        let seen = (asked.generation, asked.control_seq);
        if seen != (self.runtime.generation(), self.control_seq) {
            return Some("another request was served meanwhile".to_owned());
        }
        pass.purged = Some(Purger {
            request_id: asked.request_id,
            actor: asked.actor.clone(),
        });
        None
    }

    fn rerun(&mut self, asked: &ControlRecord, pass: &mut Pass) -> Option<String> {
        let status = self.runtime.status();
        if !status.is_final() {
            return Some(format!("it is still {status}"));
        }
        if asked.control_seq != self.control_seq {
            return Some("another request was served meanwhile".to_owned());
        }
        if self.runtime.rerun(&mut pass.changes) != Applied::Changed {
            return Some(format!("it is {status} and has nothing to run again"));
        }
        pass.reopens = true;
        None
    }

    /// The grace of a cancel or a stop that is left, `used` of it since it was last noted.
    pub(super) fn grace_left(&self, grace: Duration, used: Duration) -> Option<Duration> {
        let noted = self.runtime.grace_used()?;
        Some(grace.saturating_sub(noted + used))
    }

    /// The record of the state as it is now, one revision on, but for its tasks.
    pub(super) fn record(
        &self,
        epoch: Epoch,
        holder: &str,
        stamp: Stamp,
        now: Timestamp,
    ) -> RuntimeRecord {
        RuntimeRecord {
            schema: RuntimeRecord::SCHEMA,
            workflow_id: self.definition.workflow_id.clone(),
            run_id: self.definition.run_id,
            generation: self.runtime.generation(),
            epoch,
            holder: holder.to_owned(),
            stamp,
            revision: self.revision.next(),
            status: self.runtime.status(),
            reason: self.runtime.first_failure().map(ToOwned::to_owned),
            control_seq: self.control_seq,
            control_results: self.control_results.clone(),
            cancel: self.runtime.cancel_applied().copied(),
            stop: self.runtime.stop_in_force().copied(),
            created_at: self.created_at,
            updated_at: now,
            states: String::new(),
            tasks: Vec::new(),
            packed: None,
        }
    }

    /// The generation whose running tasks are to stop because another failed.
    pub(super) fn stopping(&self) -> Option<Generation> {
        let stop = self.runtime.stop_in_force();
        stop.map(|_| self.runtime.generation())
    }

    /// The index row that shows this state.
    pub(super) fn index(&self, epoch: Epoch, now: Timestamp) -> IndexRecord {
        let counts = self.runtime.counts();
        let count = |state: TaskState| (state.word().to_owned(), counts.of(state) as u64);
        let status = self.runtime.status();
        let failure = self.runtime.first_failure();
        let why = RuntimeRecord::why(status, &self.control_results, failure);
        IndexRecord {
            schema: IndexRecord::SCHEMA,
            workflow_id: self.definition.workflow_id.clone(),
            name: self
                .what()
                .name
                .clone()
                .unwrap_or_else(|| self.definition.workflow_id.to_string()),
            run_id: self.definition.run_id,
            generation: self.runtime.generation(),
            epoch,
            revision: self.revision,
            status,
            reason: why.unwrap_or_default(),
            total: self.runtime.graph().len() as u64,
            counts: TaskState::ALL
                .into_iter()
                .map(count)
                .filter(|(_, count)| *count > 0)
                .collect(),
            control_seq: self.control_seq,
            cancel_requested: None,
            stopping: self.stopping(),
            created_at: self.definition.submitted_at,
            updated_at: now,
        }
    }
}
