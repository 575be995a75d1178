//! What is watched at every message that is put or deleted.

use std::time::Duration;

use super::{AttemptKey, Inside, Oracle, Sent, standing};
use crate::record::{
    CompletionRecord, CompletionResult, ControlAction, ControlRecord, TaskMessage, decode_message,
};
use crate::sim::scheduler::hold;
use crate::sim::workload::queues;
use crate::store::{Message, Queue, Receipt};

/// A leader may take what it has sent for lost after so long (P26).
const LOST_DISPATCH_THRESHOLD: Duration = Duration::from_secs(250);
/// How long a received completion is hidden, with some room.
const COMPLETION_HIDDEN: Duration = Duration::from_secs(65);

impl Oracle {
    /// Whether it is a queue of tasks.
    pub(in crate::sim) fn is_task_queue(&self, queue: &Queue) -> bool {
        queues()
            .iter()
            .any(|name| self.layout.task_queue(name) == *queue)
    }

    /// Whether it is a person's request.
    pub(in crate::sim) fn is_request(&self, queue: &Queue, body: &str) -> bool {
        let is = |record: CompletionRecord| record.control.is_some();
        queue == self.layout.completions() && decode_message(body).is_ok_and(is)
    }

    /// A message was put.
    pub(in crate::sim) fn message_sent(
        &self,
        sent: Sent,
        queue: &Queue,
        body: &str,
        delay: Duration,
    ) {
        let mut inside = hold(&self.inside);
        if queue == self.layout.completions() {
            if let Ok(record) = decode_message::<CompletionRecord>(body) {
                for result in &record.results {
                    self.result_posted(&mut inside, sent, result);
                    let (id, run) = (&result.workflow_id, result.run_id);
                    let key = self.key(id, run, &result.task, result.attempt_no);
                    if let Some(key) = key {
                        let visible = self.scheduler.now() + delay;
                        inside.arrived.entry(key).or_insert(visible);
                    }
                }
                if let Some(asked) = record.control {
                    inside.asked.insert(asked.request_id, asked);
                }
            }
        } else if self.is_task_queue(queue) {
            if let Ok(message) = decode_message(body) {
                self.task_sent(&mut inside, sent, &message);
            }
        } else {
            inside.poisoned.insert(body.to_owned());
            let is_own = queue == self.layout.completions_poison();
            if is_own && decode_message::<CompletionRecord>(body).is_ok() {
                self.note(&mut inside, &format!("a good completion goes to {queue}"));
            }
            if decode_message::<TaskMessage>(body).is_ok() {
                inside.poison_tasks += 1;
            }
        }
    }

    fn task_sent(&self, inside: &mut Inside, sent: Sent, message: &TaskMessage) {
        let id = &message.workflow_id;
        let name = format!("{id}/{}/{}", message.task, message.attempt_no);
        let mark = if message.again { " again" } else { "" };
        let what = format!("{name} is sent{mark} in epoch {}", message.epoch);
        let now = self.scheduler.now();
        self.scheduler.trace.event(now, "QUEUES", &what);
        let key = self.key(id, message.run_id, &message.task, message.attempt_no);
        let issued = key.as_ref().and_then(|key| inside.issued.get(key));
        if issued != Some(&message.generation) {
            self.note(inside, &format!("{name} is sent before it is stored"));
        }
        if self.is_fenced(inside, sent, message.epoch) {
            self.note(
                inside,
                &format!("{name} is sent by the fenced epoch {}", message.epoch),
            );
        }
        if message.survives_stop != self.survives_stop(id, &message.task) {
            self.note(inside, &format!("{name} does not say what a stop means"));
        }
        let of = (message.run_id, message.generation);
        let stopped = inside.stopped_at.get(&of);
        let stopped = stopped.filter(|_| !message.survives_stop);
        let purged = inside.purged.get(&message.run_id);
        let cancelled = inside.cancelled_at.get(&of);
        let mut ended = cancelled.into_iter().chain(stopped).chain(purged);
        let broken_off = self.swarm.breaks_lease;
        if ended.any(|at| sent.at > *at) && !broken_off {
            self.note(
                inside,
                &format!("{name} is sent after its workflow was cancelled, stopped or purged"),
            );
        }
        let Some(key) = key else { return };
        for wrong in self.wrong_sending(inside, sent, &key, message) {
            self.note(inside, &format!("{name} {wrong}"));
        }
    }

