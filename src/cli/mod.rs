//! The command line: typed, then decided, then done.
//!
//! Invariants:
//! 1. stdout is data and goes through [`print::Printer`] alone; everything else goes to stderr. A closed pipe is a quiet end.
//! 2. With `--output json` every line of stdout is one JSON value, errors included (`{"error": {…}}`).
//! 3. How a command ends is an [`Exit`]; nothing else makes exit codes.
//! 4. A flag wins over the environment, the environment over the default; an empty variable counts as unset.
//! 5. No flag reads a variable that tasks are given (`WORKFLOW_ID`, `WORKFLOW_TASK`, …).

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::env::real;

mod args;
mod cancel;
mod coordinator;
mod definition;
mod doctor;
mod error;
mod exit;
mod health;
mod journal;
mod list;
mod log;
mod logs;
mod open;
mod output;
mod print;
mod progress;
mod purge;
mod retry;
mod run;
mod seconds;
mod signals;
mod status;
mod submit;
mod tasks;
mod validate;
mod watch;
mod worker;

#[cfg(test)]
mod tests;

pub use exit::Exit;

use args::{Cli, Command, Format};
use error::CliError;
use print::Printer;

/// How a command that did not go wrong ends.
type Outcome = Result<Exit, CliError>;

/// What every command is given.
#[derive(Debug, Clone)]
struct Context {
    env: crate::env::Env,
    global: args::Global,
    printer: Printer,
}

/// Runs the command line `args` (the program's name first) and tells how the process is to end.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let exit = match args::parse(&args) {
        Ok(cli) => execute(cli, &args),
        Err(refused) => refused.report(),
    };
    ExitCode::from(exit.code())
}

fn execute(cli: Cli, args: &[OsString]) -> Exit {
    let Cli { global, command } = cli;
    let mut printer = Printer::new(global.output, global.color);
    log::init(&global, command.runs_long());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime did not start");
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return printer.error(&error.into()),
    };
    let mut context = Context {
        env: real::env(),
        global,
        printer,
    };
    let outcome = runtime.block_on(dispatch(&mut context, command));
    // What is still blocked (a read of stdin, a DNS look-up) must not keep the process.
    runtime.shutdown_background();
    match outcome {
        Ok(exit) => exit,
        Err(error) => {
            let error = args::name_variables(error, args);
            context.printer.error(&error)
        }
    }
}

async fn dispatch(context: &mut Context, command: Command) -> Outcome {
    match command {
        Command::Run(args) => run::run(context, args).await,
        Command::Submit(args) => submit::submit(context, args).await,
        Command::Validate(args) => validate::validate(context, &args),
        Command::Status(args) => status::status(context, &args).await,
        Command::Watch(args) => watch::watch(context, &args).await,
        Command::List(args) => list::list(context, &args).await,
        Command::Tasks(args) => tasks::tasks(context, &args).await,
        Command::Logs(args) => logs::logs(context, &args).await,
        Command::Output(args) => output::output(context, &args).await,
        Command::Cancel(args) => cancel::cancel(context, &args).await,
        Command::Retry(args) => retry::retry(context, &args).await,
        Command::Purge(args) => purge::purge(context, &args).await,
        Command::Journal(args) => journal::journal(context, &args).await,
        Command::Coordinator(args) => coordinator::coordinator(context, args).await,
        Command::Worker(args) => worker::worker(context, args).await,
        Command::Doctor(args) => doctor::doctor(context, &args).await,
    }
}

impl Context {
    fn is_json(&self) -> bool {
        self.global.output == Format::Json
    }
}
