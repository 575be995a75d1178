//! `workflow run FILE`

use std::num::NonZeroU16;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::mpsc;

use super::args::workflow_id;
use super::error::CliError;
use super::exit::Exit;
use super::logs::safe;
use super::print::{clean, note};
use super::progress::{Progress, Shown};
use super::signals::Interrupts;
use super::watch::exit_of;
use super::worker::check;
use super::{Context, Outcome, definition};
use crate::client::Update;
use crate::definition::WorkflowId;
use crate::local::{self, Ended, LocalError, Options};
use crate::worker::ProcessExecutor;

/// Lines of a failed task's log that are shown.
const LOG_LINES_SHOWN: usize = 20;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The definition in YAML or JSON; `-` is stdin
    #[arg(value_name = "FILE")]
    file: String,
    /// The id of the workflow, as tasks see it; a new one without it
    #[arg(long, value_name = "ID", value_parser = workflow_id)]
    id: Option<WorkflowId>,
    /// Tasks run at once [default: two for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    slots: Option<u16>,
}

/// Runs one workflow in this process, on a store in memory, and ends by how it ends.
pub(super) async fn run(context: &mut Context, args: RunArgs) -> Outcome {
    let files = [args.file];
    let definition = definition::read_all(context, &files)?.pop();
    let (_, definition) =
        definition.ok_or_else(|| CliError::internal("one file gives one definition"))?;
    check(&ProcessExecutor::new(context.env.clone(), &[])).await?;
    let interrupts = Interrupts::listen(&context.env)?;
    let options = Options {
        id: args.id,
        slots: args
            .slots
            .and_then(NonZeroU16::new)
            .unwrap_or_else(default_slots),
        stop: interrupts.first.clone(),
        kill: interrupts.second.clone(),
    };
    let (tell, told) = mpsc::channel(1);
    let teller = {
        let context = context.clone();
        tokio::task::spawn_blocking(move || tell_all(context, told))
    };
    let on_update = async |update| {
        // Who has panicked takes nothing; that is seen at the end.
        tell.send(Said::Change(update)).await.ok();
    };
    let ended = match local::run(&context.env, &definition, options, on_update).await {
        Ok(ended) => ended,
        Err(LocalError::Killed) => return Ok(interrupts.exit()),
        Err(LocalError::Client(error)) => return Err(error.into()),
        Err(LocalError::Service(what)) => return Err(CliError::internal(what)),
    };
    let told = async {
        tell.send(Said::End(Box::new(ended))).await.ok();
        teller.await
    };
    tokio::select! {
        biased;
        told = told => told.context("not all could be told")?,
        // Only the telling is left.
        () = interrupts.second.cancelled() => Ok(interrupts.exit()),
    }
}

/// What there is to tell.
#[derive(Debug)]
enum Said {
    Change(Arc<Update>),
    End(Box<Ended>),
}

/// Tells all, on a thread of its own: a pipe that nobody reads makes it wait, and signals must be heard meanwhile.
fn tell_all(mut context: Context, mut told: mpsc::Receiver<Said>) -> Outcome {
    let mut unread = Unread::default();
    let mut progress = Progress::new(&context, Shown::AsData);
    loop {
        match told.blocking_recv() {
            Some(Said::Change(_)) if context.is_json() => {}
            Some(Said::Change(update)) => unread.note(progress.update(&mut context, &update)),
            Some(Said::End(ended)) => {
                drop(progress);
                return tell_end(&mut context, &ended, unread);
            }
            // It came to no end, which is told elsewhere.
            None => return Ok(Exit::Ok),
        }
    }
}

fn tell_end(context: &mut Context, ended: &Ended, mut unread: Unread) -> Outcome {
    if context.is_json() {
        unread.note(context.printer.json(&ended.view));
    }
    for (task, log) in &ended.failed_logs {
        note(&format!(
            "--- the end of what `{}` printed",
            clean(task.as_str())
        ));
        let text = safe(log);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(LOG_LINES_SHOWN);
        note(&lines[from..].join("\n"));
    }
    let status = ended.view.summary.status;
    match unread.0 {
        Some(error) => Err(error.help(format!("the workflow went on to its end: {status}"))),
        None => Ok(exit_of(status)),
    }
}

/// The first reason for which stdout did not take what there was to tell. The work is what counts here: it goes on; where only nobody reads of
/// it any more, its exit code tells how it ended.
#[derive(Debug, Default)]
struct Unread(Option<CliError>);

impl Unread {
    fn note(&mut self, told: Result<(), CliError>) {
        match told {
            Ok(()) | Err(CliError::ClosedPipe) => {}
            Err(error) if self.0.is_none() => {
                note("stdout does not take the output: the workflow goes on");
                self.0 = Some(error);
            }
            Err(_) => {}
        }
    }
}

/// Two for each processor: most pipelines wait as much as they compute.
fn default_slots() -> NonZeroU16 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let slots = u16::try_from(processors.saturating_mul(2)).unwrap_or(u16::MAX);
    NonZeroU16::new(slots).unwrap_or(NonZeroU16::MIN)
}
