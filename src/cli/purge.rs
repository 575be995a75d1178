//! `workflow purge ID… | --older-than DURATION`

use futures::{StreamExt as _, stream};
use jiff::SignedDuration;
use serde::Serialize;

use super::args::workflow_id;
use super::cancel::{Wait, tell};
use super::error::CliError;
use super::exit::Exit;
use super::print::note;
use super::seconds::age;
use super::{Context, Outcome, open};
use crate::client::Client;
use crate::definition::WorkflowId;

/// Requests that wait for their answers at once.
const AT_ONCE: usize = 16;

/// Arguments of `purge`.
#[derive(Debug, clap::Args)]
pub(super) struct PurgeArgs {
    /// Workflows that have ended
    #[arg(value_name = "ID", value_parser = workflow_id, required_unless_present = "older_than")]
    ids: Vec<WorkflowId>,
    /// All workflows that ended longer ago than this, as `30d`, `12h`, `90m` or `0s`, by this machine's clock
    #[arg(long, value_name = "DURATION", value_parser = age, conflicts_with = "ids")]
    older_than: Option<SignedDuration>,
    /// Only show what `--older-than` would take
    #[arg(long, requires = "older_than", conflicts_with = "ids")]
    dry_run: bool,
    #[command(flatten)]
    wait: Wait,
}

/// A workflow that would be purged.
#[derive(Debug, Serialize)]
struct WouldJson<'a> {
    workflow_id: &'a WorkflowId,
    action: &'a str,
    answer: &'a str,
}

/// Removes what is left of workflows that have ended; one that is refused does not keep the others.
pub(super) async fn purge(context: &mut Context, args: &PurgeArgs) -> Outcome {
    let client = open::client(context)?;
    let ids = match args.older_than {
        Some(age) => client.ended_before(age).await?,
        None => args.ids.clone(),
    };
    if ids.is_empty() {
        note("no workflow ended longer ago than that");
    }
    if args.dry_run {
        for id in &ids {
            would(context, id)?;
        }
        return Ok(Exit::Ok);
    }
    let wait = args.wait.wait_s;
    let purge = async |client: &Client, id: WorkflowId| {
        let answer = client.purge(&id, wait).await;
        (id, answer)
    };
    let mut answers = stream::iter(ids)
        .map(|id| purge(&client, id))
        .buffered(AT_ONCE);
    let mut exit = Exit::Ok;
    while let Some((id, answer)) = answers.next().await {
        match answer {
            Ok(answer) => tell(context, &id, "purge", answer)?,
            // The first of several reasons is how the command ends.
            Err(error) => {
                let ended = context.printer.error(&error.into());
                exit = if exit == Exit::Ok { ended } else { exit };
            }
        }
    }
    Ok(exit)
}

fn would(context: &mut Context, id: &WorkflowId) -> Result<(), CliError> {
    if context.is_json() {
        context.printer.json(&WouldJson {
            workflow_id: id,
            action: "purge",
            answer: "dry_run",
        })
    } else {
        context
            .printer
            .line(&format!("purge of `{id}`: would be asked for"))
    }
}
