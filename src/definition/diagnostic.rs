//! What is wrong with a definition, where, and what to do: as values, as text for people and as JSON.
//!
//! Invariants:
//! 1. Diagnostics are in the order of the text.
//! 2. At most [`DIAGNOSTICS_MAX`] of each severity are kept; what is left out is counted and said.

use std::fmt;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;

use super::limits::DIAGNOSTICS_MAX;
use super::source::{Lines, Source, Span};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The definition is refused.
    Error,
    /// The definition is taken; its author should look.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One problem of a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub col: usize,
    /// The bytes it is about.
    pub span: Span,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// All problems of a refused definition, its warnings among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The name of the source.
    pub file: String,
    /// The problems (invariants 1 and 2).
    pub diagnostics: Vec<Diagnostic>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, found) in self.diagnostics.iter().enumerate() {
            let Diagnostic {
                severity,
                line,
                col,
                message,
                ..
            } = found;
            let end = if at == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{line}:{col}: {severity}: {message}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Diagnostics for people: place and message, the source line with a caret below, and what to do. `colour` adds terminal colours.
#[must_use]
pub fn render(source: &Source, diagnostics: &[Diagnostic], colour: bool) -> String {
    let renderer = if colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    let (bold, reset) = if colour {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    let mut parts = Vec::new();
    for found in diagnostics {
        let Diagnostic {
            severity,
            line,
            col,
            message,
            ..
        } = found;
        let (level, tint) = match severity {
            Severity::Error => (Level::ERROR, if colour { "\x1b[1;31m" } else { "" }),
            Severity::Warning => (Level::WARNING, if colour { "\x1b[1;33m" } else { "" }),
        };
        let place = format!("{}:{line}:{col}", source.name());
        parts.push(format!(
            "{bold}{place}: {reset}{tint}{severity}{reset}{bold}: {message}{reset}\n"
        ));
        if let Some((shown, range)) = excerpt(source, found.span) {
            let snippet = Snippet::source(shown)
                .line_start(*line)
                .fold(false)
                .annotation(AnnotationKind::Primary.span(range));
            let group = Group::with_level(level).element(snippet);
            parts.push(renderer.render(&[group]));
            parts.push("\n".to_owned());
        }
        if let Some(help) = &found.help {
            parts.push(format!("{bold}help:{reset} {help}\n"));
        }
    }
    parts.concat()
}

/// Most bytes of a source line shown before and after the start of a span: a JSON file may be one line of many megabytes.
const SHOWN_BYTES: usize = 60;

/// The line in which the span starts, cut to what fits, and the part of it to underline.
fn excerpt(source: &Source, span: Span) -> Option<(String, std::ops::Range<usize>)> {
    let bytes = source.bytes();
    let start = (span.start as usize).min(bytes.len());
    let line_start = bytes[..start]
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    let line_end = bytes[start..]
        .iter()
        .position(|b| *b == b'\n')
        .map_or(bytes.len(), |at| start + at);
    let end = (span.end as usize).clamp(start, line_end);
    let boundary = |mut at: usize| {
        while at > line_start && at < line_end && (bytes[at] & 0xc0) == 0x80 {
            at -= 1;
        }
        at
    };
    let first = boundary(start.saturating_sub(SHOWN_BYTES).max(line_start));
    let last = boundary((start + SHOWN_BYTES).min(line_end));
    let part = |from: usize, to: usize| {
        let text = String::from_utf8_lossy(&bytes[from.min(to)..to]);
        // What moves the cursor of a terminal is shown as a mark; a tab stays for the renderer.
        let shown = |c: char| match c {
            '\t' => '\t',
            '\r' | '\u{feff}' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        };
        text.chars().map(shown).collect::<String>()
    };
    let end = boundary(end.min(last));
    let mut text = String::new();
    if first > line_start {
        text.push('…');
    }
    text.push_str(&part(first, start));
    let from = text.len();
    text.push_str(&part(start, end));
    if text.len() == from {
        // An empty span, or one at the end of the line, points at one character.
        let next = part(start, last).chars().next().map_or(1, char::len_utf8);
        text.push_str(&part(start, last));
        if start == last {
            text.push(' ');
        }
        let until = from + next;
        return (!text.trim().is_empty()).then_some((text, from..until));
    }
    let until = text.len();
    text.push_str(&part(end, last));
    if last < line_end {
        text.push('…');
    }
    (!text.trim().is_empty()).then_some((text, from..until))
}

/// Collects diagnostics while a definition is read.
#[derive(Debug)]
pub(super) struct Report<'s> {
    source: &'s Source,
    lines: Lines<'s>,
    kept: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl<'s> Report<'s> {
    pub(super) const fn new(source: &'s Source) -> Self {
        Self {
            source,
            lines: Lines::new(source),
            kept: Vec::new(),
            errors: 0,
            warnings: 0,
        }
    }

    /// The line of a span, from 1.
    pub(super) fn line(&self, span: Span) -> usize {
        self.lines.position(span.start).0
    }

    /// Whether errors were found.
    pub(super) const fn failed(&self) -> bool {
        self.errors > 0
    }

    /// Adds an error.
    pub(super) fn error(&mut self, span: Span, message: impl Into<String>) {
        self.add(Severity::Error, span, message.into(), None);
    }

    /// Adds an error with what to do.
    pub(super) fn error_help(
        &mut self,
        span: Span,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.add(Severity::Error, span, message.into(), help.into());
    }

    /// Adds a warning with what to do.
    pub(super) fn warn(
        &mut self,
        span: Span,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.add(Severity::Warning, span, message.into(), help.into());
    }

    fn add(&mut self, severity: Severity, span: Span, message: String, help: Option<String>) {
        let count = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count > DIAGNOSTICS_MAX {
            return;
        }
        let (line, col) = self.lines.position(span.start);
        self.kept.push(Diagnostic {
            severity,
            line,
            col,
            span,
            message,
            help,
        });
    }

    /// The diagnostics in the order of the text, with a last one for those left out.
    pub(super) fn finish(mut self) -> Vec<Diagnostic> {
        self.kept.sort_by_key(|found| found.span.start);
        let counts = [
            (Severity::Error, self.errors),
            (Severity::Warning, self.warnings),
        ];
        for (severity, count) in counts {
            if count > DIAGNOSTICS_MAX {
                let end = self.source.bytes().len();
                let span = Span::new(end, end);
                let (line, col) = self.lines.position(span.start);
                self.kept.push(Diagnostic {
                    severity,
                    line,
                    col,
                    span,
                    message: format!(
                        "{} more of this kind are not shown",
                        count - DIAGNOSTICS_MAX
                    ),
                    help: None,
                });
            }
        }
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, start: usize, end: usize) -> String {
        let source = Source::new("w.yaml", text);
        let mut report = Report::new(&source);
        report.error_help(Span::new(start, end), "it is wrong", "do this".to_owned());
        render(&source, &report.finish(), false)
    }

    #[test]
    fn a_diagnostic_shows_place_line_caret_and_help() {
        let shown = one("name: x\ntasks: ä oops b\n", 18, 22);
        assert_eq!(
            shown,
            "w.yaml:2:10: error: it is wrong\n  |\n2 | tasks: ä oops b\n  |          ^^^^\nhelp: do this\n"
        );
    }

    #[test]
    fn colour_changes_no_word() {
        let source = Source::new("w.yaml", "a: b\n");
        let mut report = Report::new(&source);
        report.warn(Span::new(0, 1), "look", None);
        let found = report.finish();
        let styled = render(&source, &found, true);
        assert!(styled.contains("\x1b["), "{styled}");
        let mut plain = String::new();
        let mut rest = styled.as_str();
        while let Some((before, after)) = rest.split_once('\x1b') {
            plain.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        assert_eq!(plain, render(&source, &found, false));
    }

    #[test]
    fn a_line_of_a_megabyte_is_cut_around_the_place() {
        let text = format!("{}oops{}", "ä".repeat(500_000), "b".repeat(500_000));
        let shown = one(&text, 1_000_000, 1_000_004);
        assert!(shown.len() < 1_000, "{}", shown.len());
        assert!(shown.contains("^^^^") && shown.contains("…"), "{shown}");
    }

    #[test]
    fn places_at_the_end_of_lines_and_of_the_file_can_be_shown() {
        for (text, at) in [
            ("a: b\nc", 4),
            ("a: b", 4),
            ("", 0),
            ("ä", 1),
            ("a\n\n", 2),
            ("\u{fffd}\r\n", 3),
        ] {
            for end in [at, at + 1, at + 50] {
                let shown = one(text, at, end);
                assert!(shown.starts_with("w.yaml:"), "{shown}");
            }
        }
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let source = Source::new("w.yaml", "a: b\n");
        let mut report = Report::new(&source);
        for _ in 0..DIAGNOSTICS_MAX + 5 {
            report.error(Span::new(0, 1), "no");
        }
        let found = report.finish();
        assert_eq!(found.len(), DIAGNOSTICS_MAX + 1);
        assert_eq!(
            found[DIAGNOSTICS_MAX].message,
            "5 more of this kind are not shown"
        );
    }

    #[test]
    fn diagnostics_have_a_json_form() {
        let source = Source::new("w.yaml", "a: b\n");
        let mut report = Report::new(&source);
        report.error(Span::new(3, 4), "no");
        let json = serde_json::to_string(&report.finish()).unwrap();
        assert_eq!(
            json,
            r#"[{"severity":"error","line":1,"col":4,"span":{"start":3,"end":4},"message":"no"}]"#
        );
    }
}
