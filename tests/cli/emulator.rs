//! On the emulator: a workflow through all commands, logs without secrets, and a second coordinator.

use jiff::Timestamp;

use super::unread::full;
use super::*;
use crate::support::azurite::azurite;

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
fn a_limited_fan_in_runs_in_batches_and_the_join_gets_the_inputs_that_it_asked_for() {
    let folder = Folder::new();
    let stage = Stage::new("clifanin");
    let file = folder.file("wide.yaml");
    let emit = "echo 1 > \"$WORKFLOW_OUTPUT\"";
    let leaf = |place: usize| format!("  - {{name: t{place}, cmd: '{emit}'}}\n");
    let leaves: String = (0..5).map(leaf).collect();
    let join = "  - {name: join, cmd: 'cp \"$WORKFLOW_INPUTS\" \"$WORKFLOW_OUTPUT\"', depends_on: [t0, t1, t2, t3, t4]}\n";
    std::fs::write(&file, format!("tasks:\n{leaves}{join}")).unwrap();
    let too_few = stage.run(&["submit", &file, "--max-fan-in", "1"]);
    assert_eq!(code(&too_few), 2, "{too_few:?}");
    assert_eq!(code(&stage.run(&["doctor", "--fix", "--quiet"])), 0);
    let submit = ["submit", &file, "--id", "wide", "--max-fan-in", "2"];
    stage.json(&submit);
    assert_eq!(stage.json(&submit)["is_new"], false);
    let mut coordinator = stage.start(&["coordinator"]);
    let mut worker = stage.start(&["worker"]);
    assert_eq!(code(&stage.run(&["watch", "wide", "--timeout-s", "60"])), 0);
    let tasks = stage.json(&["tasks", "wide"]);
    let names: Vec<_> = tasks
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["name"])
        .collect();
    assert_eq!(
        names,
        ["t0", "t1", "t2", "t3", "t4", "join", "merge-1", "merge-2"]
    );
    let at = |place: usize, key: &str| {
        let at = tasks[place][key].as_str().unwrap();
        at.parse::<Timestamp>().unwrap()
    };
    assert!(
        at(1, "ended_at") <= at(2, "started_at") && at(3, "ended_at") <= at(4, "started_at"),
        "{tasks}"
    );
    let inputs = stage.json(&["output", "wide", "join"]);
    let inputs: Vec<_> = inputs.as_object().unwrap().keys().collect();
    assert_eq!(inputs, ["t0", "t1", "t2", "t3", "t4"]);
    for process in [&mut worker, &mut coordinator] {
        process.signal(Signal::SIGTERM);
        assert_eq!(process.wait_for_exit(LONG).code(), Some(0));
    }
}

#[test]
fn merges_are_told_to_people_and_are_part_of_the_definition() {
    let folder = Folder::new();
    let stage = Stage::new("climerges");
    let file = folder.file("wide.yaml");
    let leaves = "{name: a, cmd: x}, {name: b, cmd: x}, {name: c, cmd: x}";
    let wide = format!("tasks: [{leaves}, {{name: join, cmd: x, depends_on: [a, b, c]}}]");
    std::fs::write(&file, wide).unwrap();
    let submit = ["submit", &file, "--id", "wide"];
    let merged = [&submit[..], &["--max-fan-in", "2"]].concat();
    let told = stage.run(&merged);
    assert_eq!(code(&told), 0, "{told:?}");
    assert_eq!(text(&told.stdout), "wide\n");
    assert_eq!(
        text(&told.stderr),
        "workflow `wide` has 1 merge before its wide joins, 5 tasks in all\n"
    );
    let quiet = stage.run(&[&merged[..], &["--output", "json"]].concat());
    assert_eq!(json(&quiet)["is_new"], false);
    assert!(quiet.stderr.is_empty(), "{quiet:?}");
    let other = stage.run(&submit);
    assert_eq!(code(&other), 7, "{other:?}");
    let help = text(&other.stderr);
    assert!(help.contains("--max-fan-in"), "{help}");
    let good = folder.file("good.yaml");
    let narrow = ["submit", &good, "--id", "narrow", "--max-fan-in", "2"];
    let told = stage.run(&narrow);
    assert_eq!(code(&told), 0, "{told:?}");
    assert!(told.stderr.is_empty(), "it has no merges: {told:?}");
    let bad = folder.file("bad.yaml");
    let other = stage.run(&["submit", &bad, "--id", "narrow"]);
    assert_eq!(code(&other), 7, "{other:?}");
    let help = text(&other.stderr);
    assert!(!help.contains("--max-fan-in"), "it could have none: {help}");
}

#[test]
fn a_submit_whose_output_is_not_taken_says_what_it_has_stored_and_what_not() {
    let folder = Folder::new();
    let stage = Stage::new("unheard");
    assert_eq!(code(&stage.run(&["doctor", "--fix"])), 0);
    let file = folder.file("good.yaml");
    for (format, is_closed) in [("text", false), ("json", false), ("text", true)] {
        let mut submit = command(["submit", &file, &file, "--output", format]);
        if is_closed {
            // A pipe whose other end is gone.
            submit.stdout(std::io::pipe().unwrap().1);
        } else {
            submit.stdout(full());
        }
        let submit = submit.envs(stage.envs()).stderr(Stdio::piped());
        let output = submit.output().unwrap();
        let exit = if is_closed { 141 } else { 1 };
        assert_eq!(code(&output), exit, "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        let id = told.split('`').nth(1).unwrap_or_else(|| panic!("{told}"));
        assert!(told.contains("is stored all the same"), "{told}");
        assert!(told.contains("1 more file is not submitted"), "{told}");
        assert_eq!(stage.json(&["status", id])["workflow_id"], id);
    }
}

#[test]
fn a_submit_that_fails_half_way_says_how_to_complete_it() {
    let folder = Folder::new();
    let stage = Stage::new("halfway");
    assert_eq!(code(&stage.run(&["doctor", "--fix"])), 0);
    let parts = stage.connection.split(';').map(|part| {
        let is_table = part.starts_with("TableEndpoint=");
        let dead = "TableEndpoint=http://127.0.0.1:1/devstoreaccount1";
        if is_table { dead } else { part }
    });
    let without_tables = parts.collect::<Vec<_>>().join(";");
    let file = folder.file("good.yaml");
    let submit = |files: &[&str]| {
        let mut submit = command([&["submit"], files].concat());
        submit.envs(stage.envs());
        submit.env("AZURE_STORAGE_CONNECTION_STRING", &without_tables);
        let output = submit.output().unwrap();
        assert_eq!(code(&output), 6, "{output:?}");
        text(&output.stderr)
    };
    let complete = |told: &str| {
        let id = told.split("--id ").nth(1);
        let id = id.and_then(|text| text.split('`').next());
        let id = id.unwrap_or_else(|| panic!("{told}"));
        let submitted = stage.json(&["submit", &file, "--id", id]);
        assert_eq!(submitted["is_new"], false, "a part was stored: {told}");
    };
    let told = submit(&[&file]);
    complete(&told);
    let told = submit(&[&file, &file, &file]);
    complete(&told);
    assert!(told.contains(&format!("`{file}`")), "{told}");
    assert!(told.contains("2 more files are not submitted"), "{told}");
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
