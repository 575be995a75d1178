//! The arguments of the command line, typed; each command's own are in its file.

use std::ffi::OsString;
use std::net::{AddrParseError, SocketAddr};

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use super::coordinator::CoordinatorArgs;
use super::doctor::DoctorArgs;
use super::error::CliError;
use super::exit::Exit;
use super::list::ListArgs;
use super::logs::LogsArgs;
use super::output::OutputArgs;
use super::print::Printer;
use super::run::RunArgs;
use super::status::StatusArgs;
use super::submit::SubmitArgs;
use super::tasks::TasksArgs;
use super::validate::ValidateArgs;
use super::watch::WatchArgs;
use super::worker::WorkerArgs;
use super::{cancel::CancelArgs, journal::JournalArgs, purge::PurgeArgs, retry::RetryArgs};
use crate::definition::{QueueName, WorkflowId};
use crate::env::real;

/// Runs DAG-shaped batch pipelines with nothing but an Azure storage account
#[derive(Debug, Parser)]
#[command(
    name = "workflow",
    version,
    max_term_width = 100,
    infer_long_args = false
)]
#[command(
    after_help = "Exit codes: 0 ok, 1 internal, 2 usage, 3 invalid definition, 4 not found, 5 authentication or role, 6 storage \
unreachable, 7 conflict, 8 another coordinator leads, 10 workflow failed, 11 workflow cancelled, 12 wait timed out, 13 problems \
found, 128 + signal. An empty environment variable counts as unset; a flag wins over its variable."
)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Arguments of every command.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Global {
    /// The account and the prefix on it; PREFIX alone where AZURE_STORAGE_CONNECTION_STRING names the account, and
    /// `devstoreaccount1/PREFIX` for the emulator
    #[arg(
        long,
        global = true,
        env = "WORKFLOW_STORE",
        value_name = "ACCOUNT/PREFIX"
    )]
    pub(super) store: Option<String>,
    /// How data is printed on stdout
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub(super) output: Format,
    /// When colours are used
    #[arg(long, global = true, value_enum, default_value_t = ColorWhen::Auto, value_name = "WHEN")]
    pub(super) color: ColorWhen,
    /// Log more on stderr; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(super) verbose: u8,
    /// Log errors only
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// What is logged, as `debug` or `dagaz::coordinator=trace`; other crates never below `info`
    #[arg(long, global = true, env = "WORKFLOW_LOG", value_name = "FILTER")]
    pub(super) log: Option<String>,
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// For programs: one JSON value, errors too
    Json,
}

/// When colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a workflow here and now, without any service
    Run(RunArgs),
    /// Submit workflows and print their ids
    Submit(SubmitArgs),
    /// Check definitions and show all their problems
    Validate(ValidateArgs),
    /// Show where a workflow stands
    Status(StatusArgs),
    /// Follow a workflow to its end
    Watch(WatchArgs),
    /// List workflows, the newest first
    List(ListArgs),
    /// Show the tasks of a workflow
    Tasks(TasksArgs),
    /// Print what a task printed
    Logs(LogsArgs),
    /// Print the JSON that a task wrote
    Output(OutputArgs),
    /// End a workflow
    Cancel(CancelArgs),
    /// Run again what failed or was cancelled
    Retry(RetryArgs),
    /// Remove what is left of workflows that have ended
    Purge(PurgeArgs),
    /// Show who did what, the newest first
    Journal(JournalArgs),
    /// Coordinate the workflows of a prefix
    Coordinator(CoordinatorArgs),
    /// Run tasks
    Worker(WorkerArgs),
    /// Check the configuration, the store and what is stuck
    Doctor(DoctorArgs),
}

impl Command {
    /// Whether it is a service, which says what it does.
    pub(super) const fn runs_long(&self) -> bool {
        matches!(self, Self::Coordinator(_) | Self::Worker(_))
    }
}

/// The workflow that a command is about.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Target {
    /// The workflow
    #[arg(value_name = "ID", value_parser = workflow_id)]
    pub(super) id: WorkflowId,
}

/// Reads an id; the error says the rule alone, since what is around it names the value.
pub(super) fn workflow_id(text: &str) -> Result<WorkflowId, String> {
    WorkflowId::new(text).map_err(|error| error.rule.to_owned())
}

/// Reads the name of a queue, as [`workflow_id`].
pub(super) fn queue_name(text: &str) -> Result<QueueName, String> {
    QueueName::new(text).map_err(|error| error.rule.to_owned())
}

/// Reads an address to listen at.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_ignored: AddrParseError| {
        "give an IP address and a port, as `127.0.0.1:8080` or `[::]:8080`".to_owned()
    })
}

