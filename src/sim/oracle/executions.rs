//! What is watched at every start of a job, and at every end that is posted (P18–P20, P23).

use std::collections::BTreeMap;
use std::time::Duration;

use super::{AttemptKey, Inside, Oracle, RowPlace, Sent, standing};
use crate::definition::WorkflowId;
use crate::engine::{Outcome, Output};
use crate::record::{ClaimRecord, CompletionResult, RunId, TaskMessage};
use crate::sim::scheduler::{ProcessId, hold};
use crate::sim::workload::Slot;
use crate::store::{Message, RowKey};
use crate::worker::{Config, Job};

/// A flag is seen by workers within their interval (30 s); a request may take its time-out, a few of them in a row.
const START_AFTER_FLAG_MAX: Duration = Duration::from_secs(75);
/// A row is read anew after 30 s; what it said longer ago is known to whoever judges a message now.
pub(super) const ROW_KNOWN_AFTER: Duration = Duration::from_secs(40);
/// Whoever posts has renewed its claim within an interval (20 s) and the time-out of a request before.
const POST_AFTER_BEAT_MAX: Duration = Duration::from_secs(35);
/// A claim is there with the first heartbeat, which comes after 5 s at most.
const SEEN_AFTER: Duration = Duration::from_secs(8);
/// A key is looked up just before a start.
const KEY_KNOWN_AFTER: Duration = Duration::from_secs(5);

/// A task message in the hands of a process.
#[derive(Debug)]
pub(super) struct Hand {
    key: AttemptKey,
    /// Whether another copy of it may be under way.
    suspect: bool,
    /// Whether its attempt had ended when it was received.
    ended: bool,
}

/// Jobs, and what entitles to them.
#[derive(Debug, Default)]
pub(super) struct Executions {
    /// Task messages that were received and started nothing yet.
    hands: BTreeMap<ProcessId, Vec<Hand>>,
    /// Every attempt of which a process may have received a message, and whether all those replies have certainly come.
    received: BTreeMap<ProcessId, BTreeMap<AttemptKey, bool>>,
    /// Each token that was ever started, posted or written into a claim, with what it was for.
    pub(super) tokens: BTreeMap<String, AttemptKey>,
    /// When each token was started.
    pub(super) started: BTreeMap<String, Duration>,
    /// Tokens that a stored claim has named, the starts it counted, and when it was written last.
    claimed: BTreeMap<String, (u32, Duration)>,
    /// Each token that was posted, and how often.
    posted: BTreeMap<String, u32>,
    /// What runs.
    running: BTreeMap<AttemptKey, Vec<String>>,
    /// The claims stored: each with when it was written last, and since when it is of its token.
    pub(super) claims: BTreeMap<RowKey, (ClaimRecord, Duration, Duration)>,
    /// How often each attempt was started.
    starts: BTreeMap<AttemptKey, u32>,
    /// Where the success of each token that was started is to be stored, if it has a key.
    slots: BTreeMap<String, Slot>,
    /// When the first success under each key was posted.
    successes: BTreeMap<Slot, Duration>,
}

impl Oracle {
    /// A process has ended or died: it holds nothing any more.
    pub(in crate::sim) fn life_over(&self, process: ProcessId) {
        let mut inside = hold(&self.inside);
        inside.executions.hands.remove(&process);
        inside.executions.received.remove(&process);
    }

