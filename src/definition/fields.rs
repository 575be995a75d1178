//! Reading mappings and single values out of a tree, with every problem reported and none fatal.
//!
//! Invariants:
//! 1. A key that is not known, is written twice or is no text is an error, never dropped without a word.
//! 2. `null` on an optional key is the same as leaving the key out; where a value is needed, it is an error of its own.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::diagnostic::Report;
use super::limits::{ENV_BYTES_MAX, ENV_VARS_MAX, TIMEOUT_SECS_MAX};
use super::source::Span;
use super::suggest::nearest;
use super::tree::{Kind, Node};

/// A key with its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'t, 's> {
    pub(super) key: Span,
    pub(super) value: &'t Node<'s>,
}

impl Field<'_, '_> {
    /// The field unless its value is null.
    pub(super) fn given(self) -> Option<Self> {
        match self.value.kind() {
            Kind::Null(_) => None,
            _ => Some(self),
        }
    }

    /// Where to point: at the value, or at the key when there is no text behind it.
    pub(super) const fn place(&self) -> Span {
        let span = self.value.span;
        if span.start == span.end {
            self.key
        } else {
            span
        }
    }
}

/// What becomes of a key that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It is an error.
    Refuse,
    /// It is passed over with a warning.
    Warn,
    /// Those that start with `x-` are passed over, others are an error.
    TakeExtensions,
}

/// The values of the `known` keys, in their order. Nothing when the node is no mapping.
pub(super) fn fields<'t, 's, const N: usize>(
    report: &mut Report<'_>,
    node: &'t Node<'s>,
    known: &[&'static str; N],
    unknown: Unknown,
) -> Option<[Option<Field<'t, 's>>; N]> {
    let Kind::Map(pairs) = node.kind() else {
        return None;
    };
    let mut found = [None; N];
    for (key, value) in pairs {
        let Some(name) = key_text(report, key) else {
            continue;
        };
        let field = Field {
            key: key.span,
            value,
        };
        match known.iter().position(|known| *known == name) {
            Some(at) => match &found[at] {
                None => found[at] = Some(field),
                Some(first) => duplicate_key(report, name, key.span, first.key),
            },
            None if unknown == Unknown::TakeExtensions && name.starts_with("x-") => {}
            None => {
                let help = match nearest(name, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known keys: {}", known.join(", ")),
                };
                if unknown == Unknown::Warn {
                    report.warn(key.span, format!("the key `{name}` is ignored"), help);
                } else {
                    report.error_help(key.span, format!("unknown key `{name}`"), help);
                }
            }
        }
    }
    Some(found)
}

/// The text of a key; a merge key is refused by name.
fn key_text<'t>(report: &mut Report<'_>, key: &'t Node<'_>) -> Option<&'t str> {
    match key.kind() {
        Kind::Scalar {
            text: "<<",
            plain: true,
        } => {
            report.error_help(
                key.span,
                "the merge key `<<` is not supported",
                "write the keys out, or share a single value with `&name` and `*name`".to_owned(),
            );
            None
        }
        Kind::Scalar { text, .. } => Some(text),
        kind => {
            report.error(
                key.span,
                format!("a key must be text, found {}", kind.name()),
            );
            None
        }
    }
}

fn duplicate_key(report: &mut Report<'_>, name: &str, second: Span, first: Span) {
    let line = report.line(first);
    let message = format!("the key `{name}` is written twice; the first is on line {line}");
    report.error(second, message);
}

/// A text as it is spelled: numbers and words such as `no` keep their spelling, null is refused.
pub(super) fn text<'t>(
    report: &mut Report<'_>,
    field: Field<'t, '_>,
    what: &str,
) -> Option<&'t str> {
    let message = match field.value.kind() {
        Kind::Scalar { text, .. } => return Some(text),
        Kind::Null("") => format!("{what} is empty"),
        Kind::Null(word) => {
            let help = format!("write \"{word}\" in quotes if that text is meant");
            report.error_help(
                field.place(),
                format!("{what} is `{word}`, which means null"),
                help,
            );
            return None;
        }
        kind => format!("{what} must be text, found {}", kind.name()),
    };
    report.error(field.place(), message);
    None
}

