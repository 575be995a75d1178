//! Health over HTTP, and what a service says at its start of limits it will run into: real processes on the emulator.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::azurite::{Azurite, account_signature, azurite};
use crate::support::process::{Process, workflow};
use crate::support::stack::{PATIENCE, Stack, until};

const ANY: &[&str] = &["--listen", "127.0.0.1:0"];

/// Where a service listens, as it says.
fn address(process: &Process) -> String {
    let line = process.wait_for(PATIENCE, |line| line.contains("listening"));
    let (_, address) = line.split_once("address=").unwrap();
    address.trim().to_owned()
}

/// Status and text.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn until_ready(address: &str) {
    until("readiness", || {
        (get(address, "/health/ready").0 == 200).then_some(())
    });
}

/// Waits until it is not ready and names all of `words`.
fn until_lacking(address: &str, words: &[&str]) -> String {
    until("an answer that names what is missing", || {
        let (status, text) = get(address, "/health/ready");
        let named = words.iter().all(|word| text.contains(word));
        (status == 503 && named).then_some(text)
    })
}

#[test]
fn readiness_names_the_services_that_do_not_answer_and_liveness_stays() {
    let mut azurite = Azurite::start();
    let stack = Stack::on(&azurite, "healthaway");
    let coordinator = stack.coordinator(ANY);
    let worker = stack.worker(ANY);
    let (coordinates, works) = (address(&coordinator), address(&worker));
    for address in [&coordinates, &works] {
        until_ready(address);
        assert_eq!(get(address, "/health/live"), (200, "live\n".to_owned()));
        assert_eq!(get(address, "/health/ready"), (200, "ready\n".to_owned()));
        assert_eq!(get(address, "/").0, 404);
    }
    azurite.stop();
    let told = until_lacking(&works, &["queues: unavailable"]);
    assert!(!told.contains("leadership"), "{told}");
    until_lacking(
        &coordinates,
        &["queues: unavailable", "tables: unavailable"],
    );
    for address in [&coordinates, &works] {
        assert_eq!(get(address, "/health/live").0, 200);
    }
    azurite.restart();
    until_ready(&works);
    until_ready(&coordinates);
}

#[test]
fn a_standby_is_alive_and_names_the_leader_until_it_leads() {
    let stack = Stack::new("healthstandby");
    let mut leader = stack.coordinator(&[]);
    let standby = stack.start(&[&["coordinator", "--standby"], ANY].concat());
    let address = address(&standby);
    let told = until_lacking(&address, &["leadership: standby, `"]);
    assert!(told.contains("in epoch 1 leads"), "{told}");
    assert_eq!(get(&address, "/health/live").0, 200);
    leader.signal(Signal::SIGTERM);
    leader.wait_for_exit(PATIENCE);
    until_ready(&address);
}

#[test]
fn a_service_that_is_told_to_go_is_not_ready_and_waits_for_no_connection() {
    let stack = Stack::new("healthstop");
    let coordinator = stack.coordinator(&[]);
    let mut worker = stack.worker(ANY);
    let address = address(&worker);
    until_ready(&address);
    let (started, go) = (stack.path("started"), stack.path("go"));
    let waits = format!("touch {started}; until test -e {go}; do sleep 0.05; done");
    stack.submit("held", &format!("tasks: [{{name: a, cmd: \"{waits}\"}}]"));
    until("the start of a task", || std::fs::metadata(&started).ok());
    let idle = TcpStream::connect(&address).unwrap();
    worker.signal(Signal::SIGTERM);
    until_lacking(&address, &["stopping"]);
    std::fs::write(&go, "").unwrap();
    assert!(worker.wait_for_exit(PATIENCE).success());
    drop((idle, coordinator));
}

#[test]
fn an_address_that_cannot_be_had_is_a_wrong_setting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let stack = Stack::new("healthtaken");
    for service in ["coordinator", "worker"] {
        for (address, word) in [
            (taken.as_str(), "in use"),
            ("localhost:8080", "an IP address"),
        ] {
            let ran = stack.run(&[service, "--listen", address]);
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(
                ran.stderr.contains(word) && ran.stderr.contains(address),
                "{ran:?}"
            );
        }
    }
}

