//! The examples of stored forms in `docs/protocol.md` are what the code reads and writes.

use std::collections::BTreeSet;
use std::fs;

use dagaz::record::{
    ClaimRecord, CompletionRecord, DefinitionRecord, DetailsRecord, IndexRecord, JournalRecord,
    KeyRecord, Record, RuntimeRecord, SentinelRecord, SnapshotRecord, TaskMessage, TombstoneRecord,
    decode, encode,
};
use serde_json::Value;

/// Reads the example and writes it again: nothing is lost, nothing appears.
fn round_trip<T: Record>(example: &str) -> (Value, Value) {
    let record: T = decode(example.as_bytes()).unwrap_or_else(|error| panic!("{example}\n{error}"));
    let written = serde_json::from_slice(&encode(&record)).unwrap();
    (serde_json::from_str(example).unwrap(), written)
}

#[test]
fn every_example_of_a_stored_form_is_one() {
    let page = fs::read_to_string("docs/protocol.md").unwrap();
    let mut seen = BTreeSet::new();
    for block in page.split("```json ").skip(1) {
        let (form, rest) = block.split_once('\n').unwrap();
        let (example, _) = rest.split_once("\n```").unwrap();
        let (shown, written) = match form {
            "runtime" => round_trip::<RuntimeRecord>(example),
            "snapshot" => round_trip::<SnapshotRecord>(example),
            "details" => round_trip::<DetailsRecord>(example),
            "definition" => round_trip::<DefinitionRecord>(example),
            "task-message" => round_trip::<TaskMessage>(example),
            "completion" => round_trip::<CompletionRecord>(example),
            "index" => round_trip::<IndexRecord>(example),
            "sentinel" => round_trip::<SentinelRecord>(example),
            "key" => round_trip::<KeyRecord>(example),
            "claim" => round_trip::<ClaimRecord>(example),
            "tombstone" => round_trip::<TombstoneRecord>(example),
            "journal" => round_trip::<JournalRecord>(example),
            other => panic!("no stored form is called `{other}`"),
        };
        assert_eq!(shown, written, "{form}");
        seen.insert(form);
    }
    assert_eq!(seen.len(), 12, "each form has an example: {seen:?}");
}
