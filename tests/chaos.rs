//! Chaos: workflows run by real processes on the real emulator while both are killed, paused, told to end and restarted at random
//! moments from a seed; at the end everything must be as the definitions imply.
//!
//! A run prints its seed and all that it does, and keeps that and the logs in a folder below `target/tmp`. The seed decides what is
//! tried when; how the processes interleave is their own.

mod crew;
mod diary;
mod dice;
mod oracle;
mod people;
mod plan;
mod workload;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dagaz::env::real;
use serde_json::Value;

use crate::support::azurite::Azurite;
use crate::support::stack::{Foreign, Stack, whole_state};
use crew::Crew;
use diary::{Diary, wall_us};
use oracle::{Answers, Story, judge};
use people::People;
use plan::{Asked, Blow, Plan};

/// How long everything may take to end once the blows have.
const CALM: Duration = Duration::from_secs(240);
/// How often the processes are looked at.
const TICK: Duration = Duration::from_millis(50);

#[test]
fn a_calm_run_executes_each_attempt_exactly_once() {
    run(
        "chaos-calm",
        Asked {
            seed: seed(),
            length: Duration::from_secs(5),
            workflows: 8,
            pace_ms: None,
            outages: 0,
        },
    );
}

#[test]
fn killed_paused_and_restarted_at_random_everything_ends_as_its_definition_implies() {
    run(
        "chaos-short",
        Asked {
            seed: seed(),
            length: Duration::from_secs(15),
            workflows: 8,
            pace_ms: Some((1000, 4000)),
            outages: 1,
        },
    );
}

#[test]
#[ignore = "takes minutes: `just chaos`"]
fn long_chaos() {
    let number = |name: &str, usual: u64| {
        let text = real::var(name);
        text.map_or(usual, |text| text.parse().unwrap())
    };
    let minutes = number("CHAOS_MINUTES", 20);
    run(
        "chaos-long",
        Asked {
            seed: seed(),
            length: Duration::from_secs(minutes * 60),
            workflows: usize::try_from(number("CHAOS_WORKFLOWS", 50)).unwrap(),
            pace_ms: Some((1000, 7000)),
            outages: 3,
        },
    );
}

/// `CHAOS_SEED`, or the time.
fn seed() -> u64 {
    match real::var("CHAOS_SEED") {
        Some(text) => text.parse().unwrap(),
        None => wall_us().unsigned_abs(),
    }
}

fn run(name: &str, asked: Asked) {
    let plan = Plan::new(asked);
    let mut azurite = Azurite::start();
    let stack = Stack::on(&azurite, "chaos1");
    let foreign = Foreign::of(&azurite);
    let diary = Diary::begin(name);
    diary.note(&format!("{asked:?}"));
    let mut crew = Crew::start(&stack, &diary);
    let people = People {
        stack: &stack,
        diary: &diary,
        give_up: asked.length + CALM,
        busy: AtomicUsize::new(plan.workloads.len()),
        problems: Mutex::default(),
    };

    let (answers, blows) = storm(&plan, &people, &mut crew, &mut azurite);
    diary.note("all have ended");
    let mut wrong = people.problems.into_inner().unwrap();
    loop {
        let left = left_behind(&stack, &foreign);
        if left.is_empty() || diary.elapsed() > people.give_up {
            wrong.extend(left);
            break;
        }
        crew.tend();
        diary.wait_until(diary.elapsed() + TICK);
    }
    wrong.extend(crew.end());

    let (mut started, mut doubled) = (0, 0);
    for (workload, answers) in plan.workloads.iter().zip(answers) {
        let note = |task: &str| {
            let file = diary.notes().join(format!("{}.{task}", workload.id));
            std::fs::read_to_string(file).unwrap_or_default()
        };
        let state = whole_state(&azurite, "chaos1", &workload.id);
        match Story::read(workload, &state, note) {
            Err(error) => wrong.push(error),
            Ok(story) => {
                started += story.started();
                doubled += story.doubled();
                let found = judge(workload, answers, &story, &blows);
                wrong.extend(found.iter().map(|what| format!("{}: {what}", workload.id)));
            }
        }
    }
    wrong.extend(listed(&plan, &foreign));
    diary.note(&format!(
        "{} workflows, {} blows, {started} executions, {doubled} of them more than one of an attempt",
        plan.workloads.len(),
        blows.len()
    ));
    let folder = diary.folder.display();
    let wrong = wrong.join("\n");
    assert!(
        wrong.is_empty(),
        "CHAOS_SEED={} ({folder}):\n{wrong}",
        asked.seed
    );
}

