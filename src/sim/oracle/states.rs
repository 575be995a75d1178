//! What is watched at every write of a blob.

use std::time::Duration;

use bytes::Bytes;

use super::{Inside, Oracle, Sent, standing};
use crate::definition::OnFailure;
use crate::engine::{AttemptReport, FailureKind, Outcome, TaskIx, TaskState};
use crate::protocol::Layout;
use crate::record::{
    ControlAction, DefinitionRecord, Ledger, Limits, Record, RuntimeRecord, SentinelRecord,
    SnapshotRecord, StateRecord, TaskDetail, decode,
};
use crate::sim::scheduler::hold;
use crate::store::BlobPath;

/// A leader looks at the flags of all rows every second, and may have to take the workflow up first.
const FLAG_SEEN_WITHIN: Duration = Duration::from_secs(30);

/// Whether the last attempt reported failed because its workers died too often.
fn is_worn(detail: &TaskDetail) -> bool {
    let outcome = detail.report.as_deref().map(|report| &report.outcome);
    matches!(outcome, Some(Outcome::Failed(failure)) if failure.kind == FailureKind::Deliveries)
}

impl Oracle {
    /// A blob was written.
    pub(in crate::sim) fn blob_put(&self, sent: Sent, path: &BlobPath, body: &Bytes) {
        let mut inside = hold(&self.inside);
        if [self.layout.outputs(), self.layout.logs()].contains(&path.container()) {
            inside.blobs.insert(path.clone(), self.scheduler.now());
            if path.name().contains("/=state/") {
                inside.sides.insert(path.clone(), body.clone());
            }
        } else if path.name().ends_with(Layout::DEFINITION_ENDING) {
            match decode::<DefinitionRecord>(body) {
                Ok(record) => {
                    inside.defined.insert(record.workflow_id, record.run_id);
                }
                Err(error) => self.note(&mut inside, &format!("{path} {error}")),
            }
        } else if *path == self.layout.sentinel() {
            match decode(body) {
                Ok(record) => {
                    inside.leads = Some(sent.by);
                    self.sentinel_put(&mut inside, &record);
                }
                Err(error) => self.note(&mut inside, &format!("the sentinel {error}")),
            }
        } else if path.container() == self.layout.workflows() {
            match StateRecord::decode(body) {
                Ok(StateRecord::Live(record)) => match self.whole(&inside, record) {
                    Ok(record) => self.state_put(&mut inside, sent, record),
                    Err(why) => self.note(&mut inside, &format!("{path} {why}")),
                },
                Ok(StateRecord::Purged(tombstone)) => {
                    self.tombstone_put(&mut inside, sent, &tombstone);
                }
                Err(error) => self.note(&mut inside, &format!("{path} {error}")),
            }
        }
    }

    /// A state with what is stored beside it.
    fn whole(&self, inside: &Inside, record: RuntimeRecord) -> Result<RuntimeRecord, String> {
        fn side<T: Record>(inside: &Inside, path: &BlobPath) -> Result<T, String> {
            let body = inside.sides.get(path);
            let body = body.ok_or_else(|| format!("names {path}, which is not stored"))?;
            decode(body).map_err(|error| format!("names {path}, which {error}"))
        }
        let Some(packed) = record.packed.clone() else {
            let read = Ledger::read(Limits::default(), record, None, Vec::new());
            return read
                .map(|(record, _)| record)
                .map_err(|error| error.to_string());
        };
        let (id, run) = (record.workflow_id.clone(), record.run_id);
        let snapshot = packed
            .snapshot
            .map(|stamp| self.layout.snapshot(&id, run, stamp));
        let snapshot: Option<SnapshotRecord> =
            snapshot.map(|path| side(inside, &path)).transpose()?;
        let before = snapshot.iter().flat_map(|snapshot| &snapshot.details);
        let stamps = before.chain(&packed.details);
        let details = stamps.map(|stamp| side(inside, &self.layout.details(&id, run, *stamp)));
        let details = details.collect::<Result<_, _>>()?;
        let read = Ledger::read(Limits::default(), record, snapshot, details);
        read.map(|(record, _)| record)
            .map_err(|error| error.to_string())
    }

    fn sentinel_put(&self, inside: &mut Inside, record: &SentinelRecord) {
        let now = self.scheduler.now();
        if let Some((epoch, holder, since)) = inside.leader {
            if record.epoch < epoch || (record.epoch == epoch && record.holder_id != holder) {
                self.note(
                    inside,
                    &format!(
                        "the epoch in the sentinel goes from {epoch} to {}",
                        record.epoch
                    ),
                );
            }
            if record.holder_id == holder {
                inside.leader = Some((record.epoch, holder, since));
                return;
            }
        }
        inside.leader = Some((record.epoch, record.holder_id, now));
    }

    /// Whether a request that carries `epoch` was sent by a leader that had a successor by then.
    pub(super) fn is_fenced(
        &self,
        inside: &Inside,
        sent: Sent,
        epoch: crate::record::Epoch,
    ) -> bool {
        let superseded = inside
            .leader
            .is_some_and(|(leads, _, since)| epoch < leads && sent.at > since);
        // Who breaks a lease takes it from a leader that does not know it yet.
        superseded && !self.swarm.breaks_lease
    }

