//! Stored forms: what version 1 of each looks like for good (`tests/formats/<record>/v1.json`), and what is refused.
//!
//! A golden file never changes. A form that must change gets the next schema number, a file of its own, and keeps reading the old.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use dagaz::definition::{
    Command, Definition, DepPolicy, OnFailure, QueueName, ResultPolicy, Task, TaskName, WorkflowId,
};
use dagaz::engine::{
    Attempt, AttemptReport, Cancel, Changes, Due, Failure, FailureKind, Generation, Graph, Origin,
    Outcome, Output, Status, StopAfter, TaskIx, TaskState,
};
use dagaz::env::Timestamp;
use dagaz::protocol::{fields_of, record_of};
use dagaz::record::{
    ClaimRecord, CompletionRecord, CompletionResult, ControlAction, ControlRecord, ControlResult,
    ControlSeq, DecodeError, DefinitionRecord, Epoch, IndexRecord, Input, InputOutput,
    JournalAction, JournalRecord, JournalResult, KeyRecord, Record, Revision, RunId, RuntimeRecord,
    SentinelRecord, Stamp, StateRecord, TaskBody, TaskDetail, TaskMessage, TaskSpec, Token,
    TombstoneRecord, decode, decode_message, encode, encode_message,
};
use dagaz::store::Value as Field;
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

const RUNTIME: &str = include_str!("formats/runtime/v1.json");
const DEFINITION: &str = include_str!("formats/definition/v1.json");
const MESSAGE: &str = include_str!("formats/message/v1.json");
const SPEC: &str = include_str!("formats/spec/v1.json");
const COMPLETION: &str = include_str!("formats/completion/v1.json");
const CONTROL: &str = include_str!("formats/control/v1.json");
const INDEX: &str = include_str!("formats/index/v1.json");
const SENTINEL: &str = include_str!("formats/sentinel/v1.json");
const CLAIM: &str = include_str!("formats/claim/v1.json");
const KEY: &str = include_str!("formats/key/v1.json");
const TOMBSTONE: &str = include_str!("formats/tombstone/v1.json");
const JOURNAL: &str = include_str!("formats/journal/v1.json");

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn workflow() -> WorkflowId {
    WorkflowId::new("etl-7").unwrap()
}

fn task(name: &str) -> TaskName {
    TaskName::new(name).unwrap()
}

