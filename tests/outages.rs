//! What services do to processes for a while: refuse renewals, answer nothing, throttle, delete what is in use. The processes get through.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::pipeline::task;
use crate::support::azurite::azurite;
use crate::support::process::Process;
use crate::support::proxy::{Fault, Kind, Proxy, Times};
use crate::support::stack::{Foreign, PATIENCE, Stack, now, until, whole_state};

const LEASE: Duration = Duration::from_secs(15);
const COORDINATOR: [&str; 3] = ["coordinator", "--lease-duration-s", "15"];
const SENTINEL: &str = "/_coordinator.lock";
const COMPLETIONS: &str = "-workflow-completions/";
const WORKER: [&str; 9] = [
    "worker",
    "--visibility-timeout-s",
    "18",
    "--heartbeat-interval-s",
    "1",
    "--kill-grace-s",
    "1",
    "--max-idle-backoff-s",
    "1",
];

const fn answer(status: u16, code: &'static str, retry_after_s: Option<u64>) -> Fault {
    Fault::Answer {
        status,
        code,
        retry_after_s,
    }
}

fn leads(process: &Process) {
    process.wait_for(PATIENCE, |line| line.contains(" leading"));
}

fn says(process: &Process, word: &str) -> bool {
    process.lines().iter().any(|line| line.contains(word))
}

/// A coordinator through a proxy.
fn led(prefix: &str) -> (Stack, Proxy, Process) {
    let (stack, proxy) = (Stack::new(prefix), Proxy::before(azurite()));
    let coordinator = stack.start_via(&proxy, &COORDINATOR);
    leads(&coordinator);
    (stack, proxy, coordinator)
}

fn assert_runs(stack: &Stack, id: &str) {
    stack.submit(id, "tasks: [{name: a, cmd: 'true'}]");
    assert_eq!(stack.watch(id), Some(0));
}

#[test]
fn renewals_that_fail_for_a_moment_end_nothing_and_a_refused_one_ends_the_leader() {
    let (_stack, proxy, mut leader) = led("renew1");
    let renewal = |times, fault| proxy.fault(Kind::RenewLease, SENTINEL, times, fault);
    renewal(Times::Nth(1), answer(503, "ServerBusy", None));
    renewal(Times::Nth(1), Fault::Reset);
    proxy.wait_for(Kind::RenewLease, SENTINEL, 3);
    assert!(!says(&leader, "leadership_lost"), "{:?}", leader.lines());
    assert_eq!(proxy.count(Kind::AcquireLease, SENTINEL), 1);
    let refused = answer(409, "LeaseIdMismatchWithLeaseOperation", None);
    renewal(Times::Always, refused);
    assert_eq!(leader.wait_for_exit(PATIENCE).code(), Some(8));
    assert!(says(&leader, "error: this coordinator leads no more"));
    assert!(!says(&leader, "panicked"), "{:?}", leader.lines());
}

#[test]
fn a_leader_whose_renewals_are_throttled_stops_before_its_lease_ends() {
    let (stack, proxy, mut leader) = led("renew2");
    let began = now();
    let busy = answer(503, "ServerBusy", Some(30));
    proxy.fault(Kind::RenewLease, SENTINEL, Times::Always, busy);
    let standby = stack.start(&[&COORDINATOR[..], &["--standby"]].concat());
    leader.wait_for(PATIENCE, |line| line.contains("leadership_lost"));
    let led_on = began.elapsed();
    assert!(led_on < LEASE, "{led_on:?}");
    leads(&standby);
    assert!(began.elapsed() < LEASE + Duration::from_secs(5));
    assert_eq!(leader.wait_for_exit(PATIENCE).code(), Some(8));
    let renewals = proxy.seen(Kind::RenewLease, SENTINEL);
    assert!(renewals.len() >= 3, "none waits as long as it is asked to");
    let last = proxy.seen(Kind::GetMessages, COMPLETIONS).pop().unwrap().at;
    assert!(last - began < LEASE, "it receives no longer than it leads");
}

#[test]
fn a_lease_that_somebody_breaks_ends_its_leader_and_breaking_none_harms_nobody() {
    let (stack, proxy, mut leader) = led("broken1");
    Foreign::new().break_lease("broken1-workflows", "_coordinator.lock");
    assert_eq!(leader.wait_for_exit(PATIENCE).code(), Some(8));
    assert!(
        says(&leader, "the lease was broken"),
        "{:?}",
        leader.lines()
    );
    // Nobody holds it any more.
    let mut next = stack.start_via(&proxy, &[&COORDINATOR[..], &["--break-lease"]].concat());
    leads(&next);
    next.signal(Signal::SIGTERM);
    assert_eq!(next.wait_for_exit(PATIENCE).code(), Some(0));
}

