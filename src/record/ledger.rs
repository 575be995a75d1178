//! What is in storage of the state of one workflow, and how the next write of it is laid out (see `packed`).
//!
//! Invariants:
//! 1. What [`Ledger::lay`] returns says all of the state, together with the side blobs that it names.
//! 2. It holds only while all that was laid out is stored, too: where that fails, it is thrown away with the state that it is of.
//! 3. Bytes laid out for a task that changed hardly grow with the number of tasks: a snapshot is taken when as much was written for want of
//!    one, a detail blob when the runtime blob has said much again and again.

use std::collections::{BTreeMap, BTreeSet};

use super::id::Stamp;
use super::packed::{DetailsRecord, Packed, SnapshotRecord, places, ranges, untold};
use super::runtime::{TaskDetail, letter};
use super::{DecodeError, Record, RuntimeRecord, encode, nonsense};
use crate::definition::WorkflowId;
use crate::engine::{Runtime, TaskIx};

/// About what the name of a blob takes in a list.
const NAME_BYTES: usize = 35;

/// Where the layout of a state changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Up to so many tasks the runtime blob has all letters.
    pub letters: usize,
    /// A detail blob is written when the runtime blob has said so many bytes of details since the last.
    pub details: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            letters: 4_096,
            details: 32 * 1024,
        }
    }
}

/// A blob beside the runtime blob, to be stored before that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// The letters of all tasks.
    Snapshot(SnapshotRecord),
    /// What is to be said of some tasks.
    Details(DetailsRecord),
}

/// The layout of the state of one workflow.
#[derive(Debug, Default)]
pub struct Ledger {
    limits: Limits,
    snapshot: Option<Stamp>,
    /// What was written since the snapshot that another would have spared.
    spent: usize,
    /// Bytes of details that the runtime blob has said since the last detail blob.
    said: usize,
    /// All detail blobs, oldest first, and how many of them the snapshot names.
    details: Vec<Stamp>,
    in_snapshot: usize,
    /// Tasks whose letter is perhaps another than in the snapshot.
    changed: BTreeSet<TaskIx>,
    /// Tasks of which no detail blob says all.
    unsaid: BTreeSet<TaskIx>,
    /// Tasks of which a detail blob says something.
    kept: BTreeSet<TaskIx>,
}

impl Ledger {
    /// That of a workflow of which nothing is stored.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Puts together what the runtime blob and its side blobs say: `details` are all that it and `snapshot` name, oldest first.
    ///
    /// # Errors
    /// [`DecodeError::Nonsense`] if they do not fit together.
    pub fn read(
        limits: Limits,
        mut record: RuntimeRecord,
        snapshot: Option<SnapshotRecord>,
        details: Vec<DetailsRecord>,
    ) -> Result<(RuntimeRecord, Self), DecodeError> {
        let damaged = |why: &str| nonsense::<RuntimeRecord>(why);
        let packed = *record.packed.take().unwrap_or_default();
        let mut ledger = Self {
            snapshot: packed.snapshot,
            ..Self::new(limits)
        };
        if let Some(snapshot) = snapshot {
            let mut letters = snapshot.states.into_bytes();
            for (letter, text) in &packed.changed {
                let ([letter], Some(places)) = (letter.as_bytes(), places(text, letters.len()))
                else {
                    return Err(damaged("lists places that cannot be understood"));
                };
                for place in places {
                    letters[place.at()] = *letter;
                    ledger.changed.insert(place);
                }
            }
            record.states = String::from_utf8(letters)
                .map_err(|_foreign| damaged("has letters that stand for no task state"))?;
            ledger.in_snapshot = snapshot.details.len();
            ledger.details = snapshot.details;
        }
        ledger.details.extend(packed.details);
        let states = record.task_states()?;
        let own = DetailsRecord {
            schema: DetailsRecord::SCHEMA,
            workflow_id: record.workflow_id.clone(),
            workers: packed.workers,
            attempts: packed.attempts,
            tasks: std::mem::take(&mut record.tasks),
        };
        let mut told: Vec<Option<TaskDetail>> = vec![None; states.len()];
        let mut tell = |details: DetailsRecord, whose: &mut BTreeSet<TaskIx>| {
            for detail in details.unpack()? {
                let place = detail.place;
                let slot = told.get_mut(place.at());
                *slot.ok_or_else(|| damaged("names a task that its definition does not have"))? =
                    Some(detail);
                whose.insert(place);
            }
            Ok(())
        };
        for details in details {
            tell(details, &mut ledger.kept)?;
        }
        tell(own, &mut ledger.unsaid)?;
        for (place, (detail, state)) in (0..).map(TaskIx::new).zip(told.into_iter().zip(states)) {
            let detail = detail.unwrap_or_else(|| untold(place, state));
            if detail != TaskDetail::nothing(place) {
                record.tasks.push(detail);
            }
        }
        Ok((record, ledger))
    }

