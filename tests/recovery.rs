//! What docs/operations.md tells operators to do when something is broken: each test breaks it, sees what `doctor` shows of it, and runs
//! the very commands of the page.

use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::docs::{commands_for, scratch};
use crate::support::azurite::{account_signature, azurite};
use crate::support::process::Process;
use crate::support::stack::{PATIENCE, Ran, Stack, until};

/// A prefix under repair.
struct Ward {
    stack: Stack,
    /// Holds the built command, where `PATH` finds it.
    tools: tempfile::TempDir,
}

impl Ward {
    fn new(prefix: &str) -> Self {
        let (stack, tools) = (Stack::new(prefix), scratch());
        Self { stack, tools }
    }

    /// Bash with what the page asks for: the command, the addresses, a signature, the prefix.
    fn bash(&self, script: &str) -> Command {
        let endpoints = &azurite().endpoints;
        let mut path = self.tools.path().join("bin").into_os_string();
        path.push(":/usr/local/bin:/usr/bin:/bin");
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", script])
            .env("PATH", path)
            .env("BLOBS", endpoints.blob.trim_end_matches('/'))
            .env("QUEUES", endpoints.queue.trim_end_matches('/'))
            .env("TABLES", endpoints.table.trim_end_matches('/'))
            .env("SAS", account_signature("2099-01-01T00:00:00Z"))
            .env("PREFIX", &self.stack.prefix);
        self.stack.surround(&mut bash);
        bash
    }

    fn sh(&self, script: &str) -> String {
        let ran: Ran = self.bash(script).output().unwrap().into();
        assert_eq!(ran.code, Some(0), "{script}\n{ran:?}");
        ran.stdout
    }

    /// Runs the commands of the page to their end.
    fn follow(&self, test: &str) -> String {
        self.sh(&commands_for("operations.md", test))
    }

    /// Starts the service that the page says to start.
    fn start(&self, test: &str) -> Process {
        let script = commands_for("operations.md", test);
        Process::spawn(&mut self.bash(&format!("exec {}", script.trim())))
    }

    /// What `doctor` says of one thing, as `STATUS: MESSAGE`.
    fn doctor(&self, name: &str) -> String {
        let checks = self.stack.run(&["doctor", "--output", "json"]).json();
        let of = |check: &&Value| check["name"] == name;
        let check = checks.as_array().unwrap().iter().find(of);
        let check = check.unwrap_or_else(|| panic!("no `{name}` in {checks}"));
        let word = |key: &str| check[key].as_str().unwrap().to_owned();
        format!("{}: {}", word("status"), word("message"))
    }

    fn sees(&self, name: &str, status: &str, text: &str) {
        let told = self.doctor(name);
        assert!(told.starts_with(status) && told.contains(text), "{told}");
    }

    fn leads(process: &Process) {
        process.wait_for(PATIENCE, |line| line.contains(" leading"));
    }

    /// Submits the workflow of the page, whose task waits for the file `go`.
    fn submit(&self) {
        let yaml =
            "tasks: [{name: a, cmd: 'echo >> started; until test -e go; do sleep 0.05; done'}]";
        self.stack.submit("nightly", yaml);
    }

    fn started(&self, times: usize) {
        until("a start", || {
            (self.stack.lines("started").len() == times).then_some(())
        });
    }

    fn assert_ends(&self, id: &str) {
        std::fs::write(self.stack.path("go"), "").unwrap();
        assert_eq!(self.stack.watch(id), Some(0));
    }
}

/// Looks for the work of a worker that is gone as soon as may be.
const WORKER: [&str; 6] = [
    "--visibility-timeout-s",
    "18",
    "--heartbeat-interval-s",
    "1",
    "--kill-grace-s",
    "1",
];

#[test]
fn where_nobody_leads_a_coordinator_is_started() {
    let ward = Ward::new("nobody1");
    ward.submit();
    ward.sees(
        "coordinator",
        "problem",
        "none has ever led here; 1 workflow is unfinished",
    );
    Ward::leads(&ward.start("where_nobody_leads_a_coordinator_is_started"));
}

#[test]
fn a_leader_that_hangs_is_replaced_by_breaking_its_lease() {
    let ward = Ward::new("hangs1");
    let mut old = ward.stack.coordinator(&[]);
    ward.submit();
    old.signal(Signal::SIGSTOP);
    ward.sees(
        "coordinator",
        "ok",
        &format!("/{}` holds the lease", old.pid()),
    );
    let new = ward.start("a_leader_that_hangs_is_replaced_by_breaking_its_lease");
    Ward::leads(&new);
    old.signal(Signal::SIGCONT);
    assert_eq!(old.wait_for_exit(PATIENCE).code(), Some(8));
    let _worker = ward.stack.worker(&WORKER);
    ward.assert_ends("nightly");
}

