//! What is watched at a purge: what has ended alone is purged, as its asker saw it, and its definition goes last (P31).

use super::{Inside, Oracle, Sent};
use crate::definition::WorkflowId;
use crate::protocol::Layout;
use crate::record::{ControlAction, TombstoneRecord};
use crate::sim::scheduler::hold;
use crate::store::BlobPath;

impl Oracle {
    /// A tombstone has taken the place of a state.
    pub(super) fn tombstone_put(&self, inside: &mut Inside, sent: Sent, stone: &TombstoneRecord) {
        let (id, run) = (&stone.workflow_id, stone.run_id);
        let mut wrong = Vec::new();
        if self.is_fenced(inside, sent, stone.epoch) {
            wrong.push("by a fenced epoch");
        }
        let is_life = inside.lives.get(id) == Some(&run);
        match inside.states.get(&run).filter(|_| is_life) {
            None => wrong.push("without a state"),
            Some(state) => {
                if !state.status.is_final() {
                    wrong.push("before its end");
                }
                let asked = inside.asked.get(&stone.request_id);
                let seen = (run, state.generation, state.control_seq);
                if !asked.is_some_and(|asked| {
                    asked.action == ControlAction::Purge
                        && (asked.run_id, asked.generation, asked.control_seq) == seen
                }) {
                    wrong.push("though nobody asked for that who saw its end");
                }
            }
        }
        let is_open = inside.rows.contains_key(&self.layout.open_row(id));
        if !is_open && !self.is_late(inside, stone.epoch) {
            wrong.push("without an open row");
        }
        if inside.purged.insert(run, self.scheduler.now()).is_some() {
            wrong.push("twice");
        }
        for what in wrong {
            self.note(inside, &format!("{id} is purged {what}"));
        }
    }

    /// A blob was deleted.
    pub(in crate::sim) fn blob_deleted(&self, path: &BlobPath) {
        let mut inside = hold(&self.inside);
        if path.container() == self.layout.workflows() {
            let id = path.name().strip_suffix(Layout::DEFINITION_ENDING);
            match id.and_then(|id| WorkflowId::new(id).ok()) {
                Some(id) => self.definition_deleted(&mut inside, &id),
                None => self.note(&mut inside, &format!("{path} is deleted")),
            }
            return;
        }
        inside.blobs.remove(path);
        inside.sides.remove(path);
        let lives = inside.lives.iter();
        let mut lives = lives.filter(|(_, run)| !inside.purged.contains_key(run));
        let of = |(id, run): (&WorkflowId, &_)| {
            path.name().starts_with(&self.layout.run_folder(id, *run))
        };
        if lives.any(of) {
            self.note(&mut inside, &format!("{path} is deleted before a purge"));
        }
    }

    fn definition_deleted(&self, inside: &mut Inside, id: &WorkflowId) {
        let Some(run) = inside.defined.remove(id) else {
            return;
        };
        let Some(at) = inside.purged.get(&run).copied() else {
            return self.note(inside, &format!("the definition of {id} goes unpurged"));
        };
        let left = self.left_of(inside, id, run, at);
        if !left.is_empty() {
            let what = format!("the definition of {id} goes before {left:?}");
            self.note(inside, &what);
        }
    }
}
