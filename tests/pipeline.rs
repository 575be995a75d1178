//! The main job end to end on the emulator: separate processes, real signals, and what a foreign client sees afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::azurite::Azurite;
use crate::support::process::Process;
use crate::support::stack::{Foreign, PATIENCE, Stack, until};

/// Arguments of a worker for what these tests submit.
pub(crate) const WORKER: [&str; 8] = [
    "--queue",
    "cpu",
    "--queue",
    "default",
    "--slots",
    "8",
    "--max-idle-backoff-s",
    "1",
];

/// An example whose tasks also append their name to a file.
fn noting(example: &str, file: &str) -> String {
    let path = format!("{}/examples/{example}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("    cmd: sleep "), "{example}");
    text.replace(
        "    cmd: sleep ",
        &format!("    cmd: echo \"$WORKFLOW_TASK\" >> {file}; sleep "),
    )
}

/// A task in the JSON of `status`.
pub(crate) fn task<'a>(status: &'a Value, name: &str) -> &'a Value {
    let tasks = status["tasks"].as_array().unwrap();
    tasks.iter().find(|task| task["name"] == name).unwrap()
}

#[test]
fn the_wfcommons_graphs_and_the_tutorial_run_each_task_once() {
    let stack = Stack::new("main1");
    let _coordinator = stack.coordinator(&[]);
    let workers = [stack.worker(&WORKER), stack.worker(&WORKER)];
    let examples = [
        ("montage-200", 197),
        ("epigenomics-200", 197),
        ("blast-200", 198),
    ];
    for (example, _) in examples {
        stack.submit(example, &noting(example, &stack.path(example)));
    }
    let tutorial = format!("{}/examples/peer-tutorial.yaml", env!("CARGO_MANIFEST_DIR"));
    stack.submit("tutorial", &std::fs::read_to_string(tutorial).unwrap());

    let foreign = Foreign::new();
    let all = examples.into_iter().chain([("tutorial", 4)]);
    for (id, tasks) in all.clone() {
        assert_eq!(stack.watch(id), Some(0), "{id}");
        let status = stack.status(id);
        assert_eq!(
            (&status["status"], &status["total"]),
            (&"completed".into(), &tasks.into()),
            "{id}"
        );
        assert_eq!(
            status["counts"],
            serde_json::json!({"completed": tasks}),
            "{id}"
        );
        if id != "tutorial" {
            let lines = stack.lines(id);
            let names: BTreeSet<_> = lines.iter().collect();
            assert_eq!(
                (lines.len(), names.len()),
                (tasks, tasks),
                "each task of {id} ran once"
            );
        }
    }
    let lines = workers.iter().flat_map(Process::lines);
    let starts = lines.filter(|line| line.contains("task_started") && line.contains("tutorial"));
    assert_eq!(starts.count(), 4, "each task of the tutorial started once");
    let rows = until("every row to be final", || {
        let rows = foreign.rows("main1WorkflowsIndex");
        rows.iter()
            .all(|row| row["PartitionKey"] == "done")
            .then_some(rows)
    });
    assert_eq!(rows.len(), 4);
    for row in rows {
        let id = row["RowKey"].as_str().unwrap();
        let blob = foreign.blob("main1-workflows", &format!("{id}.json"));
        assert_eq!(row["status"], blob["status"], "{id}");
        assert_eq!(row["run_id"], blob["run_id"], "{id}");
        let revision = &blob["revision"].to_string();
        assert_eq!(
            row["revision"]
                .as_str()
                .unwrap_or(&row["revision"].to_string()),
            revision,
            "{id}"
        );
        let states = blob["states"].as_str().unwrap();
        assert!(states.chars().all(|state| state == 'c'), "{id}: {states}");
        let counts: Value = serde_json::from_str(row["counts"].as_str().unwrap()).unwrap();
        assert_eq!(counts["completed"], states.len(), "{id}");
    }
    for queue in [
        "workflow-completions",
        "workflow-completions-poison",
        "q-cpu",
        "q-default",
    ] {
        let name = format!("main1-{queue}");
        until(&format!("{name} to be empty"), || {
            (foreign.depth(&name) == 0).then_some(())
        });
    }
    assert_eq!(foreign.rows("main1Claims"), Vec::<Value>::new());
}