    /// A task message was received.
    pub(super) fn task_received(
        &self,
        inside: &mut Inside,
        sent: Sent,
        message: &Message,
        task: &TaskMessage,
    ) {
        let key = self.key(&task.workflow_id, task.run_id, &task.task, task.attempt_no);
        let Some(key) = key else {
            return;
        };
        let received = &mut inside.executions.received;
        let received = received.entry(sent.by).or_default();
        *received.entry(key).or_insert(true) &= sent.is_answered;
        if !sent.is_answered {
            return;
        }
        let now = self.scheduler.now();
        let places = inside.row_places.get(&task.run_id);
        let is_older = places.into_iter().flatten().any(|(at, generation, epoch)| {
            *at + ROW_KNOWN_AFTER < now && (task.generation < *generation || task.epoch < *epoch)
        });
        let ended = inside
            .states
            .get(&key.0)
            .and_then(|state| standing(state, key.1))
            .is_some_and(|(state, attempt)| attempt > key.2 || state.is_terminal());
        let hand = Hand {
            key,
            suspect: message.deliveries > 1 || task.again || is_older,
            ended,
        };
        let hands = &mut inside.executions.hands;
        hands.entry(sent.by).or_default().push(hand);
    }

    /// What is wrong with a start that begins now.
    fn wrong_start(
        executions: &mut Executions,
        by: ProcessId,
        key: &AttemptKey,
        token: &str,
    ) -> Option<&'static str> {
        let claimed = executions.claimed.get(token).copied();
        if claimed.is_some_and(|(starts, _)| starts > Config::default().max_deliveries) {
            return Some("starts too often");
        }
        let received = executions.received.get(&by);
        if received.and_then(|received| received.get(key)) != Some(&true) {
            // Which of its messages it has is not known.
            return None;
        }
        let hands = executions.hands.entry(by).or_default();
        let mut of = hands.iter().filter(|hand| hand.key == *key).peekable();
        of.peek()?;
        if of.all(|hand| hand.suspect && hand.ended) {
            return Some("starts, though it had ended when its message was received");
        }
        // Under a claim it may be a suspect; what it was not is left for another start.
        let find = |wanted: bool| {
            let is = |hand: &Hand| hand.key == *key && hand.suspect == wanted;
            hands.iter().position(is)
        };
        let found = if claimed.is_some() {
            find(true).or_else(|| find(false))
        } else {
            find(false)
        };
        match found {
            Some(at) => {
                hands.remove(at);
                None
            }
            None => Some("starts as a suspect without a claim"),
        }
    }

    /// A job begins.
    pub(in crate::sim) fn execution_started(&self, by: ProcessId, job: &Job, slot: Option<Slot>) {
        let now = self.scheduler.now();
        let name = format!("{}/{}/{}", job.workflow_id, job.task, job.attempt);
        self.scheduler
            .trace
            .event(now, "EXECUTOR", &format!("start {name} on {}", by.0));
        let mut inside = hold(&self.inside);
        inside.starts += 1;
        let key = self.key_of(&inside, by, job);
        let Some((key, generation)) = key.and_then(|key| Some((key, *inside.issued.get(&key)?)))
        else {
            return self.note(&mut inside, &format!("{name} starts without being issued"));
        };
        let token = job.token.to_string();
        let mut wrong = Vec::new();
        let places = inside.row_places.get(&key.0).cloned().unwrap_or_default();
        let executions = &mut inside.executions;
        executions.started.insert(token.clone(), now);
        if let Some(slot) = slot {
            // A purge takes the outputs to which keys lead.
            let is_kept =
                self.swarm.has_whole_network() && !self.swarm.pauses && !self.swarm.purges;
            let known = executions.successes.get(&slot);
            if is_kept && known.is_some_and(|at| now > *at + KEY_KNOWN_AFTER) {
                wrong.push("runs, though its key has a success");
            }
            executions.slots.insert(token.clone(), slot);
        }
        executions.tokens.insert(token.clone(), key);
        wrong.extend(Self::wrong_start(executions, by, &key, &token));
        let running = executions.running.entry(key).or_default();
        // A row may still be known as it was before it changed hands: a copy of the earlier leader then starts unchecked, and until its
        // first heartbeat nothing tells so to who checks the copy of the later one (P18).
        let began = running
            .last()
            .and_then(|token| executions.started.get(token));
        let is_unseen = began.is_some_and(|began| {
            let changed =
                |pair: &[RowPlace]| pair[0].2 < pair[1].2 && *began < pair[1].0 + ROW_KNOWN_AFTER;
            now < *began + SEEN_AFTER && places.windows(2).any(changed)
        });
        running.push(token);
        if running.len() > 1 && self.swarm.forbids_overlap() && !is_unseen {
            wrong.push("runs twice at once");
        }
        let starts = executions.starts.entry(key).or_default();
        *starts += 1;
        if *starts > 1 && self.swarm.forbids_repeats() {
            wrong.push("runs twice, though nothing died");
        }
        let of = (key.0, generation);
        let flagged = inside.flagged_at.get(&of);
        let stopped = inside.stop_shown_at.get(&of);
        let stopped = stopped.filter(|_| !self.survives_stop(&job.workflow_id, &job.task));
        let purged = inside.purged.get(&key.0);
        let mut told = flagged.into_iter().chain(stopped).chain(purged);
        let late = told.any(|at| now > *at + START_AFTER_FLAG_MAX);
        if late && !self.swarm.pauses {
            wrong.push("starts long after its workflow was cancelled, stopped or purged");
        }
        for what in wrong {
            self.note(&mut inside, &format!("{name} {what}"));
        }
    }

    /// A job has ended, or its worker has died.
    pub(in crate::sim) fn execution_ended(&self, job: &Job) {
        let mut inside = hold(&self.inside);
        let token = job.token.to_string();
        let Executions {
            tokens, running, ..
        } = &mut inside.executions;
        let running = tokens.get(&token).and_then(|key| running.get_mut(key));
        if let Some(running) = running {
            running.retain(|found| *found != token);
        }
    }

    /// Whose job it is, by the messages that its worker has received: a job does not tell its run.
    fn key_of(&self, inside: &Inside, by: ProcessId, job: &Job) -> Option<AttemptKey> {
        let life = *inside.lives.get(&job.workflow_id)?;
        let key = self.key(&job.workflow_id, life, &job.task, job.attempt)?;
        let received = inside.executions.received.get(&by)?;
        if received.contains_key(&key) {
            return Some(key);
        }
        let of = |run: RunId| Some(&inside.states.get(&run)?.workflow_id);
        let mut others = received.keys().filter(|other| {
            of(other.0) == Some(&job.workflow_id) && (other.1, other.2) == (key.1, key.2)
        });
        others.next().copied()
    }

    /// The end of an attempt was posted.
    pub(super) fn result_posted(&self, inside: &mut Inside, sent: Sent, result: &CompletionResult) {
        let id = &result.workflow_id;
        let name = format!("{id}/{}/{}", result.task, result.attempt_no);
        let token = &result.report.token;
        let mut wrong = Vec::new();
        if let Some(Output::Blob(_)) = result.report.output {
            let execution =
                self.layout
                    .execution(id, result.run_id, &result.task, result.attempt_no, token);
            let is_purged = inside.purged.contains_key(&result.run_id);
            if !is_purged && !inside.blobs.contains_key(&execution.output()) {
                wrong.push("is posted before its output is stored");
            }
        }
        // Who has a suspect reads the state, which shows a stop before the row does.
        let of = (result.run_id, result.generation);
        let is_ending = inside.flagged_at.contains_key(&of) || inside.stopped_at.contains_key(&of);
        if result.report.outcome == Outcome::Cancelled(result.generation) && !is_ending {
            wrong.push("is posted as cancelled, but nobody asked for that");
        }
        let executions = &mut inside.executions;
        if result.report.outcome == Outcome::Succeeded
            && let Some(slot) = executions.slots.get(token)
        {
            let at = executions.successes.entry(slot.clone());
            at.or_insert(sent.at);
        }
        if let Some(origin) = &result.report.reused_from {
            let of = |key: &AttemptKey| {
                key.2 == origin.attempt_no
                    && inside
                        .states
                        .get(&key.0)
                        .is_some_and(|state| state.workflow_id == origin.workflow_id)
            };
            let mut with_key = executions
                .slots
                .keys()
                .filter_map(|token| executions.tokens.get(token));
            if !with_key.any(of) {
                wrong.push("takes a success that no execution has had");
            }
        }
        let times = executions.posted.entry(token.clone()).or_default();
        *times += 1;
        if *times > 1 && self.swarm.has_whole_network() && !self.swarm.pauses {
            wrong.push("is posted twice by one execution");
        }
        // Of what is to end nobody starts another, so its loss goes unnoticed, and its claim is not kept up (P19).
        let claim = executions.claims.get(&self.layout.claim(id, &result.task));
        let started = executions.started.get(token);
        let beaten = executions.claimed.get(token).map(|(_, at)| at).max(started);
        let is_old = beaten.is_some_and(|at| sent.at > *at + POST_AFTER_BEAT_MAX);
        if is_old && !is_ending && !self.swarm.pauses {
            wrong.push("is posted long after the last heartbeat");
        }
        // A doubled message may start beside an old claim, which its first beat meets.
        let is_lost = claim
            .zip(started)
            .is_some_and(|((claim, _, since), started)| {
                claim.attempt_no == result.attempt_no
                    && claim.token.to_string() != *token
                    && since > started
                    && sent.at > *since + POST_AFTER_BEAT_MAX
            });
        if is_lost && !is_ending && !self.swarm.pauses {
            wrong.push("is posted by an execution that has lost it long ago");
        }
        if let Some(key) = self.key(id, result.run_id, &result.task, result.attempt_no) {
            executions.tokens.insert(token.clone(), key);
            inside.posted.insert(key);
        }
        for what in wrong {
            self.note(inside, &format!("{name} {what}"));
        }
    }

    /// A claim was written.
    pub(super) fn claim_written(&self, inside: &mut Inside, key: RowKey, claim: ClaimRecord) {
        let now = self.scheduler.now();
        let name = format!("{}/{}/{}", claim.workflow_id, claim.task, claim.attempt_no);
        let token = claim.token.to_string();
        let mut wrong = Vec::new();
        let (id, run) = (&claim.workflow_id, claim.run_id);
        let of = self.key(id, run, &claim.task, claim.attempt_no);
        let executions = &mut inside.executions;
        if let Some(of) = &of {
            executions.tokens.insert(token.clone(), *of);
        }
        executions
            .claimed
            .insert(token.clone(), (claim.starts, now));
        let mut since = now;
        if let Some((held, at, from)) = executions.claims.get(&key) {
            let same = held.run_id == claim.run_id && held.attempt_no == claim.attempt_no;
            if held.token == claim.token {
                since = *from;
            } else if same {
                let life =
                    Duration::from_secs(held.visibility_s.into()) + crate::protocol::CLAIM_SLACK;
                if !held.freed && now < *at + life {
                    wrong.push("has a live claim, which is taken");
                }
                let starts = held.starts + u32::from(!held.freed);
                if claim.starts != starts || claim.interruptions < held.interruptions {
                    wrong.push("is claimed with wrong counts of what was before");
                }
                let old = held.token.to_string();
                let runs = of.and_then(|of| executions.running.get(&of));
                if runs.is_some_and(|running| running.contains(&old)) && !self.swarm.pauses {
                    wrong.push("still runs under the claim that is taken");
                }
            }
        }
        executions.claims.insert(key, (claim, now, since));
        for what in wrong {
            self.note(inside, &format!("{name} {what}"));
        }
    }

    /// A claim was removed.
    pub(super) fn claim_deleted(inside: &mut Inside, key: &RowKey) {
        inside.executions.claims.remove(key);
    }

    /// The claims that are left of a workflow that was not purged.
    pub(in crate::sim) fn claims_left(&self, id: &WorkflowId) -> usize {
        let inside = hold(&self.inside);
        let claims = inside.executions.claims.values();
        let is_left = |claim: &ClaimRecord| {
            claim.workflow_id == *id && !inside.purged.contains_key(&claim.run_id)
        };
        claims.filter(|(claim, _, _)| is_left(claim)).count()
    }
}
