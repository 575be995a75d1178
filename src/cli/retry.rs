//! `workflow retry ID`

use super::args::Target;
use super::cancel::{Wait, tell};
use super::exit::Exit;
use super::{Context, Outcome, open};

/// Arguments of `retry`.
#[derive(Debug, clap::Args)]
pub(super) struct RetryArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    wait: Wait,
}

/// Asks to run again what failed or was cancelled.
pub(super) async fn retry(context: &mut Context, args: &RetryArgs) -> Outcome {
    let client = open::client(context)?;
    let id = &args.target.id;
    let answer = client.retry(id, args.wait.wait_s).await?;
    tell(context, id, "retry", answer)?;
    Ok(Exit::Ok)
}
