//! The layers of `src/`, which Rust does not enforce inside a crate, and the rules of style that a look at the text can check.
//!
//! A layer may name what the table gives it and all below that. Tests are exempt: they may look at a layer from anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::sources::sources;

/// Who may name whom, the lowest first.
const LAYERS: &[(&str, &[&str])] = &[
    ("env", &[]),
    ("definition", &[]),
    ("store", &["env"]),
    ("engine", &["definition"]),
    ("record", &["engine", "definition"]),
    ("protocol", &["record", "engine", "store", "env"]),
    ("coordinator", &["protocol"]),
    ("worker", &["protocol"]),
    ("client", &["protocol"]),
    ("doctor", &["protocol"]),
    ("local", &["coordinator", "worker", "client", "doctor"]),
    ("sim", &["coordinator", "worker", "client", "doctor"]),
    ("cli", &["local"]),
];

/// Most production lines of a file.
const LINES_MAX: usize = 500;

/// A Rust file of ours.
struct File {
    /// From the root of the repository.
    path: String,
    text: String,
    /// Whether all of it is test code.
    is_test: bool,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &str) -> Vec<File> {
    let file = |(path, text): (PathBuf, String)| {
        let path = path.to_str().unwrap().to_owned();
        let is_test = folder == "tests" || path.contains("/tests/") || path.ends_with("/tests.rs");
        File {
            path,
            text,
            is_test,
        }
    };
    sources()
        .into_iter()
        .filter(|(path, _)| path.starts_with(folder))
        .map(file)
        .collect()
}

impl File {
    /// Its lines up to the module of its unit tests.
    fn production(&self) -> Vec<&str> {
        if self.is_test {
            return Vec::new();
        }
        let lines: Vec<_> = self.text.lines().collect();
        let tests = lines.windows(2).position(|pair| {
            pair[0].trim() == "#[cfg(test)]"
                && pair[1].starts_with("mod ")
                && pair[1].ends_with('{')
        });
        lines[..tests.unwrap_or(lines.len())].to_vec()
    }

    /// Its production lines without comments.
    fn code(&self) -> String {
        let mut code = String::new();
        for line in self.production() {
            writeln!(code, "{}", line.split("//").next().unwrap()).unwrap();
        }
        code
    }

    /// The layer it belongs to: the folder or file below `src/`.
    fn layer(&self) -> &str {
        let below = self.path.strip_prefix("src/").unwrap();
        let end = below.find(['/', '.']).unwrap();
        &below[..end]
    }

    /// How many modules lie between it and the crate, itself included.
    fn depth(&self) -> usize {
        let parts = self.path.split('/').count() - 1;
        parts - usize::from(self.path.ends_with("/mod.rs"))
    }
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// The first names of a list in braces, whose opening brace is passed.
fn heads(list: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut depth, mut at_head) = (0, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_head = true,
            c if at_head && !c.is_whitespace() => {
                found.push(word(&list[at..]));
                at_head = false;
            }
            _ => {}
        }
    }
    found
}

/// The modules directly below the crate that a piece of code names.
fn named(code: &str, depth: usize) -> BTreeSet<&str> {
    let up = "super::".repeat(depth);
    let mut found = BTreeSet::new();
    for start in ["crate::", up.as_str()] {
        for (at, _) in code.match_indices(start) {
            let rest = &code[at + start.len()..];
            match rest.strip_prefix('{') {
                Some(list) => found.extend(heads(list)),
                None => {
                    found.insert(word(rest));
                }
            }
        }
    }
    found
}

/// Everything that each layer may name.
fn allowed() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (layer, below) in LAYERS {
        let mut names = BTreeSet::from([*layer]);
        for name in *below {
            let lower = all.get(name);
            names.extend(lower.unwrap_or_else(|| panic!("`{name}` stands below `{layer}`")));
        }
        all.insert(layer, names);
    }
    all
}

fn none(what: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{what}:\n{}", broken.join("\n"));
}

#[test]
fn every_layer_names_only_what_lies_below_it() {
    let allowed = allowed();
    let mut broken = Vec::new();
    let mut seen = 0;
    for file in files("src").iter().filter(|file| file.path != "src/lib.rs") {
        let layer = file.layer();
        let Some(may) = allowed.get(layer) else {
            broken.push(format!(
                "{}: `{layer}` has no place in the table",
                file.path
            ));
            continue;
        };
        let code = file.code();
        for name in named(&code, file.depth()) {
            seen += 1;
            if allowed.contains_key(name) && !may.contains(name) {
                broken.push(format!("{} names `{name}`", file.path));
            }
        }
    }
    none("layers named from below or beside them", &broken);
    assert!(seen > 50, "the names were found at all");
}

