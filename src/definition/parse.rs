//! Reads a definition from YAML or JSON text: bytes to text, text to a tree, tree to a checked definition.
//!
//! Invariants:
//! 1. All problems of a file are reported in one pass, except that nothing can be said behind a syntax error.
//! 2. What is returned has passed every rule of this module and of [`check_graph`](super::check_graph).
//! 3. Time is linear in the text; no input makes it panic or recurse deeper than [`DEPTH_MAX`](super::limits::DEPTH_MAX).

use super::diagnostic::{Diagnostic, Problems, Report};
use super::limits::FILE_BYTES_MAX;
use super::model::Definition;
use super::source::{Format, Source, Span};
use super::tree::{Kind, Node, Stop};
use super::{json, workflow, yaml};

/// A definition that passed all checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The definition.
    pub definition: Definition,
    /// What its author should look at.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks a definition.
///
/// # Errors
/// All problems of the text, in its order, warnings among them.
pub fn parse(source: &Source) -> Result<Parsed, Problems> {
    let mut report = Report::new(source);
    let definition = match read(source) {
        Ok(root) => workflow::read(&mut report, &root),
        Err(stop) => {
            report.error_help(stop.span, stop.message, stop.help);
            None
        }
    };
    let failed = report.failed();
    let diagnostics = report.finish();
    match definition.filter(|_| !failed) {
        Some(definition) => Ok(Parsed {
            definition,
            warnings: diagnostics,
        }),
        None => Err(Problems {
            file: source.name().to_owned(),
            diagnostics,
        }),
    }
}

/// The tree of a text that holds something.
fn read(source: &Source) -> Result<Node<'_>, Stop> {
    let text = text(source.bytes())?;
    let root = match source.format() {
        Format::Json => json::read(text)?,
        Format::Yaml => yaml::read(text)?,
    };
    match root {
        Some(root) if !matches!(root.kind(), Kind::Null("")) => Ok(root),
        _ => {
            let blank = text.trim_start_matches('\u{feff}').trim().is_empty();
            let message = if blank {
                "the file is empty"
            } else {
                "the file holds no workflow, only comments or marks"
            };
            let help = "a workflow has a list of `tasks`, each with `name` and `cmd`";
            Err(Stop::new(Span::new(0, 0), message).help(help))
        }
    }
}

/// The text, if it is one: small enough, UTF-8, and without control characters that would end it early.
fn text(bytes: &[u8]) -> Result<&str, Stop> {
    let start = Span::new(0, 0);
    if bytes.len() > FILE_BYTES_MAX {
        let message = format!("the file is larger than {FILE_BYTES_MAX} bytes (128 MiB)");
        return Err(Stop::new(start, message));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(Stop::new(start, "the file is UTF-16, not UTF-8").help("save it as UTF-8"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let message = format!(
            "the file is not UTF-8: byte 0x{:02X} is not part of a character",
            bytes[at]
        );
        Stop::new(Span::new(at, at + 1), message).help("save it as UTF-8")
    })?;
    let control = |b: &u8| (*b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r')) || *b == 0x7f;
    if let Some(at) = bytes.iter().position(control) {
        let message = format!("the file holds the control character U+{:04X}", bytes[at]);
        return Err(Stop::new(Span::new(at, at + 1), message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
