//! Lists workflows from their index rows, unfinished ones and finished ones.

use std::collections::BTreeMap;

use crate::client::view::{Counts, Summary, TaskWord};
use crate::client::{Client, Result};
use crate::definition::WorkflowId;
use crate::engine::TaskState;
use crate::protocol::{Layout, ReadError, found};
use crate::record::IndexRecord;

/// The workflows of a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The newest first.
    pub workflows: Vec<Summary>,
    /// Rows that could not be read.
    pub unreadable: Vec<ReadError>,
}

impl Client {
    /// Lists all workflows of the prefix, or only the unfinished ones.
    ///
    /// # Errors
    /// What keeps the table from being read; single rows that cannot be read are in the listing.
    pub async fn list(&self, only_open: bool) -> Result<Listing> {
        let mut by_id: BTreeMap<WorkflowId, Summary> = BTreeMap::new();
        let mut unreadable = Vec::new();
        // Where both rows exist the open one counts, so it comes last.
        let partitions = if only_open {
            &[Layout::OPEN][..]
        } else {
            &[Layout::DONE, Layout::OPEN][..]
        };
        for partition in partitions {
            let mut after = None;
            loop {
                let page = self
                    .store
                    .rows
                    .query(self.layout.index(), partition, after.as_ref())
                    .await?;
                for row in page.items {
                    match found(row) {
                        Ok(found) => {
                            let summary = summary(found.record);
                            by_id.insert(summary.workflow_id.clone(), summary);
                        }
                        Err(error) => unreadable.push(error),
                    }
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        let mut workflows: Vec<Summary> = by_id.into_values().collect();
        workflows
            .sort_by(|a, b| (b.created_at, &b.workflow_id).cmp(&(a.created_at, &a.workflow_id)));
        Ok(Listing {
            workflows,
            unreadable,
        })
    }
}

fn summary(record: IndexRecord) -> Summary {
    let mut counts = Counts::default();
    for state in TaskState::ALL {
        let n = record.counts.get(state.word()).copied().unwrap_or(0);
        let n = n.min(record.total);
        counts.add(TaskWord::of(state), n);
    }
    Summary {
        workflow_id: record.workflow_id,
        name: record.name,
        status: record.status,
        total: record.total,
        counts,
        created_at: record.created_at,
        updated_at: record.updated_at,
        reason: Some(record.reason).filter(|reason| !reason.is_empty()),
    }
}
