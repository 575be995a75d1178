//! A worker that is paused and resumed, on the emulator.

use nix::sys::signal::Signal;

use crate::support::azurite::{ACCOUNT, KEY};
use crate::support::process::Process;
use crate::support::stack::{PATIENCE, Stack, until};

/// A workflow of one task that notes its starts, its ends and its being stopped, and waits for the file `go`.
const WAITING: &str = "
tasks:
  - name: a
    cmd: |
      trap 'echo >> stopped; exit 1' TERM
      echo >> started
      while [ ! -e go ]; do sleep 0.1; done
      echo >> ended
";

fn counted(stack: &Stack, file: &str, count: usize) {
    until(file, || (stack.lines(file).len() == count).then_some(()));
}

fn go(stack: &Stack) {
    std::fs::write(stack.path("go"), "").unwrap();
}

fn assert_done_once(stack: &Stack, id: &str) {
    assert_eq!(stack.watch(id), Some(0));
    let status = stack.status(id);
    let task = &status["tasks"][0];
    assert_eq!(
        (&task["state"], &task["attempt_no"]),
        (&"completed".into(), &1.into()),
        "{status}"
    );
    assert_eq!(stack.lines("ended").len(), 1);
}

#[test]
fn a_worker_paused_beyond_its_message_stops_its_command_and_posts_nothing() {
    let stack = Stack::new("paused2");
    let _coordinator = stack.coordinator(&[]);
    let short = [
        ["--visibility-timeout-s", "20"],
        ["--heartbeat-interval-s", "2"],
        ["--kill-grace-s", "1"],
    ]
    .concat();
    let first = stack.worker(&short);
    stack.submit("zombie", WAITING);
    counted(&stack, "started", 1);
    first.signal(Signal::SIGSTOP);
    let second = stack.worker(&short);
    counted(&stack, "started", 2);
    assert_eq!(
        stack.lines("stopped").len(),
        0,
        "the paused worker cannot stop anything yet"
    );

    first.signal(Signal::SIGCONT);
    first.wait_for(PATIENCE, |line| line.contains("ownership_lost"));
    counted(&stack, "stopped", 1);
    go(&stack);
    assert_done_once(&stack, "zombie");
    let worker = stack.status("zombie")["tasks"][0]["worker"].clone();
    let name = format!("/{}", second.pid());
    assert!(worker.as_str().unwrap().ends_with(&name), "{worker}");
}

#[test]
fn a_service_that_is_told_to_go_while_it_waits_for_its_store_ends_in_order() {
    let nobody = format!("http://127.0.0.1:1/{ACCOUNT}");
    let connection = format!(
        "AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={nobody};QueueEndpoint={nobody};TableEndpoint={nobody};"
    );
    let envs = [
        ("WORKFLOW_STORE", "waiting1"),
        ("AZURE_STORAGE_CONNECTION_STRING", connection.as_str()),
    ];
    for service in ["coordinator", "worker"] {
        let mut process = Process::start(&[service], &envs);
        process.wait_for(PATIENCE, |line| line.contains("trying again"));
        process.signal(Signal::SIGTERM);
        let ended = process.wait_for_exit(PATIENCE);
        assert_eq!(ended.code(), Some(0), "{:?}", process.lines());
    }
}
