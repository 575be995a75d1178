//! How long real processes take to hand on what they hold, when they are told to go, paused or killed.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::azurite::azurite;
use crate::support::process::Process;
use crate::support::proxy::{Fault, Kind, Proxy, Seen, Times};
use crate::support::stack::{Foreign, PATIENCE, Stack, now, until};

const LEASE: Duration = Duration::from_secs(15);
const COORDINATOR: [&str; 5] = [
    "coordinator",
    "--lease-duration-s",
    "15",
    "--visibility-timeout-s",
    "5",
];

/// A workflow of one task that notes the starts of its process, and goes on until the file `go` is there.
const WAITING: &str = "
tasks:
  - name: a
    cmd: |
      trap 'exit 1' TERM
      echo $$ >> started
      while [ ! -e go ]; do sleep 0.1; done
      echo >> ended
";

/// Of the task queue.
const TASKS: &str = "-q-default/messages";

/// A workflow of one task that notes its execution in `file`.
fn noting(file: &str) -> String {
    format!("tasks: [{{name: a, cmd: 'echo >> {file}'}}]")
}

fn leads(process: &Process) -> Instant {
    process.wait_for(PATIENCE, |line| line.contains(" leading"));
    now()
}

fn standby(stack: &Stack) -> Process {
    let process = stack.start(&[&COORDINATOR[..], &["--standby"]].concat());
    process.wait_for(PATIENCE, |line| line.contains("standing_by"));
    process
}

/// Waits until the task has been started `count` times, and tells when that was and the process of the last start.
fn started(stack: &Stack, count: usize) -> (Instant, Pid) {
    let pid = until("a start", || {
        let lines = stack.lines("started");
        (lines.len() == count).then(|| lines[count - 1].parse().unwrap())
    });
    (now(), Pid::from_raw(pid))
}

/// Waits until a process is gone, and tells when that was.
fn gone(pid: Pid) -> Instant {
    until("a process to be gone", || kill(pid, None).err());
    now()
}

fn go(stack: &Stack) {
    std::fs::write(stack.path("go"), "").unwrap();
}

fn assert_completed(stack: &Stack, id: &str) {
    assert_eq!(stack.watch(id), Some(0));
    let task = &stack.status(id)["tasks"][0];
    assert_eq!(task["state"], "completed");
    assert_eq!(task["attempt_no"], 1, "no retry was spent");
}

#[test]
fn a_standby_leads_soon_after_a_stop_and_not_long_after_a_kill() {
    let stack = Stack::new("handover1");
    let mut first = stack.start(&COORDINATOR);
    leads(&first);
    let second = standby(&stack);
    let told = now();
    first.signal(Signal::SIGTERM);
    let took = leads(&second) - told;
    assert!(took < Duration::from_secs(2), "{took:?} after a stop");
    assert_eq!(first.wait_for_exit(PATIENCE).code(), Some(0));

    let third = standby(&stack);
    let killed = now();
    second.signal(Signal::SIGKILL);
    let took = leads(&third) - killed;
    assert!(
        took < LEASE + Duration::from_secs(5),
        "{took:?} after a kill"
    );
}

/// Whether a request changes something.
fn is_write(seen: &Seen) -> bool {
    !matches!(
        seen.kind,
        Kind::GetBlob | Kind::GetEntity | Kind::QueryEntities
    )
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a pause of a given length is what is tested"
)]
fn a_coordinator_paused_beyond_its_lease_changes_nothing_when_it_wakes() {
    let stack = Stack::new("paused1");
    let proxy = Proxy::before(azurite());
    let mut first = stack.start_via(&proxy, &COORDINATOR);
    leads(&first);
    let _worker = stack.worker(&["--max-idle-backoff-s", "1"]);
    stack.submit("handed", WAITING);
    started(&stack, 1);
    proxy.wait_for(Kind::PutBlob, "/handed.json", 2);
    let second = standby(&stack);
    // The write of the end of the task is past its check of the lease, and on the wire for longer than the lease lasts.
    proxy.fault(Kind::PutBlob, "/handed.json", Times::Always, Fault::Held);
    go(&stack);
    proxy.wait_for(Kind::PutBlob, "/handed.json", 3);
    // Another has a new state, and will send its task as soon as it hears so.
    let late = Fault::ReplyLate(PATIENCE);
    proxy.fault(Kind::PutBlob, "/later.json", Times::Always, late);
    stack.submit("later", &noting("later"));
    proxy.wait_until("the state to be stored", |log| {
        let mut of = log
            .iter()
            .filter(|seen| seen.target.contains("/later.json"));
        of.any(|seen| seen.status == Some(201))
    });
    // And a message is on its way.
    proxy.fault(Kind::PutMessage, TASKS, Times::Always, Fault::Held);
    stack.submit("sent", &noting("sent"));
    proxy.wait_for(Kind::PutMessage, TASKS, 2);
    first.signal(Signal::SIGSTOP);
    let paused = now();
    leads(&second);
    assert_completed(&stack, "handed");
    assert_completed(&stack, "later");
    assert_completed(&stack, "sent");
    let before = stack.status("handed");
    let pause = LEASE + Duration::from_secs(15);
    std::thread::sleep(pause.saturating_sub(paused.elapsed()));

    proxy.heal();
    proxy.release();
    proxy.wait_until("all to be answered", |log| {
        let mut held = log.iter().filter(|seen| seen.is_broken);
        held.all(|seen| seen.status.is_some())
    });
    let woken = now();
    first.signal(Signal::SIGCONT);
    let ended = first.wait_for_exit(PATIENCE);
    assert_eq!(ended.code(), Some(8), "{:?}", first.lines());
    let lines = first.lines();
    assert!(
        lines.iter().any(|line| line.starts_with("error: ")),
        "{lines:?}"
    );

    let log = proxy.log();
    let held = log.iter().filter(|seen| seen.is_broken);
    let held: Vec<_> = held.map(|seen| seen.status).collect();
    assert_eq!(held, [Some(412), Some(201), Some(201)]);
    let late: Vec<_> = log
        .iter()
        .filter(|seen| seen.at > woken && is_write(seen))
        .collect();
    // A receive may have been past its check of the lease when the pause began. Asking for the lease is no write of anything.
    let received = late.iter().filter(|seen| seen.kind == Kind::GetMessages);
    assert!(received.count() <= 1, "{late:?}");
    for seen in late.iter().filter(|seen| seen.kind != Kind::GetMessages) {
        let of_lease = matches!(seen.kind, Kind::RenewLease | Kind::AcquireLease);
        assert!(of_lease && seen.status == Some(409), "{seen:?}");
    }
    assert_eq!(stack.status("handed"), before);
    stack.submit("next", &noting("next"));
    assert_completed(&stack, "next");
    // The message that came late is known for what it is.
    let foreign = Foreign::new();
    until("the queue to be empty", || {
        (foreign.depth("paused1-q-default") == 0).then_some(())
    });
    for noted in ["started", "later", "sent", "next"] {
        assert_eq!(stack.lines(noted).len(), 1, "{noted} was executed once");
    }
}

