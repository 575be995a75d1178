//! JSON text to a tree, by the rules of RFC 8259 and no more.
//!
//! A reader of our own, because spans, duplicate keys and the spelling of numbers are wanted at once, and because a workflow of a
//! million tasks is read in seconds.
//!
//! Invariants:
//! 1. Nothing is recursive: what is open stands in the [`Builder`].
//! 2. Numbers and the three words stay as spelled and are `plain`; strings are text.

use std::borrow::Cow;

use super::source::{BOM, Span};
use super::tree::{Builder, Node, Stop};
use super::yaml::two_documents;

/// Reads the one value of a text; `None` when there is none.
pub(super) fn read(text: &str) -> Result<Option<Node<'_>>, Stop> {
    let mut reader = Reader {
        text,
        bytes: text.as_bytes(),
        at: if text.as_bytes().starts_with(BOM) {
            BOM.len()
        } else {
            0
        },
        builder: Builder::default(),
    };
    reader.blanks();
    if reader.at == text.len() {
        return Ok(None);
    }
    reader.document()?;
    Ok(reader.builder.finish())
}

struct Reader<'s> {
    text: &'s str,
    bytes: &'s [u8],
    at: usize,
    builder: Builder<'s>,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<(), Stop> {
        self.value()?;
        // What is open decides what may come; a value that is complete is followed by a comma or a closing bracket.
        while let Some(map) = self.builder.open_is_map() {
            self.blanks();
            let close = if map { b'}' } else { b']' };
            match self.bytes.get(self.at) {
                Some(byte) if *byte == close => self.close(),
                Some(b',') => {
                    let comma = self.at;
                    self.at += 1;
                    self.blanks();
                    if matches!(self.bytes.get(self.at), Some(b'}' | b']')) {
                        let span = Span::new(comma, comma + 1);
                        return Err(Stop::new(
                            span,
                            "not valid JSON: a comma after the last item",
                        ));
                    }
                    self.member(map)?;
                }
                _ => {
                    let wanted = if map { "`,` or `}`" } else { "`,` or `]`" };
                    return Err(self.unexpected(wanted));
                }
            }
        }
        self.blanks();
        match self.bytes.get(self.at) {
            None => Ok(()),
            Some(b'{' | b'[') => Err(two_documents(self.here())),
            Some(_) => Err(self.unexpected("the end of the file")),
        }
    }

    /// One item of a list, or key and value of a mapping, up to where a value is complete or a bracket is open.
    fn member(&mut self, map: bool) -> Result<(), Stop> {
        if map {
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            self.string()?;
            self.blanks();
            if self.bytes.get(self.at) != Some(&b':') {
                return Err(self.unexpected("`:`"));
            }
            self.at += 1;
        }
        self.value()
    }

    /// A value. Lists and mappings are opened, and closed at once when they are empty; their first member is read here, too.
    fn value(&mut self) -> Result<(), Stop> {
        loop {
            self.blanks();
            match self.bytes.get(self.at) {
                Some(b'"') => return self.string(),
                Some(b'-' | b'0'..=b'9') => return self.number(),
                Some(b'a'..=b'z' | b'A'..=b'Z') => return self.word(),
                Some(bracket @ (b'{' | b'[')) => {
                    let map = *bracket == b'{';
                    self.builder.open(self.here(), map, 0)?;
                    self.at += 1;
                    self.blanks();
                    let close = if map { b'}' } else { b']' };
                    if self.bytes.get(self.at) == Some(&close) {
                        self.close();
                        return Ok(());
                    }
                    if map {
                        // The key; its value is the next turn of the loop.
                        if self.bytes.get(self.at) != Some(&b'"') {
                            return Err(self.unexpected("a key in double quotes or `}`"));
                        }
                        self.string()?;
                        self.blanks();
                        if self.bytes.get(self.at) != Some(&b':') {
                            return Err(self.unexpected("`:`"));
                        }
                        self.at += 1;
                    }
                }
                _ => return Err(self.unexpected("a value")),
            }
        }
    }

    fn close(&mut self) {
        self.at += 1;
        self.builder.close(Span::new(self.at, self.at).end);
    }

    fn string(&mut self) -> Result<(), Stop> {
        let start = self.at;
        self.at += 1;
        let mut owned: Option<String> = None;
        let mut copied = self.at;
        loop {
            let rest = &self.bytes[self.at..];
            let Some(found) = rest
                .iter()
                .position(|b| matches!(b, b'"' | b'\\') || *b < 0x20)
            else {
                let span = Span::new(start, start + 1);
                return Err(Stop::new(span, "not valid JSON: this text is not closed"));
            };
            self.at += found;
            match self.bytes[self.at] {
                b'"' => break,
                b'\\' => {
                    let text = owned.get_or_insert_default();
                    text.push_str(&self.text[copied..self.at]);
                    let character = self.escape()?;
                    owned.get_or_insert_default().push(character);
                    copied = self.at;
                }
                _ => {
                    let message = "not valid JSON: a line break or control character inside a text";
                    return Err(Stop::new(self.here(), message)
                        .help("write `\\n` for a line break, `\\t` for a tab"));
                }
            }
        }
        let last = &self.text[copied..self.at];
        let text = match owned {
            None => Cow::Borrowed(last),
            Some(mut text) => {
                text.push_str(last);
                Cow::Owned(text)
            }
        };
        self.at += 1;
        self.builder
            .scalar(Span::new(start, self.at), text, false, 0)
    }

    fn escape(&mut self) -> Result<char, Stop> {
        let start = self.at;
        let simple = match self.bytes.get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(start),
            _ => {
                let span = Span::new(start, start + 1);
                return Err(Stop::new(span, "not valid JSON: unknown escape after `\\`")
                    .help("write `\\\\` for a backslash"));
            }
        };
        self.at = start + 2;
        Ok(simple)
    }

    /// `\uXXXX`, or two of them for a character beyond the first plane.
    fn unicode(&mut self, start: usize) -> Result<char, Stop> {
        let unit = |at: usize| {
            let marked = self.bytes.get(at..at + 2) == Some(b"\\u");
            let digits = self.text.get(at + 2..at + 6).filter(|_| marked)?;
            let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then(|| u32::from_str_radix(digits, 16).ok())?
        };
        let (code, length) = match (unit(start), unit(start + 6)) {
            (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
                (Some(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 12)
            }
            (single, _) => (single, 6),
        };
        let Some(character) = code.and_then(char::from_u32) else {
            let span = Span::new(start, start + 2);
            return Err(Stop::new(span, "not valid JSON: `\\u` without a character"));
        };
        self.at = start + length;
        Ok(character)
    }

    fn number(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let part = |b: &&u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = self.bytes[start..].iter().take_while(part).count();
        let span = Span::new(start, start + length);
        let text = &self.text[start..start + length];
        if !is_number(text) {
            let message = format!("not valid JSON: `{text}` is not a number");
            return Err(Stop::new(span, message));
        }
        self.at += length;
        self.builder.scalar(span, Cow::Borrowed(text), true, 0)
    }

    fn word(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let letters = self.bytes[start..]
            .iter()
            .take_while(|b| b.is_ascii_alphanumeric());
        let span = Span::new(start, start + letters.count());
        let text = &self.text[start..span.end as usize];
        if !matches!(text, "true" | "false" | "null") {
            return Err(Stop::new(
                span,
                "not valid JSON: text stands in double quotes",
            ));
        }
        self.at += text.len();
        self.builder.scalar(span, Cow::Borrowed(text), true, 0)
    }

    fn blanks(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn here(&self) -> Span {
        let next = self.text[self.at..].chars().next();
        Span::new(self.at, self.at + next.map_or(0, char::len_utf8))
    }

    fn unexpected(&self, wanted: &str) -> Stop {
        let rest = &self.text[self.at..];
        if let (true, Some(open)) = (rest.is_empty(), self.builder.open_span()) {
            let span = Span {
                start: open.start,
                end: open.start + 1,
            };
            return Stop::new(span, "not valid JSON: this bracket is not closed");
        }
        let found = match rest.chars().next() {
            None => "the end of the file".to_owned(),
            Some(c) => format!("`{}`", c.escape_debug()),
        };
        let stop = Stop::new(
            self.here(),
            format!("not valid JSON: expected {wanted}, found {found}"),
        );
        if rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#') {
            return stop.help("JSON has no comments; YAML has: name the file `….yaml`");
        }
        if rest.starts_with('\'') {
            return stop.help("JSON takes double quotes only");
        }
        stop
    }
}

