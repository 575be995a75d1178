//! `workflow cancel ID`

use std::time::Duration;

use serde::Serialize;

use super::args::Target;
use super::error::CliError;
use super::exit::Exit;
use super::seconds::seconds;
use super::{Context, Outcome, open};
use crate::client::Answer;
use crate::definition::WorkflowId;

/// How long a request waits for the coordinator's answer.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Wait {
    /// How long to wait for the coordinator's answer, in seconds
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub(super) wait_s: Duration,
}

/// Arguments of `cancel`.
#[derive(Debug, clap::Args)]
pub(super) struct CancelArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    wait: Wait,
}

/// Asks for the end of a workflow.
pub(super) async fn cancel(context: &mut Context, args: &CancelArgs) -> Outcome {
    let client = open::client(context)?;
    let id = &args.target.id;
    let answer = client.cancel(id, args.wait.wait_s).await?;
    tell(context, id, "cancel", answer)?;
    Ok(Exit::Ok)
}

/// How a request was met.
#[derive(Debug, Serialize)]
struct AnswerJson<'a> {
    workflow_id: &'a WorkflowId,
    action: &'a str,
    answer: &'a str,
}

/// Tells how a request was met.
pub(super) fn tell(
    context: &mut Context,
    id: &WorkflowId,
    action: &str,
    answer: Answer,
) -> Result<(), CliError> {
    let (word, text) = match answer {
        Answer::Applied => ("applied", format!("{action} of `{id}`: applied")),
        Answer::Underway => (
            "underway",
            format!("{action} of `{id}`: underway, the coordinator goes on with it"),
        ),
        Answer::Stored => (
            "stored",
            format!("{action} of `{id}`: stored, will be served when a coordinator runs"),
        ),
    };
    if context.is_json() {
        context.printer.json(&AnswerJson {
            workflow_id: id,
            action,
            answer: word,
        })
    } else {
        context.printer.line(&text)
    }
}