/// A text without zero characters, which no process can be given, and of at most `most` bytes.
pub(super) fn argument<'t>(
    report: &mut Report<'_>,
    field: Field<'t, '_>,
    what: &str,
    most: usize,
) -> Option<&'t str> {
    let text = text(report, field, what)?;
    if text.contains('\0') {
        report.error(field.place(), format!("{what} holds the character U+0000"));
        return None;
    }
    if text.len() > most {
        let length = text.len();
        let message = format!("{what} has {length} bytes; at most {most} are taken");
        report.error(field.place(), message);
        return None;
    }
    Some(text)
}

/// One of some words.
pub(super) fn word<T: Copy>(
    report: &mut Report<'_>,
    field: Field<'_, '_>,
    what: &str,
    known: &[(&'static str, T)],
) -> Option<T> {
    let text = text(report, field, what)?;
    let found = known.iter().find(|(word, _)| *word == text);
    if found.is_none() {
        let words = known.iter().map(|(word, _)| *word);
        let help = match nearest(text, words.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("one of {}", words.collect::<Vec<_>>().join(", ")),
        };
        report.error_help(field.place(), format!("{what} cannot be `{text}`"), help);
    }
    found.map(|(_, value)| *value)
}

/// A whole number, written without quotes.
pub(super) fn whole(
    report: &mut Report<'_>,
    field: Field<'_, '_>,
    what: &str,
    range: RangeInclusive<u32>,
) -> Option<u32> {
    let (low, high) = (range.start(), range.end());
    let problem = match field.value.kind() {
        Kind::Scalar { text, plain: true } => {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            let number = text.parse().ok().filter(|_| digits);
            match number.filter(|number| range.contains(number)) {
                Some(number) => return Some(number),
                None => format!("found `{text}`"),
            }
        }
        kind => format!("found {}", kind.name()),
    };
    let message = format!("{what} must be a whole number from {low} to {high}, {problem}");
    report.error(field.place(), message);
    None
}

/// A number of seconds above zero, written without quotes and without a unit.
pub(super) fn seconds(report: &mut Report<'_>, field: Field<'_, '_>, what: &str) -> Option<f64> {
    let (found, help) = match field.value.kind() {
        Kind::Scalar { text, plain } => {
            let numeric =
                |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
            let number = text.parse::<f64>().ok();
            let number = number.filter(|_| plain && text.bytes().all(numeric));
            match number {
                Some(number) if number > 0.0 && number <= TIMEOUT_SECS_MAX => return Some(number),
                Some(_) => (format!("`{text}`"), None),
                None => {
                    let help = "write the number of seconds alone, for example `90` or `1.5`";
                    (format!("`{text}`"), Some(help.to_owned()))
                }
            }
        }
        kind => (kind.name().to_owned(), None),
    };
    let message = format!(
        "{what} must be a number of seconds above 0 and at most {TIMEOUT_SECS_MAX}, found {found}"
    );
    report.error_help(field.place(), message, help);
    None
}

/// Environment variables: a mapping of texts.
pub(super) fn variables(report: &mut Report<'_>, field: Field<'_, '_>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut firsts: BTreeMap<&str, Span> = BTreeMap::new();
    let Kind::Map(pairs) = field.value.kind() else {
        let found = field.value.kind().name();
        let message = format!("`env` must be a mapping of names to texts, found {found}");
        report.error(field.place(), message);
        return variables;
    };
    if pairs.len() > ENV_VARS_MAX {
        let message = format!(
            "`env` has {} variables; at most {ENV_VARS_MAX} are taken",
            pairs.len()
        );
        report.error(field.key, message);
        return variables;
    }
    let mut bytes = 0;
    for (key, value) in pairs {
        let Some(name) = key_text(report, key) else {
            continue;
        };
        if name.is_empty() || name.contains(['=', '\0']) {
            let shown = name.escape_debug();
            let message = format!(
                "`{shown}` cannot be the name of a variable: it must not be empty nor hold `=` or U+0000"
            );
            report.error(key.span, message);
            continue;
        }
        if let Some(first) = firsts.insert(name, key.span) {
            duplicate_key(report, name, key.span, first);
            continue;
        }
        let value = Field {
            key: key.span,
            value,
        };
        let what = format!("the variable `{name}`");
        if let Some(value) = argument(report, value, &what, ENV_BYTES_MAX) {
            bytes += name.len() + value.len() + 2;
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    if bytes > ENV_BYTES_MAX {
        let message = format!("`env` has {bytes} bytes; at most {ENV_BYTES_MAX} are taken");
        report.error(field.key, message);
    }
    variables
}