#[test]
fn a_signature_that_ends_within_a_day_is_named_with_its_time_and_never_shown() {
    let endpoints = &azurite().endpoints;
    let [soon, later] = [3600, 48 * 3600].map(|secs| {
        let end = dagaz::env::real::env().wall() + Duration::from_secs(secs);
        end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    });
    let start = |command: &str, end: &str| {
        let connection = format!(
            "BlobEndpoint={}/;QueueEndpoint={}/;TableEndpoint={}/;SharedAccessSignature=?{}",
            endpoints.blob,
            endpoints.queue,
            endpoints.table,
            account_signature(end)
        );
        let envs = [
            ("WORKFLOW_STORE", "healthsas"),
            ("AZURE_STORAGE_CONNECTION_STRING", connection.as_str()),
        ];
        Process::start(&[command], &envs)
    };
    for (service, begun) in [("coordinator", "leading"), ("worker", "worker_started")] {
        let process = start(service, &soon);
        let line = process.wait_for(PATIENCE, |line| line.contains("signature_ends_soon"));
        assert!(line.contains("WARN") && line.contains(&soon), "{line}");
        process.wait_for(PATIENCE, |line| line.contains(begun));
        assert!(process.lines().iter().all(|line| !line.contains("sig=")));
    }
    let process = start("worker", &later);
    process.wait_for(PATIENCE, |line| line.contains("worker_started"));
    let lines = process.lines();
    assert!(
        lines
            .iter()
            .all(|line| !line.contains("signature_ends_soon")),
        "{lines:?}"
    );
    let mut doctor = start("doctor", &soon);
    let line = doctor.wait_for(PATIENCE, |line| line.contains("the signature ends at"));
    assert!(line.starts_with("warn") && line.contains(&soon), "{line}");
    doctor.wait_for_exit(PATIENCE);
}

/// A worker started by a script, whose last word is to run the worker with these arguments.
fn worker_by(stack: &Stack, program: &[&str], script: &str, args: &str) -> Process {
    let script = format!("{script}; exec {} worker {args}", workflow().display());
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(["bash", "-c", &script]);
    Process::spawn(stack.surround(&mut command))
}

#[test]
fn a_worker_with_few_files_says_so_and_fails_no_task() {
    let stack = Stack::new("healthfiles");
    let _coordinator = stack.coordinator(&[]);
    let tasks: Vec<String> = (0..40)
        .map(|n| format!("{{name: t{n}, cmd: sleep 2; echo {n} > $WORKFLOW_OUTPUT}}"))
        .collect();
    stack.submit("many", &format!("tasks: [{}]", tasks.join(", ")));
    let worker = worker_by(&stack, &["env"], "ulimit -n 64", "--slots 32");
    let line = worker.wait_for(PATIENCE, |line| line.contains("few_open_files"));
    assert!(
        line.contains("limit=64") && line.contains("slots=32"),
        "{line}"
    );
    worker.wait_for(PATIENCE, |line| line.contains("Too many open files"));
    assert_eq!(stack.watch("many"), Some(0), "{:?}", worker.lines());
}

#[test]
fn a_full_disk_of_a_worker_fails_no_task_and_is_waited_out() {
    // A disk of its own needs a user namespace; where the system grants none, the unit test of the same errors has to do.
    let alone = ["unshare", "--user", "--map-root-user", "--mount"];
    let probe = Command::new(alone[0])
        .args(&alone[1..])
        .arg("true")
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("not run: this system gives no user namespace, so no small disk can be mounted");
        return;
    }
    let stack = Stack::new("healthdisk");
    let _coordinator = stack.coordinator(&[]);
    let (disk, go) = (stack.path("disk"), stack.path("go"));
    std::fs::create_dir(&disk).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64k none {disk}; cat /dev/zero > {disk}/full; export TMPDIR={disk}; \
         (until test -e {go}; do sleep 0.05; done; rm {disk}/full) &"
    );
    let script = format!("{script} true");
    let worker = worker_by(&stack, &alone, &script, "--slots 2");
    let count = stack.path("count");
    let task = format!("echo x >> {count}; echo 7 > $WORKFLOW_OUTPUT");
    stack.submit("full", &format!("tasks: [{{name: a, cmd: \"{task}\"}}]"));
    let line = worker.wait_for(PATIENCE, |line| line.contains("no_room_for_task"));
    assert!(line.contains("No space left on device"), "{line}");
    assert_eq!(stack.status("full")["status"], "running");
    std::fs::write(&go, "").unwrap();
    assert_eq!(stack.watch("full"), Some(0), "{:?}", worker.lines());
    assert_eq!(stack.run(&["output", "full", "a"]).stdout.trim(), "7");
    assert_eq!(stack.lines("count"), ["x"]);
    // Each time it came back it was put aside for longer: no tight loop.
    let rooms = worker.lines();
    let rooms = rooms
        .iter()
        .filter(|line| line.contains("no_room_for_task"));
    assert!(rooms.count() < 5);
}

#[test]
fn silent_connections_are_few_and_end_and_leave_room_for_who_asks() {
    let stack = Stack::new("healthsilent");
    let worker = stack.worker(ANY);
    let address = address(&worker);
    until_ready(&address);
    let silent: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    let files = || std::fs::read_dir(format!("/proc/{}/fd", worker.pid())).unwrap();
    let sockets = files()
        .filter_map(|file| std::fs::read_link(file.unwrap().path()).ok())
        .filter(|file| file.to_string_lossy().starts_with("socket:"))
        .count();
    assert!(sockets < 32, "{sockets} sockets");
    assert_eq!(get(&address, "/health/live").0, 200);
    // Whoever says nothing is left.
    let mut first = &silent[0];
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
}
