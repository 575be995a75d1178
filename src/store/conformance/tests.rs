//! The suite and the contract name the same clauses.

use std::collections::BTreeSet;

use super::CLAUSES;

/// The numbers in the contract's lists, as `B1`.
fn contract() -> Vec<&'static str> {
    include_str!("../mod.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("/// - **"))
        .filter_map(|line| line.split_once("**"))
        .map(|(id, _)| id)
        .collect()
}

#[test]
fn every_clause_of_the_contract_has_one_function_and_no_other_exists() {
    let ids: Vec<&str> = CLAUSES.iter().map(|clause| clause.id).collect();
    assert!(ids.len() > 30);
    assert_eq!(ids, contract());
}

#[test]
fn a_function_is_named_by_its_clause() {
    let names: BTreeSet<&str> = CLAUSES.iter().map(|clause| clause.name).collect();
    assert_eq!(names.len(), CLAUSES.len());
    for clause in CLAUSES {
        let start = format!("{}_", clause.id.to_ascii_lowercase());
        assert!(clause.name.starts_with(&start), "{clause:?}");
    }
}
