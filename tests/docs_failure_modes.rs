//! `docs/failure-modes.md` has every fault, each with a status, and names no test that does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::support::sources::tests;

/// The faults that the page must answer for.
pub(crate) fn faults() -> BTreeSet<String> {
    let group = |name: char, count: u8| (1..=count).map(move |n| format!("{name}{n}"));
    group('A', 15)
        .chain(group('B', 15))
        .chain(group('C', 12))
        .collect()
}

/// The sections of the page by fault.
fn sections(page: &str) -> Vec<(&str, &str)> {
    page.split("\n### ")
        .skip(1)
        .map(|section| {
            let section = section.split("\n## ").next().unwrap();
            section.split_once(':').unwrap()
        })
        .collect()
}

/// The tests that each fault names.
pub(crate) fn tests_by_fault() -> BTreeMap<String, BTreeSet<String>> {
    let page = fs::read_to_string("docs/failure-modes.md").unwrap();
    sections(&page)
        .into_iter()
        .map(|(fault, text)| {
            let named = named(fault, text).into_iter().map(str::to_owned);
            (fault.to_owned(), named.collect())
        })
        .collect()
}

/// The tests that the section of a fault names.
fn named<'a>(fault: &str, text: &'a str) -> Vec<&'a str> {
    let tests = paragraph(text, "Tests:");
    let tests = tests.unwrap_or_else(|| panic!("{fault} says nothing of tests"));
    tests.split('`').skip(1).step_by(2).collect()
}

/// The paragraph that starts with `word`.
fn paragraph<'a>(section: &'a str, word: &str) -> Option<&'a str> {
    section
        .split("\n\n")
        .map(str::trim)
        .find(|paragraph| paragraph.starts_with(word))
}

#[test]
fn every_fault_has_a_status_and_every_test_named_exists() {
    let page = fs::read_to_string("docs/failure-modes.md").unwrap();
    let tests = tests();
    assert!(tests.contains("every_fault_has_a_status_and_every_test_named_exists"));
    let mut found = BTreeSet::new();
    for (fault, text) in sections(&page) {
        assert!(found.insert(fault.to_owned()), "{fault} stands twice");
        let named = named(fault, text);
        for name in &named {
            assert!(
                tests.contains(*name),
                "{fault} names `{name}`, which is no test"
            );
        }
        let status = paragraph(text, "Status:").unwrap_or_default();
        let told = status.contains("Gap:") && status.contains("Risk:");
        let verified = status.starts_with("Status: **Verified**");
        let partly = status.starts_with("Status: **Partially verified**");
        let unverified = status.starts_with("Status: **UNVERIFIED**");
        assert!(verified || partly || unverified, "{fault} has no status");
        assert_eq!(told, !verified, "{fault}: gap and risk");
        assert!(
            unverified || !named.is_empty(),
            "{fault} is shown by no test"
        );
    }
    assert_eq!(found, faults());
    assert!(page.contains("\n## What is not claimed\n"));
}
