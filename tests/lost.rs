//! Task messages that somebody removes by hand, under real processes on the emulator.

use std::collections::BTreeMap;

use crate::support::stack::{Foreign, Stack, until};

/// Waits until so many messages are known to be sent.
fn sent(stack: &Stack, tasks: u64) {
    until("all to be sent", || {
        let status = stack.status("w");
        (status["counts"]["queued"] == tasks).then_some(())
    });
}

#[test]
fn a_queue_that_was_cleared_by_hand_is_filled_again_and_its_tasks_run() {
    let stack = Stack::new("cleared1");
    let foreign = Foreign::new();
    let _coordinator = stack.coordinator(&["--lost-dispatch-threshold-s", "1"]);
    stack.submit(
        "w",
        "default_queue: default\ntasks: [{name: a, cmd: echo a >> ran}, {name: b, cmd: echo b >> ran}]\n",
    );
    let queue = "cleared1-q-default";
    sent(&stack, 2);
    foreign.clear(queue);
    let _worker = stack.worker(&["--queue", "default", "--heartbeat-interval-s", "2"]);
    assert_eq!(stack.watch("w"), Some(0));
    let mut ran = stack.lines("ran");
    ran.sort();
    assert_eq!(ran, ["a", "b"]);
}

#[test]
fn of_a_long_backlog_only_what_was_deleted_by_hand_is_sent_again_and_each_task_runs_once() {
    const TASKS: u64 = 40;
    let stack = Stack::new("backlog1");
    let foreign = Foreign::new();
    let coordinator = stack.coordinator(&["--lost-dispatch-threshold-s", "1"]);
    let tasks: Vec<_> = (0..TASKS)
        .map(|n| format!("  - {{name: t{n}, cmd: echo t{n} >> ran; sleep 0.4}}\n"))
        .collect();
    let tasks = tasks.concat();
    stack.submit("w", &format!("default_queue: default\ntasks:\n{tasks}"));
    let queue = "backlog1-q-default";
    sent(&stack, TASKS);
    foreign.delete_first(queue);
    // The others wait for several thresholds until it is their turn.
    let _worker = stack.worker(&[
        "--queue",
        "default",
        "--slots",
        "2",
        "--heartbeat-interval-s",
        "2",
    ]);
    assert_eq!(stack.watch("w"), Some(0));
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for name in stack.lines("ran") {
        *times.entry(name).or_default() += 1;
    }
    assert_eq!(times.len() as u64, TASKS);
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    let lines = coordinator.lines();
    let lost = lines
        .iter()
        .filter(|line| line.contains("task_message_lost"));
    assert_eq!(lost.count(), 1, "{lines:#?}");
}
