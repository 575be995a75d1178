//! `on_failure: cancel` end to end on the emulator: separate processes, real process groups.

use std::path::Path;

use crate::pipeline::{WORKER, task};
use crate::support::stack::{Stack, until};

#[test]
fn a_failure_stops_the_other_chain_and_nothing_else() {
    let stack = Stack::new("stop1");
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&[&WORKER[..], &["--cancel-poll-interval-s", "1"]].concat());
    let [group, neighbour, fail, go, cleaned] =
        ["group", "neighbour", "fail", "go", "cleaned"].map(|name| stack.path(name));
    let wait_for = |file: &str| format!("until [ -e {file} ]; do sleep 0.02; done");
    stack.submit(
        "other",
        &format!(
            "tasks: [{{name: a, cmd: 'echo >> {neighbour}; {}'}}]",
            wait_for(&go)
        ),
    );
    let yaml = format!(
        "
on_failure: cancel
tasks:
  - {{name: a, cmd: 'true'}}
  - {{name: b, cmd: '{}; exit 3', depends_on: [a]}}
  - {{name: c, cmd: 'sleep 600 & echo $! >> {group}; echo $$ >> {group}; wait'}}
  - {{name: d, cmd: 'true', depends_on: [c]}}
  - {{name: cleanup, cmd: 'echo >> {cleaned}', depends_on: [b, c, d], dep_policy: always}}
",
        wait_for(&fail)
    );
    stack.submit("chains", &yaml);
    until("both workflows to run", || {
        (stack.lines("group").len() == 2 && !stack.lines("neighbour").is_empty()).then_some(())
    });
    let group: Vec<String> = stack.lines("group");
    std::fs::write(&fail, "").unwrap();
    until("the whole process group to be gone", || {
        let is_there = |pid: &String| Path::new("/proc").join(pid).exists();
        (!group.iter().any(is_there)).then_some(())
    });
    assert_eq!(stack.watch("chains"), Some(10));
    let status = stack.status("chains");
    let shown = ["a", "b", "c", "d", "cleanup"].map(|name| task(&status, name)["state"].clone());
    assert_eq!(
        shown,
        ["completed", "failed", "cancelled", "cancelled", "completed"]
    );
    assert_eq!(status["status"], "failed");
    for name in ["c", "d"] {
        let why = &task(&status, name)["reason"];
        assert_eq!(*why, "stopped because task `b` failed");
    }
    let table = stack.run(&["tasks", "chains"]).stdout;
    assert_eq!(table.matches("stopped because task `b` failed").count(), 2);
    assert_eq!(stack.lines("cleaned").len(), 1);

    assert_eq!(task(&stack.status("other"), "a")["attempt_no"], 1);
    std::fs::write(&go, "").unwrap();
    assert_eq!(stack.watch("other"), Some(0));
    assert_eq!(stack.lines("neighbour").len(), 1);
}