    /// Whether a leader of this epoch has a successor that broke its lease.
    pub(super) fn is_late(&self, inside: &Inside, epoch: crate::record::Epoch) -> bool {
        let superseded = inside.leader.is_some_and(|(leads, _, _)| epoch < leads);
        superseded && self.swarm.breaks_lease
    }

    fn state_put(&self, inside: &mut Inside, sent: Sent, record: RuntimeRecord) {
        let (id, run) = (record.workflow_id.clone(), record.run_id);
        let now = self.scheduler.now();
        if self.is_fenced(inside, sent, record.epoch) {
            self.note(
                inside,
                &format!("{id} is written by the fenced epoch {}", record.epoch),
            );
        }
        let before = inside.lives.insert(id.clone(), run);
        let replaces_live = before.is_some_and(|of| of != run && !inside.purged.contains_key(&of));
        if replaces_live || inside.purged.contains_key(&run) {
            let what = format!("{id} gets a state of run {run} after {before:?}");
            self.note(inside, &what);
        }
        let old = inside.states.remove(&run);
        let was_open = old.as_ref().is_some_and(|old| !old.status.is_final());
        let flagged = inside.flagged_at.get(&(run, record.generation));
        let leads = inside.leader.map(|(_, _, since)| since);
        // The later of the two: since then a leader could read the flag.
        let asked = flagged.copied().zip(leads).map(|(at, since)| at.max(since));
        let is_missed = asked.is_some_and(|at| now > at + FLAG_SEEN_WITHIN);
        // What is stopped may end before its leader looks for a cancel.
        let may_miss =
            !self.swarm.has_whole_network() || self.swarm.pauses || record.stop.is_some();
        if was_open && record.status.is_final() && record.cancel.is_none() && is_missed && !may_miss
        {
            self.note(
                inside,
                &format!("{id} ends as if its cancel were not asked for"),
            );
        }
        for wrong in self.wrong_step(inside, old.as_ref(), &record) {
            self.note(inside, &format!("{id}: {wrong}"));
        }
        for (place, told) in record
            .tasks
            .iter()
            .filter_map(|detail| Some((detail.place, detail.report.as_ref()?)))
        {
            let is_new = old.as_ref().and_then(|old| report(old, place)) != Some(told);
            if is_new && !inside.told.insert(told.token.clone()) {
                self.note(
                    inside,
                    &format!("{id}: the end told by {} is applied twice", told.token),
                );
            }
        }
        for detail in &record.tasks {
            let issued = (run, detail.place, detail.attempt_no);
            inside.issued.entry(issued).or_insert(record.generation);
        }
        if record.cancel.is_some() {
            let of = (run, record.generation);
            // A client shows its request in the row before it sends it.
            if !inside.flagged_at.contains_key(&of) {
                self.note(
                    inside,
                    &format!("{id} is cancelled, and nobody asked for it"),
                );
            }
            inside.cancelled_at.entry(of).or_insert(now);
        }
        if record.stop.is_some() {
            let of = (run, record.generation);
            inside.stopped_at.entry(of).or_insert(now);
        }
        if record.tasks.iter().any(is_worn) {
            inside.worn.insert(run);
        }
        let answered = record.control_results.iter();
        inside
            .answered
            .extend(answered.map(|result| result.request_id));
        inside.states.insert(run, record);
    }