    /// What is wrong with a sending in view of those before, and of what its leader must have done first.
    fn wrong_sending(
        &self,
        inside: &mut Inside,
        sent: Sent,
        key: &AttemptKey,
        message: &TaskMessage,
    ) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        if !message.again && !inside.unmarked.insert(*key) {
            wrong.push("is sent again without the mark");
        }
        let now = self.scheduler.now();
        let by = (*key, message.epoch);
        let known = inside.known_sent.get(&by);
        if known.is_some_and(|at| sent.at > *at && now < *at + LOST_DISPATCH_THRESHOLD) {
            wrong.push("is sent again by a leader that knows of its sending");
        }
        if sent.is_answered && !self.swarm.pauses {
            inside.known_sent.insert(by, now);
        }
        if self.swarm.breaks_lease {
            return wrong;
        }
        let shown = inside.row_places.get(&key.0);
        let mut shown = shown.into_iter().flatten();
        if !shown.any(|(_, _, epoch)| *epoch >= message.epoch) {
            wrong.push("is sent before its row shows the leader");
        }
        let began = match inside.leader {
            Some((epoch, _, since)) if epoch == message.epoch => since,
            _ => return wrong,
        };
        let waited = inside.arrived.get(key).is_some_and(|at| *at < began);
        let seen = inside.seen.get(key);
        let is_seen = seen.is_some_and(|at| *at + COMPLETION_HIDDEN >= began);
        if waited && !is_seen {
            wrong.push("is sent while its end waits to be received");
        }
        wrong
    }

    /// A message was received.
    pub(in crate::sim) fn message_received(&self, sent: Sent, queue: &Queue, message: &Message) {
        let key = (queue.clone(), message.receipt.message_id.clone());
        let mut inside = hold(&self.inside);
        inside.bodies.insert(key, message.body.clone());
        if self.is_task_queue(queue) {
            if let Ok(task) = decode_message(&message.body) {
                self.task_received(&mut inside, sent, message, &task);
            }
        } else if queue == self.layout.completions() {
            let Ok(record) = decode_message::<CompletionRecord>(&message.body) else {
                return;
            };
            let now = self.scheduler.now();
            for result in &record.results {
                let (id, run) = (&result.workflow_id, result.run_id);
                let key = self.key(id, run, &result.task, result.attempt_no);
                if let Some(key) = key {
                    inside.seen.insert(key, now);
                }
            }
        }
    }

    /// A message was deleted.
    pub(in crate::sim) fn message_deleted(&self, queue: &Queue, receipt: &Receipt) {
        let mut inside = hold(&self.inside);
        let key = (queue.clone(), receipt.message_id.clone());
        let Some(body) = inside.bodies.get(&key).cloned() else {
            return self.note(
                &mut inside,
                &format!("a message of {queue} is deleted unseen"),
            );
        };
        if inside.poisoned.contains(&body) {
            return;
        }
        if queue == self.layout.completions() {
            match decode_message::<CompletionRecord>(&body) {
                Ok(record) => {
                    for result in &record.results {
                        self.result_acknowledged(&mut inside, result);
                    }
                    if let Some(control) = &record.control {
                        self.request_acknowledged(&mut inside, control);
                    }
                }
                Err(_) => self.note(&mut inside, "garbage is deleted without a copy"),
            }
        } else if self.is_task_queue(queue) {
            match decode_message(&body) {
                Ok(message) => self.task_deleted(&mut inside, &message),
                Err(_) => self.note(&mut inside, "garbage is deleted without a copy"),
            }
        }
    }

    fn result_acknowledged(&self, inside: &mut Inside, result: &CompletionResult) {
        let id = &result.workflow_id;
        let name = format!("{id}/{}/{}", result.task, result.attempt_no);
        let Some(state) = inside.states.get(&result.run_id) else {
            return self.note(
                inside,
                &format!("the end of {name} is acknowledged without a state"),
            );
        };
        let place = self.place(id, &result.task);
        let Some((task, attempt)) = place.and_then(|place| standing(state, place)) else {
            return self.note(
                inside,
                &format!("the end of {name} is acknowledged, unheard of"),
            );
        };
        let later = (state.generation, attempt) > (result.generation, result.attempt_no);
        let ended = attempt == result.attempt_no && task.is_terminal();
        if !later && !ended {
            self.note(
                inside,
                &format!("the end of {name} is acknowledged before it is stored"),
            );
        }
    }

    fn request_acknowledged(&self, inside: &mut Inside, control: &ControlRecord) {
        let id = &control.workflow_id;
        let known = match control.action {
            ControlAction::Submit => inside.states.contains_key(&control.run_id),
            ControlAction::Cancel | ControlAction::Retry | ControlAction::Purge => {
                inside.answered.contains(&control.request_id)
                    || inside.purged.contains_key(&control.run_id)
            }
        };
        if !known {
            let action = control.action.word();
            self.note(
                inside,
                &format!("a {action} of {id} is acknowledged without an answer"),
            );
        }
    }

    fn task_deleted(&self, inside: &mut Inside, message: &TaskMessage) {
        let id = &message.workflow_id;
        let name = format!("{id}/{}/{}", message.task, message.attempt_no);
        let key = self.key(id, message.run_id, &message.task, message.attempt_no);
        let Some(key) = key else {
            return self.note(
                inside,
                &format!("the message of {name} is deleted, unheard of"),
            );
        };
        let old = inside.states.get(&key.0).is_some_and(|state| {
            let ended = standing(state, key.1)
                .is_some_and(|(task, attempt)| attempt > message.attempt_no || task.is_terminal());
            // A retry begins with the end of all that was issued before it.
            ended || state.generation > message.generation
        });
        if !old && !inside.posted.contains(&key) {
            self.note(
                inside,
                &format!("the message of {name} is deleted before its end is posted"),
            );
        }
    }
}
