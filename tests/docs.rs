//! The commands in the README and in docs/ do what the pages say: each `sh` block is run, or says why it is not.
//!
//! A block whose info string is `sh` is run by bash in a scratch folder that the blocks of one page share. `sh run-by: TEST` is left to the
//! test of that name, which prepares what the block is for. `sh not-run: REASON` is passed over, and the reason must be there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::azurite::azurite;
use crate::support::process::{Process, workflow};
use crate::support::sources::tests;

/// A block of commands.
struct Block {
    page: String,
    line: usize,
    text: String,
    run_by: RunBy,
}

/// Who runs a block.
#[derive(PartialEq)]
enum RunBy {
    This,
    Test(String),
    Nobody,
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

/// The commands of a page that the test of this name is to run.
pub(crate) fn commands_for(page: &str, test: &str) -> String {
    let blocks = blocks(&root().join("docs").join(page));
    let by = RunBy::Test(test.to_owned());
    let mut found = blocks.into_iter().filter(|block| block.run_by == by);
    let block = found.next().expect("the page leaves a block to this test");
    assert!(found.next().is_none(), "one block is left to `{test}`");
    block.text
}

/// The blocks of commands of a page.
fn blocks(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let mut blocks = Vec::new();
    // Blocks of other languages are none.
    let mut open: Option<Option<Block>> = None;
    for (at, line) in text.lines().enumerate() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            if let Some(Some(block)) = &mut open {
                block.text.push_str(line);
                block.text.push('\n');
            }
            continue;
        };
        if let Some(block) = open.take() {
            blocks.extend(block);
        } else {
            let page = page.file_name().unwrap().to_str().unwrap().to_owned();
            let place = format!("{page}:{}", at + 1);
            let words: Vec<&str> = info.splitn(3, ' ').collect();
            let run_by = match words[..] {
                ["sh"] => Some(RunBy::This),
                ["sh", "run-by:", name] => Some(RunBy::Test(name.to_owned())),
                ["sh", "not-run:", reason] => {
                    assert!(!reason.trim().is_empty(), "{place}: why is it not run?");
                    Some(RunBy::Nobody)
                }
                ["sh" | "console" | "bash" | "shell", ..] => panic!(
                    "{place}: write `sh`, `sh run-by: TEST` or `sh not-run: REASON`, not `{info}`"
                ),
                _ => None,
            };
            open = Some(run_by.map(|run_by| Block {
                page,
                line: at + 1,
                text: String::new(),
                run_by,
            }));
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", page.display());
    blocks
}

/// A folder with the examples, and with the built command where `PATH` finds it.
pub(crate) fn scratch() -> tempfile::TempDir {
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
            if block.run_by != RunBy::This {
                continue;
            }
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
fn a_block_that_is_left_to_a_test_names_one() {
    let tests = tests();
    for block in pages().iter().flat_map(|page| blocks(page)) {
        if let RunBy::Test(name) = block.run_by {
            let place = format!("{}:{}", block.page, block.line);
            assert!(tests.contains(&name), "{place}: there is no test `{name}`");
        }
    }
}

#[test]
fn the_readme_has_two_commands() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = text.matches("```sh").count();
    assert_eq!(blocks, 2);
}
