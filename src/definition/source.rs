//! The text of a definition with its name and format, and the way from byte offsets to lines and columns.
//!
//! Invariants:
//! 1. At most [`FILE_BYTES_MAX`] + 1 bytes are ever read: enough to know that a file is too large.
//! 2. A [`Span`] is a byte range of the source; lines and columns are counted from it, from 1, columns in characters.

use std::cell::OnceCell;
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;

use super::limits::FILE_BYTES_MAX;

/// How a definition is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML 1.2.
    Yaml,
    /// JSON (RFC 8259).
    Json,
}

/// The text of a definition.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    bytes: Vec<u8>,
    format: Format,
}

impl Source {
    /// A source called `name` in messages. Its format follows from the extension of the name, else from the first characters.
    #[must_use]
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        let (name, bytes) = (name.into(), bytes.into());
        let format = Format::of(&name, &bytes);
        Self {
            name,
            bytes,
            format,
        }
    }

    /// Reads a source from a file or stream, no further than the limit of a file (invariant 1).
    ///
    /// # Errors
    /// What reading gave; a file over the limit is refused by [`parse`](super::parse()), not here.
    pub fn read(name: impl Into<String>, reader: impl Read) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let most = u64::try_from(FILE_BYTES_MAX + 1).unwrap_or(u64::MAX);
        reader.take(most).read_to_end(&mut bytes)?;
        Ok(Self::new(name, bytes))
    }

    /// The name for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes as read.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The format.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }
}

impl Format {
    fn of(name: &str, bytes: &[u8]) -> Self {
        let extension = Path::new(name).extension().and_then(|e| e.to_str());
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("json") => return Self::Json,
            Some("yaml" | "yml") => return Self::Yaml,
            _ => {}
        }
        // `{"` or `{}` opens a JSON object; other braces may be a YAML flow mapping. YAML reads JSON as well: this is about speed.
        let mut seen = bytes
            .strip_prefix(BOM)
            .unwrap_or(bytes)
            .iter()
            .filter(|b| !b.is_ascii_whitespace());
        match (seen.next(), seen.next()) {
            (Some(b'{'), Some(b'"' | b'}')) => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// The byte-order mark of UTF-8.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// A range of bytes in a source, from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// The span from `start` to `end`; offsets past the limit of a file saturate.
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: offset(start),
            end: offset(end.max(start)),
        }
    }
}

/// Where the lines of a source start, found when first asked for: a file without problems never is.
#[derive(Debug)]
pub(super) struct Lines<'s> {
    source: &'s Source,
    starts: OnceCell<Vec<u32>>,
}

impl<'s> Lines<'s> {
    pub(super) const fn new(source: &'s Source) -> Self {
        Self {
            source,
            starts: OnceCell::new(),
        }
    }

    /// Line and column of a byte offset, both from 1.
    pub(super) fn position(&self, offset: u32) -> (usize, usize) {
        let starts = self.starts.get_or_init(|| {
            let after = |(at, byte): (usize, &u8)| (*byte == b'\n').then_some(at + 1);
            let breaks = self.source.bytes.iter().enumerate().filter_map(after);
            std::iter::once(0)
                .chain(breaks)
                .map(|at| u32::try_from(at).unwrap_or(u32::MAX))
                .collect()
        });
        let line = starts.partition_point(|start| *start <= offset).max(1);
        let start = starts[line - 1] as usize;
        let end = (offset as usize).min(self.source.bytes.len()).max(start);
        let before = &self.source.bytes[start..end];
        let before = before.strip_prefix(BOM).unwrap_or(before);
        // Bytes that continue a character are not counted, so a column is a character even where the text is not UTF-8.
        let characters = before.iter().filter(|b| (**b & 0xc0) != 0x80).count();
        (line, characters + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_the_extension_and_else_the_first_characters() {
        let format = |name: &str, text: &str| Source::new(name, text).format();
        assert_eq!(format("a.json", "name: x"), Format::Json);
        assert_eq!(format("a.YML", "{\"a\": 1}"), Format::Yaml);
        assert_eq!(format("-", "\u{feff}\n { \"a\": 1}"), Format::Json);
        assert_eq!(format("-", "{a: 1}"), Format::Yaml);
    }

    #[test]
    fn columns_count_characters_and_not_the_byte_order_mark() {
        let source = Source::new("a.yaml", "\u{feff}ä: b\r\nü: c");
        let lines = Lines::new(&source);
        assert_eq!(lines.position(3), (1, 1));
        assert_eq!(lines.position(5), (1, 2));
        assert_eq!(lines.position(10), (2, 1));
        assert_eq!(lines.position(12), (2, 2));
        assert_eq!(lines.position(99), (2, 5));
    }

    #[test]
    fn an_endless_stream_is_read_up_to_the_limit() {
        let source = Source::read("zero", io::repeat(0)).unwrap();
        assert_eq!(source.bytes().len(), FILE_BYTES_MAX + 1);
    }
}
