//! What is watched at every row that is written or deleted.

use std::time::Duration;

use super::{Inside, Oracle, Sent};
use crate::protocol::{CLAIM_SLACK, Layout, found, found_claim};
use crate::record::{ClaimRecord, IndexRecord};
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
            inside.claims.remove(key);
        } else if table == self.layout.index() {
            inside.rows.remove(key);
        }
    }

    fn claim_written(&self, inside: &mut Inside, key: RowKey, claim: ClaimRecord) {
        let now = self.scheduler.now();
        if let Some((held, at)) = inside.claims.get(&key) {
            let life = Duration::from_secs(held.visibility_s.into()) + CLAIM_SLACK;
            let is_live = !held.freed && now < *at + life;
            if is_live && held.attempt_no == claim.attempt_no && held.token != claim.token {
                let what = format!(
                    "the live claim on {}/{} is taken",
                    held.workflow_id, held.task
                );
                self.note(inside, &what);
            }
        }
        inside.claims.insert(key, (claim, now));
    }

    fn index_written(&self, inside: &mut Inside, sent: Sent, key: RowKey, row: IndexRecord) {
        let id = row.workflow_id.clone();
        if let Some(flag) = row.cancel_requested {
            let of = (id.clone(), flag);
            inside.flagged_at.entry(of).or_insert(self.scheduler.now());
        }
        let mut wrong = Vec::new();
        if let Some(stopping) = row.stopping {
            let of = (id.clone(), stopping);
            if !inside.stopped_at.contains_key(&of) {
                wrong.push(format!("the row of {id} shows a stop that is not stored"));
            }
            let now = self.scheduler.now();
            inside.stop_shown_at.entry(of).or_insert(now);
        }
        if let Some(before) = inside.rows.get(&key) {
            let place = |row: &IndexRecord| (row.epoch, row.revision);
            if place(&row) < place(before) || row.revision < before.revision {
                wrong.push(format!(
                    "the row of {id} goes from {:?} to {:?}",
                    place(before),
                    place(&row)
                ));
            }
            if before.cancel_requested > row.cancel_requested {
                wrong.push(format!("the row of {id} loses its cancel"));
            }
            if before.stopping > row.stopping {
                wrong.push(format!("the row of {id} loses its stop"));
            }
        }
        let state = inside.states.get(&id);
        if key.partition() == Layout::DONE && !state.is_some_and(|state| state.status.is_final()) {
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
        inside.rows.insert(key, row);
    }
}
