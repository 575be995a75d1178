//! The reply is lost to each kind of write, between real processes and the emulator: nothing is lost or done twice, and finding out costs
//! the process that lost it one request at most.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::Signal;

use crate::support::azurite::azurite;
use crate::support::process::Process;
use crate::support::proxy::{Fault, Kind, Proxy, Seen, Times};
use crate::support::stack::{Foreign, PATIENCE, Stack, until};

/// One process, a place, how many requests.
type Counts = BTreeMap<(Kind, &'static str), usize>;

const COORDINATOR: &str = "coordinator";
const WORKER: &str = "worker";
const SUBMIT: &str = "submit";

// What requests are about, by a piece of their address that names it.
const SENTINEL: &str = "/_coordinator.lock";
const COMPLETIONS: &str = "-workflow-completions";
const TASKS: &str = "-q-default";
const CLAIMS: &str = "Claims";
const INDEX: &str = "WorkflowsIndex";
const PLACES: [&str; 8] = [
    "/w.def.json",
    "/w.json",
    "-logs/w/",
    SENTINEL,
    COMPLETIONS,
    TASKS,
    CLAIMS,
    INDEX,
];

/// The shortest times that a worker may have.
const WORKER_ARGS: [&str; 8] = [
    "--visibility-timeout-s",
    "18",
    "--heartbeat-interval-s",
    "1",
    "--kill-grace-s",
    "1",
    // No look at the row comes in between.
    "--cancel-poll-interval-s",
    "600",
];

/// One write that loses its reply.
#[derive(Debug)]
struct Lost {
    who: &'static str,
    kind: Kind,
    place: &'static str,
    /// Which of those, in the order in which the process sends them.
    nth: u64,
    /// The request to the same place by which the loser finds out.
    costs: Option<Kind>,
}

/// The place that a request is about.
fn place(seen: &Seen) -> &'static str {
    let named = PLACES.iter().find(|place| seen.target.contains(**place));
    named.copied().unwrap_or_default()
}

/// Whether the pace of the clock decides how many of them there are, which is then no measure.
fn is_timed(kind: Kind, place: &str) -> bool {
    matches!(
        (kind, place),
        (
            Kind::GetMessages | Kind::QueryEntities | Kind::RenewLease,
            _
        ) | (Kind::UpdateMessage, TASKS)
            | (Kind::MergeEntity, CLAIMS)
    )
}

fn counts(log: &[Seen]) -> Counts {
    let mut counts = Counts::new();
    for seen in log {
        let place = place(seen);
        if !is_timed(seen.kind, place) {
            *counts.entry((seen.kind, place)).or_default() += 1;
        }
    }
    counts
}

/// Processes that run one workflow, each through a proxy of its own.
struct Run {
    stack: Stack,
    proxies: BTreeMap<&'static str, Proxy>,
}

impl Run {
    fn new(prefix: &str) -> Self {
        Self {
            stack: Stack::new(prefix),
            proxies: [COORDINATOR, WORKER, SUBMIT]
                .map(|who| (who, Proxy::before(azurite())))
                .into(),
        }
    }

    fn start(&self, who: &str, args: &[&str]) -> Process {
        let args = [&[who], args].concat();
        self.stack.start_via(&self.proxies[who], &args)
    }

    fn coordinator(&self) -> Process {
        let args = ["--lease-duration-s", "15", "--stats-interval-s", "600"];
        let process = self.start(COORDINATOR, &args);
        process.wait_for(PATIENCE, |line| line.contains(" leading"));
        process
    }

    fn worker(&self) -> Process {
        self.start(WORKER, &WORKER_ARGS)
    }

    /// Submits a workflow of one task, which waits for [`Self::go`].
    fn submit(&self) {
        let file = self.stack.path("w.yaml");
        let yaml = "tasks: [{name: a, cmd: 'echo >> started; echo; while [ ! -e go ]; do sleep 0.1; done'}]";
        std::fs::write(&file, yaml).unwrap();
        let submit = [SUBMIT, "--id", "w", &file];
        let submitted = self.stack.run_via(&self.proxies[SUBMIT], &submit);
        assert_eq!(submitted.code, Some(0), "{submitted:?}");
    }

    fn go(&self) {
        std::fs::write(self.stack.path("go"), "").unwrap();
    }

    fn assert_completed_once(&self) {
        let stack = &self.stack;
        assert_eq!(stack.watch("w"), Some(0));
        let task = &stack.status("w")["tasks"][0];
        assert_eq!(task["state"], "completed");
        assert_eq!(task["attempt_no"], 1);
        assert_eq!(stack.lines("started").len(), 1);
    }

