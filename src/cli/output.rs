//! `workflow output ID TASK`

use super::args::Target;
use super::exit::Exit;
use super::print::note;
use super::{Context, Outcome, open};

/// Arguments of `output`.
#[derive(Debug, clap::Args)]
pub(super) struct OutputArgs {
    #[command(flatten)]
    target: Target,
    /// The task
    #[arg(value_name = "TASK")]
    task: String,
}

/// Prints the JSON that a completed task wrote, as it wrote it.
pub(super) async fn output(context: &mut Context, args: &OutputArgs) -> Outcome {
    let client = open::client(context)?;
    let output = client.output(&args.target.id, &args.task).await?;
    match output.json {
        Some(json) => {
            context.printer.bytes(json.trim_ascii())?;
            context.printer.bytes(b"\n")?;
        }
        None if context.is_json() => context.printer.line("null")?,
        None => note(&format!("task `{}` wrote no output", args.task)),
    }
    Ok(Exit::Ok)
}