/// Variables with a second name, which counts where the first is not set.
const SECOND_NAMES: [(&str, &str); 3] = [
    (
        "WORKFLOW_COORDINATOR_BATCH_SIZE",
        "JOBQ_COMPLETION_BATCH_SIZE",
    ),
    (
        "WORKFLOW_WORKER_CANCEL_POLL_INTERVAL_S",
        "JOBQ_CANCEL_POLL_INTERVAL",
    ),
    (
        "WORKFLOW_WORKER_COMPLETION_SEND_MAX_ATTEMPTS",
        "JOBQ_COMPLETION_SEND_MAX_ATTEMPTS",
    ),
];

/// A command line that runs nothing: a mistake, or a question about itself.
#[derive(Debug)]
pub(super) struct Refused {
    error: clap::Error,
    json: bool,
}

impl Refused {
    /// Tells it.
    pub(super) fn report(self) -> Exit {
        if self.error.use_stderr() && self.json {
            let text = self.error.to_string();
            // What comes before the usage is the message.
            let message = text.split("Usage:").next().unwrap_or(&text);
            let words: Vec<&str> = message.split_whitespace().collect();
            let message = words.join(" ");
            let message = message.trim_start_matches("error: ");
            let error = CliError::usage(message).help("see `workflow --help`");
            return Printer::new(Format::Json, ColorWhen::Never).error(&error);
        }
        // Help for a reader that is gone helps nobody.
        drop(self.error.print());
        if self.error.use_stderr() {
            Exit::Usage
        } else {
            Exit::Ok
        }
    }
}

/// Reads the command line and the variables that stand in for flags.
pub(super) fn parse(args: &[OsString]) -> Result<Cli, Refused> {
    let mut pairs = args.iter().zip(args.iter().skip(1));
    let json = pairs.any(|(flag, value)| flag == "--output" && value == "json")
        || args.iter().any(|arg| arg == "--output=json");
    let parsed = command()
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|mut error| {
        if let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg)
            && let Some(flag) = arg.split_whitespace().next()
            && let Some(variable) = variable_of(args, flag)
        {
            let named = ContextValue::String(format!("{variable} ({flag})"));
            error.insert(ContextKind::InvalidArg, named);
        }
        Refused { error, json }
    })
}

/// The variable that gave `flag` its value; none if the command line did.
fn variable_of(args: &[OsString], flag: &str) -> Option<String> {
    let long = flag.strip_prefix("--")?;
    let is_given = args.iter().any(|arg| {
        let arg = arg.to_string_lossy();
        arg.strip_prefix(flag)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    });
    if is_given {
        return None;
    }
    let command = command();
    let sub = args
        .iter()
        .find_map(|arg| command.find_subcommand(arg.to_str()?));
    let mut known = sub
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .chain(command.get_arguments());
    let name = known.find(|arg| arg.get_long() == Some(long))?.get_env()?;
    let name = name.to_str()?;
    real::var(name).map(|_| name.to_owned())
}

/// Says in an error about flags which of them variables have set.
pub(super) fn name_variables(error: CliError, args: &[OsString]) -> CliError {
    let CliError::Told(mut told) = error else {
        return error;
    };
    if told.exit == Exit::Usage {
        let message = told.message.clone();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let mut flags: Vec<&str> = message.split(|c| !is_part(c)).collect();
        flags.retain(|word| word.starts_with("--"));
        flags.dedup();
        for flag in flags {
            if let Some(variable) = variable_of(args, flag) {
                told.message = format!("{}; {variable} sets `{flag}`", told.message);
            }
        }
    }
    CliError::Told(told)
}

/// The command with its variables: an empty one counts as unset, some have a second name.
pub(super) fn command() -> clap::Command {
    with_variables(Cli::command())
}

fn with_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let Some(name) = arg
            .get_env()
            .and_then(|name| name.to_str())
            .map(str::to_owned)
        else {
            return arg;
        };
        if real::var(&name).is_some() {
            return arg;
        }
        let second = SECOND_NAMES.iter().find(|(first, _)| *first == name);
        match second.filter(|(_, second)| real::var(second).is_some()) {
            Some((_, second)) => arg.env(*second),
            // Set but empty, or not set: read again, and left out where it is empty.
            None if real::is_set(&name) => arg.env(None::<&str>),
            None => arg,
        }
    });
    command.mut_subcommands(with_variables)
}

/// Reads `1`, `0`, `true`, `false`, `yes`, `no` and the like: what variables of switches hold.
pub(super) fn switch() -> BoolishValueParser {
    BoolishValueParser::new()
}