#[test]
fn killed_in_the_middle_it_is_finished_by_others_with_the_same_end() {
    let stack = Stack::new("killed1");
    let short = ["--lease-duration-s", "15"];
    let worker = [
        &WORKER[..],
        &[
            "--visibility-timeout-s",
            "20",
            "--heartbeat-interval-s",
            "2",
            "--kill-grace-s",
            "1",
        ],
    ]
    .concat();
    let coordinator = stack.coordinator(&short);
    let (first, _second) = (stack.worker(&worker), stack.worker(&worker));
    stack.submit("blast", &noting("blast-200", &stack.path("ran")));
    until("some tasks to have run", || {
        (stack.lines("ran").len() > 20).then_some(())
    });
    first.signal(Signal::SIGKILL);
    until("more tasks to have run", || {
        (stack.lines("ran").len() > 50).then_some(())
    });
    coordinator.signal(Signal::SIGKILL);
    let _next = stack.start(&["coordinator", "--standby", "--lease-duration-s", "15"]);
    assert_eq!(stack.watch("blast"), Some(0));
    assert_eq!(
        stack.status("blast")["counts"],
        serde_json::json!({"completed": 198})
    );
    let names: BTreeSet<_> = stack.lines("ran").into_iter().collect();
    assert_eq!(names.len(), 198);
}

#[test]
fn a_cancel_stops_what_runs_keeps_what_ended_and_does_not_touch_the_next_generation() {
    let stack = Stack::new("cancel1");
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&[&WORKER[..], &["--cancel-poll-interval-s", "1"]].concat());
    let (started, stopped, again) = (
        stack.path("started"),
        stack.path("stopped"),
        stack.path("again"),
    );
    let yaml = format!(
        "
tasks:
  - {{name: first, cmd: 'true'}}
  - name: long
    cmd: if [ -e {again} ]; then exit 0; fi; trap 'echo >> {stopped}; exit 1' TERM; echo >> {started}; while true; do sleep 0.05; done
    depends_on: [first]
  - {{name: after, cmd: 'true', depends_on: [long]}}
"
    );
    stack.submit("long", &yaml);
    until("the task to run", || {
        (!stack.lines("started").is_empty()).then_some(())
    });
    let cancelled = stack.run(&["cancel", "long"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    until("the signal", || {
        (!stack.lines("stopped").is_empty()).then_some(())
    });
    assert_eq!(stack.watch("long"), Some(11));
    let status = stack.status("long");
    assert_eq!(
        status["counts"],
        serde_json::json!({"completed": 1, "cancelled": 2})
    );
    assert_eq!(task(&status, "first")["state"], "completed");
    let twice = stack.run(&["cancel", "long"]);
    assert_eq!(twice.code, Some(7), "{twice:?}");

    std::fs::write(&again, "").unwrap();
    let retried = stack.run(&["retry", "long"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    assert_eq!(stack.watch("long"), Some(0));
    let status = stack.status("long");
    assert_eq!(status["counts"], serde_json::json!({"completed": 3}));
    assert_eq!(task(&status, "first")["attempt_no"], 1);
    let twice = stack.run(&["retry", "long"]);
    assert_eq!(twice.code, Some(7), "{twice:?}");
}

#[test]
fn a_cancel_ends_without_any_worker() {
    let stack = Stack::new("cancel2");
    let _coordinator = stack.coordinator(&["--cancel-grace-s", "1"]);
    stack.submit(
        "alone",
        "tasks: [{name: a, cmd: 'true'}, {name: b, cmd: 'true', depends_on: [a]}]",
    );
    until("the task to be sent", || {
        (task(&stack.status("alone"), "a")["state"] == "queued").then_some(())
    });
    assert_eq!(stack.run(&["cancel", "alone"]).code, Some(0));
    assert_eq!(stack.watch("alone"), Some(11));
    // What was still in the queue does not run.
    let file = stack.path("ran");
    stack.submit(
        "next",
        &format!("tasks: [{{name: a, cmd: 'echo >> {file}'}}]"),
    );
    let _worker = stack.worker(&WORKER);
    assert_eq!(stack.watch("next"), Some(0));
    assert_eq!(stack.lines("ran").len(), 1);
    assert_eq!(
        stack.status("alone")["counts"],
        serde_json::json!({"cancelled": 2})
    );
}

#[test]
fn a_cancel_requested_while_nobody_leads_is_served_later() {
    let stack = Stack::new("cancel3");
    stack.submit("later", "tasks: [{name: a, cmd: sleep 60}]");
    let asked = stack.run(&["cancel", "later", "--wait-s", "0"]);
    assert_eq!(asked.code, Some(0), "{asked:?}");
    let _coordinator = stack.coordinator(&["--cancel-grace-s", "1"]);
    assert_eq!(stack.watch("later"), Some(11));
}

#[test]
fn one_coordinator_leads_and_says_so_to_the_next() {
    let stack = Stack::new("lead1");
    let mut first = stack.coordinator(&["--lease-duration-s", "15"]);
    let refused = stack.run(&["coordinator"]);
    assert_eq!(refused.code, Some(8), "{refused:?}");
    let holder = format!("/{}`", first.pid());
    assert!(refused.stderr.contains(&holder), "{refused:?}");
    assert!(refused.stderr.contains(" s"), "the age: {refused:?}");

    let mut standby = stack.start(&["coordinator", "--standby", "--lease-duration-s", "15"]);
    standby.wait_for(PATIENCE, |line| line.contains("standing_by"));
    first.signal(Signal::SIGTERM);
    assert_eq!(first.wait_for_exit(PATIENCE).code(), Some(0));
    standby.wait_for(PATIENCE, |line| line.contains("leading"));

    let breaking = stack.coordinator(&["--break-lease"]);
    assert_eq!(
        standby.wait_for_exit(PATIENCE).code(),
        Some(8),
        "{:?}",
        standby.lines()
    );
    drop(breaking);
}

#[test]
fn garbage_on_the_completion_queue_is_set_aside_and_shown() {
    let stack = Stack::new("garbage1");
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&WORKER);
    // Any well-formed foreign message will do; this one is sent by the product's own client of the queue.
    stack.submit("before", "tasks: [{name: a, cmd: 'true'}]");
    assert_eq!(stack.watch("before"), Some(0));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let connection = crate::support::azurite::azurite().connection_string();
        let (config, _) =
            dagaz::store::azure::AzureConfig::resolve("garbage1", Some(&connection)).unwrap();
        let store =
            dagaz::store::azure::AzureStore::open(&config, dagaz::env::real::env()).unwrap();
        let queue = dagaz::store::Queue::new("garbage1-workflow-completions").unwrap();
        store
            .queues
            .send(&queue, "hello", Duration::ZERO)
            .await
            .unwrap();
        store
            .queues
            .send(&queue, &"A".repeat(64 * 1024), Duration::ZERO)
            .await
            .unwrap();
    });
    let foreign = Foreign::new();
    until("the poison queue", || {
        (foreign.depth("garbage1-workflow-completions-poison") == 2).then_some(())
    });
    stack.submit("after", "tasks: [{name: a, cmd: 'true'}]");
    assert_eq!(stack.watch("after"), Some(0));
    let doctor = stack.run(&["doctor"]);
    assert_eq!(doctor.code, Some(13), "{doctor:?}");
    let line = doctor
        .stdout
        .lines()
        .find(|line| line.contains("poison"))
        .unwrap_or_default();
    assert!(line.contains('2'), "{doctor:?}");
}