fn run() -> RunId {
    RunId::new(Uuid::from_u128(0x11))
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn text(words: &str) -> String {
    words.to_owned()
}

fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

fn succeeded() -> AttemptReport {
    AttemptReport {
        outcome: Outcome::Succeeded,
        token: text("0000000000000000000000000000002a"),
        worker: text("node-3/417"),
        started_at: Some(at("2026-03-04T05:06:07.5Z")),
        ended_at: at("2026-03-04T05:06:09Z"),
        exit_code: Some(0),
        output: Some(Output::Inline(raw("{\"mae\":0.07}"))),
        has_log: true,
        stderr_tail: None,
        reused_from: None,
    }
}

fn failed() -> AttemptReport {
    AttemptReport {
        outcome: Outcome::Failed(Failure {
            kind: FailureKind::Exit,
            message: text("exit code 3"),
            is_final: false,
        }),
        token: text("0000000000000000000000000000002b"),
        worker: text("node-4/12"),
        started_at: Some(at("2026-03-04T05:06:10Z")),
        ended_at: at("2026-03-04T05:06:11.25Z"),
        exit_code: Some(3),
        output: None,
        has_log: true,
        stderr_tail: Some(text("no space left\n")),
        reused_from: None,
    }
}

fn cancelled() -> AttemptReport {
    AttemptReport {
        outcome: Outcome::Cancelled(Generation::new(2)),
        token: text("0000000000000000000000000000002c"),
        worker: text("node-4/12"),
        started_at: None,
        ended_at: at("2026-03-04T05:06:12Z"),
        exit_code: None,
        output: None,
        has_log: false,
        stderr_tail: None,
        reused_from: None,
    }
}

fn runtime() -> RuntimeRecord {
    let bare = TaskDetail {
        place: TaskIx::new(0),
        attempt_no: Attempt::new(1),
        failures: 0,
        due: None,
        inputs: None,
        root_cause: None,
        report: None,
        reason: None,
    };
    RuntimeRecord {
        schema: 1,
        workflow_id: workflow(),
        run_id: run(),
        generation: Generation::new(2),
        epoch: Epoch::new(5),
        holder: text("head/99"),
        stamp: Stamp::new(Uuid::from_u128(0x22)),
        revision: Revision::new(41),
        status: Status::Cancelling,
        reason: Some(text("task `split a/b` failed: exit code 3")),
        control_seq: ControlSeq::new(2),
        control_results: vec![
            ControlResult {
                request_id: Uuid::from_u128(0x33),
                action: ControlAction::Retry,
                actor: text("ada@desk"),
                answered_at: at("2026-03-04T05:00:00Z"),
                refused: None,
            },
            ControlResult {
                request_id: Uuid::from_u128(0x34),
                action: ControlAction::Purge,
                actor: text("ada@desk"),
                answered_at: at("2026-03-04T05:01:00Z"),
                refused: Some(text("it is still running")),
            },
        ],
        cancel: Some(Cancel {
            applied_at: at("2026-03-04T05:06:12Z"),
            grace_used_ms: 1_500,
        }),
        stop: Some(StopAfter {
            task: TaskIx::new(1),
            grace_used_ms: 250,
        }),
        created_at: at("2026-03-04T05:00:00Z"),
        updated_at: at("2026-03-04T05:06:12.000000001Z"),
        states: text("cfrduspx"),
        tasks: vec![
            TaskDetail {
                report: Some(Box::new(succeeded())),
                ..bare.clone()
            },
            TaskDetail {
                place: TaskIx::new(1),
                attempt_no: Attempt::new(3),
                failures: 2,
                report: Some(Box::new(failed())),
                ..bare.clone()
            },
            TaskDetail {
                place: TaskIx::new(2),
                attempt_no: Attempt::new(2),
                failures: 1,
                due: Some(Due {
                    at: at("2026-03-04T05:07:00Z"),
                    delay_ms: 48_000,
                }),
                ..bare.clone()
            },
            TaskDetail {
                place: TaskIx::new(3),
                inputs: Some(vec![TaskIx::new(0)]),
                ..bare.clone()
            },
            TaskDetail {
                place: TaskIx::new(4),
                attempt_no: Attempt::NONE,
                root_cause: Some(TaskIx::new(1)),
                ..bare.clone()
            },
            TaskDetail {
                place: TaskIx::new(5),
                attempt_no: Attempt::NONE,
                reason: Some(text("no dependency failed")),
                ..bare.clone()
            },
            TaskDetail {
                place: TaskIx::new(7),
                report: Some(Box::new(cancelled())),
                ..bare
            },
        ],
    }
}

fn definition() -> DefinitionRecord {
    let parents = |names: &[&str]| names.iter().map(|name| task(name)).collect();
    let bare = |name: &str, dep_policy, depends_on| Task {
        name: task(name),
        cmd: Command::Shell(text("true")),
        env: BTreeMap::new(),
        cwd: None,
        depends_on,
        queue: None,
        dep_policy,
        num_retries: 0,
        timeout_s: None,
        idempotency_key: None,
    };
    DefinitionRecord {
        schema: 1,
        workflow_id: workflow(),
        run_id: run(),
        submitted_at: at("2026-03-04T04:59:59.75Z"),
        submitted_by: text("ada@desk"),
        definition: Definition {
            name: Some(text("nightly ETL")),
            description: Some(text("Loads the day's files.")),
            default_queue: QueueName::new("default").unwrap(),
            max_parallelism: Some(16),
            result_policy: ResultPolicy::AllSinksSucceed,
            on_failure: OnFailure::Continue,
            env: pairs(&[("REGION", "north")]),
            tasks: vec![
                bare("extract", DepPolicy::All, vec![]),
                Task {
                    name: task("split a/b"),
                    cmd: Command::Exec(vec![text("split"), text("-l"), text("3.10")]),
                    env: pairs(&[("LANG", "C")]),
                    cwd: Some(text("/data")),
                    depends_on: parents(&["extract"]),
                    queue: Some(QueueName::new("big-memory").unwrap()),
                    dep_policy: DepPolicy::All,
                    num_retries: 2,
                    timeout_s: Some(90.5),
                    idempotency_key: Some(text("day 2026-03-04")),
                },
                bare("any", DepPolicy::Any, parents(&["extract"])),
                bare("settled", DepPolicy::AllSettled, parents(&["extract"])),
                bare("below", DepPolicy::All, parents(&["split a/b"])),
                bare("alarm", DepPolicy::OnFailure, parents(&["extract"])),
                bare("cleanup", DepPolicy::Always, parents(&["below"])),
                bare("two", DepPolicy::AtLeast(2), parents(&["any", "settled"])),
            ],
        },
    }
}

fn spec() -> TaskSpec {
    let input = |state, output| Input { state, output };
    TaskSpec {
        schema: 1,
        cmd: Command::Shell(text("./train.sh <fold> && echo \"done\"")),
        env: pairs(&[("LANG", "C"), ("REGION", "north")]),
        cwd: Some(text("/data")),
        timeout_s: Some(0.5),
        idempotency_key: Some(text("fold/7")),
        inputs: BTreeMap::from([
            (task("alarm"), input(TaskState::Skipped, None)),
            (
                task("extract"),
                input(
                    TaskState::Completed,
                    Some(InputOutput::Inline(raw("[1,\"\u{e4}\"]"))),
                ),
            ),
            (
                task("split a/b"),
                input(
                    TaskState::Completed,
                    Some(InputOutput::Blob(text("etl-7/11/split=20a=2Fb/1-2a.out"))),
                ),
            ),
        ]),
    }
}

fn message(body: TaskBody) -> TaskMessage {
    TaskMessage {
        schema: 1,
        workflow_id: workflow(),
        run_id: run(),
        generation: Generation::new(2),
        epoch: Epoch::new(5),
        task: task("split a/b"),
        attempt_no: Attempt::new(3),
        again: true,
        survives_stop: true,
        body,
    }
}

fn completion() -> CompletionRecord {
    let result = |name: &str, report| CompletionResult {
        workflow_id: workflow(),
        run_id: run(),
        generation: Generation::new(2),
        task: task(name),
        attempt_no: Attempt::new(1),
        report,
    };
    let large = AttemptReport {
        output: Some(Output::Blob(70_000)),
        reused_from: Some(Origin {
            workflow_id: WorkflowId::new("etl-6").unwrap(),
            task: task("split a/b"),
            attempt_no: Attempt::new(4),
        }),
        ..succeeded()
    };
    CompletionRecord {
        schema: 1,
        results: vec![
            result("extract", succeeded()),
            result("settled", large),
            result("split a/b", failed()),
            result("two", cancelled()),
        ],
        control: None,
    }
}

fn control() -> CompletionRecord {
    CompletionRecord {
        schema: 1,
        results: vec![],
        control: Some(ControlRecord {
            request_id: Uuid::from_u128(0x33),
            action: ControlAction::Cancel,
            workflow_id: workflow(),
            run_id: run(),
            generation: Generation::new(2),
            control_seq: ControlSeq::new(1),
            actor: text("ada@desk"),
            requested_at: at("2026-03-04T05:06:00Z"),
        }),
    }
}

fn index() -> IndexRecord {
    IndexRecord {
        schema: 1,
        workflow_id: workflow(),
        name: text("nightly ETL"),
        run_id: run(),
        generation: Generation::new(2),
        epoch: Epoch::new(5),
        revision: Revision::new(41),
        status: Status::Running,
        reason: text("task `split a/b` failed: exit code 3"),
        total: 8,
        counts: BTreeMap::from([(text("completed"), 5), (text("failed"), 3)]),
        control_seq: ControlSeq::new(2),
        cancel_requested: Some(Generation::new(1)),
        stopping: Some(Generation::new(2)),
        created_at: at("2026-03-04T04:59:59.75Z"),
        updated_at: at("2026-03-04T05:06:12Z"),
    }
}

fn sentinel() -> SentinelRecord {
    SentinelRecord {
        schema: 1,
        epoch: Epoch::new(5),
        holder: Some(text("head/99")),
        holder_id: Some(Uuid::from_u128(0x44)),
        version: text("0.1.0"),
        acquired_at: at("2026-03-04T00:00:00Z"),
        led_for_s: 3_600,
        statistics: BTreeMap::from([(text("poison_messages"), 1), (text("tasks_sent"), 900)]),
    }
}

fn key() -> KeyRecord {
    KeyRecord {
        schema: 1,
        workflow_id: workflow(),
        run_id: run(),
        task: task("split a/b"),
        attempt_no: Attempt::new(3),
        token: Token::new(Uuid::from_u128(0x2b)),
        exit_code: Some(0),
        output: Some(Output::Inline(raw("{\"mae\":0.07}"))),
    }
}

fn claim() -> ClaimRecord {
    ClaimRecord {
        schema: 1,
        workflow_id: workflow(),
        run_id: run(),
        generation: Generation::new(2),
        task: task("split a/b"),
        attempt_no: Attempt::new(3),
        token: Token::new(Uuid::from_u128(0x2b)),
        worker: text("node-4/12"),
        host: text("node-4"),
        started_at: at("2026-03-04T05:06:10Z"),
        visibility_s: 60,
        starts: 2,
        interruptions: 1,
        freed: false,
    }
}

fn tombstone() -> TombstoneRecord {
    TombstoneRecord {
        schema: 1,
        workflow_id: workflow(),
        run_id: run(),
        epoch: Epoch::new(5),
        holder: text("head/99"),
        stamp: Stamp::new(Uuid::from_u128(0x33)),
        request_id: Uuid::from_u128(0x55),
        purged_by: text("ada@desk"),
        purged_at: at("2026-04-04T05:06:07Z"),
    }
}

fn journal() -> JournalRecord {
    JournalRecord {
        schema: 1,
        at: at("2026-03-04T05:06:07.125Z"),
        actor: text("ada@desk"),
        action: JournalAction::Retry,
        workflow_id: Some(workflow()),
        request_id: Some(Uuid::from_u128(0x55)),
        result: JournalResult::Refused,
        detail: Some(text("it is still running")),
    }
}

/// JSON without the blanks that make a golden file readable.
fn minified(json: &str) -> String {
    let (mut inside, mut escaped) = (false, false);
    let keep = |c: &char| {
        let keep = inside || !c.is_ascii_whitespace();
        match c {
            '"' if !escaped => inside = !inside,
            _ => {}
        }
        escaped = *c == '\\' && !escaped;
        keep
    };
    json.chars().filter(keep).collect()
}

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
}

#[test]
fn the_definition_blob_keeps_its_form() {
    keeps(DEFINITION, &definition(), &Foreign::Refused);
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
    let graph = Arc::new(Graph::new(&definition().definition).unwrap());
    let fits = |record: &RuntimeRecord| {
        let graph = Arc::clone(&graph);
        record.runtime(graph, &mut Changes::default()).is_ok()
    };
    assert!(fits(&runtime()));
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
        let mut record = runtime();
        spoil(&mut record, beyond);
        assert!(!fits(&record), "{record:?}");
    }
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

/// Reads `json` as every record, and makes of it what its readers make.
fn read_as_everything(json: &[u8]) {
    let graph = Graph::new(&definition().definition).unwrap();
    if let Ok(record) = decode::<RuntimeRecord>(json) {
        record
            .runtime(Arc::new(graph), &mut Changes::default())
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
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
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
        RUNTIME, DEFINITION, MESSAGE, SPEC, COMPLETION, CONTROL, INDEX, SENTINEL, CLAIM, KEY,
        TOMBSTONE, JOURNAL,
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
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

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