/// The counts of the one claim, once it is held: starts and interruptions.
fn claimed(prefix: &str) -> (u64, u64) {
    let foreign = Foreign::new();
    until("a claim", || {
        let rows = foreign.rows(&format!("{prefix}Claims"));
        let row = rows.first().filter(|row| row["freed"] != true)?;
        let number = |name: &str| {
            let value = &row[name];
            let text = value.as_str().map_or(value.to_string(), ToOwned::to_owned);
            text.parse().unwrap()
        };
        Some((number("starts"), number("interruptions")))
    })
}

/// A worker takes the task, another waits; the first is told to go and has `drain` seconds for it.
struct Drained {
    stack: Stack,
    first: Process,
    _others: [Process; 2],
    pid: Pid,
    told: Instant,
}

fn drained(prefix: &str, drain: &str) -> Drained {
    let stack = Stack::new(prefix);
    let coordinator = stack.start(&COORDINATOR);
    leads(&coordinator);
    let first = stack.worker(&["--drain-timeout-s", drain, "--kill-grace-s", "2"]);
    stack.submit("w", WAITING);
    let (_, pid) = started(&stack, 1);
    let second = stack.worker(&["--max-idle-backoff-s", "0.5"]);
    let told = now();
    first.signal(Signal::SIGTERM);
    Drained {
        stack,
        first,
        _others: [second, coordinator],
        pid,
        told,
    }
}

fn assert_handed_on_at_once(prefix: &str, drain: &str) {
    let mut world = drained(prefix, drain);
    let stopped = gone(world.pid);
    let stack = &world.stack;
    let (again, _) = started(stack, 2);
    let took = again.saturating_duration_since(stopped);
    assert!(took < Duration::from_secs(2), "{took:?} after its end");
    let drain = Duration::from_secs(drain.parse().unwrap());
    let had = stopped - world.told;
    let limit = drain + Duration::from_secs(5);
    assert!((drain..limit).contains(&had), "all of the time: {had:?}");
    let ended = world.first.wait_for_exit(PATIENCE);
    assert_eq!(ended.code(), Some(0));
    assert_eq!(claimed(prefix), (1, 1), "no start was spent");
    go(stack);
    assert_completed(stack, "w");
    assert_eq!(stack.lines("ended").len(), 1);
}

#[test]
fn a_worker_without_time_to_drain_hands_its_task_on_at_once() {
    assert_handed_on_at_once("drained1", "0");
}

#[test]
fn what_outlasts_the_drain_is_stopped_and_handed_on_at_its_end() {
    assert_handed_on_at_once("drained2", "4");
}

#[test]
fn what_ends_within_the_drain_is_posted_by_its_worker() {
    let Drained {
        stack,
        mut first,
        _others,
        ..
    } = drained("drained3", "30");
    first.wait_for(PATIENCE, |line| line.contains("draining"));
    go(&stack);
    assert_eq!(first.wait_for_exit(PATIENCE).code(), Some(0));
    assert_completed(&stack, "w");
    assert_eq!(stack.lines("started").len(), 1);
    let worker = stack.status("w")["tasks"][0]["worker"].clone();
    let name = format!("/{}", first.pid());
    assert!(worker.as_str().unwrap().ends_with(&name), "{worker}");
}

#[test]
fn a_task_of_a_killed_worker_runs_again_within_its_visibility_time() {
    let stack = Stack::new("killed2");
    let coordinator = stack.start(&COORDINATOR);
    leads(&coordinator);
    let short = [
        ["--visibility-timeout-s", "18"],
        ["--heartbeat-interval-s", "1"],
        ["--kill-grace-s", "1"],
        ["--max-idle-backoff-s", "0.5"],
    ]
    .concat();
    let first = stack.worker(&short);
    stack.submit("w", WAITING);
    started(&stack, 1);
    let _second = stack.worker(&short);
    // It has beaten once, so a claim stands beside the message.
    assert_eq!(claimed("killed2"), (1, 0));
    let killed = now();
    first.signal(Signal::SIGKILL);
    let (again, _) = started(&stack, 2);
    // A claim lives 5 s longer than the message is hidden.
    let took = again - killed;
    assert!(took < Duration::from_secs(18 + 5 + 2), "{took:?}");
    go(&stack);
    assert_completed(&stack, "w");
}