    /// Lays out the next write: `record` says all but the tasks, `touched` are those that changed since the last.
    pub fn lay(
        &mut self,
        record: &mut RuntimeRecord,
        runtime: &Runtime,
        touched: &[TaskIx],
    ) -> Vec<Side> {
        self.changed.extend(touched);
        self.unsaid.extend(touched);
        let mut sides = Vec::new();
        let mut own = self.newest(record.workflow_id.clone(), runtime);
        if !(own.attempts.is_empty() && own.tasks.is_empty()) {
            self.said += encode(&own).len();
        }
        if self.said > self.limits.details {
            self.said = 0;
            self.details.push(record.stamp);
            self.kept.extend(std::mem::take(&mut self.unsaid));
            let left = DetailsRecord::pack(record.workflow_id.clone(), Vec::new());
            sides.push(Side::Details(std::mem::replace(&mut own, left)));
        }
        let mut changed = BTreeMap::new();
        if runtime.tasks().len() <= self.limits.letters {
            record.states = letters(runtime);
            self.changed.clear();
            // One that was written under other limits would be taken for the newer.
            self.snapshot = None;
            self.in_snapshot = 0;
        } else {
            changed = self.by_letter(runtime);
            let bytes = changed.values().map(String::len).sum::<usize>();
            // Long ranges take few bytes, but are gone through each time.
            self.spent += bytes.max(self.changed.len())
                + (self.details.len() - self.in_snapshot) * NAME_BYTES;
            if self.snapshot.is_none() || self.spent > runtime.tasks().len() {
                changed.clear();
                self.changed.clear();
                self.spent = 0;
                self.snapshot = Some(record.stamp);
                self.in_snapshot = self.details.len();
                sides.push(Side::Snapshot(SnapshotRecord {
                    schema: SnapshotRecord::SCHEMA,
                    workflow_id: record.workflow_id.clone(),
                    states: letters(runtime),
                    details: self.details.clone(),
                }));
            }
        }
        record.tasks = own.tasks;
        let packed = Packed {
            snapshot: self.snapshot,
            changed,
            details: self.details[self.in_snapshot..].to_vec(),
            workers: own.workers,
            attempts: own.attempts,
        };
        record.packed = (packed != Packed::default()).then(|| Box::new(packed));
        sides
    }

    /// What is to be said of tasks and is in no detail blob yet.
    fn newest(&mut self, workflow_id: WorkflowId, runtime: &Runtime) -> DetailsRecord {
        let mut details = Vec::new();
        let kept = &self.kept;
        self.unsaid.retain(|place| {
            let task = runtime.task(*place);
            let detail = TaskDetail::of(*place, task);
            let is_said = kept.contains(place) || detail != untold(*place, task.state);
            if is_said {
                details.push(detail);
            }
            is_said
        });
        DetailsRecord::pack(workflow_id, details)
    }

    /// The places whose letter is perhaps another than in the snapshot.
    fn by_letter(&self, runtime: &Runtime) -> BTreeMap<String, String> {
        let mut places: BTreeMap<char, Vec<TaskIx>> = BTreeMap::new();
        for place in &self.changed {
            let letter = letter(runtime.task(*place).state);
            places.entry(letter).or_default().push(*place);
        }
        let text = |(letter, places): (char, Vec<TaskIx>)| (letter.to_string(), ranges(&places));
        places.into_iter().map(text).collect()
    }
}

fn letters(runtime: &Runtime) -> String {
    let tasks = runtime.tasks().iter();
    tasks.map(|task| letter(task.state)).collect()
}
