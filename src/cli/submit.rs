//! `workflow submit FILE…`

use std::io::{self, BufRead as _};
use std::time::Duration;

use serde::Serialize;

use super::args::workflow_id;
use super::error::CliError;
use super::exit::Exit;
use super::print::note;
use super::progress::Shown;
use super::seconds::seconds;
use super::watch::follow;
use super::{Context, Outcome, definition, open};
use crate::client::ClientError;
use crate::definition::{Definition, WorkflowId, limit_fan_in};
use crate::record::RunId;

/// The least `--max-fan-in`: a task with no more dependencies than that has no merges, whatever is asked for.
const FAN_IN_MIN: u32 = 2;

/// Arguments of `submit`.
#[derive(Debug, clap::Args)]
pub(super) struct SubmitArgs {
    /// Definitions in YAML or JSON; `-` is one on stdin
    #[arg(value_name = "FILE", required_unless_present = "files_from")]
    files: Vec<String>,
    /// A file with the names of definitions, one a line; `-` is stdin
    #[arg(long, value_name = "LIST")]
    files_from: Option<String>,
    /// The id of the workflow; a new one that sorts by time without it
    #[arg(long, value_name = "ID", value_parser = workflow_id)]
    id: Option<WorkflowId>,
    /// Before each task with more than N dependencies, let these run in batches of N, each after the one before has ended
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(FAN_IN_MIN)..))]
    max_fan_in: Option<u32>,
    /// Follow the workflows to their end, and end by how they end
    #[arg(long)]
    watch: bool,
    /// With --watch: the longest wait in seconds (exit 12); none: for ever
    #[arg(long, value_name = "S", value_parser = seconds, requires = "watch")]
    timeout_s: Option<Duration>,
}

/// One line for each workflow submitted.
#[derive(Debug, Serialize)]
struct SubmittedJson<'a> {
    workflow_id: &'a WorkflowId,
    name: &'a str,
    file: &'a str,
    run_id: RunId,
    is_new: bool,
}

/// A definition ready to be submitted.
#[derive(Debug)]
struct Limited {
    file: String,
    definition: Definition,
    /// How many of its tasks no user wrote.
    merges: usize,
}

impl Limited {
    fn of(file: String, definition: Definition, most: Option<u32>) -> Result<Self, CliError> {
        let written = definition.tasks.len();
        let definition = match most {
            Some(most) => limit_fan_in(definition, most as usize).map_err(|error| {
                CliError::new(Exit::InvalidDefinition, format!("`{file}`: {error}"))
                    .help("give a larger `--max-fan-in`, or leave it out")
            })?,
            None => definition,
        };
        let merges = definition.tasks.len() - written;
        Ok(Self {
            file,
            definition,
            merges,
        })
    }
}

/// What to do about a submit that came to nothing; the same file with other merges is another definition.
fn refused(error: ClientError, definition: &Definition) -> CliError {
    let mut tasks = definition.tasks.iter();
    let may_merge = tasks.any(|task| task.depends_on.len() > FAN_IN_MIN as usize);
    let is_taken = matches!(error, ClientError::Taken(_));
    let error = CliError::from(error);
    if is_taken && may_merge {
        return error.help(
            "choose another `--id`, or leave it out to get a new one; the same file with another `--max-fan-in` is another definition too",
        );
    }
    error
}

/// What to do where the store failed and the id is new: another try without it would be another workflow.
fn again(error: CliError, id: &WorkflowId) -> CliError {
    error.and_help(&format!(
        "give `--id {id}` then: a part may be stored, and under another id it would run twice"
    ))
}

/// The same where the file is one of several, of which `left` were not begun.
fn again_of_several(error: CliError, id: &WorkflowId, file: &str, left: usize) -> CliError {
    error.about(file).and_help(&format!(
        "submit this file alone with `--id {id}`: a part may be stored, and under another id it would run twice; {}",
        not_submitted(left)
    ))
}

