//! `workflow validate FILE…`

use super::error::CliError;
use super::exit::Exit;
use super::print::{Ink, note, paint};
use super::progress::tasks_text;
use super::{Context, Outcome, definition};

/// Arguments of `validate`.
#[derive(Debug, clap::Args)]
pub(super) struct ValidateArgs {
    /// Definitions in YAML or JSON; `-` is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

/// Checks all files. With JSON, one array with an entry for each file.
pub(super) fn validate(context: &mut Context, args: &ValidateArgs) -> Outcome {
    let checked: Vec<_> = args
        .files
        .iter()
        .map(|name| definition::check(name))
        .collect::<Result<_, CliError>>()?;
    let colour = context.printer.colour();
    if context.is_json() {
        let values: Vec<_> = checked.iter().map(definition::Checked::json).collect();
        context.printer.json(&values)?;
    } else {
        for checked in &checked {
            if !checked.diagnostics.is_empty() {
                note(checked.text(colour.stderr).trim_end());
            }
            let name = checked.source.name();
            let line = match &checked.result {
                Ok(definition) => {
                    let ok = paint(colour.stdout, Ink::Green, "ok");
                    format!("{name}: {ok}, {}", tasks_text(definition.tasks.len()))
                }
                Err(()) => format!("{name}: {}", paint(colour.stdout, Ink::Red, "invalid")),
            };
            context.printer.line(&line)?;
        }
    }
    if checked.iter().all(|checked| checked.result.is_ok()) {
        Ok(Exit::Ok)
    } else {
        Ok(Exit::InvalidDefinition)
    }
}
