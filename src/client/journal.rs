//! The journal: what this client did is noted, and what all did is read.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::client::{Client, Result};
use crate::definition::WorkflowId;
use crate::protocol::{journal_day, note, record_of};
use crate::record::{JournalAction, JournalRecord, JournalResult, Record};

/// A day: the length of a partition, and how far ahead the clock of a writer may be.
const DAY: SignedDuration = SignedDuration::from_hours(24);

impl Client {
    /// Notes what was done to a workflow.
    pub(super) async fn note(
        &self,
        action: JournalAction,
        id: &WorkflowId,
        request_id: Option<Uuid>,
        result: JournalResult,
    ) {
        let entry = JournalRecord {
            schema: JournalRecord::SCHEMA,
            at: self.env.wall(),
            actor: self.actor.clone(),
            action,
            workflow_id: Some(id.clone()),
            request_id,
            result,
            detail: None,
        };
        note(&self.env, &self.store, &self.layout, &entry).await;
    }

    /// The last `limit` entries of the time from `since` ago until now, the newest first; only those of workflow `of`, if one is named.
    ///
    /// # Errors
    /// What keeps the table from being read; an entry that cannot be read is passed over.
    pub async fn journal(
        &self,
        of: Option<&WorkflowId>,
        since: SignedDuration,
        limit: usize,
    ) -> Result<Vec<JournalRecord>> {
        let now = self.env.wall();
        let first = now.checked_sub(since).unwrap_or(Timestamp::MIN);
        let mut entries = Vec::new();
        let mut at = now.checked_add(DAY).unwrap_or(Timestamp::MAX);
        // Each partition is a day, in its own order from the newest to the oldest: nothing older than what is asked for is read.
        while journal_day(at) >= journal_day(first) {
            let day = journal_day(at);
            let mut after = None;
            loop {
                let rows = &self.store.rows;
                let page = rows.query(self.layout.journal(), &day, after.as_ref());
                let page = page.await?;
                for row in page.items {
                    let entry: JournalRecord = match record_of(&row.fields) {
                        Ok(entry) => entry,
                        Err(error) => {
                            tracing::warn!(row = %row.key, %error, "journal_entry_unreadable");
                            continue;
                        }
                    };
                    if entries.len() >= limit || entry.at < first {
                        return Ok(entries);
                    }
                    if of.is_none() || of == entry.workflow_id.as_ref() {
                        entries.push(entry);
                    }
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            let Ok(before) = at.checked_sub(DAY) else {
                break;
            };
            at = before;
        }
        Ok(entries)
    }
}
