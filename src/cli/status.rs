//! `workflow status ID`

use super::args::Target;
use super::exit::Exit;
use super::print::{Ink, clean, local_time, paint};
use super::progress::{counts_text, status as status_word};
use super::tasks::table;
use super::{Context, Outcome, open};
use crate::client::{TaskView, TaskWord};

/// Most tasks that `status` shows; `tasks` shows all.
const TASKS_SHOWN_MAX: usize = 20;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    target: Target,
}

/// Shows a workflow; with JSON, all its tasks too.
pub(super) async fn status(context: &mut Context, args: &StatusArgs) -> Outcome {
    let client = open::client(context)?;
    let view = client.read(&args.target.id).await?;
    if context.is_json() {
        context.printer.json(&view)?;
        return Ok(Exit::Ok);
    }
    let colour = context.printer.colour().stdout;
    let summary = &view.summary;
    let mut fields = vec![
        ("workflow", summary.workflow_id.to_string()),
        ("name", clean(&summary.name)),
        ("status", status_word(summary.status, colour)),
        (
            "tasks",
            format!(
                "{} ({})",
                summary.total,
                counts_text(&summary.counts, |_| false)
            ),
        ),
        ("created", local_time(summary.created_at)),
        ("updated", local_time(summary.updated_at)),
    ];
    if let Some(reason) = &summary.reason {
        fields.push(("reason", clean(reason)));
    }
    for (name, value) in fields {
        context.printer.line(&format!(
            "{} {value}",
            paint(colour, Ink::Bold, &format!("{name:<9}"))
        ))?;
    }
    let worth: Vec<&TaskView> = view
        .tasks
        .iter()
        .filter(|task| is_worth_showing(task))
        .collect();
    if !worth.is_empty() {
        let shown = &worth[..worth.len().min(TASKS_SHOWN_MAX)];
        context.printer.line("")?;
        context.printer.line(&table(shown))?;
    }
    if worth.len() > TASKS_SHOWN_MAX {
        let more = worth.len() - TASKS_SHOWN_MAX;
        context.printer.line(&format!(
            "… and {more} more: `workflow tasks {}`",
            summary.workflow_id
        ))?;
    }
    Ok(Exit::Ok)
}

/// Tasks that are at work or went wrong.
const fn is_worth_showing(task: &TaskView) -> bool {
    match task.state {
        TaskWord::Running | TaskWord::Retrying | TaskWord::Failed => true,
        TaskWord::Pending
        | TaskWord::Ready
        | TaskWord::Queued
        | TaskWord::Completed
        | TaskWord::UpstreamFailed
        | TaskWord::Skipped
        | TaskWord::Cancelled => false,
    }
}
