//! The built command from outside: exit codes, what stdout holds, signals, and a workflow through all commands on the emulator.

mod emulator;
mod unread;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::process::{Process, command};

const LONG: Duration = Duration::from_secs(60);

const GOOD: &str = "name: good\ndefault_queue: default\ntasks:\n  - {name: one, cmd: 'echo hello; echo 7 > $WORKFLOW_OUTPUT'}\n  - {name: two, cmd: 'true', depends_on: [one]}\n";
const BAD: &str = "name: bad\ndefault_queue: default\ntasks:\n  - {name: one, cmd: 'echo oh no >&2; exit 3'}\n  - {name: two, cmd: 'true', depends_on: [one]}\n";
const SLOW: &str =
    "name: slow\ndefault_queue: default\ntasks:\n  - {name: one, cmd: 'exec sleep 300'}\n";
const INVALID: &str = "name: x\ntasks:\n  - {name: one, cmd: 'true', depends_on: [two]}\n  - {name: three, comd: 'true'}\n";

/// A folder with the definitions above.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("good", GOOD),
            ("bad", BAD),
            ("slow", SLOW),
            ("invalid", INVALID),
        ];
        for (name, text) in files {
            fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
        }
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        path.to_str().unwrap().to_owned()
    }
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name);
    path.to_str().unwrap().to_owned()
}

