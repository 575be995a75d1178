//! Each form is what its golden file says, byte for byte, and nothing else is taken for it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use dagaz::engine::NUMBER_MAX;
use dagaz::protocol::{fields_of, record_of};
use dagaz::record::COUNTER_MAX;
use dagaz::store::Value as Field;
use serde_json::Value;

use super::*;

/// Whether keys that this version does not know are passed over: rows are open to foreign tools.
#[derive(PartialEq)]
enum Foreign {
    Refused,
    PassedOver,
}

fn refused<T: Record + Debug>(json: &str) -> bool {
    matches!(
        decode::<T>(json.as_bytes()),
        Err(DecodeError::Nonsense { .. })
    )
}

/// All places in `value` where an object of ours is, as JSON pointers.
fn objects(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            found.push(path.to_owned());
            for (key, value) in map.iter().filter(|(key, _)| *key != "inline") {
                let key = key.replace('~', "~0").replace('/', "~1");
                objects(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                objects(value, &format!("{path}/{at}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn keeps<T: Record + PartialEq + Debug>(golden: &str, full: &T, foreign: &Foreign) {
    let json = minified(golden);
    assert_eq!(decode::<T>(json.as_bytes()).as_ref(), Ok(full));
    assert_eq!(String::from_utf8(encode(full)).unwrap(), json);
    assert_eq!(
        decode_message::<T>(&encode_message(full)).as_ref(),
        Ok(full)
    );

    let (schema, rest) = json.split_once(',').unwrap();
    assert_eq!(
        schema,
        format!("{{\"schema\":{}", T::SCHEMA),
        "the schema number comes first"
    );
    let newer = format!("{{\"schema\":7,\"more\":[],{rest}");
    let known = T::SCHEMA;
    assert_eq!(
        decode::<T>(newer.as_bytes()),
        Err(DecodeError::Newer { found: 7, known }),
        "a newer schema is left for who knows it"
    );
    for schema in ["0", "-1", "1.5", "\"1\"", "null", "4294967296"] {
        assert!(
            refused::<T>(&format!("{{\"schema\":{schema},{rest}")),
            "{schema}"
        );
    }
    assert!(refused::<T>(&format!("{{{rest}")), "no schema number");

    for end in (0..json.len()).filter(|end| json.is_char_boundary(*end)) {
        assert!(refused::<T>(&json[..end]), "cut after {end} bytes");
    }
    assert!(refused::<T>(&format!("{json}{{}}")), "something follows");

    let value: Value = serde_json::from_str(&json).unwrap();
    let mut places = Vec::new();
    objects(&value, "", &mut places);
    for place in places {
        let mut more = value.clone();
        let object = more.pointer_mut(&place).unwrap().as_object_mut().unwrap();
        object.insert("unknown".to_owned(), Value::Array(vec![]));
        let passed = !refused::<T>(&more.to_string());
        assert_eq!(
            passed,
            *foreign == Foreign::PassedOver,
            "an unknown key in `{place}`"
        );
    }
}

#[test]
fn the_runtime_blob_keeps_its_form() {
    keeps(RUNTIME, &runtime(), &Foreign::Refused);
    let first = minified(RUNTIME_1);
    assert_eq!(decode(first.as_bytes()), Ok(runtime_1()));
    assert_eq!(String::from_utf8(encode(&runtime_1())).unwrap(), first);
}

#[test]
fn what_is_beside_the_runtime_blob_keeps_its_form() {
    keeps(SNAPSHOT, &snapshot(), &Foreign::Refused);
    keeps(DETAILS, &details(), &Foreign::Refused);
}

#[test]
fn a_row_of_an_attempt_says_what_its_report_did() {
    let head = RuntimeRecord {
        packed: None,
        states: "c".repeat(10),
        tasks: Vec::new(),
        ..runtime()
    };
    let read = Ledger::read(Limits::default(), head, None, vec![details()]);
    let (whole, _ledger) = read.unwrap();
    assert_eq!(whole.tasks[..2], runtime_1().tasks[..2]);
    let second = whole.tasks[2].report.as_ref().unwrap();
    assert_eq!(second.worker, "node-4/12");
    assert_eq!(second.started_at, Some(at("2026-03-04T05:06:10Z")));
    assert_eq!(
        (second.ended_at, second.has_log),
        (at("2026-03-04T05:06:10Z"), false)
    );
}

#[test]
fn the_definition_blob_keeps_its_form() {
    keeps(DEFINITION, &definition(), &Foreign::Refused);
    let first = minified(DEFINITION_1);
    assert_eq!(decode(first.as_bytes()), Ok(definition_1()));
    assert_eq!(String::from_utf8(encode(&definition_1())).unwrap(), first);
    for record in [definition(), definition_1()] {
        assert_eq!(
            DefinitionRecord::schema_of(&record.definition),
            record.schema
        );
    }
}

#[test]
fn the_task_message_keeps_its_form() {
    keeps(
        MESSAGE,
        &message(TaskBody::Inline(spec())),
        &Foreign::Refused,
    );
    let elsewhere = message(TaskBody::Blob(text("etl-7/11/a/1-2a.spec")));
    assert_eq!(decode(&encode(&elsewhere)), Ok(elsewhere));
}

#[test]
fn the_task_spec_keeps_its_form() {
    keeps(SPEC, &spec(), &Foreign::Refused);
}

#[test]
fn the_completion_message_keeps_its_form() {
    keeps(COMPLETION, &completion(), &Foreign::Refused);
}

#[test]
fn the_control_message_keeps_its_form() {
    keeps(CONTROL, &control(), &Foreign::Refused);
}

#[test]
fn the_index_row_keeps_its_form() {
    keeps(INDEX, &index(), &Foreign::PassedOver);
}

#[test]
fn the_sentinel_keeps_its_form() {
    keeps(SENTINEL, &sentinel(), &Foreign::Refused);
}

#[test]
fn the_claim_keeps_its_form() {
    keeps(CLAIM, &claim(), &Foreign::PassedOver);
}

#[test]
fn a_result_stored_under_a_key_keeps_its_form() {
    keeps(KEY, &key(), &Foreign::Refused);
    let large = KeyRecord {
        output: Some(Output::Blob(70_000)),
        ..key()
    };
    assert_eq!(decode(&encode(&large)), Ok(large));
}

#[test]
fn the_tombstone_keeps_its_form_and_is_told_from_a_state() {
    keeps(TOMBSTONE, &tombstone(), &Foreign::Refused);
    let purged = StateRecord::decode(TOMBSTONE.as_bytes());
    assert_eq!(purged, Ok(StateRecord::Purged(tombstone())));
    let live = StateRecord::decode(minified(RUNTIME).as_bytes());
    assert_eq!(live, Ok(StateRecord::Live(runtime())));
    let old = StateRecord::decode(minified(RUNTIME_1).as_bytes());
    assert_eq!(old, Ok(StateRecord::Live(runtime_1())));
    // Who does not know of tombstones refuses one.
    assert!(refused::<RuntimeRecord>(TOMBSTONE));
    let newer = TOMBSTONE.replace("\"schema\": 1", "\"schema\": 2");
    let newer = StateRecord::decode(newer.as_bytes());
    assert_eq!(newer, Err(DecodeError::Newer { found: 2, known: 1 }));
    assert!(StateRecord::decode(b"{").is_err());
}

#[test]
fn the_journal_entry_keeps_its_form() {
    keeps(JOURNAL, &journal(), &Foreign::PassedOver);
    let bare = JournalRecord {
        action: JournalAction::DoctorFix,
        workflow_id: None,
        request_id: None,
        result: JournalResult::Applied,
        detail: None,
        ..journal()
    };
    assert_eq!(record_of::<JournalRecord>(&fields_of(&bare)), Ok(bare));
}

#[test]
fn rows_hold_records_field_by_field() {
    fn through_a_row<T: Record + PartialEq + Debug>(record: &T) {
        let mut fields = fields_of(record);
        assert_eq!(fields.get("schema"), Some(&Field::Int(1)));
        assert_eq!(record_of::<T>(&fields).as_ref(), Ok(record));
        fields.insert(text("note_of_a_tool"), Field::Bool(true));
        assert_eq!(record_of::<T>(&fields).as_ref(), Ok(record));
        fields.insert(text("schema"), Field::Int(2));
        let newer = DecodeError::Newer { found: 2, known: 1 };
        assert_eq!(record_of::<T>(&fields), Err(newer));
        fields.remove("schema");
        assert!(record_of::<T>(&fields).is_err());
    }
    through_a_row(&index());
    through_a_row(&claim());
    through_a_row(&journal());
}

#[test]
fn a_record_that_does_not_fit_its_definition_is_refused() {
    let graph = Arc::new(Graph::new(&definition_1().definition).unwrap());
    let fits = |record: &RuntimeRecord| {
        let graph = Arc::clone(&graph);
        record.runtime(graph, &mut Changes::default()).is_ok()
    };
    assert!(fits(&runtime_1()));
    let beyond = TaskIx::new(8);
    let spoil: [fn(&mut RuntimeRecord, TaskIx); 7] = [
        |record, _| record.states.push('p'),
        |record, _| record.states = text("cfrdusp"),
        |record, _| record.states = text("cfrduspz"),
        |record, beyond| record.tasks[0].place = beyond,
        |record, beyond| record.tasks[4].root_cause = Some(beyond),
        |record, beyond| record.tasks[3].inputs = Some(vec![beyond]),
        |record, beyond| {
            record.stop = Some(StopAfter {
                task: beyond,
                grace_used_ms: 0,
            });
        },
    ];
    for spoil in spoil {
        let mut record = runtime_1();
        spoil(&mut record, beyond);
        assert!(!fits(&record), "{record:?}");
    }
}

/// Whether a record of some kind is read from it.
fn is_read(json: &Value) -> bool {
    let json = json.to_string();
    let json = json.as_bytes();
    StateRecord::decode(json).is_ok()
        || decode::<TaskMessage>(json).is_ok()
        || decode::<CompletionRecord>(json).is_ok()
        || decode::<IndexRecord>(json).is_ok()
        || decode::<SentinelRecord>(json).is_ok()
        || decode::<ClaimRecord>(json).is_ok()
        || decode::<KeyRecord>(json).is_ok()
}

#[test]
fn a_counter_beyond_all_counting_is_refused_in_every_form() {
    const LARGE: [&str; 5] = ["epoch", "revision", "control_seq", "total", "led_for_s"];
    const SMALL: [&str; 4] = ["generation", "attempt_no", "cancel_requested", "stopping"];
    let mut met = BTreeSet::new();
    for golden in [
        RUNTIME_1, RUNTIME, MESSAGE, COMPLETION, CONTROL, INDEX, SENTINEL, CLAIM, KEY, TOMBSTONE,
    ] {
        let whole: Value = serde_json::from_str(golden).unwrap();
        let mut places = Vec::new();
        damage::leaves(&whole, "", &mut places);
        for place in places {
            let name = place.rsplit('/').next().unwrap();
            let limit = match name {
                _ if LARGE.contains(&name) => COUNTER_MAX,
                _ if SMALL.contains(&name) => u64::from(NUMBER_MAX),
                _ => continue,
            };
            met.insert(name.to_owned());
            for (number, fits) in [(limit, true), (limit + 1, false), (u64::MAX, false)] {
                let mut changed = whole.clone();
                *changed.pointer_mut(&place).unwrap() = Value::from(number);
                assert_eq!(is_read(&changed), fits, "{number} at {place}");
            }
        }
    }
    assert_eq!(met.len(), LARGE.len() + SMALL.len(), "{met:?}");
}

#[test]
fn the_words_of_stored_forms_are_fixed() {
    fn words<T: serde::Serialize>(values: &[T]) -> String {
        let word = |value| serde_json::to_value(value).unwrap();
        let words = values.iter().map(word);
        words
            .map(|word| word.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }
    assert_eq!(
        words(&TaskState::ALL),
        "pending ready dispatched completed failed upstream_failed skipped cancelled"
    );
    let all = [
        Status::Pending,
        Status::Running,
        Status::Cancelling,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
    ];
    assert_eq!(
        words(&all),
        "pending running cancelling completed failed cancelled"
    );
    assert_eq!(
        words(&[OnFailure::Continue, OnFailure::Cancel]),
        "continue cancel"
    );
    let all = [
        FailureKind::Exit,
        FailureKind::Signal,
        FailureKind::Timeout,
        FailureKind::Spawn,
        FailureKind::Output,
        FailureKind::Upload,
        FailureKind::Deliveries,
        FailureKind::Interruptions,
        FailureKind::Send,
    ];
    assert_eq!(
        words(&all),
        "exit signal timeout spawn output upload deliveries interruptions send"
    );
    let all = [
        ControlAction::Submit,
        ControlAction::Cancel,
        ControlAction::Retry,
        ControlAction::Purge,
    ];
    assert_eq!(words(&all), "submit cancel retry purge");
    let all = [
        JournalAction::Submit,
        JournalAction::Cancel,
        JournalAction::Retry,
        JournalAction::Purge,
        JournalAction::BreakLease,
        JournalAction::DoctorFix,
    ];
    let written = "submit cancel retry purge break_lease doctor_fix";
    assert_eq!(words(&all), written);
    assert_eq!(all.map(JournalAction::word).join(" "), written);
    let all = [
        JournalResult::Asked,
        JournalResult::Applied,
        JournalResult::Refused,
    ];
    assert_eq!(words(&all), "asked applied refused");
    assert_eq!(all.map(JournalResult::word).join(" "), words(&all));
    let all = [ResultPolicy::AllSinksSucceed, ResultPolicy::AllTasksSucceed];
    assert_eq!(words(&all), "all_sinks_succeed all_tasks_succeed");
}
