//! `workflow journal [ID]`

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use uuid::Uuid;

use super::args::workflow_id;
use super::exit::Exit;
use super::print::{clean, local_time};
use super::seconds::age;
use super::tasks::{plain_table, trimmed};
use super::{Context, Outcome, open};
use crate::definition::WorkflowId;
use crate::record::JournalRecord;

/// Arguments of `journal`.
#[derive(Debug, clap::Args)]
pub(super) struct JournalArgs {
    /// Only what was done to this workflow
    #[arg(value_name = "ID", value_parser = workflow_id)]
    id: Option<WorkflowId>,
    /// How far back to look, as `30d`, `12h` or `90m`
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = age)]
    since: SignedDuration,
    /// At most this many, the newest
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// An entry as printed; its fields keep their names and order.
#[derive(Debug, Serialize)]
struct EntryJson<'a> {
    at: Timestamp,
    actor: &'a str,
    action: &'a str,
    workflow_id: Option<&'a WorkflowId>,
    request_id: Option<Uuid>,
    result: &'a str,
    detail: Option<&'a str>,
}

impl<'a> EntryJson<'a> {
    fn of(entry: &'a JournalRecord) -> Self {
        Self {
            at: entry.at,
            actor: &entry.actor,
            action: entry.action.word(),
            workflow_id: entry.workflow_id.as_ref(),
            request_id: entry.request_id,
            result: entry.result.word(),
            detail: entry.detail.as_deref(),
        }
    }
}

/// Shows who did what, the newest first.
pub(super) async fn journal(context: &mut Context, args: &JournalArgs) -> Outcome {
    let client = open::client(context)?;
    let entries = client
        .journal(args.id.as_ref(), args.since, args.limit)
        .await?;
    if context.is_json() {
        let entries: Vec<EntryJson<'_>> = entries.iter().map(EntryJson::of).collect();
        context.printer.json(&entries)?;
    } else {
        let mut table = plain_table();
        table.set_header(["AT", "ACTOR", "ACTION", "WORKFLOW", "RESULT", "DETAIL"]);
        for entry in &entries {
            let id = entry.workflow_id.as_ref();
            table.add_row([
                local_time(entry.at),
                clean(&entry.actor),
                entry.action.word().to_owned(),
                id.map(ToString::to_string).unwrap_or_default(),
                entry.result.word().to_owned(),
                entry.detail.as_deref().map(clean).unwrap_or_default(),
            ]);
        }
        context.printer.line(&trimmed(table))?;
    }
    Ok(Exit::Ok)
}