#[test]
fn the_task_of_a_worker_that_is_gone_is_taken_by_another() {
    let ward = Ward::new("gone1");
    let _coordinator = ward.stack.coordinator(&[]);
    ward.submit();
    let lost = ward.stack.worker(&WORKER);
    ward.started(1);
    lost.signal(Signal::SIGKILL);
    let _next = ward.start("the_task_of_a_worker_that_is_gone_is_taken_by_another");
    ward.started(2);
    ward.assert_ends("nightly");
}

#[test]
fn a_damaged_state_is_restored_from_a_copy() {
    let ward = Ward::new("damaged9");
    let coordinator = ward.stack.coordinator(&["--visibility-timeout-s", "5"]);
    let _worker = ward.stack.worker(&WORKER);
    ward.submit();
    ward.started(1);
    until("the start to be stored", || {
        (ward.stack.status("nightly")["counts"]["queued"] != 0).then_some(())
    });
    ward.sh("curl -fsS \"$BLOBS/$PREFIX-workflows/nightly.json?$SAS\" > copy.json");
    ward.sh(
        "curl -fsS -X PUT -H 'x-ms-blob-type: BlockBlob' --data-binary 'oh' \"$BLOBS/$PREFIX-workflows/nightly.json?$SAS\"",
    );
    ward.sees(
        "unreadable state",
        "problem",
        "1 of the unfinished workflows cannot be read: `damaged9-workflows/nightly.json`",
    );
    std::fs::write(ward.stack.path("go"), "").unwrap();
    coordinator.wait_for(PATIENCE, |line| line.contains("workflow_set_aside"));
    ward.follow("a_damaged_state_is_restored_from_a_copy");
    ward.sees("unreadable state", "ok", "none");
}