    /// What is wrong with the step from one stored state to the next.
    fn wrong_step(
        &self,
        inside: &Inside,
        old: Option<&RuntimeRecord>,
        new: &RuntimeRecord,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut states = match new.task_states() {
            Ok(states) => states.into_iter(),
            Err(error) => return vec![error.to_string()],
        };
        if new.status.is_final() != states.all(TaskState::is_terminal) {
            wrong.push(format!(
                "is `{}`, its tasks are `{}`",
                new.status, new.states
            ));
        }
        if let Some(what) = self.wrong_stop(new) {
            wrong.push(what);
        }
        let Some(old) = old else { return wrong };
        wrong.extend(wrong_answers(inside, old, new));
        if (new.epoch, new.control_seq) < (old.epoch, old.control_seq) || new.epoch < old.epoch {
            wrong.push(format!(
                "its epoch goes from {} to {}",
                old.epoch, new.epoch
            ));
        }
        if new.revision != old.revision.next() {
            wrong.push(format!(
                "revision {} follows {}",
                new.revision, old.revision
            ));
        }
        let again = new.generation == old.generation.next() && old.status.is_final();
        if new.generation != old.generation && !again {
            wrong.push(format!(
                "generation {:?} follows {:?}",
                new.generation, old.generation
            ));
        }
        // Of a leader whose lease was broken a write may land when its successor has shown the end that it replaces. The request was not
        // acknowledged, and leads the successor back.
        let is_late = self.is_late(inside, new.epoch);
        let open = self.layout.open_row(&new.workflow_id);
        if again && !new.status.is_final() && !is_late && !inside.rows.contains_key(&open) {
            wrong.push("leaves a final state without an open row".to_owned());
        }
        let workload = self
            .workloads
            .iter()
            .find(|found| found.id == new.workflow_id);
        let Some(tasks) = workload.map(|workload| &workload.definition.tasks) else {
            return wrong;
        };
        for (place, task) in (0..).map(TaskIx::new).zip(tasks) {
            let (Some(before), Some(after)) = (standing(old, place), standing(new, place)) else {
                wrong.push("has not one letter a task".to_owned());
                break;
            };
            let step = format!("`{}` goes from {before:?} to {after:?}", task.name);
            let stays = before == after && report(old, place) == report(new, place);
            if after.1 < before.1 || (before.0.is_terminal() && !again && !stays) {
                wrong.push(step.clone());
            }
            if !again && after.0 == TaskState::Pending && before.0 != TaskState::Pending {
                wrong.push(step);
            }
            let failures = detail(new, place).map_or(0, |detail| detail.failures);
            if failures > task.num_retries + 1 {
                wrong.push(format!("`{}` has failed {failures} times", task.name));
            }
            if let Some(told) = report(new, place).filter(|_| !stays) {
                // The report of an attempt that is tried again stands beside the next.
                let key = |attempt| (new.run_id, place, attempt);
                let of = inside.executions.tokens.get(&told.token);
                let is_next = report(old, place) != Some(told);
                if is_next && of.is_some_and(|of| *of != key(before.1)) {
                    wrong.push(format!(
                        "`{}` gets the report of another attempt",
                        task.name
                    ));
                }
            }
            let won = after.0 == TaskState::Completed && !stays;
            let token = report(new, place).filter(|report| report.outcome == Outcome::Succeeded);
            let started = &inside.executions.started;
            let has_run = |report: &&AttemptReport| {
                started.contains_key(&report.token) || report.reused_from.is_some()
            };
            if won && !token.is_some_and(|report| has_run(&report)) {
                wrong.push(format!(
                    "`{}` is completed, but no such execution was started",
                    task.name
                ));
            }
        }
        wrong
    }
}

impl Oracle {
    /// What is wrong with a state after a failure, where that is to stop the rest.
    fn wrong_stop(&self, state: &RuntimeRecord) -> Option<String> {
        let mut workloads = self.workloads.iter();
        let workload = workloads.find(|found| found.id == state.workflow_id)?;
        let definition = &workload.definition;
        let states = state.task_states().ok()?;
        let failed = states.contains(&TaskState::Failed);
        let called_for = failed && definition.on_failure == OnFailure::Cancel;
        // After a cancel there is nothing to stop; a stop before it stays.
        if state.stop.is_some() != called_for && (state.stop.is_some() || state.cancel.is_none()) {
            return Some(format!(
                "its stop is {:?}, its tasks are `{}`",
                state.stop, state.states
            ));
        }
        let to_be_sent = |state: TaskState| matches!(state, TaskState::Pending | TaskState::Ready);
        let mut tasks = definition.tasks.iter().zip(states);
        let left =
            tasks.find(|(task, state)| to_be_sent(*state) && !task.dep_policy.waits_for_any_end());
        let (task, _) = left.filter(|_| state.stop.is_some())?;
        Some(format!("a stop leaves `{}` to be sent", task.name))
    }
}

fn detail(state: &RuntimeRecord, place: TaskIx) -> Option<&crate::record::TaskDetail> {
    state.tasks.iter().find(|detail| detail.place == place)
}

fn report(state: &RuntimeRecord, place: TaskIx) -> Option<&crate::engine::AttemptReport> {
    detail(state, place)?.report.as_deref()
}

/// What is wrong with the requests answered in a step.
fn wrong_answers(inside: &Inside, old: &RuntimeRecord, new: &RuntimeRecord) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seq = old.control_seq;
    let is_old = |id| {
        old.control_results
            .iter()
            .any(|result| result.request_id == id)
    };
    for result in &new.control_results {
        if is_old(result.request_id) {
            continue;
        }
        let word = result.action.word();
        if inside.answered.contains(&result.request_id) && result.refused.is_none() {
            wrong.push(format!("a {word} is applied that was answered before"));
        }
        if result.refused.is_some() {
            continue;
        }
        match inside.asked.get(&result.request_id) {
            None => wrong.push(format!("a {word} is applied that nobody asked for")),
            Some(asked) => {
                let fits = match result.action {
                    ControlAction::Retry => {
                        asked.control_seq == seq && asked.generation == old.generation
                    }
                    ControlAction::Cancel => asked.generation == new.generation,
                    ControlAction::Submit | ControlAction::Purge => true,
                };
                if !fits {
                    wrong.push(format!(
                        "a {word} is applied to what its asker has not seen"
                    ));
                }
            }
        }
        seq = seq.next();
    }
    let mut ids: Vec<_> = new
        .control_results
        .iter()
        .map(|result| result.request_id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() < new.control_results.len() {
        wrong.push("answers a request twice".to_owned());
    }
    if seq != new.control_seq {
        wrong.push(format!(
            "serves {} requests, after {}",
            new.control_seq, old.control_seq
        ));
    }
    wrong
}