/// The grammar of numbers: no leading zero, no bare point, no plus sign.
fn is_number(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Kind;
    use super::*;

    /// The tree in one line.
    fn shown(node: &Node<'_>) -> String {
        match node.kind() {
            Kind::Null(text) => format!("null({text})"),
            Kind::Scalar { text, plain } => {
                format!("{}{text:?}", if plain { "plain" } else { "" })
            }
            Kind::Seq(items) => {
                let items: Vec<_> = items.iter().map(shown).collect();
                format!("[{}]", items.join(","))
            }
            Kind::Map(pairs) => {
                let pair = |(k, v): &(Node<'_>, Node<'_>)| format!("{}:{}", shown(k), shown(v));
                let pairs: Vec<_> = pairs.iter().map(pair).collect();
                format!("{{{}}}", pairs.join(","))
            }
        }
    }

    #[test]
    fn values_keep_shape_and_spelling() {
        let text = r#" {"a": [1.0, -0, 1e3, true, null, "no", [], {}, [[2]]], "a": {"b": {"c": "\u00e4\ud83d\ude00\n\/"}}} "#;
        let tree = read(text).unwrap().unwrap();
        assert_eq!(
            shown(&tree),
            r#"{"a":[plain"1.0",plain"-0",plain"1e3",plain"true",null(null),"no",[],{},[[plain"2"]]],"a":{"b":{"c":"ä😀\n/"}}}"#
        );
    }

    #[test]
    fn what_json_forbids_is_refused_where_it_stands() {
        let cases = [
            ("{\"a\": 1,}", 7, "a comma after the last item"),
            ("[1 2]", 3, "expected `,` or `]`, found `2`"),
            (
                "{a: 1}",
                1,
                "expected a key in double quotes or `}`, found `a`",
            ),
            ("{\"a\" 1}", 5, "expected `:`, found `1`"),
            ("[01]", 1, "`01` is not a number"),
            ("[1.]", 1, "`1.` is not a number"),
            ("[nul]", 1, "text stands in double quotes"),
            (
                "[\"a\nb\"]",
                3,
                "a line break or control character inside a text",
            ),
            ("[\"a", 1, "this text is not closed"),
            ("[\"\\x\"]", 2, "unknown escape after `\\`"),
            ("[\"\\ud800\"]", 2, "`\\u` without a character"),
            ("[[1]", 0, "this bracket is not closed"),
            ("[1, // x\n2]", 4, "expected a value, found `/`"),
            ("[1] x", 4, "expected the end of the file, found `x`"),
            ("[}", 1, "expected a value, found `}`"),
        ];
        for (text, at, message) in cases {
            let stop = read(text).unwrap_err();
            assert_eq!(stop.message, format!("not valid JSON: {message}"), "{text}");
            assert_eq!(stop.span.start, at, "{text}");
        }
        assert!(
            read("{} {}")
                .unwrap_err()
                .message
                .starts_with("two documents")
        );
        assert!(read(" \n").unwrap().is_none());
    }

    #[test]
    fn deep_nesting_is_refused_by_its_limit() {
        let stop = read(&"[".repeat(5_000)).unwrap_err();
        assert_eq!(
            stop.message,
            "lists and mappings are nested deeper than 64 levels"
        );
    }
}