#[test]
fn max_parallelism_holds_and_refills_soon() {
    let stack = Stack::new("narrow1");
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&["--slots", "4"]);
    let file = stack.path("times");
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            format!("  - {{name: t{n}, cmd: 'echo start $(date +%s%N) >> {file}; sleep 1; echo end $(date +%s%N) >> {file}'}}\n")
        })
        .collect();
    stack.submit(
        "narrow",
        &format!("max_parallelism: 2\ntasks:\n{}", tasks.concat()),
    );
    until("the status to say what holds tasks back", || {
        let status = stack.status("narrow");
        let tasks = status["tasks"].as_array().unwrap();
        let held = |task: &Value| {
            let reason = task["reason"].as_str().unwrap_or_default();
            task["state"] == "ready" && reason.contains("`max_parallelism` is 2")
        };
        tasks.iter().any(held).then_some(())
    });
    assert_eq!(stack.watch("narrow"), Some(0));
    let mut events: Vec<(u128, bool)> = stack
        .lines("times")
        .iter()
        .map(|line| {
            let (what, at) = line.split_once(' ').unwrap();
            (at.parse().unwrap(), what == "start")
        })
        .collect();
    events.sort_unstable();
    assert_eq!(events.len(), 40);
    let (mut running, mut ends, mut gaps) = (0, Vec::new(), Vec::new());
    for (at, starts) in events {
        if starts {
            running += 1;
            assert!(running <= 2, "three at once");
            if !ends.is_empty() {
                gaps.push(at - ends.remove(0));
            }
        } else {
            running -= 1;
            ends.push(at);
        }
    }
    gaps.sort_unstable();
    let median = Duration::from_nanos(u64::try_from(gaps[gaps.len() / 2]).unwrap());
    assert!(
        median < Duration::from_millis(500),
        "a free place stayed empty for {median:?}"
    );
}

