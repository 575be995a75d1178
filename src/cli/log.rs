//! Log lines on stderr. What other crates log is capped at `info`: below that the Azure crates log signed addresses and keys.

use std::io;

use tracing::Metadata;
use tracing_subscriber::filter::{EnvFilter, LevelFilter, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

use super::args::Global;
use super::print::{Colour, clean, note};

/// Starts logging. A process that runs long says what it does; a command only what goes wrong.
pub(super) fn init(global: &Global, runs_long: bool) {
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(Colour::of(global.color).stderr)
        .with_target(false)
        .with_filter(filter(global, runs_long))
        .with_filter(filter_fn(is_safe));
    let subscriber = tracing_subscriber::registry().with(layer);
    // A second call in one process (tests) leaves the first logger in place.
    drop(tracing::subscriber::set_global_default(subscriber));
}

fn filter(global: &Global, runs_long: bool) -> EnvFilter {
    let level = match (global.quiet, global.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) if runs_long => LevelFilter::INFO,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::DEBUG,
        (false, _) => LevelFilter::TRACE,
    };
    let builder = || EnvFilter::builder().with_default_directive(level.into());
    let Some(wanted) = global.log.as_deref() else {
        return builder().parse_lossy("");
    };
    builder().parse(wanted).unwrap_or_else(|error| {
        note(&format!(
            "warning: `--log`, or WORKFLOW_LOG, is left out of account: `{}` is no filter: {error}",
            clean(wanted)
        ));
        builder().parse_lossy("")
    })
}

/// Ours at any level, that of others only from `info` up, whatever `--log` says.
fn is_safe(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("dagaz") || *metadata.level() <= tracing::Level::INFO
}
