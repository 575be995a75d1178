//! Tasks through all processes: what reaches them of their worker's surroundings, and what is told of their bytes and their ends.

use std::process::Command;
use std::time::Duration;

use crate::pipeline::task;
use crate::support::process::{Process, workflow};
use crate::support::stack::{Stack, now, until};

#[test]
fn what_surrounds_a_worker_neither_ends_nor_changes_its_tasks() {
    let stack = Stack::new("around1");
    let _coordinator = stack.coordinator(&[]);
    std::fs::write(stack.path("leak.sh"), "echo leaked; exit 9").unwrap();
    // What bash starts then ignores closed pipes, and has another open file.
    let script = "trap '' PIPE; exec env TMOUT=1 BASH_ENV=leak.sh ENV=leak.sh \"$0\" worker --slots 4 7</dev/null";
    let mut worker = Command::new("bash");
    worker.arg("-c").arg(script).arg(workflow());
    stack.surround(&mut worker);
    let _worker = Process::spawn(&mut worker);
    stack.submit(
        "w",
        "
tasks:
  - {name: waits, cmd: 'read -r line; sleep 1.5; echo ok >> waited'}
  - {name: files, cmd: 'for fd in /proc/self/fd/*; do readlink $fd; done > files; true'}
  - {name: pipe, cmd: 'yes | head -1; echo ${PIPESTATUS[0]} > pipe'}
  - {name: shell, cmd: 'echo ${TMOUT-none} ${BASH_ENV-none} ${AZURE_STORAGE_CONNECTION_STRING-none} > shell'}
",
    );
    assert_eq!(stack.watch("w"), Some(0), "{}", stack.status("w"));
    assert_eq!(stack.lines("waited"), ["ok"]);
    assert_eq!(stack.lines("pipe"), ["141"]);
    assert_eq!(stack.lines("shell"), ["none none none"]);
    let files = stack.lines("files");
    assert!(!files.is_empty());
    assert!(
        !files.iter().any(|file| file.contains("socket:")),
        "{files:?}"
    );
}

#[test]
fn how_a_script_a_pipe_and_bytes_that_are_no_text_end_is_told_as_documented() {
    let stack = Stack::new("ends1");
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&["--slots", "8", "--max-idle-backoff-s", "1"]);
    let long = "<".repeat(30_000);
    let angles = format!("  - {{name: angles, cmd: \"n='{long}'; test ${{#n}} = 30000\"}}\n");
    let others = r#"
tasks:
  - {name: bytes, cmd: "printf 'a\\200b\\377\\0c\\n'; printf 'x\\303' >&2; exit 3"}
  - {name: script, cmd: "false\necho ok"}
  - {name: strict, cmd: "set -e\nfalse\necho ok"}
  - {name: pipe, cmd: "false | cat"}
  - {name: head, cmd: "yes | head -1"}
"#;
    stack.submit("w", &format!("{others}{angles}"));
    assert_eq!(stack.watch("w"), Some(10));
    let status = stack.status("w");
    let of = |name: &str| {
        (
            task(&status, name)["state"].clone(),
            task(&status, name)["exit_code"].clone(),
        )
    };
    assert_eq!(of("bytes"), ("failed".into(), 3.into()), "{status}");
    assert_eq!(of("script"), ("completed".into(), 0.into()));
    assert_eq!(of("strict"), ("failed".into(), 1.into()));
    assert_eq!(of("pipe"), ("completed".into(), 0.into()));
    assert_eq!(of("head"), ("completed".into(), 0.into()));
    assert_eq!(of("angles"), ("completed".into(), 0.into()));
    let told = stack.run(&["logs", "w", "bytes"]);
    assert_eq!(told.code, Some(0));
    assert!(told.stdout.contains("a\u{fffd}b\u{fffd}"), "{told:?}");
    let reason = task(&status, "bytes")["reason"].as_str().unwrap();
    assert!(reason.contains("exit code 3"), "{reason}");
}

#[test]
fn a_value_reaches_its_task_byte_for_byte_and_never_as_code() {
    // Quotes of both kinds, substitutions, an escape, a line break, templates of other tools, letters of several bytes.
    let value =
        "it's $(touch pwned) `touch pwned` \"x\" \\ \\n\n; touch pwned #\t{{x}} ${HOME} %s 🙂 ";
    let stack = Stack::new("values1");
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&["--slots", "4", "--max-idle-backoff-s", "1"]);
    let definition = serde_json::json!({
        "env": {"OF_ALL": value},
        "tasks": [
            {"name": "env", "env": {"MSG": value}, "cmd": "printf %s \"$MSG\" > env; printf %s \"$OF_ALL\" > all"},
            {"name": "words", "cmd": ["bash", "-c", "printf %s \"$1\" > words", "bash", value]},
            {"name": "text", "cmd": "printf %s '{{x}}' > text"},
            {"name": "writes", "env": {"MSG": serde_json::json!({"msg": value}).to_string()},
                "cmd": "printf %s \"$MSG\" > \"$WORKFLOW_OUTPUT\""},
            {"name": "reads", "depends_on": ["writes"], "cmd": "cat \"$WORKFLOW_INPUTS\" > inputs"},
        ],
    });
    stack.submit("w", &definition.to_string());
    assert_eq!(stack.watch("w"), Some(0), "{}", stack.status("w"));
    let read = |name: &str| std::fs::read_to_string(stack.path(name)).unwrap();
    for name in ["env", "all", "words"] {
        assert_eq!(read(name), value, "{name}");
    }
    assert_eq!(read("text"), "{{x}}");
    let inputs: serde_json::Value = serde_json::from_str(&read("inputs")).unwrap();
    assert_eq!(inputs["writes"]["output"]["msg"], value);
    assert!(!std::path::Path::new(&stack.path("pwned")).exists());
}

#[test]
fn waiting_in_the_queue_costs_nothing_of_the_time_limit_and_each_attempt_has_its_own() {
    let stack = Stack::new("limits1");
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&["--slots", "1", "--max-idle-backoff-s", "1"]);
    stack.submit(
        "first",
        "tasks: [{name: a, cmd: 'echo > held; sleep 3; echo > free'}]",
    );
    until("the one slot to be held", || {
        (!stack.lines("held").is_empty()).then_some(())
    });
    let definition = "
tasks:
  - {name: short, cmd: 'true', timeout_s: 1}
  - {name: long, cmd: 'echo >> tries; sleep 60', timeout_s: 1, num_retries: 1}
";
    let queued = now();
    stack.submit("w", definition);
    until("the slot to be free", || {
        (!stack.lines("free").is_empty()).then_some(())
    });
    assert!(queued.elapsed() > Duration::from_secs(1));
    assert_eq!(stack.watch("w"), Some(10));
    let status = stack.status("w");
    assert_eq!(task(&status, "short")["state"], "completed");
    assert_eq!(task(&status, "short")["attempt_no"], 1);
    assert_eq!(task(&status, "long")["state"], "failed");
    assert_eq!(stack.lines("tries").len(), 2);
}
