//! The built command where its output is not read, not taken or gone: it goes on, hears signals and says so.

use std::fs;
use std::io::{PipeReader, PipeWriter, Write as _};
use std::path::PathBuf;
use std::process::Stdio;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::{Folder, code, example, text};
use crate::support::process::command;
use crate::support::stack::until;

/// A pipe that takes nothing any more, and the end that nobody reads.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

#[test]
fn a_run_whose_output_waits_for_a_reader_hears_signals_all_the_same() {
    let folder = Folder::new();
    let (slow, marks) = (folder.file("slow-to-end.json"), folder.file("marks"));
    let cmd = format!(
        "trap 'echo ended >> {marks}; exit 1' TERM; echo started >> {marks}; sleep 300 & wait"
    );
    // Before it there are more changes than may wait to be told, each looked at alone.
    let quick = |task: &str, depends_on: &[&str]| json!({"name": task, "cmd": "sleep 0.1", "depends_on": depends_on});
    let last = json!({"name": "last", "cmd": cmd, "depends_on": ["c"]});
    let tasks = [
        quick("a", &[]),
        quick("b", &["a"]),
        quick("c", &["b"]),
        last,
    ];
    fs::write(&slow, json!({"tasks": tasks}).to_string()).unwrap();
    let marked = |mark: &str| {
        until("the mark", || {
            let text = fs::read_to_string(&marks).unwrap_or_default();
            text.contains(mark).then_some(())
        });
    };
    let (_reader, writer) = full_pipe();
    let mut run = command(["run", &slow]).stdout(writer).spawn().unwrap();
    let pid = Pid::from_raw(run.id().try_into().unwrap());
    marked("started");
    kill(pid, Signal::SIGTERM).unwrap();
    marked("ended");
    kill(pid, Signal::SIGTERM).unwrap();
    let exit = until("the end", || run.try_wait().unwrap());
    assert_eq!(exit.code(), Some(143));
}

/// How a command ends, and what it says, whose output nobody reads.
fn unread(args: &[&str]) -> (i32, String) {
    let mut child = command(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    (code(&output), text(&output.stderr).clone())
}

#[test]
fn a_closed_pipe_is_a_quiet_end_and_no_success() {
    let told = unread(&["validate", &example("montage-200.yaml")]);
    assert_eq!(told, (141, String::new()));
    let told = unread(&["run", "/nowhere", "--output", "json"]);
    assert_eq!(told, (141, String::new()), "nor is its error told");
}

/// A definition whose second task notes each of its runs as a line, and then ends so; and where it notes them.
fn noting(folder: &Folder, end: &str) -> (String, PathBuf) {
    let done = folder.0.path().join("done");
    let definition = format!(
        "tasks: [{{name: a, cmd: 'true'}}, {{name: b, cmd: 'echo >> {}; {end}', depends_on: [a]}}]",
        done.display()
    );
    let file = folder.file("noting.yaml");
    fs::write(&file, definition).unwrap();
    (file, done)
}

#[test]
fn a_run_of_which_nobody_reads_goes_on_and_tells_how_it_ended() {
    let folder = Folder::new();
    let (file, done) = noting(&folder, "exit 3");
    assert_eq!(unread(&["run", &file]).0, 10);
    assert_eq!(unread(&["run", &file, "--output", "json"]).0, 10);
    assert_eq!(fs::read_to_string(done).unwrap().lines().count(), 2);
    assert_eq!(
        unread(&["run", &example("montage-200.yaml")]),
        (0, String::new())
    );
}

/// An output that takes nothing: its disk is full.
pub(super) fn full() -> fs::File {
    let full = fs::File::options().write(true).open("/dev/full");
    full.unwrap()
}

#[test]
fn a_run_whose_output_is_not_taken_goes_on_and_says_so() {
    let folder = Folder::new();
    let (file, done) = noting(&folder, "exit 0");
    for format in ["text", "json"] {
        let mut run = command(["run", &file, "--output", format]);
        let run = run.stdout(full()).stderr(Stdio::piped());
        let output = run.output().unwrap();
        assert_eq!(code(&output), 1, "{output:?}");
        let told = text(&output.stderr);
        assert!(told.contains("went on to its end: completed"), "{told}");
    }
    assert_eq!(fs::read_to_string(done).unwrap().lines().count(), 2);
}
