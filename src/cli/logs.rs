//! `workflow logs ID TASK`

use std::borrow::Cow;

use serde::Serialize;

use super::args::Target;
use super::exit::Exit;
use super::print::note;
use super::{Context, Outcome, open};
use crate::definition::WorkflowId;
use crate::engine::Attempt;

/// Arguments of `logs`.
#[derive(Debug, clap::Args)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    target: Target,
    /// The task
    #[arg(value_name = "TASK")]
    task: String,
    /// Print the bytes as the task printed them
    #[arg(long)]
    raw: bool,
}

/// A log as a value.
#[derive(Debug, Serialize)]
struct LogJson<'a> {
    workflow_id: &'a WorkflowId,
    task: &'a str,
    attempt_no: Attempt,
    log: Option<Cow<'a, str>>,
}

/// Prints what the last attempt that ended has printed, made safe for a terminal.
pub(super) async fn logs(context: &mut Context, args: &LogsArgs) -> Outcome {
    let client = open::client(context)?;
    let id = &args.target.id;
    let log = client.logs(id, &args.task).await?;
    if context.is_json() {
        context.printer.json(&LogJson {
            workflow_id: id,
            task: &args.task,
            attempt_no: log.attempt_no,
            log: log.bytes.as_deref().map(String::from_utf8_lossy),
        })?;
        return Ok(Exit::Ok);
    }
    match (log.bytes, log.reused_from) {
        (None, Some(origin)) => note(&format!("task `{}` did not run: {origin}", args.task)),
        (None, None) => note(&format!("task `{}` printed nothing", args.task)),
        (Some(bytes), _) if args.raw => context.printer.bytes(&bytes)?,
        (Some(bytes), _) => context.printer.line(&safe(&bytes))?,
    }
    Ok(Exit::Ok)
}

/// Printed bytes as text: bytes that are not UTF-8 become marks, colours and other control characters go, a carriage return ends its line.
pub(super) fn safe(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = anstream::adapter::strip_str(&text).to_string();
    let text = text.trim_end_matches(['\n', '\r']).replace("\r\n", "\n");
    let safe = |c: char| match c {
        '\n' | '\t' => c,
        '\r' => '\n',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::safe;

    #[test]
    fn no_byte_of_a_log_reaches_the_terminal_as_control() {
        let shown = safe(b"a\x80b\xff\0c\r\n\x1b[31mred\x1b[0m\r10%\r20%\x07\n");
        assert_eq!(shown, "a\u{fffd}b\u{fffd}c\nred\n10%\n20%");
    }
}
