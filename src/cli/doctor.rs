//! `workflow doctor`

use super::error::CliError;
use super::exit::Exit;
use super::open::{self, Opened};
use super::print::{Ink, clean, paint};
use super::{Context, Outcome};
use crate::doctor::{self, Check, Patient, Verdict};
use crate::env::real::actor;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Make the containers, tables and queues that are missing, and send again completions kept as poison that can be handled by now
    #[arg(long)]
    fix: bool,
}

/// Checks everything and shows what to do; exit 13 when there are problems.
pub(super) async fn doctor(context: &mut Context, args: &DoctorArgs) -> Outcome {
    let checks = match open::open(context) {
        Ok(opened) => {
            let patient = patient(context, opened);
            doctor::examine(&patient, args.fix).await
        }
        Err(CliError::Told(told)) => vec![Check {
            name: "configuration".to_owned(),
            status: Verdict::Problem,
            message: told.message,
            help: told.help,
        }],
        Err(closed @ CliError::ClosedPipe) => return Err(closed),
    };
    let sick = checks.iter().any(|check| check.status == Verdict::Problem);
    if context.is_json() {
        context.printer.json(&checks)?;
    } else {
        let colour = context.printer.colour().stdout;
        for check in &checks {
            let (ink, word) = match check.status {
                Verdict::Ok => (Ink::Green, "ok"),
                Verdict::Warn => (Ink::Yellow, "warn"),
                Verdict::Problem => (Ink::Red, "problem"),
            };
            let word = paint(colour, ink, &format!("{word:<7}"));
            let (name, message) = (&check.name, clean(&check.message));
            context.printer.line(&format!("{word} {name}: {message}"))?;
            if let Some(help) = &check.help {
                context
                    .printer
                    .line(&format!("        help: {}", clean(help)))?;
            }
        }
    }
    Ok(if sick { Exit::ProblemsFound } else { Exit::Ok })
}

fn patient(context: &Context, opened: Opened) -> Patient {
    let Opened {
        store,
        layout,
        config,
    } = opened;
    let endpoints = config.endpoints();
    let at = format!(
        "account `{}`, prefix `{}` (blobs at {}, queues at {}, tables at {})",
        config.account(),
        layout.prefix(),
        endpoints.blob,
        endpoints.queue,
        endpoints.table
    );
    Patient {
        env: context.env.clone(),
        store,
        layout,
        described: at,
        actor: actor(),
        expires_at: config.expires_at(),
    }
}
