//! The one way to stdout, and how errors are told.

use std::io::{self, IsTerminal as _, Write};

use anyhow::Context as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::args::{ColorWhen, Format};
use super::error::{CliError, Told};
use super::exit::Exit;
use crate::env::real;

/// Writes data to stdout and errors to where they belong.
#[derive(Debug, Clone)]
pub(super) struct Printer {
    format: Format,
    colour: Colour,
}

/// Which streams take colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Colour {
    pub(super) stdout: bool,
    pub(super) stderr: bool,
}

impl Colour {
    /// `--color` wins; else colours go to terminals, unless `NO_COLOR` is set or the terminal is dumb.
    pub(super) fn of(when: ColorWhen) -> Self {
        let wanted =
            || real::var("NO_COLOR").is_none() && real::var("TERM").as_deref() != Some("dumb");
        match when {
            ColorWhen::Always => Self {
                stdout: true,
                stderr: true,
            },
            ColorWhen::Never => Self {
                stdout: false,
                stderr: false,
            },
            ColorWhen::Auto => Self {
                stdout: io::stdout().is_terminal() && wanted(),
                stderr: io::stderr().is_terminal() && wanted(),
            },
        }
    }
}

/// A colour of the terminal's palette.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ink {
    Red,
    Green,
    Yellow,
    Cyan,
    Bold,
}

/// `text` in `ink` where colours are shown.
pub(super) fn paint(shown: bool, ink: Ink, text: &str) -> String {
    let code = match ink {
        Ink::Red => "31",
        Ink::Green => "32",
        Ink::Yellow => "33",
        Ink::Cyan => "36",
        Ink::Bold => "1",
    };
    if shown {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

impl Printer {
    pub(super) fn new(format: Format, when: ColorWhen) -> Self {
        Self {
            format,
            colour: Colour::of(when),
        }
    }

    pub(super) const fn colour(&self) -> Colour {
        self.colour
    }

    /// Writes one line of text.
    pub(super) fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.write(&[text.as_bytes(), b"\n"])
    }

    /// Writes a value as one line of JSON.
    pub(super) fn json<T: Serialize>(&mut self, value: &T) -> Result<(), CliError> {
        let text = serde_json::to_string(value).context("the answer is no JSON")?;
        self.line(&text)
    }

    /// Writes bytes as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.write(&[bytes])
    }

    #[expect(
        clippy::unused_self,
        clippy::needless_pass_by_ref_mut,
        reason = "whoever writes to stdout holds the printer"
    )]
    fn write(&mut self, parts: &[&[u8]]) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        let written = parts
            .iter()
            .try_for_each(|part| out.write_all(part))
            .and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(CliError::ClosedPipe),
            written => Ok(written.context("stdout does not take the output")?),
        }
    }

    /// Tells an error: on stderr for people, on stdout as JSON for programs. Returns how the process ends.
    pub(super) fn error(&mut self, error: &CliError) -> Exit {
        let CliError::Told(told) = error else {
            // As if by SIGPIPE, which other tools die of: what there was to tell was not told.
            return Exit::Signal(13);
        };
        match self.format {
            Format::Json => {
                // Where stdout takes nothing, people are told: the error may be just that. A closed pipe is a quiet end.
                match self.json(&told.json()) {
                    Ok(()) => {}
                    Err(CliError::Told(_)) => stderr(&error_text(told, self.colour.stderr)),
                    Err(CliError::ClosedPipe) => return Exit::Signal(13),
                }
            }
            Format::Text => stderr(&error_text(told, self.colour.stderr)),
        }
        told.exit
    }
}

fn error_text(told: &Told, colour: bool) -> String {
    let problems = told.problems.as_ref().map_or("", |(_, text)| text);
    let word = paint(colour, Ink::Red, "error:");
    let text = format!("{problems}{word} {}\n", clean(&told.message));
    let Some(help) = &told.help else {
        return text;
    };
    format!(
        "{text}{} {}\n",
        paint(colour, Ink::Cyan, "help:"),
        clean(help)
    )
}

/// A remark for people, on stderr.
pub(super) fn note(text: &str) {
    stderr(&format!("{text}\n"));
}

/// Writes to stderr, where nobody waits for it.
fn stderr(text: &str) {
    // A closed stderr leaves nobody to tell.
    drop(io::stderr().lock().write_all(text.as_bytes()));
}

/// Text of others made safe for a line on a terminal: no control characters.
pub(super) fn clean(text: &str) -> String {
    let safe = |c: char| match c {
        '\n' | '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(safe).collect()
}

/// A moment for people: local time with its offset.
pub(super) fn local_time(at: Timestamp) -> String {
    at.to_zoned_datetime(TimeZone::system())
        .strftime("%Y-%m-%d %H:%M:%S%:z")
        .to_string()
}

/// A stretch of time for people: `4.2s`, `3m12s`, `2h05m`.
pub(super) fn short_duration(duration: std::time::Duration) -> String {
    let secs = duration.as_secs();
    match secs {
        0..60 => format!("{:.1}s", duration.as_secs_f64()),
        60..3600 => format!("{}m{:02}s", secs / 60, secs % 60),
        _ => format!("{}h{:02}m", secs / 3600, secs % 3600 / 60),
    }
}
