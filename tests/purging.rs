//! Purges and the journal, by the built command on the emulator.

use serde_json::{Value, json};

use crate::support::stack::{Ran, Stack, until};

const GOOD: &str =
    "default_queue: default\ntasks: [{name: one, cmd: 'echo hello; echo 7 > $WORKFLOW_OUTPUT'}]\n";
const SLOW: &str = "default_queue: default\ntasks: [{name: one, cmd: 'exec sleep 300'}]\n";

fn json(stack: &Stack, args: &[&str]) -> Value {
    let ran = stack.run(&[args, &["--output", "json"]].concat());
    assert_eq!(ran.code, Some(0), "{args:?} {ran:?}");
    ran.json()
}

fn refused(ran: &Ran, code: i32, kind: &str) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert_eq!(ran.json()["error"]["kind"], kind, "{ran:?}");
}

fn completed(stack: &Stack, ids: &[&str]) {
    for id in ids {
        stack.submit(id, GOOD);
    }
    for id in ids {
        assert_eq!(stack.watch(id), Some(0), "{id}");
    }
}

#[test]
fn a_purged_workflow_is_gone_from_every_command_and_its_id_is_free() {
    let stack = Stack::new("purgeone");
    assert_eq!(stack.run(&["doctor", "--fix"]).code, Some(0));
    let purge = |id: &str| stack.run(&["purge", id, "--wait-s", "60", "--output", "json"]);
    refused(&purge("one"), 4, "not_found");
    stack.submit("one", GOOD);
    refused(&purge("one"), 7, "conflict");
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&["--slots", "4", "--cancel-poll-interval-s", "1"]);
    completed(&stack, &["two", "three"]);
    assert_eq!(stack.watch("one"), Some(0));
    stack.submit("slow", SLOW);

    // Of several one is refused; the others go.
    let mixed = stack.run(&["purge", "one", "slow", "two", "--wait-s", "60"]);
    assert_eq!(mixed.code, Some(7), "{mixed:?}");
    assert_eq!(
        mixed.stdout,
        "purge of `one`: applied\npurge of `two`: applied\n"
    );
    assert!(mixed.stderr.contains("`slow` has not"), "{mixed:?}");
    for args in [
        &["status", "one"][..],
        &["tasks", "one"],
        &["logs", "one", "one"],
        &["output", "one", "one"],
        &["cancel", "one"],
        &["retry", "one"],
        &["purge", "one"],
    ] {
        let ran = stack.run(&[args, &["--output", "json"]].concat());
        refused(&ran, 4, "not_found");
    }
    let listed = json(&stack, &["list"]);
    let ids = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["workflow_id"]);
    assert_eq!(ids.collect::<Vec<_>>(), ["slow", "three"]);
    let doctor = stack.run(&["doctor"]);
    assert_eq!(doctor.code, Some(0), "a tombstone is no damage: {doctor:?}");

    completed(&stack, &["one"]);
    let log = stack.run(&["logs", "one", "one"]);
    assert_eq!(log.stdout, "hello\n", "a new life of the id");
}

#[test]
fn a_purge_by_age_takes_what_has_ended_and_can_be_looked_at_before() {
    let stack = Stack::new("purgeage");
    for wrong in [
        &["purge"][..],
        &["purge", "w", "--older-than", "1d"],
        &["purge", "--dry-run", "w"],
        &["purge", "--dry-run"],
        &["purge", "--older-than", "1w"],
    ] {
        assert_eq!(stack.run(wrong).code, Some(2), "{wrong:?}");
    }
    let _coordinator = stack.coordinator(&[]);
    let _worker = stack.worker(&["--slots", "4"]);
    completed(&stack, &["one", "two"]);
    stack.submit("slow", SLOW);
    let would = stack.run(&["purge", "--older-than", "0s", "--dry-run"]);
    let mut would: Vec<&str> = would.stdout.lines().collect();
    would.sort_unstable();
    let line = |id: &str| format!("purge of `{id}`: would be asked for");
    assert_eq!(would, [line("one"), line("two")]);
    let none = stack.run(&["purge", "--older-than", "1d"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    let args = [
        "purge",
        "--older-than",
        "0s",
        "--wait-s",
        "60",
        "--output",
        "json",
    ];
    let purged = stack.run(&args);
    assert_eq!(purged.code, Some(0), "{purged:?}");
    let lines = purged.stdout.lines();
    let mut answers: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    answers.sort_by_key(|answer| answer["workflow_id"].to_string());
    let applied = |id| json!({"workflow_id": id, "action": "purge", "answer": "applied"});
    assert_eq!(answers, ["one", "two"].map(applied));
    let left = json(&stack, &["list"]);
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
}

#[test]
fn the_journal_command_tells_who_did_what() {
    let stack = Stack::new("purgejournal");
    for command in ["list", "journal"] {
        let missing = stack.run(&[command, "--output", "json"]);
        refused(&missing, 4, "not_found");
    }
    assert_eq!(stack.run(&["doctor", "--fix"]).code, Some(0));
    let first = stack.coordinator(&[]);
    let _worker = stack.worker(&["--cancel-poll-interval-s", "1"]);
    completed(&stack, &["one"]);
    let purged = json(&stack, &["purge", "one", "--wait-s", "60"]);
    assert_eq!(purged["answer"], "applied");
    stack.submit("slow", SLOW);
    assert_eq!(
        json(&stack, &["cancel", "slow", "--wait-s", "60"])["answer"],
        "applied"
    );
    let words = |entry: &Value| {
        let word = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
        assert!(word("actor").contains('@'), "{entry}");
        [word("action"), word("workflow_id"), word("result")].join(" ")
    };
    let journal = |args: &[&str]| -> Vec<String> {
        let entries = json(&stack, &[&["journal"], args].concat());
        entries.as_array().unwrap().iter().map(words).collect()
    };
    let wanted = [
        "cancel slow asked",
        "doctor_fix - applied",
        "purge one applied",
        "purge one asked",
        "submit one applied",
        "submit slow applied",
    ];
    // The coordinator notes its answer after it has given it.
    until("all entries", || {
        let mut told = journal(&["--since", "1h"]);
        // Where the coordinator meets the flag on the row first, the message finds a workflow that has ended, and is refused.
        told.retain(|line| !line.starts_with("cancel") || line.ends_with("asked"));
        told.sort_unstable();
        (told == wanted).then_some(())
    });
    let of_one = journal(&["one"]);
    assert_eq!(of_one.len(), 3, "{of_one:?}");
    drop(first);
    let _second = stack.coordinator(&["--break-lease"]);
    assert_eq!(journal(&["--limit", "1"]), ["break_lease - applied"]);
    let newest = stack.run(&["journal", "--limit", "1"]).stdout;
    assert_eq!(newest.lines().count(), 2, "{newest}");
}
