//! `workflow list`

use super::exit::Exit;
use super::print::{clean, local_time};
use super::tasks::{plain_table, trimmed};
use super::{Context, Outcome, open};
use crate::client::{Summary, TaskWord};
use crate::engine::Status;

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Only workflows with this status; may be given several times
    #[arg(long, value_name = "STATUS", value_parser = status_word)]
    status: Vec<Status>,
    /// At most this many, the newest
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

fn status_word(text: &str) -> Result<Status, String> {
    let all = [
        Status::Pending,
        Status::Running,
        Status::Cancelling,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
    ];
    let found = all.into_iter().find(|status| status.word() == text);
    found.ok_or_else(|| format!("there are {}", all.map(Status::word).join(", ")))
}

/// Lists workflows, the newest first.
pub(super) async fn list(context: &mut Context, args: &ListArgs) -> Outcome {
    let client = open::client(context)?;
    let only_open = !args.status.is_empty() && !args.status.iter().any(|status| status.is_final());
    let listing = client.list(only_open).await?;
    let wanted =
        |summary: &&Summary| args.status.is_empty() || args.status.contains(&summary.status);
    let limit = args.limit.unwrap_or(usize::MAX);
    let workflows: Vec<&Summary> = listing
        .workflows
        .iter()
        .filter(wanted)
        .take(limit)
        .collect();
    if context.is_json() {
        context.printer.json(&workflows)?;
    } else {
        let mut table = plain_table();
        table.set_header([
            "ID", "NAME", "STATUS", "TASKS", "FAILED", "CREATED", "REASON",
        ]);
        for summary in workflows {
            table.add_row([
                summary.workflow_id.to_string(),
                clean(&summary.name),
                summary.status.to_string(),
                format!("{}/{}", summary.counts.ended(), summary.total),
                summary.counts.of(TaskWord::Failed).to_string(),
                local_time(summary.created_at),
                summary.reason.as_deref().map(clean).unwrap_or_default(),
            ]);
        }
        context.printer.line(&trimmed(table))?;
    }
    for error in &listing.unreadable {
        tracing::warn!(%error, "row_unreadable");
    }
    Ok(Exit::Ok)
}
