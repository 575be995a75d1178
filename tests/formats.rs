//! Stored forms: what version 1 of each looks like for good (`tests/formats/<record>/v1.json`), and what is refused.
//!
//! A golden file never changes. A form that must change gets the next schema number, a file of its own, and keeps reading the old.

mod damage;
mod forms;

use std::collections::BTreeMap;

use dagaz::definition::{
    Command, Definition, DepPolicy, OnFailure, QueueName, ResultPolicy, Task, TaskName, WorkflowId,
};
use dagaz::engine::{
    Attempt, AttemptReport, Cancel, Changes, Due, Failure, FailureKind, Generation, Graph, Origin,
    Outcome, Output, Status, StopAfter, TaskIx, TaskState,
};
use dagaz::env::Timestamp;
use dagaz::record::{
    ClaimRecord, CompletionRecord, CompletionResult, ControlAction, ControlRecord, ControlResult,
    ControlSeq, DecodeError, DefinitionRecord, DetailsRecord, Epoch, IndexRecord, Input,
    InputOutput, JournalAction, JournalRecord, JournalResult, KeyRecord, Ledger, Limits, Packed,
    Record, Revision, RunId, RuntimeRecord, SentinelRecord, SnapshotRecord, Stamp, StateRecord,
    TaskBody, TaskDetail, TaskMessage, TaskSpec, Token, TombstoneRecord, decode, decode_message,
    encode, encode_message,
};
use serde_json::value::RawValue;
use uuid::Uuid;

const RUNTIME_1: &str = include_str!("formats/runtime/v1.json");
const RUNTIME: &str = include_str!("formats/runtime/v2.json");
const SNAPSHOT: &str = include_str!("formats/snapshot/v1.json");
const DETAILS: &str = include_str!("formats/details/v1.json");
const DEFINITION_1: &str = include_str!("formats/definition/v1.json");
const DEFINITION: &str = include_str!("formats/definition/v2.json");
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

/// As version 1 wrote it.
fn runtime_1() -> RuntimeRecord {
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
        packed: None,
    }
}

fn stamp(number: u128) -> Stamp {
    Stamp::new(Uuid::from_u128(number))
}

fn runtime() -> RuntimeRecord {
    let details = details();
    RuntimeRecord {
        schema: 2,
        states: String::new(),
        tasks: details.tasks,
        packed: Some(Box::new(Packed {
            snapshot: Some(stamp(0x20)),
            changed: [("c", "0"), ("d", "3 9-11")]
                .map(|(letter, places)| (text(letter), text(places)))
                .into(),
            details: vec![stamp(0x21)],
            workers: details.workers,
            attempts: details.attempts,
        })),
        ..runtime_1()
    }
}

fn snapshot() -> SnapshotRecord {
    SnapshotRecord {
        schema: 1,
        workflow_id: workflow(),
        states: text("pcfrduspx"),
        details: vec![stamp(0x21), stamp(0x22)],
    }
}

/// Rows are made from details alone, so the golden file is where they come from.
fn details() -> DetailsRecord {
    decode(minified(DETAILS).as_bytes()).unwrap()
}

/// With a merge.
fn definition() -> DefinitionRecord {
    let mut record = definition_1();
    record.schema = 2;
    record.definition.tasks.push(Task {
        name: task("merge-1"),
        cmd: Command::Merge,
        env: BTreeMap::new(),
        cwd: None,
        depends_on: vec![task("extract")],
        queue: None,
        dep_policy: DepPolicy::Always,
        num_retries: 0,
        timeout_s: None,
        idempotency_key: None,
    });
    record
}

fn definition_1() -> DefinitionRecord {
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