fn workflow(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("no signal ended it")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The one JSON value on stdout.
fn json(output: &Output) -> Value {
    let stdout = text(&output.stdout);
    serde_json::from_str(&stdout)
        .unwrap_or_else(|error| panic!("{error}: {stdout:?} {}", text(&output.stderr)))
}

fn assert_error(output: &Output, exit: i32, kind: &str) {
    assert_eq!(code(output), exit, "{output:?}");
    let error = &json(output)["error"];
    assert_eq!(error["kind"], kind, "{error}");
    assert!(!error["message"].as_str().unwrap().is_empty(), "{error}");
    assert!(error.get("help").is_some(), "{error}");
}

#[test]
fn run_ends_with_all_tasks_of_a_generated_workflow_completed() {
    let output = workflow(&["run", &example("montage-200.yaml"), "--output", "json"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let view = json(&output);
    assert_eq!(view["status"], "completed");
    assert_eq!(view["counts"]["completed"], 197);
}

#[test]
fn run_shows_one_line_a_change_without_control_bytes() {
    let folder = Folder::new();
    let output = workflow(&["run", &folder.file("bad.yaml")]);
    assert_eq!(code(&output), 10, "{output:?}");
    let stdout = text(&output.stdout);
    assert!(stdout.contains("one: failed: exit code 3"), "{stdout}");
    assert!(
        stdout.contains("two: upstream_failed: task `one`"),
        "{stdout}"
    );
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("oh no"),
        "the log of a failed task is shown: {stderr}"
    );
    for bytes in [&output.stdout, &output.stderr] {
        assert!(!bytes.contains(&0x1b) && !bytes.contains(&b'\r'));
    }
}

#[test]
fn colours_come_only_where_they_are_asked_for() {
    let folder = Folder::new();
    let coloured = workflow(&["validate", &folder.file("good.yaml"), "--color", "always"]);
    assert!(coloured.stdout.contains(&0x1b));
    let plain = command(["validate", &folder.file("good.yaml")])
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    assert!(!plain.stdout.contains(&0x1b));
}

#[test]
fn the_first_interrupt_cancels_a_run_and_the_second_ends_it_at_once() {
    let folder = Folder::new();
    let mut run = Process::start(&["run", &folder.file("slow.yaml")], &[]);
    run.wait_for(LONG, |line| {
        line.contains("one: running") || line.contains("(running 1)")
    });
    run.signal(Signal::SIGINT);
    run.wait_for(LONG, |line| {
        line.contains("slow") && line.contains(": cancelled")
    });
    assert_eq!(run.wait_for_exit(LONG).code(), Some(11));

    let stubborn = folder.file("stubborn.yaml");
    let task = "name: stubborn\ndefault_queue: default\ntasks:\n  - {name: one, cmd: \"trap '' TERM; sleep 300 & wait; sleep 300\"}\n";
    fs::write(&stubborn, task).unwrap();
    let mut run = Process::start(&["run", &stubborn], &[]);
    run.wait_for(LONG, |line| {
        line.contains("one: running") || line.contains("(running 1)")
    });
    run.signal(Signal::SIGINT);
    run.wait_for(LONG, |line| line.contains("cancelling"));
    run.signal(Signal::SIGINT);
    assert_eq!(run.wait_for_exit(Duration::from_secs(8)).code(), Some(130));
}

#[test]
fn a_temporary_folder_that_cannot_be_used_is_told_at_the_start() {
    let folder = Folder::new();
    for args in [&["run", &folder.file("good.yaml")][..], &["worker"]] {
        let output = command(args)
            .env("TMPDIR", folder.file("nowhere"))
            .env(
                "AZURE_STORAGE_CONNECTION_STRING",
                "UseDevelopmentStorage=true",
            )
            .output()
            .unwrap();
        assert_eq!(code(&output), 2, "{output:?}");
        let told = text(&output.stderr);
        assert!(
            told.contains("nowhere") && told.contains("TMPDIR"),
            "{told}"
        );
    }
}

#[test]
fn validate_shows_all_problems_of_a_file_in_one_pass() {
    let folder = Folder::new();
    let invalid = folder.file("invalid.yaml");
    let output = workflow(&["validate", &invalid]);
    assert_eq!(code(&output), 3);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("invalid.yaml:3:") && stderr.contains("invalid.yaml:4:"),
        "{stderr}"
    );
    let output = workflow(&[
        "validate",
        &invalid,
        &folder.file("good.yaml"),
        "--output=json",
    ]);
    assert_eq!(code(&output), 3);
    let files = json(&output);
    assert_eq!(files[0]["valid"], false);
    assert!(
        files[0]["diagnostics"].as_array().unwrap().len() >= 2,
        "{files}"
    );
    assert_eq!(files[1]["valid"], true);
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_definition_is_read_from_stdin() {
    let mut child = command(["run", "-", "--output", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(GOOD.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(json(&output)["status"], "completed");
}

#[test]
fn errors_are_one_json_object_on_stdout() {
    let folder = Folder::new();
    let invalid = folder.file("invalid.yaml");
    let good = folder.file("good.yaml");
    assert_error(&workflow(&["--output", "json"]), 2, "usage");
    assert_error(&workflow(&["nonsense", "--output", "json"]), 2, "usage");
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["list"],
        vec!["coordinator"],
        vec!["worker"],
        vec!["submit", &good],
    ];
    for name in ["status", "watch", "tasks", "cancel", "retry"] {
        commands.push(vec![name, "x"]);
    }
    for name in ["logs", "output"] {
        commands.push(vec![name, "x", "y"]);
    }
    for args in commands {
        let args: Vec<&str> = args.into_iter().chain(["--output", "json"]).collect();
        let output = workflow(&args);
        assert_error(&output, 2, "usage");
        assert!(output.stderr.is_empty(), "{args:?}: {output:?}");
    }
    let output = workflow(&["run", &invalid, "--output", "json"]);
    assert_error(&output, 3, "invalid_definition");
    assert!(json(&output)["error"]["problems"][0]["diagnostics"].is_array());
    let validated = text(&workflow(&["validate", &invalid, "--output", "json"]).stdout);
    assert!(
        text(&output.stdout).contains(validated.trim()),
        "the problems are as `validate` prints them: {output:?}"
    );
    assert_error(
        &workflow(&["run", "/nowhere", "--output", "json"]),
        4,
        "not_found",
    );
    let doctor = workflow(&["doctor", "--output", "json"]);
    assert_eq!(code(&doctor), 13);
    assert_eq!(json(&doctor)[0]["status"], "problem");
    // Nothing listens there.
    let dead = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;BlobEndpoint=http://127.0.0.1:9/devstoreaccount1;QueueEndpoint=http://127.0.0.1:9/devstoreaccount1;TableEndpoint=http://127.0.0.1:9/devstoreaccount1";
    let output = command(["doctor", "--store", "abc", "--output", "json"])
        .env("AZURE_STORAGE_CONNECTION_STRING", dead)
        .output()
        .unwrap();
    assert_eq!(code(&output), 13);
    assert!(
        !text(&output.stdout).contains("Eby8vdM0"),
        "no key is ever shown"
    );
}

#[test]
fn an_empty_variable_counts_as_unset_and_a_flag_wins_over_it() {
    let run = |name: &str, value: &str, args: &[&str]| {
        let output = command(args).env(name, value).output().unwrap();
        (code(&output), text(&output.stderr))
    };
    let worker = ["worker", "--heartbeat-interval-s", "20"];
    let (exit, told) = run("WORKFLOW_STORE", "", &worker);
    assert_eq!(exit, 2);
    assert!(
        told.contains("neither `--store` nor WORKFLOW_STORE"),
        "{told}"
    );
    let (_, told) = run("WORKFLOW_WORKER_SLOTS", "", &worker);
    assert!(told.contains("no store is named"), "{told}");
    let (_, told) = run("WORKFLOW_WORKER_SLOTS", "many", &worker);
    assert!(told.contains("'WORKFLOW_WORKER_SLOTS (--slots)'"), "{told}");
    let by_flag = [&worker[..], &["--slots", "many"]].concat();
    let (_, told) = run("WORKFLOW_WORKER_SLOTS", "3", &by_flag);
    assert!(!told.contains("WORKFLOW_WORKER_SLOTS"), "{told}");
    let (_, told) = run("WORKFLOW_WORKER_HEARTBEAT_INTERVAL_S", "59", &worker);
    assert!(told.contains("no store is named"), "the flag wins: {told}");
    let (_, told) = run("WORKFLOW_WORKER_HEARTBEAT_INTERVAL_S", "59", &["worker"]);
    assert!(
        told.contains("WORKFLOW_WORKER_HEARTBEAT_INTERVAL_S sets `--heartbeat-interval-s`"),
        "{told}"
    );
    let (_, told) = run("JOBQ_COMPLETION_BATCH_SIZE", "99", &["coordinator"]);
    assert!(
        told.contains("JOBQ_COMPLETION_BATCH_SIZE (--batch-size)"),
        "the second name is read: {told}"
    );
}

#[test]
fn a_value_that_begins_with_a_dash_is_refused_by_the_name_of_its_variable() {
    let output = command(["coordinator", "--output", "json"])
        .env("WORKFLOW_COORDINATOR_MAX_OUTSTANDING", "-1")
        .output()
        .unwrap();
    assert_error(&output, 2, "usage");
    let message = json(&output)["error"]["message"].to_string();
    assert!(
        message.contains("WORKFLOW_COORDINATOR_MAX_OUTSTANDING"),
        "{message}"
    );
}

#[test]
fn a_log_filter_that_is_none_is_told_with_its_setting() {
    let folder = Folder::new();
    let output = command(["validate", &folder.file("good.yaml")])
        .env("WORKFLOW_LOG", "[[[")
        .output()
        .unwrap();
    assert_eq!(code(&output), 0);
    let told = text(&output.stderr);
    assert!(
        told.starts_with("warning: ") && told.contains("WORKFLOW_LOG"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn errors_about_values_name_each_value_once() {
    let folder = Folder::new();
    let output = workflow(&["submit", &folder.file("good.yaml"), "--id", "a\"b"]);
    assert_eq!(code(&output), 2);
    let told = text(&output.stderr);
    assert_eq!(told.matches("a\"b").count(), 1, "{told}");
    assert!(!told.contains("a\\\"b"), "{told}");
    let output = workflow(&["run", &folder.file("good.yaml"), "--slots", "0"]);
    assert_eq!(code(&output), 2);
    let told = text(&output.stderr);
    assert!(told.contains("0 is not in 1..=65535"), "{told}");
}

/// Joins of windows of the same tasks, no two of which have a batch in common.
#[test]
fn merges_that_make_a_definition_too_large_are_refused_before_anything_is_submitted() {
    let (batch, batches) = (420, 11);
    let names: Vec<_> = (0..batch * (batches + 1))
        .map(|at| at.to_string())
        .collect();
    let task = |name: &str, depends_on: &[String]| json!({"name": name, "cmd": "x", "depends_on": depends_on});
    let leaves = names.iter().map(|name| task(name, &[]));
    let windows = names.windows(batch * batches).take(batch);
    let joins = windows.map(|window| task(&format!("after-{}", window[0]), window));
    let tasks: Vec<_> = leaves.chain(joins).collect();
    let folder = Folder::new();
    let (good, wide) = (folder.file("good.yaml"), folder.file("wide.json"));
    fs::write(&wide, json!({"tasks": tasks}).to_string()).unwrap();
    // Nothing listens there: the first request would end otherwise.
    let dead = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Zm9v;BlobEndpoint=http://127.0.0.1:9/devstoreaccount1;QueueEndpoint=http://127.0.0.1:9/devstoreaccount1;TableEndpoint=http://127.0.0.1:9/devstoreaccount1";
    let submit = ["submit", &good, &wide, "--max-fan-in", "420"];
    let output = command([&submit[..], &["--store", "abc", "--output", "json"]].concat())
        .env("AZURE_STORAGE_CONNECTION_STRING", dead)
        .output()
        .unwrap();
    assert_error(&output, 3, "invalid_definition");
    let message = json(&output)["error"]["message"].to_string();
    for told in [&wide, "9660 tasks", "5468400 dependencies"] {
        assert!(message.contains(told), "{message}");
    }
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_store_that_does_not_answer_is_told_while_it_is_waited_for() {
    let dead = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Zm9v;BlobEndpoint=http://127.0.0.1:9/devstoreaccount1;QueueEndpoint=http://127.0.0.1:9/devstoreaccount1;TableEndpoint=http://127.0.0.1:9/devstoreaccount1";
    let list = ["list", "--store", "abc", "--output", "json"];
    let envs = [("AZURE_STORAGE_CONNECTION_STRING", dead)];
    let quiet = command([&list[..], &["-q"]].concat())
        .envs(envs)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = Process::start(&list, &envs);
    told.wait_for(LONG, |line| {
        line.contains("not reachable, trying again for 10 s")
    });
    assert_eq!(told.wait_for_exit(LONG).code(), Some(6));
    let quiet = quiet.wait_with_output().unwrap();
    assert_error(&quiet, 6, "unreachable");
    assert!(quiet.stderr.is_empty(), "{quiet:?}");
}

#[test]
fn a_name_that_does_not_resolve_is_a_store_out_of_reach() {
    let at = "http://storage.invalid/abc1";
    let nowhere = format!(
        "AccountName=abc1;AccountKey=Zm9v;BlobEndpoint={at};QueueEndpoint={at};TableEndpoint={at}"
    );
    let list = ["list", "--store", "abc", "--output", "json"];
    let output = command(list)
        .env("AZURE_STORAGE_CONNECTION_STRING", nowhere)
        .output()
        .unwrap();
    assert_error(&output, 6, "unreachable");
}

#[test]
fn a_bad_prefix_is_refused_by_every_command_before_any_request() {
    let folder = Folder::new();
    let good = folder.file("good.yaml");
    for args in [
        &["coordinator"][..],
        &["worker"],
        &["submit", &good],
        &["list"],
    ] {
        let args: Vec<&str> = args
            .iter()
            .copied()
            .chain(["--store", "devstoreaccount1/My_App--prod"])
            .collect();
        let output = workflow(&args);
        assert_eq!(code(&output), 2, "{args:?}");
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains("My_App--prod") && stderr.contains("--store"),
            "{stderr}"
        );
    }
}