#[test]
fn a_workflow_whose_state_is_lost_is_removed_and_submitted_anew() {
    let ward = Ward::new("lost9");
    let coordinator = ward.stack.coordinator(&[]);
    let _worker = ward.stack.worker(&WORKER);
    ward.submit();
    ward.started(1);
    ward.sh("curl -fsS -X DELETE \"$BLOBS/$PREFIX-workflows/nightly.json?$SAS\"");
    ward.sees("unreadable state", "problem", "nightly.json` is gone");
    let page = commands_for(
        "operations.md",
        "a_workflow_whose_state_is_lost_is_removed_and_submitted_anew",
    );
    let (first, others) = page.split_once('\n').unwrap();
    ward.sh(first);
    // The leader looks at what is left between the commands.
    std::fs::write(ward.stack.path("go"), "").unwrap();
    coordinator.wait_for(PATIENCE, |line| line.contains("workflow_set_aside"));
    ward.sh(others);
    ward.sees("unreadable state", "ok", "none");
    assert_eq!(ward.stack.watch("nightly-2"), Some(0));
    let list = ward.stack.run(&["list", "--output", "json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
}

#[test]
fn a_lost_index_is_filled_again_by_the_next_leader() {
    let ward = Ward::new("index9");
    let mut coordinator = ward.stack.coordinator(&[]);
    let _worker = ward.stack.worker(&WORKER);
    ward.stack.submit("done", "tasks: [{name: a, cmd: 'true'}]");
    assert_eq!(ward.stack.watch("done"), Some(0));
    ward.submit();
    ward.started(1);
    // Nobody is to make it again in between.
    coordinator.signal(Signal::SIGTERM);
    coordinator.wait_for_exit(PATIENCE);
    ward.sh("curl -fsS -X DELETE -H 'Accept: application/json' \"$TABLES/Tables('${PREFIX}WorkflowsIndex')?$SAS\"");
    ward.sees(
        "table storage",
        "problem",
        "there is no `index9WorkflowsIndex`",
    );
    ward.follow("a_lost_index_is_filled_again_by_the_next_leader");
    let _next = ward.stack.coordinator(&[]);
    until("both to be listed", || {
        let list = ward.stack.run(&["list", "--output", "json"]).json();
        (list.as_array().unwrap().len() == 2).then_some(())
    });
    ward.sees("table storage", "ok", "nothing is missing");
    ward.assert_ends("nightly");
}

#[test]
fn deleted_queues_are_made_again_and_what_was_in_them_is_done_again() {
    let ward = Ward::new("queues9");
    let soon = ["--lost-dispatch-threshold-s", "1"];
    let mut coordinator = ward.stack.coordinator(&soon);
    let yaml =
        "tasks: [{name: a, cmd: 'echo >> ran'}, {name: b, queue: other, cmd: 'echo >> ran'}]";
    ward.stack.submit("nightly", yaml);
    until("both to be sent", || {
        (ward.stack.status("nightly")["counts"]["queued"] == 2).then_some(())
    });
    coordinator.signal(Signal::SIGTERM);
    coordinator.wait_for_exit(PATIENCE);
    // One has run, and how it ended is lost; the other was never received.
    let mut worker = ward.stack.worker(&["--idle-timeout-s", "1"]);
    assert_eq!(worker.wait_for_exit(PATIENCE).code(), Some(0));
    assert_eq!(ward.stack.lines("ran").len(), 1);
    for queue in ["q-other", "workflow-completions"] {
        ward.sh(&format!(
            "curl -fsS -X DELETE \"$QUEUES/$PREFIX-{queue}?$SAS\""
        ));
    }
    ward.sees(
        "queue storage",
        "problem",
        "there is no `queues9-workflow-completions`",
    );
    ward.follow("deleted_queues_are_made_again_and_what_was_in_them_is_done_again");
    ward.sees("queue storage", "ok", "nothing is missing");
    let _coordinator = ward.stack.coordinator(&soon);
    let _worker = ward
        .stack
        .worker(&["--queue", "default,other", "--heartbeat-interval-s", "1"]);
    assert_eq!(ward.stack.watch("nightly"), Some(0));
    assert_eq!(ward.stack.lines("ran").len(), 3);
}

#[test]
fn a_container_deleted_under_a_leader_is_made_again_and_the_leader_leads_again() {
    let ward = Ward::new("container9");
    let coordinator = ward.stack.coordinator(&["--lease-duration-s", "15"]);
    Ward::leads(&coordinator);
    ward.sh("curl -fsS -X DELETE \"$BLOBS/$PREFIX-workflows?restype=container&$SAS\"");
    coordinator.wait_for(PATIENCE, |line| line.contains("storage_was_missing"));
    ward.stack
        .submit("nightly", "tasks: [{name: a, cmd: 'true'}]");
    let _worker = ward.stack.worker(&WORKER);
    assert_eq!(ward.stack.watch("nightly"), Some(0));
}

#[test]
fn garbage_on_a_poison_queue_is_looked_at_and_removed() {
    let ward = Ward::new("garbage9");
    let _coordinator = ward.stack.coordinator(&[]);
    ward.sh(
        "curl -fsS -H 'Content-Type: application/xml' --data '<QueueMessage><MessageText>hello</MessageText></QueueMessage>' \"$QUEUES/$PREFIX-workflow-completions/messages?$SAS\" > /dev/null",
    );
    until("it to be set aside", || {
        let told = ward.doctor("poison completions");
        told.contains("1 in `garbage9-workflow-completions-poison`, the first begins with `hello`")
            .then_some(())
    });
    let shown = ward.follow("garbage_on_a_poison_queue_is_looked_at_and_removed");
    assert!(
        shown.contains("<MessageText>hello</MessageText>"),
        "{shown}"
    );
    ward.sees("poison completions", "ok", "none");
}

#[test]
fn a_workflow_that_hangs_is_ended_and_begun_again() {
    let ward = Ward::new("stuck9");
    let _coordinator = ward.stack.coordinator(&[]);
    let _worker = ward.stack.worker(&["--cancel-poll-interval-s", "1"]);
    ward.submit();
    ward.started(1);
    let shown = ward.follow("a_workflow_that_hangs_is_ended_and_begun_again");
    assert!(shown.contains("cancelled"), "{shown}");
    ward.started(2);
    ward.assert_ends("nightly");
}

#[test]
fn what_has_ended_is_purged_and_its_id_is_free() {
    let ward = Ward::new("purge9");
    let _coordinator = ward.stack.coordinator(&[]);
    let _worker = ward.stack.worker(&WORKER);
    ward.submit();
    ward.assert_ends("nightly");
    ward.follow("what_has_ended_is_purged_and_its_id_is_free");
    assert_eq!(ward.stack.run(&["status", "nightly"]).code, Some(4));
    ward.submit();
    ward.assert_ends("nightly");
}

#[test]
fn a_store_that_does_not_answer_is_named_service_by_service() {
    let ward = Ward::new("outage9");
    let nobody = azurite().connection_string();
    let queue = &azurite().endpoints.queue;
    let connection = nobody.replace(queue, "http://127.0.0.1:1/devstoreaccount1");
    let mut doctor = ward.stack.command(&["doctor"]);
    doctor.env("AZURE_STORAGE_CONNECTION_STRING", connection);
    let ran: Ran = doctor.output().unwrap().into();
    assert_eq!(ran.code, Some(13), "{ran:?}");
    assert!(ran.stdout.contains("problem queue storage: "), "{ran:?}");
    assert!(!ran.stdout.contains("problem blob storage: the"), "{ran:?}");
}
