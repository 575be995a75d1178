//! The built command from outside: exit codes, what stdout holds, signals, and a workflow through all commands on the emulator.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::azurite::azurite;
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
fn a_closed_pipe_is_a_quiet_end() {
    let mut child = command(["run", &example("montage-200.yaml")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(text(&output.stderr), "");
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

/// The commands against a prefix of the shared emulator.
struct Stage {
    connection: String,
    prefix: &'static str,
}

impl Stage {
    fn new(prefix: &'static str) -> Self {
        Self {
            connection: azurite().connection_string(),
            prefix,
        }
    }

    fn envs(&self) -> [(&str, &str); 2] {
        [
            ("AZURE_STORAGE_CONNECTION_STRING", &self.connection),
            ("WORKFLOW_STORE", self.prefix),
        ]
    }

    fn start(&self, args: &[&str]) -> Process {
        Process::start(args, &self.envs())
    }

    fn run(&self, args: &[&str]) -> Output {
        command(args).envs(self.envs()).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--output", "json"]).collect();
        let output = self.run(&args);
        assert_eq!(code(&output), 0, "{args:?} {output:?}");
        json(&output)
    }

    fn error(&self, args: &[&str], exit: i32, kind: &str) {
        let args: Vec<&str> = args.iter().copied().chain(["--output", "json"]).collect();
        assert_error(&self.run(&args), exit, kind);
    }
}

#[test]
fn a_workflow_goes_through_all_commands_on_the_emulator() {
    let folder = Folder::new();
    let stage = Stage::new("clitest");
    stage.error(&["list"], 4, "not_found");
    let doctor = stage.run(&["doctor", "--output", "json"]);
    assert_eq!(code(&doctor), 13);
    json(&doctor);
    assert_eq!(code(&stage.run(&["doctor", "--fix"])), 0);
    stage.error(&["status", "w"], 4, "not_found");

    let submitted = stage.json(&["submit", &folder.file("good.yaml"), "--id", "good"]);
    assert_eq!(submitted["workflow_id"], "good");
    let again = stage.run(&["submit", &folder.file("good.yaml"), "--id", "good"]);
    assert_eq!(text(&again.stdout), "good\n", "ids alone are on stdout");
    stage.error(
        &["submit", &folder.file("bad.yaml"), "--id", "good"],
        7,
        "conflict",
    );
    assert_eq!(stage.json(&["status", "good"])["status"], "pending");
    let timed_out = stage.run(&["watch", "good", "--timeout-s", "0"]);
    assert_eq!(code(&timed_out), 12, "{timed_out:?}");
    let stored = stage.json(&["cancel", "good", "--wait-s", "0"]);
    assert_eq!(stored["answer"], "stored");

    let mut coordinator = stage.start(&["coordinator"]);
    let mut worker = stage.start(&["worker", "--slots", "4", "--cancel-poll-interval-s", "1"]);
    let watched = stage.run(&["watch", "good", "--output", "json", "--timeout-s", "60"]);
    assert_eq!(
        code(&watched),
        11,
        "the stored cancel was served: {watched:?}"
    );
    for line in text(&watched.stdout).lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    stage.error(&["cancel", "good"], 7, "conflict");
    assert_eq!(stage.json(&["retry", "good"])["answer"], "applied");
    assert_eq!(code(&stage.run(&["watch", "good", "--timeout-s", "60"])), 0);
    stage.error(&["retry", "good"], 7, "conflict");
    let status = stage.json(&["status", "good"]);
    assert_eq!(status["counts"]["completed"], 2, "{status}");
    assert_eq!(stage.json(&["output", "good", "one"]), 7);
    assert_eq!(stage.json(&["logs", "good", "one"])["log"], "hello\n");
    assert_eq!(text(&stage.run(&["logs", "good", "one"]).stdout), "hello\n");
    stage.error(&["logs", "good", "none"], 4, "not_found");

    let failed = stage.run(&["submit", &folder.file("bad.yaml"), "--id", "bad", "--watch"]);
    assert_eq!(code(&failed), 10, "{failed:?}");
    assert_eq!(text(&failed.stdout), "bad\n");
    let tasks = stage.json(&["tasks", "bad", "--state", "failed"]);
    assert_eq!(tasks[0]["reason"], "exit code 3");
    assert_eq!(tasks[0]["exit_code"], 3);
    let list = stage.json(&["list", "--status", "failed"]);
    assert_eq!(list[0]["workflow_id"], "bad");
    assert_eq!(stage.json(&["list"]).as_array().unwrap().len(), 2);
    let listed = text(&stage.run(&["list"]).stdout);
    assert!(
        listed.lines().any(|line| line.starts_with("bad")),
        "{listed}"
    );

    let retry = ["retry", "bad", "--wait-s", "30", "--output", "json"];
    let retry = || {
        command(retry)
            .envs(stage.envs())
            .stdout(Stdio::piped())
            .spawn()
    };
    let crowd: Vec<_> = (0..24).map(|_| retry().unwrap()).collect();
    let mut applied = 0;
    for one in crowd {
        let output = one.wait_with_output().unwrap();
        if code(&output) == 0 {
            assert_eq!(json(&output)["answer"], "applied");
            applied += 1;
        } else {
            assert_error(&output, 7, "conflict");
        }
    }
    assert!(applied > 0, "one of them won");

    stage.json(&["submit", &folder.file("slow.yaml"), "--id", "slow"]);
    let mut watch = stage.start(&["watch", "slow"]);
    watch.wait_for(LONG, |line| {
        line.contains("one: running") || line.contains("one: queued")
    });
    assert_eq!(stage.json(&["cancel", "slow"])["answer"], "applied");
    assert_eq!(watch.wait_for_exit(LONG).code(), Some(11));

    let doctor = stage.run(&["doctor", "--output", "json"]);
    assert_eq!(code(&doctor), 0, "{}", text(&doctor.stdout));
    let idle = ["worker", "--idle-timeout-s", "0.1", "--output", "json"];
    assert_eq!(
        text(&stage.run(&idle).stdout),
        "{\"succeeded\":0,\"failed\":0,\"cancelled\":0,\"interrupted\":0}\n"
    );
    for process in [&mut worker, &mut coordinator] {
        process.signal(Signal::SIGTERM);
        assert_eq!(process.wait_for_exit(LONG).code(), Some(0));
    }
}

#[test]
fn no_log_level_shows_a_key_or_a_signature() {
    let stage = Stage::new("clilogs");
    let output = stage.run(&["doctor", "--fix", "-vv", "--log", "trace,azure_core=trace"]);
    assert_eq!(code(&output), 0);
    let told = text(&output.stderr) + &text(&output.stdout);
    for secret in ["Eby8vdM0", "SharedKey", "sig=", "uthorization"] {
        assert!(!told.contains(secret), "{secret}: {told}");
    }
}

#[test]
fn a_second_coordinator_is_refused_with_the_name_of_the_first() {
    let stage = Stage::new("clisecond");
    assert_eq!(code(&stage.run(&["doctor", "--fix", "--quiet"])), 0);
    let mut first = stage.start(&["coordinator"]);
    let held = |line: &str| line.contains("holds the lease");
    let led = || {
        let doctor = stage.run(&["doctor"]);
        text(&doctor.stdout).lines().any(held)
    };
    first.wait_for(LONG, |line| line.contains("lead"));
    assert!(led());
    let refused = stage.run(&["coordinator", "--output", "json"]);
    assert_error(&refused, 8, "other_leader");
    let message = json(&refused)["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains('/'),
        "the holder is named as host/pid: {message}"
    );
    first.signal(Signal::SIGTERM);
    assert_eq!(first.wait_for_exit(LONG).code(), Some(0));
}
