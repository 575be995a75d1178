//! `Cargo.toml`, `Cargo.lock`, `deny.toml` and `docs/dependencies.md` say the same, and no dependency is named in vain.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::sources::sources;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The lines of one table of a TOML file.
fn table<'a>(toml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let header = format!("[{name}]");
    toml.lines()
        .skip_while(move |line| *line != header)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
}

fn direct() -> BTreeSet<String> {
    let manifest = read("Cargo.toml");
    ["dependencies", "dev-dependencies"]
        .iter()
        .flat_map(|name| table(&manifest, name))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// The first column of the tables of a page, where it is one name in back-ticks.
fn rows(page: &str) -> BTreeSet<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Advisories of a text, each with the line it stands in.
fn advisories(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.split("RUSTSEC-").nth(1))
        .map(|rest| rest.chars().take("2026-0194".len()).collect())
        .collect()
}

#[test]
fn every_direct_dependency_has_its_row() {
    assert_eq!(direct(), rows(&read("docs/dependencies.md")));
}

#[test]
fn every_direct_dependency_is_used() {
    let code: String = sources().into_iter().map(|(_, text)| text).collect();
    let unused: Vec<_> = direct()
        .into_iter()
        .filter(|name| {
            let path = name.replace('-', "_");
            !code.contains(&format!("{path}::")) && !code.contains(&format!("use {path};"))
        })
        .collect();
    assert!(unused.is_empty(), "nobody names {unused:?}");
}

#[test]
fn every_ignored_advisory_is_explained_and_still_needed() {
    let (deny, page, lock) = (
        read("deny.toml"),
        read("docs/dependencies.md"),
        read("Cargo.lock"),
    );
    assert_eq!(advisories(&deny), advisories(&page));
    let ignored = deny.lines().filter(|line| line.contains("RUSTSEC-"));
    for line in ignored {
        let reason = line.split("reason = \"").nth(1).unwrap();
        let mut words = reason.split([' ', ':']);
        let (name, version) = (words.next().unwrap(), words.next().unwrap());
        let locked = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        assert!(
            lock.contains(&locked),
            "{name} {version} is gone, its advisory need not be ignored"
        );
    }
}

#[test]
fn nothing_banned_and_nothing_from_elsewhere_is_locked() {
    let (deny, lock) = (read("deny.toml"), read("Cargo.lock"));
    let banned = deny
        .lines()
        .filter_map(|line| line.split_once("crate = \"")?.1.split_once('"'));
    for (name, _) in banned {
        assert!(
            !lock.contains(&format!("name = \"{name}\"\n")),
            "`{name}` is banned"
        );
    }
    for source in lock.lines().filter(|line| line.starts_with("source = ")) {
        assert_eq!(
            source,
            "source = \"registry+https://github.com/rust-lang/crates.io-index\""
        );
    }
}