#[test]
fn names_are_found_however_they_are_written() {
    let code = "use crate::{a::{x, y}, b, c::z};\nfn f() { crate::d::g(); super::super::e::h(); super::i() }";
    assert_eq!(named(code, 2), BTreeSet::from(["a", "b", "c", "d", "e"]));
}

#[test]
fn the_engine_and_the_records_are_pure() {
    let banned = [
        "async ",
        ".await",
        "tokio::",
        "std::fs",
        "std::net",
        "std::thread",
        "Timestamp::now",
    ];
    let mut broken = Vec::new();
    for file in files("src") {
        if !["engine", "record"].contains(&file.layer()) {
            continue;
        }
        let code = file.code();
        for word in banned.iter().filter(|word| code.contains(**word)) {
            broken.push(format!("{} holds `{word}`", file.path));
        }
    }
    none("what only the layers above may do", &broken);
}

#[test]
fn every_file_says_what_it_is() {
    let folders = ["src", "bin", "tests", "benches"];
    let silent = |file: &File| !file.text.trim().is_empty() && !file.text.starts_with("//! ");
    let broken: Vec<_> = folders
        .iter()
        .flat_map(|folder| files(folder))
        .filter(silent)
        .map(|file| file.path)
        .collect();
    none("files without a header", &broken);
}

#[test]
fn no_file_is_two_ideas_long() {
    let length = |file: &File| (file.production().len(), file.path.clone());
    let broken: Vec<_> = files("src")
        .iter()
        .map(length)
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| format!("{path} has {lines} production lines"))
        .collect();
    none("files to be split", &broken);
}

#[test]
fn silence_has_a_reason_and_a_panic_too() {
    let mut broken = Vec::new();
    for folder in ["src", "bin", "tests", "benches"] {
        for file in files(folder) {
            if file.path == "tests/layers.rs" {
                continue;
            }
            for (at, line) in file.text.lines().enumerate() {
                if line.contains("[allow(") {
                    broken.push(format!("{}:{}: `expect` with a reason", file.path, at + 1));
                }
            }
            let code = file.code();
            if folder == "src" && (code.contains(".unwrap()") || code.contains(".expect(\"\")")) {
                broken.push(format!(
                    "{}: `expect` that says why it cannot fail",
                    file.path
                ));
            }
        }
    }
    none("silenced or panicking without a reason", &broken);
}

#[test]
fn nothing_is_called_by_a_name_that_says_nothing() {
    let empty = [
        "utils", "util", "common", "helpers", "helper", "types", "misc",
    ];
    let says_nothing = |file: &File| {
        let parts = file.path.trim_end_matches(".rs").split('/');
        parts.into_iter().any(|part| empty.contains(&part))
    };
    let broken: Vec<_> = files("src")
        .into_iter()
        .filter(says_nothing)
        .map(|file| file.path)
        .collect();
    none("names", &broken);
}

#[test]
fn no_note_to_self_is_left_behind() {
    let folders = ["src", "bin", "tests", "benches"];
    let words = ["FIXME", "HACK", "todo!(", "/home/", "/root/"];
    let mut broken = Vec::new();
    for file in folders.iter().flat_map(|folder| files(folder)) {
        if file.path == "tests/layers.rs" {
            continue;
        }
        for (at, line) in file.text.lines().enumerate() {
            let place = format!("{}:{}", file.path, at + 1);
            for word in words.iter().filter(|word| line.contains(**word)) {
                broken.push(format!("{place}: `{word}`"));
            }
            let condition = ["when", "once", "until", "as soon as"];
            if line.contains("TODO") && !condition.iter().any(|word| line.contains(word)) {
                broken.push(format!("{place}: a TODO says when it is due"));
            }
        }
    }
    none("notes to self", &broken);
}

#[test]
fn the_page_on_architecture_knows_every_part() {
    let Ok(page) = fs::read_to_string(root().join("docs/architecture.md")) else {
        return;
    };
    let parts: BTreeSet<String> = files("src")
        .iter()
        .filter(|file| file.path != "src/lib.rs")
        .map(|file| file.layer().to_owned())
        .collect();
    let broken: Vec<_> = parts
        .into_iter()
        .filter(|part| {
            !page.contains(&format!("`{part}")) && !page.contains(&format!("src/{part}"))
        })
        .collect();
    none("parts that docs/architecture.md leaves out", &broken);
}
