//! Requests, signals and tasks that cross each other: many of one kind at once, or one in the middle of another.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::pipeline::{WORKER, task};
use crate::support::azurite::azurite;
use crate::support::process::Process;
use crate::support::proxy::{Fault, Kind, Proxy, Times};
use crate::support::stack::{Foreign, PATIENCE, Stack, until};

#[test]
fn of_twenty_retries_at_once_one_takes_effect_and_the_others_are_told() {
    let stack = Stack::new("retries1");
    let _coordinator = stack.coordinator(&[]);
    let mut worker = stack.worker(&WORKER);
    let gate = stack.path("go");
    stack.submit(
        "w",
        &format!("tasks: [{{name: a, cmd: 'echo >> ran; test -e {gate}'}}]"),
    );
    assert_eq!(stack.watch("w"), Some(10));
    std::fs::write(&gate, "").unwrap();
    // Without a worker the run that begins stays where it is until all were told.
    worker.signal(Signal::SIGTERM);
    worker.wait_for_exit(PATIENCE);
    let mut retries = [(); 20].map(|()| stack.start(&["retry", "w", "--wait-s", "60"]));
    let mut codes = Vec::new();
    for retry in &mut retries {
        codes.push(retry.wait_for_exit(PATIENCE).code().unwrap());
    }
    codes.sort_unstable();
    let mut expected = vec![7; 20];
    expected[0] = 0;
    assert_eq!(codes, expected);
    let _worker = stack.worker(&WORKER);
    assert_eq!(stack.watch("w"), Some(0));
    let status = stack.status("w");
    let state = Foreign::new().blob("retries1-workflows", "w.json");
    assert_eq!(state["generation"], 2, "{state}");
    assert_eq!(task(&status, "a")["attempt_no"], 2, "{status}");
    assert_eq!(stack.lines("ran").len(), 2);
    assert_eq!(stack.run(&["retry", "w"]).code, Some(7), "it has succeeded");
}

#[test]
fn what_stands_in_line_at_a_cancel_never_starts_and_delays_nobody() {
    const TASKS: usize = 400;
    let stack = Stack::new("inline1");
    let _coordinator = stack.coordinator(&[]);
    let tasks: Vec<_> = (0..TASKS)
        .map(|n| format!("  - {{name: t{n}, cmd: 'echo >> ran; exec sleep 600'}}\n"))
        .collect();
    let after = "  - {name: after, cmd: 'echo >> ran', depends_on: [t0]}\n";
    stack.submit("w", &format!("tasks:\n{}{after}", tasks.concat()));
    let quick = ["--cancel-poll-interval-s", "1", "--kill-grace-s", "1"];
    let _workers = [(); 2].map(|()| stack.worker(&[&WORKER[..], &quick].concat()));
    until("all slots to be taken", || {
        (stack.lines("ran").len() == 16).then_some(())
    });
    assert_eq!(stack.run(&["cancel", "w"]).code, Some(0));
    stack.submit("other", "tasks: [{name: a, cmd: 'true'}]");
    assert_eq!(stack.watch("other"), Some(0));
    assert_eq!(stack.watch("w"), Some(11));
    let status = stack.status("w");
    assert_eq!(status["counts"]["cancelled"], TASKS + 1, "{status}");
    let foreign = Foreign::new();
    until("the line to be gone", || {
        (foreign.depth("inline1-q-default") == 0).then_some(())
    });
    assert_eq!(stack.lines("ran").len(), 16, "nothing started later");
}

#[test]
fn what_is_received_while_a_worker_is_told_to_go_is_shown_again_at_once_and_costs_no_start() {
    let stack = Stack::new("between1");
    let _coordinator = stack.coordinator(&[]);
    let tasks: Vec<_> = (0..6)
        .map(|n| format!("  - {{name: t{n}, cmd: 'echo $WORKFLOW_TASK >> ran'}}\n"))
        .collect();
    stack.submit("w", &format!("tasks:\n{}", tasks.concat()));
    until("all to be sent", || {
        (stack.status("w")["counts"]["queued"] == 6).then_some(())
    });
    let proxy = Proxy::before(azurite());
    let late = Fault::ReplyLate(Duration::from_secs(2));
    proxy.fault(Kind::GetMessages, "-q-default/", Times::Nth(1), late);
    let mut going = stack.start_via(&proxy, &["worker", "--slots", "2"]);
    proxy.wait_until("the receive to be carried out", |log| {
        log.iter()
            .any(|seen| seen.kind == Kind::GetMessages && seen.status == Some(200))
    });
    going.signal(Signal::SIGTERM);
    assert_eq!(going.wait_for_exit(PATIENCE).code(), Some(0));
    assert_eq!(stack.lines("ran").len(), 0);
    let shown = proxy.seen(Kind::UpdateMessage, "-q-default/");
    assert_eq!(shown.len(), 2, "no more is held than there are slots");
    assert!(
        shown
            .iter()
            .all(|seen| seen.target.contains("visibilitytimeout=0"))
    );
    // Its visibility time-out of a minute is not waited for.
    let _worker = stack.worker(&WORKER);
    assert_eq!(stack.watch("w"), Some(0));
    let status = stack.status("w");
    for name in ["t0", "t1", "t2", "t3", "t4", "t5"] {
        assert_eq!(task(&status, name)["attempt_no"], 1);
    }
    assert_eq!(stack.lines("ran").len(), 6);
}

/// Starts a worker with three tasks, each of which notes its process and the signals that it gets.
fn busy(stack: &Stack, drain_s: &str) -> (Process, Vec<Pid>) {
    let worker = stack.worker(&["--slots", "3", "--drain-timeout-s", drain_s]);
    let tasks: Vec<_> = (0..3)
        .map(|n| {
            let cmd =
                "trap \"echo >> signals; exit 1\" TERM INT HUP; echo $$ >> pids; sleep 600 & wait";
            format!("  - {{name: t{n}, cmd: '{cmd}'}}\n")
        })
        .collect();
    stack.submit("w", &format!("tasks:\n{}", tasks.concat()));
    let pids = until("three tasks to run", || {
        let lines = stack.lines("pids");
        (lines.len() == 3).then_some(lines)
    });
    let pids = pids.iter().map(|pid| Pid::from_raw(pid.parse().unwrap()));
    (worker, pids.collect())
}

fn assert_gone(groups: &[Pid]) {
    for group in groups {
        until("a group to be gone", || {
            kill(Pid::from_raw(-group.as_raw()), None).err()
        });
    }
}

#[test]
fn two_interrupts_end_a_worker_at_once_with_all_it_runs() {
    let stack = Stack::new("twice2");
    let _coordinator = stack.coordinator(&[]);
    let (mut worker, groups) = busy(&stack, "600");
    worker.signal(Signal::SIGINT);
    worker.wait_for(PATIENCE, |line| line.contains("draining"));
    worker.signal(Signal::SIGINT);
    worker.wait_for_exit(Duration::from_secs(10));
    assert_gone(&groups);
}

#[test]
fn a_hang_up_drains_a_worker_and_its_tasks_get_one_signal() {
    let stack = Stack::new("hangup1");
    let _coordinator = stack.coordinator(&[]);
    let (mut worker, groups) = busy(&stack, "1");
    worker.signal(Signal::SIGHUP);
    assert_eq!(worker.wait_for_exit(PATIENCE).code(), Some(0));
    assert_gone(&groups);
    assert_eq!(stack.lines("signals").len(), 3);
}