#[test]
fn a_standby_leads_after_refusals_an_outage_and_the_loss_of_the_sentinel() {
    let stack = Stack::new("standby1");
    let first = stack.start(&COORDINATOR);
    leads(&first);
    let proxy = Proxy::before(azurite());
    let standby = stack.start_via(&proxy, &[&COORDINATOR[..], &["--standby"]].concat());
    standby.wait_for(PATIENCE, |line| line.contains("standing_by"));
    let before = proxy.seen(Kind::AcquireLease, SENTINEL);
    assert_eq!(before[0].status, Some(409));
    first.signal(Signal::SIGKILL);
    let busy = answer(503, "ServerBusy", None);
    proxy.fault_if(Times::Always, busy, |_, target| target.contains(SENTINEL));
    standby.wait_for(PATIENCE, |line| line.contains("cannot_stand"));
    let foreign = Foreign::new();
    until("the lease to have run out", || {
        foreign
            .delete_blob("standby1-workflows", "_coordinator.lock")
            .then_some(())
    });
    proxy.heal();
    // Its pauses have grown with the outage; what counts is the time from the last fault on.
    let healed = now();
    leads(&standby);
    let took = healed.elapsed();
    assert!(took < LEASE + Duration::from_secs(10), "{took:?}");
    let _worker = stack.start(&WORKER);
    assert_runs(&stack, "after");
}

#[test]
fn receives_that_are_never_answered_are_given_up_and_the_work_goes_on_after_them() {
    let (stack, proxy, leader) = led("silent1");
    proxy.fault(Kind::GetMessages, COMPLETIONS, Times::Next(2), Fault::Held);
    let _worker = stack.start(&WORKER);
    stack.submit("through", "tasks: [{name: a, cmd: 'true'}]");
    leader.wait_for(PATIENCE, |line| line.contains("receive_failed"));
    leader.wait_for(PATIENCE, |line| line.contains("receive_recovered"));
    assert_eq!(stack.watch("through"), Some(0));
    assert!(!says(&leader, "leadership_lost"), "{:?}", leader.lines());
}

#[test]
fn what_is_being_deleted_is_waited_for_under_a_running_stack() {
    let (stack, proxy, leader) = led("deleted1");
    let of_worker = Proxy::before(azurite());
    let worker = stack.start_via(&of_worker, &WORKER);
    let containers = answer(409, "ContainerBeingDeleted", None);
    let queues = answer(409, "QueueBeingDeleted", None);
    let tables = answer(409, "TableBeingDeleted", None);
    let twice = Times::Next(2);
    proxy.fault(Kind::PutBlob, "/w.json", twice, containers.clone());
    proxy.fault(Kind::GetMessages, COMPLETIONS, twice, queues.clone());
    proxy.fault(Kind::PutMessage, "-q-default/", twice, queues.clone());
    proxy.fault(Kind::MergeEntity, "Index", twice, tables.clone());
    proxy.fault(Kind::QueryEntities, "Index", twice, tables.clone());
    of_worker.fault(Kind::GetMessages, "-q-default/", twice, queues.clone());
    of_worker.fault(Kind::PutMessage, COMPLETIONS, twice, queues);
    of_worker.fault(Kind::InsertEntity, "Claims", twice, tables);
    of_worker.fault(Kind::PutBlob, "-logs/", twice, containers);
    let yaml = "tasks: [{name: a, cmd: 'echo >> started; echo; sleep 6'}]";
    stack.submit("w", yaml);
    assert_eq!(stack.watch("w"), Some(0));
    assert_eq!(stack.lines("started").len(), 1);
    for (proxy, faults) in [(&proxy, 10), (&of_worker, 8)] {
        let broken = proxy.log().into_iter().filter(|seen| seen.is_broken);
        assert_eq!(broken.count(), faults);
    }
    assert!(says(&leader, "receive_recovered") && says(&worker, "receive_recovered"));
}

#[test]
fn a_run_under_throttling_of_a_third_of_all_requests_ends_right_and_spins_nowhere() {
    let stack = Stack::new("throttled1");
    let proxies = [(); 3].map(|()| Proxy::before(azurite()));
    for proxy in &proxies {
        // The lease is let alone: what happens without renewals is another test's.
        let about =
            |kind: Kind, target: &str| !target.contains("_coordinator.lock") && kind != Kind::Other;
        proxy.fault_if(Times::Every(6), answer(429, "", None), about);
        proxy.fault_if(Times::Every(5), answer(503, "ServerBusy", Some(1)), about);
    }
    let [of_leader, of_worker, of_submit] = &proxies;
    let began = now();
    let leader = stack.start_via(of_leader, &COORDINATOR);
    leads(&leader);
    // Messages stay hidden for long: one that could not be removed comes back only when the state tells that it is old.
    let worker = ["worker", "--slots", "8", "--max-idle-backoff-s", "1"];
    let _worker = stack.start_via(of_worker, &worker);
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let parents = if n < 5 {
                String::new()
            } else {
                format!(", depends_on: [t{}]", n - 5)
            };
            format!("  - {{name: t{n}, cmd: 'echo $WORKFLOW_TASK >> ran'{parents}}}\n")
        })
        .collect();
    std::fs::write(stack.path("w.yaml"), format!("tasks:\n{}", tasks.concat())).unwrap();
    let submit = ["submit", "--id", "w", &stack.path("w.yaml")];
    let submitted = stack.run_via(of_submit, &submit);
    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    assert_eq!(stack.watch("w"), Some(0));
    let took = began.elapsed();
    let mut ran = BTreeMap::new();
    for name in stack.lines("ran") {
        *ran.entry(name).or_insert(0) += 1;
    }
    assert_eq!(ran.len(), 20);
    assert!(ran.values().all(|times| *times == 1), "{ran:?}");
    for proxy in &proxies {
        let log = proxy.log();
        let broken = log.iter().filter(|seen| seen.is_broken).count();
        let free = log
            .iter()
            .filter(|seen| seen.kind != Kind::Other && !seen.target.contains("_coordinator.lock"));
        let all = free.count();
        assert!(all < 8 || broken * 4 >= all, "{broken} of {all}");
        // An undisturbed run makes about 6 requests a task, besides looking for work some ten times a second.
        let most = 20 * 6 * 2 + usize::try_from(took.as_secs()).unwrap() * 20;
        assert!(log.len() < most, "{} requests in {took:?}", log.len());
    }
}