fn not_submitted(left: usize) -> String {
    match left {
        0 => "no file is left".to_owned(),
        1 => "1 more file is not submitted".to_owned(),
        _ => format!("{left} more files are not submitted"),
    }
}

/// Whoever gave no id would not know it otherwise.
fn unheard(id: &WorkflowId, files_left: usize) {
    note(&format!("workflow `{id}` is stored all the same"));
    if files_left > 0 {
        note(&not_submitted(files_left));
    }
}

/// Submits all files, after all of them were found valid, with their merges if they get any.
pub(super) async fn submit(context: &mut Context, args: SubmitArgs) -> Outcome {
    let mut files = args.files;
    if let Some(list) = &args.files_from {
        files.extend(listed(list)?);
    }
    if files.is_empty() {
        return Err(CliError::usage("the list names no file").help("give at least one definition"));
    }
    if args.id.is_some() && files.len() > 1 {
        return Err(
            CliError::usage("`--id` names one workflow, but there are several files")
                .help("submit them one by one, or leave `--id` out"),
        );
    }
    let client = open::client(context)?;
    let definitions = definition::read_all(context, &files)?
        .into_iter()
        .map(|(file, definition)| Limited::of(file, definition, args.max_fan_in))
        .collect::<Result<Vec<_>, _>>()?;
    let all = definitions.len();
    let mut ids = Vec::new();
    for limited in definitions {
        let id = args.id.clone().unwrap_or_else(|| client.new_id());
        let Limited {
            file,
            definition,
            merges,
        } = limited;
        let submitted = client.submit(&id, &definition).await;
        let is_given = args.id.is_some();
        let submitted = submitted.map_err(|error| {
            let is_invalid = matches!(error, ClientError::Graph(_));
            let error = refused(error, &definition);
            match all {
                _ if is_given || is_invalid => error,
                1 => again(error, &id),
                _ => again_of_several(error, &id, &file, all - ids.len() - 1),
            }
        })?;
        let told = if context.is_json() {
            context.printer.json(&SubmittedJson {
                workflow_id: &id,
                name: definition.name.as_deref().unwrap_or(id.as_str()),
                file: &file,
                run_id: submitted.run_id,
                is_new: submitted.is_new,
            })
        } else {
            context.printer.line(id.as_str())
        };
        told.inspect_err(|_| unheard(&id, all - ids.len() - 1))?;
        if !context.is_json() {
            if merges > 0 {
                let s = if merges == 1 { "" } else { "s" };
                let tasks = definition.tasks.len();
                note(&format!(
                    "workflow `{id}` has {merges} merge{s} before its wide joins, {tasks} tasks in all"
                ));
            }
            if !submitted.is_new {
                note(&format!(
                    "workflow `{id}` had been submitted already, with the same definition"
                ));
            }
        }
        ids.push(id);
    }
    let mut exit = Exit::Ok;
    if args.watch {
        for id in ids {
            let ended = follow(context, &client, &id, args.timeout_s, Shown::Aside).await?;
            exit = worse(exit, ended);
        }
    }
    Ok(exit)
}

/// A failure outweighs a cancel, a cancel outweighs success.
const fn worse(a: Exit, b: Exit) -> Exit {
    match (a, b) {
        (Exit::WorkflowFailed, _) | (_, Exit::WorkflowFailed) => Exit::WorkflowFailed,
        (Exit::Ok, b) => b,
        (a, _) => a,
    }
}

fn listed(list: &str) -> Result<Vec<String>, CliError> {
    let lines: io::Result<Vec<String>> = if list == "-" {
        io::stdin().lock().lines().collect()
    } else {
        std::fs::File::open(list).and_then(|file| io::BufReader::new(file).lines().collect())
    };
    let lines = lines.map_err(|error| {
        CliError::usage(format!("the list `{list}` cannot be read: {error}"))
            .help("give a text file with one name a line, or `-` for stdin")
    })?;
    let names = lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty());
    Ok(names.map(str::to_owned).collect())
}
