//! The commands in the README and in docs/ do what the pages say: each `sh` block is run, or says why it is not.
//!
//! A block whose info string is `sh` is run by bash in a scratch folder that the blocks of one page share. `sh not-run: REASON` is
//! passed over, and the reason must be there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::azurite::azurite;
use crate::support::process::{Process, workflow};

/// A block of commands.
struct Block {
    page: String,
    line: usize,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = docs.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|end| end == "md"));
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// The blocks of a page that are to be run.
fn blocks(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<(bool, Block)> = None;
    for (at, line) in text.lines().enumerate() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            if let Some((_, block)) = &mut open {
                block.text.push_str(line);
                block.text.push('\n');
            }
            continue;
        };
        match open.take() {
            Some((true, block)) => blocks.push(block),
            Some((false, _)) => {}
            None => {
                let page = page.file_name().unwrap().to_str().unwrap().to_owned();
                let place = format!("{page}:{}", at + 1);
                let words: Vec<&str> = info.splitn(3, ' ').collect();
                let run = match words[..] {
                    ["sh"] => true,
                    ["sh", "not-run:", reason] => {
                        assert!(!reason.trim().is_empty(), "{place}: why is it not run?");
                        false
                    }
                    ["sh" | "console" | "bash" | "shell", ..] => {
                        panic!("{place}: write `sh` or `sh not-run: REASON`, not `{info}`")
                    }
                    _ => false,
                };
                let line = at + 1;
                let text = String::new();
                open = Some((run, Block { page, line, text }));
            }
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", page.display());
    blocks
}

/// A folder with the examples, and with the built command where `PATH` finds it.
fn scratch() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let examples = folder.path().join("examples");
    fs::create_dir(&examples).unwrap();
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), examples.join(entry.file_name())).unwrap();
    }
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(workflow(), bin.join("workflow")).unwrap();
    folder
}

#[test]
fn the_commands_of_every_page_do_what_it_says() {
    let connection = azurite().connection_string();
    let envs = [
        ("AZURE_STORAGE_CONNECTION_STRING", connection.as_str()),
        ("WORKFLOW_STORE", "docs"),
    ];
    let coordinator = Process::start(&["coordinator"], &envs);
    let _worker = Process::start(&["worker", "--slots", "4"], &envs);
    coordinator.wait_for(Duration::from_secs(60), |line| line.contains("lead"));
    let mut count = 0;
    for page in pages() {
        let folder = scratch();
        for block in blocks(&page) {
            // The built command stands in for a build of it.
            let script = block.text.replace("cargo run --release --", "workflow");
            let mut path = folder.path().join("bin").into_os_string();
            path.push(":/usr/local/bin:/usr/bin:/bin");
            let mut bash = Command::new("bash");
            bash.args(["-euo", "pipefail", "-c", &script])
                .env("PATH", path);
            let output = bash.current_dir(folder.path()).envs(envs).output().unwrap();
            assert!(
                output.status.success(),
                "{}:{}: {}\n{}{}",
                block.page,
                block.line,
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            count += 1;
        }
    }
    assert!(count >= 4, "the pages hold commands");
}

#[test]
fn the_readme_has_two_commands() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = text.matches("```sh").count();
    assert_eq!(blocks, 2);
}