#[test]
fn two_submits_of_one_id_at_once_are_one_workflow_or_a_conflict() {
    let stack = Stack::new("twice1");
    let files = ["true", "false"].map(|cmd| {
        let file = stack.path(cmd);
        std::fs::write(&file, format!("tasks: [{{name: a, cmd: '{cmd}'}}]")).unwrap();
        file
    });
    for round in 0..20 {
        let id = format!("w{round}");
        // In every second round the two differ.
        let pair = [&files[0], &files[round % 2]];
        let pair = pair.map(|file| stack.start(&["submit", "--id", &id, file]));
        let mut codes = pair.map(|mut submit| submit.wait_for_exit(PATIENCE).code());
        codes.sort_unstable();
        let loser = if round % 2 == 0 { 0 } else { 7 };
        assert_eq!(codes, [Some(0), Some(loser)], "round {round}");
    }
    let list = stack.run(&["list", "--output", "json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 20);
}

#[test]
fn large_outputs_of_two_parents_reach_their_join() {
    let stack = Stack::new("large1");
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&WORKER);
    let parent = |name: &str| {
        format!(
            "  - {{name: {name}, cmd: 'printf \"\\\"%s\\\"\" \"$(head -c 40000 /dev/zero | tr \"\\\\0\" {name})\" > \"$WORKFLOW_OUTPUT\"'}}\n"
        )
    };
    let yaml = format!(
        "tasks:\n{}{}  - {{name: join, cmd: 'wc -c < \"$WORKFLOW_INPUTS\"; cp \"$WORKFLOW_INPUTS\" \"$WORKFLOW_OUTPUT\"', depends_on: [x, y]}}\n",
        parent("x"),
        parent("y")
    );
    stack.submit("join", &yaml);
    assert_eq!(stack.watch("join"), Some(0));
    let output = stack.run(&["output", "join", "join"]);
    let json = output.json();
    let expected = BTreeMap::from([("x", "x".repeat(40_000)), ("y", "y".repeat(40_000))]);
    for (name, text) in expected {
        assert_eq!(json[name]["state"], "completed");
        assert_eq!(json[name]["output"], text.as_str());
    }
}

#[test]
fn five_hundred_workflows_at_once_finish() {
    let stack = Stack::new("many1");
    let _coordinator = stack.coordinator(&[]);
    let _workers = [
        stack.worker(&["--slots", "16"]),
        stack.worker(&["--slots", "16"]),
    ];
    let file = stack.path("one.yaml");
    std::fs::write(&file, "tasks: [{name: a, cmd: 'true'}]").unwrap();
    let files = vec![file.as_str(); 500];
    let submitted = stack.run(&[&["submit"], &files[..]].concat());
    assert_eq!(submitted.code, Some(0), "{}", submitted.stderr);
    assert_eq!(submitted.stdout.lines().count(), 500);
    until("all to have ended", || {
        let list = stack.run(&["list", "--output", "json"]).json();
        let list = list.as_array().unwrap();
        (list.len() == 500
            && list
                .iter()
                .all(|workflow| workflow["status"] == "completed"))
        .then_some(())
    });
}

#[test]
fn services_wait_out_an_outage_and_end_soon_when_told_to_in_the_middle_of_one() {
    let mut azurite = Azurite::start();
    let stack = Stack::on(&azurite, "outage1");
    let mut coordinator = stack.coordinator(&[]);
    let mut worker = stack.worker(&WORKER);
    let file = stack.path("ran");
    stack.submit(
        "before",
        &format!("tasks: [{{name: a, cmd: 'echo >> {file}'}}]"),
    );
    assert_eq!(stack.watch("before"), Some(0));

    azurite.stop();
    coordinator.wait_for(PATIENCE, |line| line.contains("receive_failed"));
    worker.wait_for(PATIENCE, |line| line.contains("receive_failing"));
    azurite.restart();
    for process in [&coordinator, &worker] {
        process.wait_for(PATIENCE, |line| line.contains("receive_recovered"));
    }
    stack.submit(
        "after",
        &format!("tasks: [{{name: a, cmd: 'echo >> {file}'}}]"),
    );
    assert_eq!(stack.watch("after"), Some(0));
    assert_eq!(stack.lines("ran").len(), 2);

    azurite.stop();
    until("both to notice", || {
        let noticed = |process: &Process, word: &str| {
            let lines = process.lines();
            lines.iter().filter(|line| line.contains(word)).count() >= 2
        };
        (noticed(&coordinator, "receive_failed") && noticed(&worker, "receive_failing"))
            .then_some(())
    });
    for process in [&mut coordinator, &mut worker] {
        process.signal(Signal::SIGTERM);
        let status = process.wait_for_exit(Duration::from_secs(2));
        assert_eq!(status.code(), Some(0), "{:?}", process.lines());
    }
}
