//! Reads definitions from files and stdin, and shows what is wrong with them.

use std::fs::File;
use std::io;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::value::to_raw_value;

use super::Context;
use super::error::CliError;
use super::exit::Exit;
use super::print::note;
use crate::definition::{Definition, Diagnostic, Parsed, Source, parse, render};

/// A file that was read and checked.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) source: Source,
    pub(super) result: Result<Definition, ()>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl Checked {
    /// Its problems for people.
    pub(super) fn text(&self, colour: bool) -> String {
        render(&self.source, &self.diagnostics, colour)
    }

    /// Its problems for programs.
    pub(super) fn json(&self) -> CheckedJson<'_> {
        CheckedJson {
            file: self.source.name(),
            valid: self.result.is_ok(),
            tasks: self.result.as_ref().ok().map(|found| found.tasks.len()),
            diagnostics: &self.diagnostics,
        }
    }
}

/// A checked file as a value.
#[derive(Debug, Serialize)]
pub(super) struct CheckedJson<'a> {
    file: &'a str,
    valid: bool,
    tasks: Option<usize>,
    diagnostics: &'a [Diagnostic],
}

/// Reads and checks `name`; `-` is stdin.
pub(super) fn check(name: &str) -> Result<Checked, CliError> {
    let source = if name == "-" {
        Source::read("<stdin>", io::stdin().lock())
    } else {
        File::open(name).and_then(|file| Source::read(name, file))
    };
    let source = source.map_err(|error| {
        let exit = if error.kind() == io::ErrorKind::NotFound {
            Exit::NotFound
        } else {
            Exit::Usage
        };
        CliError::new(exit, format!("`{name}` cannot be read: {error}"))
            .help("give the path of a definition in YAML or JSON, or `-` for stdin")
    })?;
    let (result, diagnostics) = match parse(&source) {
        Ok(Parsed {
            definition,
            warnings,
        }) => (Ok(definition), warnings),
        Err(problems) => (Err(()), problems.diagnostics),
    };
    Ok(Checked {
        source,
        result,
        diagnostics,
    })
}

/// Reads and checks all files before anything is done with the first. Warnings are told.
pub(super) fn read_all(
    context: &Context,
    names: &[String],
) -> Result<Vec<(String, Definition)>, CliError> {
    let checked: Vec<Checked> = names
        .iter()
        .map(|name| check(name))
        .collect::<Result<_, _>>()?;
    let colour = context.printer.colour().stderr;
    let bad: Vec<&Checked> = checked.iter().filter(|c| c.result.is_err()).collect();
    if !bad.is_empty() {
        let values: Vec<_> = bad.iter().map(|checked| checked.json()).collect();
        // Kept as text: a tree of values would sort the fields.
        let values = to_raw_value(&values).context("the problems are no JSON")?;
        let text = bad.iter().map(|checked| checked.text(colour)).collect();
        let what = match bad[..] {
            [one] => format!("`{}` is not a valid definition", one.source.name()),
            _ => format!(
                "{} of {} definitions are not valid",
                bad.len(),
                checked.len()
            ),
        };
        return Err(CliError::new(Exit::InvalidDefinition, what).problems(values, text));
    }
    let mut definitions = Vec::with_capacity(checked.len());
    for checked in checked {
        if !checked.diagnostics.is_empty() {
            note(checked.text(colour).trim_end());
        }
        let name = checked.source.name().to_owned();
        let definition = checked.result;
        definitions.push((
            name,
            definition
                .map_err(|()| CliError::internal("a definition without problems must be there"))?,
        ));
    }
    Ok(definitions)
}
