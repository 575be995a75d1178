//! The emulator goes away under each kind of process, busy or idle, and comes back: none has to be started again.
//!
//! Each test is some cells of the table under C4 in `docs/failure-modes.md`; idle services are taken through it in `pipeline`.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::azurite::Azurite;
use crate::support::stack::{PATIENCE, Stack, until};

// What was received and could not be given back in an outage stays hidden for these times.
const COORDINATOR: [&str; 2] = ["--visibility-timeout-s", "5"];
const WORKER: [&str; 11] = [
    "worker",
    "--slots",
    "4",
    "--max-idle-backoff-s",
    "1",
    "--visibility-timeout-s",
    "18",
    "--heartbeat-interval-s",
    "1",
    "--kill-grace-s",
    "1",
];

/// A stack on an emulator of its own.
fn world(prefix: &str) -> (Azurite, Stack) {
    let azurite = Azurite::start();
    let stack = Stack::on(&azurite, prefix);
    (azurite, stack)
}

/// Tasks that note themselves, many enough for an outage to come in their middle.
fn busy(stack: &Stack, id: &str) {
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            let parents = if n < 10 {
                String::new()
            } else {
                format!(", depends_on: [t{}]", n - 10)
            };
            format!(
                "  - {{name: t{n}, cmd: 'echo $WORKFLOW_TASK >> {id}.ran; sleep 0.1'{parents}}}\n"
            )
        })
        .collect();
    stack.submit(id, &format!("tasks:\n{}", tasks.concat()));
}

fn at_work(stack: &Stack, id: &str) {
    until("some tasks to have run", || {
        (stack.lines(&format!("{id}.ran")).len() >= 10).then_some(())
    });
}

/// Submits a workflow of one task, which runs if all is well.
fn assert_served(stack: &Stack, id: &str) {
    stack.submit(id, "tasks: [{name: a, cmd: 'true'}]");
    assert_eq!(stack.watch(id), Some(0));
}

#[test]
fn a_busy_stack_and_who_watches_it_outlast_a_restart() {
    let (mut azurite, stack) = world("again3");
    let coordinator = stack.coordinator(&COORDINATOR);
    let worker = stack.start(&WORKER);
    busy(&stack, "w");
    let mut watch = stack.start(&["watch", "w", "--timeout-s", "120"]);
    at_work(&stack, "w");
    azurite.stop();
    coordinator.wait_for(PATIENCE, |line| line.contains("receive_failed"));
    // With every slot at work it receives nothing, and notices when it posts.
    worker.wait_for(PATIENCE, |line| {
        line.contains("receive_failing") || line.contains("not_stored")
    });
    watch.wait_for(PATIENCE, |line| line.contains("watch_interrupted"));
    azurite.restart();
    assert_eq!(watch.wait_for_exit(PATIENCE).code(), Some(0));
    let status = stack.status("w");
    assert_eq!(status["counts"], serde_json::json!({"completed": 60}));
}

#[test]
fn a_watch_of_what_rests_outlasts_a_restart_and_ends_at_once_in_an_outage() {
    let (mut azurite, stack) = world("again4");
    stack.submit("w", "tasks: [{name: a, cmd: 'true'}]");
    let mut watches = [(); 2].map(|()| stack.start(&["watch", "w", "--timeout-s", "120"]));
    for watch in &watches {
        watch.wait_for(PATIENCE, |line| line.contains("pending"));
    }
    azurite.stop();
    for watch in &watches {
        watch.wait_for(PATIENCE, |line| line.contains("watch_interrupted"));
    }
    let [stays, ends] = &mut watches;
    ends.signal(Signal::SIGTERM);
    ends.wait_for_exit(Duration::from_secs(2));
    azurite.restart();
    stays.wait_for(PATIENCE, |line| line.contains("recovered"));
    let _services = [stack.coordinator(&COORDINATOR), stack.start(&WORKER)];
    assert_eq!(stays.wait_for_exit(PATIENCE).code(), Some(0));
}

/// Submits while nothing answers, and brings the emulator back once that was noticed.
fn assert_submit_outlasts_a_restart(azurite: &mut Azurite, stack: &Stack) {
    let file = stack.path("late.yaml");
    std::fs::write(&file, "tasks: [{name: a, cmd: 'true'}]").unwrap();
    azurite.stop();
    let args = ["submit", "--id", "late", &file];
    let mut submit = stack.start(&args);
    let mut told_to_go = stack.start(&args);
    for process in [&submit, &told_to_go] {
        process.wait_for(PATIENCE, |line| line.contains("not reachable"));
    }
    told_to_go.signal(Signal::SIGTERM);
    told_to_go.wait_for_exit(Duration::from_secs(2));
    azurite.restart();
    let ended = submit.wait_for_exit(PATIENCE);
    assert_eq!(ended.code(), Some(0), "{:?}", submit.lines());
}

#[test]
fn a_submit_to_an_idle_stack_outlasts_a_restart_and_ends_at_once_in_an_outage() {
    let (mut azurite, stack) = world("again5");
    let _services = [stack.coordinator(&COORDINATOR), stack.start(&WORKER)];
    assert_served(&stack, "before");
    assert_submit_outlasts_a_restart(&mut azurite, &stack);
    assert_eq!(stack.watch("late"), Some(0));
}

#[test]
fn a_submit_to_a_busy_stack_outlasts_a_restart() {
    let (mut azurite, stack) = world("again6");
    let _services = [stack.coordinator(&COORDINATOR), stack.start(&WORKER)];
    busy(&stack, "w");
    at_work(&stack, "w");
    assert_submit_outlasts_a_restart(&mut azurite, &stack);
    assert_eq!(stack.watch("late"), Some(0));
    assert_eq!(stack.watch("w"), Some(0));
}
