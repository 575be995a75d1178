//! What is watched at every row that is written or deleted.

use super::{Inside, Oracle, Sent};
use crate::protocol::{Layout, found, found_claim};
use crate::record::{IndexRecord, RuntimeRecord};
use crate::sim::scheduler::hold;
use crate::store::{Row, RowKey, Table};

impl Oracle {
    /// A row was written.
    pub(in crate::sim) fn row_written(&self, sent: Sent, table: &Table, row: Option<Row>) {
        let Some(row) = row else { return };
        let key = row.key.clone();
        let mut inside = hold(&self.inside);
        if table == self.layout.claims() {
            match found_claim(row) {
                Ok(found) => self.claim_written(&mut inside, key, found.record),
                Err(error) => self.note(&mut inside, &error.to_string()),
            }
        } else if table == self.layout.index() {
            match found(row) {
                Ok(found) => self.index_written(&mut inside, sent, key, found.record),
                Err(error) => self.note(&mut inside, &error.to_string()),
            }
        }
    }

    /// A row was deleted.
    pub(in crate::sim) fn row_deleted(&self, table: &Table, key: &RowKey) {
        let mut inside = hold(&self.inside);
        if table == self.layout.claims() {
            Self::claim_deleted(&mut inside, key);
        } else if table == self.layout.index() {
            let Some(gone) = inside.rows.remove(key) else {
                return;
            };
            let id = &gone.workflow_id;
            let left = [self.layout.open_row(id), self.layout.done_row(id)];
            let mut left = left.iter().filter_map(|key| inside.rows.get(key));
            let flags = |row: &IndexRecord| (row.cancel_requested, row.stopping);
            let is_purged = inside.purged.contains_key(&gone.run_id);
            let is_kept = |row: &IndexRecord| {
                row.run_id != gone.run_id
                    || (flags(row).0 >= flags(&gone).0 && flags(row).1 >= flags(&gone).1)
            };
            if !is_purged && !left.any(is_kept) {
                self.note(
                    &mut inside,
                    &format!("the row of {id} is gone, and its flags"),
                );
            }
        }
    }

    /// All rows were deleted, by nobody who is watched.
    pub(in crate::sim) fn rows_lost(&self) {
        let mut inside = hold(&self.inside);
        inside.rows.clear();
    }

    fn index_written(&self, inside: &mut Inside, sent: Sent, key: RowKey, row: IndexRecord) {
        let (id, run) = (row.workflow_id.clone(), row.run_id);
        if let Some(flag) = row.cancel_requested {
            let of = (run, flag);
            inside.flagged_at.entry(of).or_insert(self.scheduler.now());
        }
        let mut wrong = Vec::new();
        if let Some(stopping) = row.stopping {
            let of = (run, stopping);
            if !inside.stopped_at.contains_key(&of) {
                wrong.push(format!("the row of {id} shows a stop that is not stored"));
            }
            let now = self.scheduler.now();
            inside.stop_shown_at.entry(of).or_insert(now);
        }
        let before = inside.rows.get(&key);
        if before.is_some_and(|before| before.run_id != run) {
            wrong.push(format!("the row of {id} goes over to another run"));
        } else if let Some(before) = before {
            let place = |row: &IndexRecord| (row.epoch, row.revision);
            // A row is opened again before the write by which a new leader learns that the one before was faster.
            let may_reopen = row.epoch > before.epoch && !row.status.is_final();
            if place(&row) < place(before) || row.revision < before.revision && !may_reopen {
                wrong.push(format!(
                    "the row of {id} goes from {:?} to {:?}",
                    place(before),
                    place(&row)
                ));
            }
            if before.cancel_requested > row.cancel_requested || before.stopping > row.stopping {
                wrong.push(format!("the row of {id} loses its cancel"));
            }
            if before.stopping > row.stopping {
                wrong.push(format!("the row of {id} loses its stop"));
            }
        }
        let state = inside.states.get(&run);
        // The end of an earlier generation may land late: it stands beside the open row, which is the one that is read.
        let has_ended =
            |state: &RuntimeRecord| state.status.is_final() || row.generation < state.generation;
        if key.partition() == Layout::DONE && !state.is_some_and(has_ended) {
            wrong.push(format!("the row of {id} is final before its state"));
        }
        if state.is_some_and(|state| state.revision < row.revision) {
            wrong.push(format!("the row of {id} shows what is not stored"));
        }
        let shown = inside.rows.get(&key).map(|before| before.revision);
        if shown != Some(row.revision)
            && self.is_fenced(inside, sent, row.epoch)
            && row.epoch.number() > 0
        {
            wrong.push(format!("the row of {id} is written by a fenced epoch"));
        }
        for what in wrong {
            self.note(inside, &what);
        }
        let now = self.scheduler.now();
        let places = inside.row_places.entry(run).or_default();
        places.push((now, row.generation, row.epoch));
        places.dedup_by_key(|(_, generation, epoch)| (*generation, *epoch));
        inside.rows.insert(key, row);
    }
}