    /// Runs the workflow to its end, which comes when coordinator and worker have nothing more to say about its task.
    fn to_the_end(&self) {
        let mut coordinator = self.coordinator();
        let _worker = self.worker();
        self.submit();
        let leader = &self.proxies[COORDINATOR];
        // First the state as it begins, then the mark that the task was sent; the row follows both.
        leader.wait_for(Kind::PutBlob, "/w.json", 2);
        leader.wait_for(Kind::MergeEntity, INDEX, 2);
        self.proxies[WORKER].wait_for(Kind::UpdateMessage, TASKS, 2);
        self.go();
        self.assert_completed_once();
        self.assert_nothing_is_left();
        coordinator.signal(Signal::SIGTERM);
        assert_eq!(coordinator.wait_for_exit(PATIENCE).code(), Some(0));
    }

    fn assert_nothing_is_left(&self) {
        let foreign = Foreign::new();
        let prefix = &self.stack.prefix;
        for queue in ["workflow-completions", "q-default"] {
            let name = format!("{prefix}-{queue}");
            until(&format!("{name} to be empty"), || {
                (foreign.depth(&name) == 0).then_some(())
            });
        }
        let poison = format!("{prefix}-workflow-completions-poison");
        assert_eq!(foreign.depth(&poison), 0);
        until("the claims to be gone", || {
            foreign
                .rows(&format!("{prefix}Claims"))
                .is_empty()
                .then_some(())
        });
        let rows = foreign.rows(&format!("{prefix}WorkflowsIndex"));
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0]["PartitionKey"], "done");
    }
}

/// Runs with one reply lost, and compares what the loser has sent with `quiet`, a run in which nothing was lost.
fn assert_settled(prefix: &str, lost: &Lost, quiet: &Counts) {
    let run = Run::new(prefix);
    let proxy = &run.proxies[lost.who];
    let times = Times::Nth(lost.nth);
    proxy.fault(lost.kind, lost.place, times, Fault::ReplyLost);
    run.to_the_end();
    let mut log = proxy.log();
    let mut expected = quiet.clone();
    if let Some(kind) = lost.costs {
        *expected.entry((kind, lost.place)).or_default() += 1;
    }
    assert_eq!(counts(&log), expected, "after {lost:?}");
    log.retain(|seen| seen.is_broken);
    let statuses: Vec<_> = log.iter().filter_map(|seen| seen.status).collect();
    assert!(matches!(statuses[..], [200..300]), "{log:?}");
}

#[test]
fn a_lost_reply_costs_its_loser_one_request_and_changes_no_result() {
    use Kind::{
        AcquireLease, DeleteEntity, DeleteMessage, GetBlob, GetEntity, InsertEntity, MergeEntity,
        PutBlob, PutMessage, ReleaseLease,
    };
    let rows = [
        // Looks whose definition is stored.
        (SUBMIT, PutBlob, "/w.def.json", 1, Some(GetBlob)),
        // Inserts again, and hears that the row is there.
        (SUBMIT, InsertEntity, INDEX, 1, Some(InsertEntity)),
        // Asks again: the second request changes nothing.
        (SUBMIT, PutMessage, COMPLETIONS, 1, Some(PutMessage)),
        // The acquisition that follows says whether there is a sentinel.
        (COORDINATOR, PutBlob, SENTINEL, 1, None),
        // Looks who is named in it.
        (COORDINATOR, PutBlob, SENTINEL, 2, Some(GetBlob)),
        // Acquires again under the same id.
        (COORDINATOR, AcquireLease, SENTINEL, 1, Some(AcquireLease)),
        // It goes anyway, and the lease would run out.
        (COORDINATOR, ReleaseLease, SENTINEL, 1, None),
        // Looks for the stamp: at the beginning, of a mark, at the end.
        (COORDINATOR, PutBlob, "/w.json", 1, Some(GetBlob)),
        (COORDINATOR, PutBlob, "/w.json", 2, Some(GetBlob)),
        (COORDINATOR, PutBlob, "/w.json", 3, Some(GetBlob)),
        // Looks what the row shows.
        (COORDINATOR, MergeEntity, INDEX, 1, Some(GetEntity)),
        (COORDINATOR, MergeEntity, INDEX, 2, Some(GetEntity)),
        (COORDINATOR, InsertEntity, INDEX, 1, Some(GetEntity)),
        // Deletes again, and hears that there is nothing.
        (COORDINATOR, DeleteEntity, INDEX, 1, Some(DeleteEntity)),
        // Sends again, marked.
        (COORDINATOR, PutMessage, TASKS, 1, Some(PutMessage)),
        // Were it not deleted, it would be old news.
        (COORDINATOR, DeleteMessage, COMPLETIONS, 2, None),
        // Writes again, and hears that it is there.
        (WORKER, PutBlob, "-logs/w/", 1, Some(PutBlob)),
        // Posts again: the second is old news.
        (WORKER, PutMessage, COMPLETIONS, 1, Some(PutMessage)),
        // Looks for the own token.
        (WORKER, InsertEntity, CLAIMS, 1, Some(GetEntity)),
        (WORKER, MergeEntity, CLAIMS, 1, Some(GetEntity)),
        // Were they not deleted, whoever meets them would do it.
        (WORKER, DeleteEntity, CLAIMS, 1, None),
        (WORKER, DeleteMessage, TASKS, 1, None),
    ];
    let quiet = Run::new("reply0");
    quiet.to_the_end();
    let quiet: BTreeMap<_, _> = [COORDINATOR, WORKER, SUBMIT]
        .map(|who| (who, counts(&quiet.proxies[who].log())))
        .into();
    // A few at a time: each has three processes.
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let Some((who, kind, place, nth, costs)) = rows.get(number).copied() else {
                        return;
                    };
                    let lost = Lost {
                        who,
                        kind,
                        place,
                        nth,
                        costs,
                    };
                    let prefix = format!("reply{}", number + 1);
                    assert_settled(&prefix, &lost, &quiet[who]);
                }
            });
        }
    });
}

