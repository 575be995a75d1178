//! Records as rows: each field of the record is a field of the row.
//!
//! Invariants:
//! 1. No text makes a row unwritable: what is longer than a field takes is cut, with a mark at its end. Ids are shorter by their rules,
//!    so only what people read is ever cut; it stands whole in the blob that it comes from.

use serde_json::{Map, Value as Json};

use crate::record::{DecodeError, Record, decode};
use crate::store::{FIELD_UNITS_MAX, Fields, Value};

/// Stands for what was cut off.
const CUT: char = '…';

/// The fields of a flat record of texts, whole numbers and truth values. A text too long for a field is cut.
///
/// # Panics
/// If the record is not flat; a matter of its type, shown by its first test.
#[must_use]
pub fn fields_of<T: Record>(record: &T) -> Fields {
    let json = serde_json::to_value(record).expect("records are plain data with text keys");
    let Json::Object(map) = json else {
        unreachable!("records are structs")
    };
    map.into_iter()
        .map(|(name, value)| (name, field(value)))
        .collect()
}

fn field(value: Json) -> Value {
    match value {
        Json::String(text) => Value::Text(fitting(text)),
        Json::Bool(truth) => Value::Bool(truth),
        Json::Number(number) => Value::Int(number.as_i64().expect("counters end far below 2^63")),
        Json::Null | Json::Array(_) | Json::Object(_) => unreachable!("rows are flat"),
    }
}

/// A text as a field takes it, which counts UTF-16 units.
fn fitting(text: String) -> String {
    // A byte of UTF-8 is at most one unit, so what is short need not be counted.
    if text.len() <= FIELD_UNITS_MAX || text.encode_utf16().count() <= FIELD_UNITS_MAX {
        return text;
    }
    let mut units = CUT.len_utf16();
    let fits = |letter: &char| {
        units += letter.len_utf16();
        units <= FIELD_UNITS_MAX
    };
    let kept: String = text.chars().take_while(fits).collect();
    format!("{kept}{CUT}")
}

/// The record that a row holds. Fields that others have added are passed over: rows are open to foreign tools.
///
/// # Errors
/// As [`decode`].
pub fn record_of<T: Record>(fields: &Fields) -> Result<T, DecodeError> {
    let map: Map<String, Json> = fields
        .iter()
        .map(|(name, value)| (name.clone(), json(value)))
        .collect();
    let bytes = serde_json::to_vec(&map).expect("plain data with text keys");
    decode(&bytes)
}

fn json(value: &Value) -> Json {
    match value {
        Value::Text(text) => Json::String(text.clone()),
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Int(number) => Json::Number((*number).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_a_field_ends_and_never_within_a_letter() {
        // Letters of one, two and three bytes and one unit, and of four bytes and two units, alone and out of step.
        for (first, letter) in [("", "x"), ("", "é"), ("", "漢"), ("", "🙂"), ("x", "🙂")] {
            let exact = format!("{first}{}", letter.repeat(FIELD_UNITS_MAX));
            let units = |text: &str| text.encode_utf16().count();
            let full: String = exact
                .chars()
                .take(FIELD_UNITS_MAX / units(letter))
                .collect();
            assert_eq!(fitting(full.clone()), full);
            let cut = fitting(format!("{full}{letter}"));
            let kept = cut.strip_suffix(CUT).expect("a mark");
            assert!(full.starts_with(kept));
            assert!((FIELD_UNITS_MAX - 1..=FIELD_UNITS_MAX).contains(&units(&cut)));
        }
    }
}
