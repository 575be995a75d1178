//! Records as rows: each field of the record is a field of the row.

use serde_json::{Map, Value as Json};

use crate::record::{DecodeError, Record, decode};
use crate::store::{Fields, Value};

/// The fields of a flat record of texts, whole numbers and truth values.
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
        Json::String(text) => Value::Text(text),
        Json::Bool(truth) => Value::Bool(truth),
        Json::Number(number) => Value::Int(number.as_i64().expect("counters stay below 2^63")),
        Json::Null | Json::Array(_) | Json::Object(_) => unreachable!("rows are flat"),
    }
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
