//! The deliberate bugs in `tests/mutants/`: each still applies, says what it breaks and names tests that exist; together they reach every
//! clause and every fault. That each is caught is shown by `just mutants`, which takes too long for every run of the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::docs_failure_modes::{faults, tests_by_fault};
use crate::support::sources::tests;

/// Clauses that describe what the code does, each of which a bug can break.
const CLAUSES: std::ops::RangeInclusive<u32> = 4..=32;

fn patches() -> BTreeMap<PathBuf, String> {
    let entries = fs::read_dir("tests/mutants").unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "patch"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

/// What a line of the header lists.
fn listed(header: &str, word: &str) -> Vec<String> {
    let lines = header.lines().filter_map(|line| line.strip_prefix(word));
    let parts = lines.flat_map(|list| list.split(','));
    parts.map(|part| part.trim().to_owned()).collect()
}

#[test]
fn every_deliberate_bug_applies_and_says_what_it_breaks_and_what_catches_it() {
    let (tests, faults) = (tests(), faults());
    for (path, text) in patches() {
        let name = path.display();
        let checked = Command::new("git")
            .args(["apply", "--check"])
            .arg(&path)
            .output()
            .unwrap();
        let why = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{name}: {why}");
        let (header, diff) = text.split_once("\ndiff --git ").unwrap();
        assert!(
            diff.lines()
                .filter_map(|line| line.strip_prefix("+++ b/"))
                .all(|file| file.starts_with("src/")),
            "{name} changes more than the sources"
        );
        let (clauses, rows) = (listed(header, "Clauses: "), listed(header, "Rows: "));
        assert!(
            !clauses.is_empty() || !rows.is_empty(),
            "{name} breaks nothing"
        );
        for row in rows {
            assert!(faults.contains(&row), "{name}: there is no row {row}");
        }
        let means = listed(header, "Caught by: ");
        assert!(!means.is_empty(), "{name} is caught by nothing");
        for means in means {
            let test = means.strip_prefix("test ").unwrap_or(&means);
            assert!(
                test == "sim" || tests.contains(test),
                "{name}: there is no test {test}"
            );
        }
        for seeds in listed(header, "Seeds: ") {
            let numbers = seeds
                .split(' ')
                .filter_map(|number| number.parse::<u64>().ok());
            assert_eq!(numbers.count(), 2, "{name}: seeds are from and count");
        }
    }
}

#[test]
fn every_clause_and_every_fault_has_a_deliberate_bug() {
    let clauses: BTreeSet<_> = CLAUSES.map(|number| format!("P{number}")).collect();
    for (word, all) in [("Clauses: ", clauses), ("Rows: ", faults())] {
        let mut found = BTreeSet::new();
        for text in patches().values() {
            found.extend(listed(text, word));
        }
        let missing: Vec<_> = all.difference(&found).collect();
        assert!(missing.is_empty(), "no bug breaks {missing:?}");
    }
}

/// A fault is shown by a test only if that test notices when what covers the fault is gone.
#[test]
fn every_fault_names_the_tests_that_catch_its_deliberate_bugs() {
    let by_fault = tests_by_fault();
    let mut shown = BTreeSet::new();
    for (path, text) in patches() {
        let header = text.split("\ndiff --git ").next().unwrap();
        let means = listed(header, "Caught by: ");
        let catching: BTreeSet<_> = means
            .iter()
            .map(|means| means.strip_prefix("test ").unwrap_or(means).to_owned())
            .filter(|test| test != "sim")
            .collect();
        for row in listed(header, "Rows: ") {
            if catching.is_empty() {
                continue;
            }
            assert!(
                !by_fault[&row].is_disjoint(&catching),
                "{row} names none of {catching:?}, which catch {}",
                path.display()
            );
            shown.insert(row);
        }
    }
    let missing: Vec<_> = faults().difference(&shown).cloned().collect();
    assert!(
        missing.is_empty(),
        "no test of {missing:?} catches a deliberate bug"
    );
}