/// Loses the reply to the second heartbeat, in which the new receipt stands.
fn lose_a_receipt(run: &Run) {
    let worker = &run.proxies[WORKER];
    worker.fault(Kind::UpdateMessage, TASKS, Times::Nth(2), Fault::ReplyLost);
}

#[test]
fn a_lost_reply_to_a_heartbeat_costs_one_more_and_the_message_is_tidied_up() {
    let run = Run::new("beat1");
    lose_a_receipt(&run);
    run.to_the_end();
    let beats = run.proxies[WORKER].seen(Kind::UpdateMessage, TASKS);
    let statuses: Vec<_> = beats.iter().filter_map(|seen| seen.status).collect();
    // The third is the one that hears that its receipt is no longer the one; without a receipt none is sent.
    assert!(
        matches!(statuses[..], [204, 204] | [204, 204, 400 | 404]),
        "{statuses:?}"
    );
}

#[test]
fn a_long_task_is_not_stopped_by_a_lost_reply_to_its_heartbeat() {
    let run = Run::new("beat2");
    lose_a_receipt(&run);
    let stack = &run.stack;
    let _coordinator = run.coordinator();
    let first = run.worker();
    run.submit();
    run.proxies[WORKER].wait_for(Kind::UpdateMessage, TASKS, 3);
    // The message comes back, and meets the claim that the first goes on with.
    let other = Proxy::before(azurite());
    let _second = stack.start_via(&other, &[&[WORKER], &WORKER_ARGS[..]].concat());
    other.wait_for(Kind::UpdateMessage, TASKS, 1);
    run.go();
    run.assert_completed_once();
    assert!(
        !first
            .lines()
            .iter()
            .any(|line| line.contains("ownership_lost"))
    );
}

#[test]
fn a_lost_reply_to_a_renewal_is_followed_by_the_next_renewal_soon() {
    let run = Run::new("renewal1");
    let leader = &run.proxies[COORDINATOR];
    leader.fault(Kind::RenewLease, SENTINEL, Times::Nth(2), Fault::ReplyLost);
    let coordinator = run.coordinator();
    leader.wait_for(Kind::RenewLease, SENTINEL, 3);
    let renewals = leader.seen(Kind::RenewLease, SENTINEL);
    let gaps = [
        renewals[1].at - renewals[0].at,
        renewals[2].at - renewals[1].at,
    ];
    // A quarter of the lease, then a twelfth.
    assert!(gaps[1] < gaps[0] / 2, "{gaps:?}");
    assert_eq!(leader.count(Kind::AcquireLease, SENTINEL), 1);
    assert!(
        !coordinator
            .lines()
            .iter()
            .any(|line| line.contains("leadership_lost"))
    );
}
