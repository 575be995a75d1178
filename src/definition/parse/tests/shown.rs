//! Every definition that people are shown parses, without a warning, and the documentation states the limits.

use std::path::Path;

use super::*;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_example_is_a_definition() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        // A program of the simulator stands there, too.
        if path.extension().is_some_and(|ending| ending == "rs") {
            continue;
        }
        let source = Source::read(
            path.display().to_string(),
            std::fs::File::open(&path).unwrap(),
        )
        .unwrap();
        let parsed = parse(&source).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(parsed.warnings, [], "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 6, "{seen} examples");
}

#[test]
fn every_definition_in_the_documentation_parses() {
    let page = std::fs::read_to_string(root().join("docs/definition.md")).unwrap();
    let mut seen = 0;
    for block in page.split("```yaml\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        if block.contains("tasks:") {
            accepted(block);
            seen += 1;
        }
    }
    assert!(seen >= 2, "{seen} definitions");
}

#[test]
fn the_documentation_states_the_limits() {
    let page = std::fs::read_to_string(root().join("docs/definition.md")).unwrap();
    let numbers = [
        limits::DEPTH_MAX,
        limits::NODES_MAX,
        limits::ALIAS_NODES_MAX,
        limits::TASKS_MAX,
        limits::EDGES_MAX,
        limits::CMD_BYTES_MAX,
        limits::ENV_VARS_MAX,
        limits::ENV_BYTES_MAX,
        limits::CWD_BYTES_MAX,
        limits::NAME_CHARS_MAX,
        limits::DESCRIPTION_CHARS_MAX,
        limits::RETRIES_MAX as usize,
    ];
    for number in numbers {
        let digits = number.to_string();
        let groups: Vec<&str> = digits
            .as_bytes()
            .rchunks(3)
            .rev()
            .map(|g| std::str::from_utf8(g).unwrap())
            .collect();
        let shown = groups.join(",");
        assert!(
            page.contains(&shown),
            "{shown} is not in docs/definition.md"
        );
    }
    for words in ["128 MiB", "64 MiB", "30 days", "160 bytes"] {
        assert!(page.contains(words), "{words}");
    }
}