#[test]
fn no_heartbeat_is_on_the_wire_when_its_message_is_deleted() {
    let (stack, _proxy, _leader) = led("race1");
    let of_worker = Proxy::before(azurite());
    let late = Duration::from_secs(2);
    of_worker.fault(
        Kind::UpdateMessage,
        "-q-default/",
        Times::Always,
        Fault::ReplyLate(late),
    );
    let worker = stack.start_via(&of_worker, &[&WORKER[..], &["--slots", "20"]].concat());
    // Their ends lie all over the beat that is sent after 1 s and answered after 3 s.
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let millis = 900 + n * 110;
            let (secs, rest) = (millis / 1000, millis % 1000);
            format!("  - {{name: t{n}, cmd: 'echo >> ran; sleep {secs}.{rest:03}'}}\n")
        })
        .collect();
    stack.submit("w", &format!("tasks:\n{}", tasks.concat()));
    assert_eq!(stack.watch("w"), Some(0));
    let foreign = Foreign::new();
    until("all messages to be deleted", || {
        (foreign.depth("race1-q-default") == 0).then_some(())
    });
    assert_eq!(stack.lines("ran").len(), 20);
    assert!(
        !says(&worker, "left_undone") && !says(&worker, "ownership_lost"),
        "{:?}",
        worker.lines()
    );
    let id = |target: &str| target.split(['/', '?']).nth(4).unwrap().to_owned();
    let beats = of_worker.seen(Kind::UpdateMessage, "-q-default/");
    let deletes = of_worker.seen(Kind::DeleteMessage, "-q-default/");
    assert_eq!(deletes.len(), 20);
    let mut raced = 0;
    for delete in deletes {
        assert_eq!(delete.status, Some(204));
        let same = |target: &str| id(target) == id(&delete.target);
        for beat in beats.iter().filter(|beat| same(&beat.target)) {
            raced += 1;
            assert!(delete.at - beat.at >= late, "a beat was under way");
        }
    }
    assert!(raced >= 15, "{raced} ends met a beat");
}

#[test]
fn an_emptied_blob_is_a_damaged_one() {
    let stack = Stack::new("emptied1");
    let foreign = Foreign::new();
    let coordinator = stack.coordinator(&["--visibility-timeout-s", "5"]);
    let _worker = stack.worker(&["--slots", "2", "--max-idle-backoff-s", "1"]);
    let definition = r#"
tasks:
  - {name: a, cmd: "printf '\"%05000d\"' 1 > $WORKFLOW_OUTPUT"}
  - {name: b, cmd: 'true', depends_on: [a], queue: later}
"#;
    stack.submit("output", definition);
    until("the output to be known", || {
        let status = stack.status("output");
        (task(&status, "b")["state"] == "queued").then_some(())
    });
    let state = whole_state(azurite(), "emptied1", "output");
    let run = state["run_id"].as_str().unwrap().replace('-', "");
    let token = state["tasks"][0]["report"]["token"].as_str().unwrap();
    let path = format!("output/{run}/a/1-{token}.output.json");
    foreign.empty_blob("emptied1-outputs", &path);
    let _later = stack.worker(&["--queue", "later", "--max-idle-backoff-s", "1"]);
    assert_eq!(stack.watch("output"), Some(10));
    let status = stack.status("output");
    let reason = task(&status, "b")["reason"].to_string();
    assert!(reason.contains("the output of `a` is damaged"), "{reason}");

    stack.submit(
        "state",
        "tasks: [{name: a, cmd: 'echo > held; while [ ! -e go ]; do sleep 0.1; done'}]",
    );
    until("the task to run", || {
        (!stack.lines("held").is_empty()).then_some(())
    });
    foreign.empty_blob("emptied1-workflows", "state.json");
    let told = stack.run(&["status", "state"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.stderr.contains("emptied1-workflows/state.json"),
        "{told:?}"
    );
    std::fs::write(stack.path("go"), "").unwrap();
    coordinator.wait_for(PATIENCE, |line| line.contains("workflow_set_aside"));
}
