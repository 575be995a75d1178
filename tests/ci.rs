//! `.ci/run` runs what the recipes of the justfile run, so that nobody has to guess what CI does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The recipes that are one command, by name.
fn recipes(justfile: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = "";
    for line in justfile.lines() {
        if let Some(command) = line.strip_prefix("    ") {
            let command = command.split(" {{").next().unwrap();
            found
                .entry(name.to_owned())
                .or_default()
                .push(command.to_owned());
        } else if let Some((head, _)) = line.split_once(':')
            && !line.starts_with('#')
        {
            name = head.split(' ').next().unwrap();
        }
    }
    found
        .into_iter()
        .filter_map(|(name, mut commands)| {
            Some((name, commands.pop().filter(|_| commands.is_empty())?))
        })
        .collect()
}

#[test]
fn every_step_of_ci_is_the_recipe_of_that_name() {
    let recipes = recipes(&read("justfile"));
    let script = read(".ci/run");
    let steps: Vec<_> = script
        .lines()
        .map(str::trim_start)
        .filter_map(|line| {
            line.strip_prefix("step ")
                .or_else(|| line.strip_prefix("look "))
        })
        .map(|step| step.split_once(' ').unwrap())
        .collect();
    assert!(steps.len() >= 6, "{steps:?}");
    for (name, command) in steps {
        assert_eq!(
            recipes.get(name).map(String::as_str),
            Some(command),
            "{name}"
        );
    }
}

#[test]
fn each_recipe_has_a_line_of_help() {
    let text = read("justfile");
    let lines: Vec<_> = text.lines().collect();
    for pair in lines.windows(2) {
        let is_head =
            pair[1].starts_with(|c: char| c.is_ascii_lowercase()) && pair[1].contains(':');
        assert!(!is_head || pair[0].starts_with("# "), "{}", pair[1]);
    }
}