/// Lets people and blows come until all is done; the answers that people got, and what was done to the processes when.
fn storm(
    plan: &Plan,
    people: &People<'_>,
    crew: &mut Crew<'_>,
    azurite: &mut Azurite,
) -> (Vec<Answers>, Vec<(i64, Blow)>) {
    let diary = people.diary;
    let azurite = Mutex::new(azurite);
    let mut blows = Vec::new();
    let answers = std::thread::scope(|scope| {
        let follow = |workload| scope.spawn(move || people.follow(workload));
        let threads: Vec<_> = plan.workloads.iter().map(follow).collect();
        let mut to_come = plan.blows.iter().peekable();
        while people.busy.load(Ordering::SeqCst) > 0 || to_come.peek().is_some() {
            crew.tend();
            while let Some((_, blow)) = to_come.next_if(|(at, _)| *at <= diary.elapsed()) {
                blows.push((wall_us(), *blow));
                match *blow {
                    Blow::Outage(length) => {
                        crew.storage_was_down = true;
                        let azurite = &azurite;
                        scope.spawn(move || outage(length, azurite, diary));
                    }
                    Blow::Kill(seat) => crew.kill(seat),
                    Blow::Terminate(seat) => crew.terminate(seat),
                    Blow::Pause(seat, with_commands) => crew.pause(seat, with_commands),
                    Blow::Resume(seat) => crew.resume(seat),
                }
            }
            diary.wait_until(diary.elapsed() + TICK);
        }
        let threads = threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    });
    (answers, blows)
}

fn outage(length: Duration, azurite: &Mutex<&mut Azurite>, diary: &Diary) {
    let mut azurite = azurite.lock().unwrap();
    diary.note("the storage stops");
    azurite.stop();
    diary.note("the storage has stopped");
    diary.wait_until(diary.elapsed() + length);
    azurite.restart();
    diary.note("the storage is back");
}

/// What is left on queues or claimed, and, once nothing is, what the doctor finds.
fn left_behind(stack: &Stack, foreign: &Foreign) -> Vec<String> {
    let prefix = &stack.prefix;
    let mut left = Vec::new();
    for queue in ["workflow-completions", "q-default"] {
        let depth = foreign.depth(&format!("{prefix}-{queue}"));
        if depth > 0 {
            left.push(format!("{depth} messages are left on {queue}"));
        }
    }
    let claims = foreign.rows(&format!("{prefix}Claims"));
    left.extend(
        claims
            .iter()
            .map(|claim| format!("a claim is left: {claim}")),
    );
    if left.is_empty() {
        let doctor = stack.run(&["doctor"]);
        if doctor.code != Some(0) {
            left.push(format!("the doctor finds something: {doctor:?}"));
        }
    }
    left
}

/// Whether the index holds just what was submitted, and tells what the states tell.
fn listed(plan: &Plan, foreign: &Foreign) -> Vec<String> {
    let mut wrong = Vec::new();
    let rows = foreign.rows("chaos1WorkflowsIndex");
    if rows.len() != plan.workloads.len() {
        wrong.push(format!("the index has {} rows", rows.len()));
    }
    for workload in &plan.workloads {
        let blob = foreign.blob("chaos1-workflows", &format!("{}.json", workload.id));
        let is_shown = |row: &Value| {
            row["PartitionKey"] == "done"
                && row["RowKey"] == *workload.id
                && row["status"] == blob["status"]
                && row["run_id"] == blob["run_id"]
        };
        if !rows.iter().any(is_shown) {
            wrong.push(format!("{}: its row does not show its state", workload.id));
        }
    }
    wrong
}
