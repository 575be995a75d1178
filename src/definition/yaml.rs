//! YAML text to a tree, by the events of `granit-parser`.
//!
//! Invariants:
//! 1. One document, no more and no less.
//! 2. Quotes and block styles make a scalar text; a bare word stays a bare word (`plain`).

use std::borrow::Cow;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};

use super::limits::DEPTH_MAX;
use super::source::Span;
use super::tree::{Builder, Node, Stop};

/// Reads the one document of a text; `None` when there is none.
pub(super) fn read(text: &str) -> Result<Option<Node<'_>>, Stop> {
    let mut options = granit_parser::options! {
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    options.set_emit_comments(false);
    let mut builder = Builder::default();
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, place) = event.map_err(|error| syntax(text, &error))?;
        let range = place.byte_range().unwrap_or_default();
        let span = Span::new(range.start, range.end);
        let tag_range = place.tag_span().and_then(|tag| tag.byte_range());
        let tag_span = tag_range.map_or(span, |tag| Span::new(tag.start, tag.end));
        match event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents > 1 {
                    return Err(two_documents(span));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tagged = check_tag(tag.as_deref(), tag_span)?;
                let plain = matches!(style, ScalarStyle::Plain) && !tagged;
                // The parser gives `~` for a value that is not there at all.
                let text = if range.is_empty() && plain {
                    Cow::Borrowed("")
                } else {
                    text
                };
                builder.scalar(span, text, plain, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), tag_span)?;
                builder.open(span, false, anchor)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), tag_span)?;
                builder.open(span, true, anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.close(span.end),
            Event::Alias(anchor) => builder.alias(span, anchor)?,
            // The options ask for no other event; those left carry no value.
            _ => {}
        }
    }
    Ok(builder.finish())
}

pub(super) fn two_documents(span: Span) -> Stop {
    Stop::new(span, "two documents found: a file holds one workflow")
        .help("put each workflow into a file of its own")
}

/// Whether the tag makes a scalar text. Tags of the core schema are taken, others are refused: what they ask for would not happen.
fn check_tag(tag: Option<&Tag>, span: Span) -> Result<bool, Stop> {
    let Some(tag) = tag else { return Ok(false) };
    match tag.core_suffix() {
        Some("str") => Ok(true),
        Some("int" | "float" | "bool" | "null" | "seq" | "map") => Ok(false),
        _ if tag.original() == "!" => Ok(true),
        _ => {
            let message = format!("the tag `{}` is not supported", tag.original());
            Err(Stop::new(span, message))
        }
    }
}

fn syntax(text: &str, error: &ScanError) -> Stop {
    let at = error.marker().byte_offset().unwrap_or(0).min(text.len());
    let span = Span::new(at, at);
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => return Stop::too_deep(span),
        ErrorKind::UnknownAnchor => {
            let message = "the alias names an anchor that does not stand before it";
            return Stop::new(span, message)
                .help("write `&name` at the value to repeat, above the `*name`");
        }
        _ => {}
    }
    if let Some(tab) = tab_near(text, at) {
        return Stop::new(Span::new(tab, tab + 1), "a tab is used for indentation")
            .help("indent with blanks: YAML does not take tabs there");
    }
    Stop::new(span, format!("not valid YAML: {}", error.info()))
}

/// A tab among the leading blanks of the line of the error or of a neighbour: parsers report it as what stands before or behind.
fn tab_near(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let start_of = |at: usize| {
        let newline = bytes[..at].iter().rposition(|b| *b == b'\n');
        newline.map_or(0, |newline| newline + 1)
    };
    let line = start_of(at);
    let next = bytes[at..].iter().position(|b| *b == b'\n');
    let next = next.map(|newline| at + newline + 1);
    let before = line.checked_sub(1).map(start_of);
    [Some(line), next, before]
        .into_iter()
        .flatten()
        .find_map(|start| {
            let blank = |b: &&u8| matches!(b, b' ' | b'\t');
            let blanks = bytes[start..].iter().take_while(blank).count();
            let tab = bytes[start..start + blanks]
                .iter()
                .position(|b| *b == b'\t')?;
            // A line of blanks alone is harmless.
            let used = bytes
                .get(start + blanks)
                .is_some_and(|b| !matches!(b, b'\r' | b'\n'));
            used.then_some(start + tab)
        })
}
