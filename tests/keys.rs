//! Idempotency keys through the built command.

use crate::support::process::command;
use crate::support::stack::{Ran, Stack};

#[test]
fn a_key_is_honoured_across_workflows_and_workers() {
    let stack = Stack::new("keysacross");
    let _coordinator = stack.coordinator(&[]);
    let charge = |task: &str| {
        let count = stack.path("count");
        let cmd =
            format!("echo {task} >> {count}; echo '{{\\\"receipt\\\": 17}}' > $WORKFLOW_OUTPUT");
        format!(
            "tasks:\n- {{name: {task}, cmd: \"{cmd}\", idempotency_key: order-7}}\n- {{name: after, cmd: cp $WORKFLOW_INPUTS $WORKFLOW_OUTPUT, depends_on: [{task}]}}\n"
        )
    };
    for (id, task) in [("first", "charge"), ("second", "charge-again")] {
        let _worker = stack.worker(&[]);
        stack.submit(id, &charge(task));
        assert_eq!(stack.watch(id), Some(0));
        let output = stack.run(&["output", id, task]).stdout;
        assert_eq!(output.trim(), "{\"receipt\": 17}");
        let seen = stack.run(&["output", id, "after"]).json();
        assert_eq!(seen[task]["output"]["receipt"], 17);
    }
    assert_eq!(stack.lines("count"), ["charge"]);
    let why = "result reused from attempt 1 of task `charge` of workflow `first`";
    let status = stack.status("second");
    assert_eq!(status["tasks"][0]["reason"], why);
    assert!(stack.run(&["tasks", "second"]).stdout.contains(why));
    let logs = stack.run(&["logs", "second", "charge-again"]);
    assert!(logs.stderr.contains(why), "{logs:?}");
}

#[test]
fn a_key_is_honoured_within_one_process() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("twice.yaml");
    let tasks = "tasks:\n- {name: a, cmd: echo x >> count, idempotency_key: k}\n- {name: b, cmd: echo x >> count, idempotency_key: k, depends_on: [a]}\n";
    std::fs::write(&file, tasks).unwrap();
    let mut run = command(["run", "twice.yaml", "--output", "json"]);
    let ran: Ran = run.current_dir(folder.path()).output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let count = std::fs::read_to_string(folder.path().join("count")).unwrap();
    assert_eq!(count, "x\n");
    let reason = &ran.json()["tasks"][1]["reason"];
    assert!(reason.as_str().unwrap().contains("of task `a`"), "{reason}");
}
