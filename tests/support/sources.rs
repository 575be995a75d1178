//! The sources of this project as texts, for tests of house rules and of pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file of the project, by its path from the root.
pub(crate) fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = ["src", "bin", "tests", "benches"]
        .iter()
        .map(|name| root.join(name))
        .filter(|folder| folder.is_dir())
        .collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(root).unwrap().to_owned(), text));
            }
        }
    }
    files.sort();
    files
}

/// Names of functions that carry a test attribute.
pub(crate) fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, text) in sources() {
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line == "#[test]" || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
                let name = rest.split('(').next().unwrap();
                names.insert(name.to_owned());
                is_test = false;
            }
        }
    }
    names
}
