//! No bytes and no value make a reader panic.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Reads `json` as every record, and makes of it what its readers make.
fn read_as_everything(json: &[u8]) {
    let graph = Arc::new(Graph::new(&definition_1().definition).unwrap());
    if let Ok(record) = decode::<RuntimeRecord>(json) {
        let beside = (Some(snapshot()), vec![details()]);
        for (snapshot, details) in [beside, (None, Vec::new())] {
            let read = Ledger::read(Limits::default(), record.clone(), snapshot, details);
            if let Ok((record, _ledger)) = read {
                record
                    .runtime(Arc::clone(&graph), &mut Changes::default())
                    .ok();
            }
        }
    }
    if let Ok(snapshot) = decode::<SnapshotRecord>(json) {
        Ledger::read(Limits::default(), runtime(), Some(snapshot), Vec::new()).ok();
    }
    if let Ok(details) = decode::<DetailsRecord>(json) {
        Ledger::read(
            Limits::default(),
            runtime(),
            Some(snapshot()),
            vec![details],
        )
        .ok();
    }
    if let Ok(record) = decode::<DefinitionRecord>(json) {
        Graph::new(&record.definition).ok();
    }
    decode::<TaskMessage>(json).ok();
    decode::<TaskSpec>(json).ok();
    decode::<CompletionRecord>(json).ok();
    decode::<IndexRecord>(json).ok();
    decode::<SentinelRecord>(json).ok();
    decode::<ClaimRecord>(json).ok();
    decode::<KeyRecord>(json).ok();
    decode::<JournalRecord>(json).ok();
    StateRecord::decode(json).ok();
}

/// All places in `value` that hold neither list nor object, as JSON pointers.
pub(super) fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                leaves(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                leaves(value, &format!("{path}/{at}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            found.push(path.to_owned());
        }
    }
}

fn golden() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        RUNTIME_1,
        RUNTIME,
        SNAPSHOT,
        DETAILS,
        DEFINITION_1,
        DEFINITION,
        MESSAGE,
        SPEC,
        COMPLETION,
        CONTROL,
        INDEX,
        SENTINEL,
        CLAIM,
        KEY,
        TOMBSTONE,
        JOURNAL,
    ])
}

fn strange() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        Value::Null,
        Value::from(0),
        Value::from(-1),
        Value::from(u32::MAX),
        Value::from(u64::MAX),
        Value::from(i64::MIN),
        Value::from(1e300),
        Value::from(""),
        Value::from("\u{1f600}\0"),
        Value::from("ppppdddd"),
        Value::from("xxxxxxxx"),
        Value::from("-009999-01-01T00:00:00Z"),
        Value::from("9999-12-30T22:00:00.999999999Z"),
        Value::Bool(true),
        Value::Array(vec![]),
        Value::Object(serde_json::Map::new()),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_reader_panic(
        golden in golden(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..6_usize, prop::collection::vec(any::<u8>(), 0..4)), 0..5),
    ) {
        let mut bytes = minified(golden).into_bytes();
        for (place, cut, put) in edits {
            let start = place.index(bytes.len() + 1);
            let end = (start + cut).min(bytes.len());
            bytes.splice(start..end, put);
        }
        read_as_everything(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        let understood = decode_message::<TaskMessage>(&text);
        prop_assert!(understood.is_err(), "a message is base64");
    }

    #[test]
    fn no_value_makes_a_reader_panic(
        golden in golden(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), strange()), 1..4),
    ) {
        let mut value: Value = serde_json::from_str(golden).unwrap();
        for (place, put) in edits {
            let mut places = Vec::new();
            leaves(&value, "", &mut places);
            if let Some(leaf) = value.pointer_mut(&places[place.index(places.len())]) {
                *leaf = put;
            }
        }
        read_as_everything(value.to_string().as_bytes());
    }
}
