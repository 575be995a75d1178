//! `workflow watch ID`

use std::time::Duration;

use serde::Serialize;

use super::args::Target;
use super::exit::Exit;
use super::progress::{Progress, Shown};
use super::seconds::seconds;
use super::{Context, Outcome, open};
use crate::client::{Client, Summary, TaskView};
use crate::definition::WorkflowId;
use crate::engine::Status;

/// Arguments of `watch`.
#[derive(Debug, clap::Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    target: Target,
    /// The longest wait in seconds (exit 12); none: for ever
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout_s: Option<Duration>,
}

/// Follows a workflow; with JSON, one line for each change.
pub(super) async fn watch(context: &mut Context, args: &WatchArgs) -> Outcome {
    let client = open::client(context)?;
    let id = &args.target.id;
    follow(context, &client, id, args.timeout_s, Shown::AsData).await
}

/// Follows a workflow to its end; the exit tells how it ended.
pub(super) async fn follow(
    context: &mut Context,
    client: &Client,
    id: &WorkflowId,
    limit: Option<Duration>,
    shown: Shown,
) -> Outcome {
    let mut watch = client.watch(id, limit).await?;
    let mut progress = Progress::new(context, shown);
    let mut status = Status::Pending;
    while let Some(update) = watch.next().await? {
        status = update.view.summary.status;
        if context.is_json() {
            context.printer.json(&UpdateJson {
                summary: &update.view.summary,
                tasks: update.changed_tasks().collect(),
            })?;
        } else {
            progress.update(context, &update)?;
        }
    }
    Ok(exit_of(status))
}

/// The JSON of `status`, with only the tasks that changed.
#[derive(Debug, Serialize)]
struct UpdateJson<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    tasks: Vec<&'a TaskView>,
}

/// How a command ends that waits for the end of a workflow.
pub(super) const fn exit_of(status: Status) -> Exit {
    match status {
        Status::Failed => Exit::WorkflowFailed,
        Status::Cancelled => Exit::WorkflowCancelled,
        Status::Completed | Status::Pending | Status::Running | Status::Cancelling => Exit::Ok,
    }
}
