//! The built command as a process under test: started in a clean environment, watched line by line, signalled, and never left behind.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The built command.
pub(crate) fn workflow() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_workflow"))
}

/// The command, without what the surroundings of the tests would tell it.
pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(workflow());
    command.args(args).stdin(Stdio::null());
    for (name, _) in dagaz::env::real::vars() {
        let text = name.to_string_lossy();
        if ["WORKFLOW_", "AZURE_", "JOBQ_"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            command.env_remove(&name);
        }
    }
    command
}

/// What a process has printed so far.
#[derive(Default)]
struct Printed {
    lines: Vec<String>,
    open: usize,
}

/// A running process. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    printed: Arc<(Mutex<Printed>, Condvar)>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.child.id())
    }
}

impl Process {
    /// Starts the command with `args`, adding `envs` to the clean environment.
    pub(crate) fn start(args: &[&str], envs: &[(&str, &str)]) -> Self {
        Self::spawn(command(args).envs(envs.iter().copied()))
    }

    /// Starts `command`, whose stdout and stderr are collected together, line by line.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let printed = Arc::new((
            Mutex::new(Printed {
                open: 2,
                ..Printed::default()
            }),
            Condvar::new(),
        ));
        collect(child.stdout.take().unwrap(), &printed);
        collect(child.stderr.take().unwrap(), &printed);
        Self { child, printed }
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.printed.0.lock().unwrap().lines.clone()
    }

    /// The first line that `wanted` accepts, waiting for it up to `limit`.
    pub(crate) fn wait_for(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = deadline(limit);
        let (printed, changed) = &*self.printed;
        let mut printed = printed.lock().unwrap();
        loop {
            if let Some(line) = printed.lines.iter().find(|line| wanted(line)) {
                return line.clone();
            }
            let left = remaining(deadline);
            assert!(
                printed.open > 0 && !left.is_zero(),
                "no such line within {limit:?}; {self:?} printed:\n{}",
                printed.lines.join("\n")
            );
            printed = changed.wait_timeout(printed, left).unwrap().0;
        }
    }

    /// Waits for the end of both outputs and of the process itself.
    pub(crate) fn wait_for_exit(&mut self, limit: Duration) -> ExitStatus {
        let deadline = deadline(limit);
        {
            let (printed, changed) = &*self.printed;
            let mut printed = printed.lock().unwrap();
            while printed.open > 0 {
                let left = remaining(deadline);
                assert!(
                    !left.is_zero(),
                    "{self:?} did not end within {limit:?}; it printed:\n{}",
                    printed.lines.join("\n")
                );
                printed = changed.wait_timeout(printed, left).unwrap().0;
            }
        }
        // Its outputs are closed, so it is ending.
        self.child.wait().unwrap()
    }

    /// How it ended, once both outputs have ended as well; none while it runs.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        // Looked at first: a process that was waited for can no longer be signalled.
        let is_ending = self.printed.0.lock().unwrap().open == 0;
        if is_ending {
            self.child.try_wait().unwrap()
        } else {
            None
        }
    }

    /// Sends a signal to the process alone.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and been waited for.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn collect(stream: impl Read + Send + 'static, printed: &Arc<(Mutex<Printed>, Condvar)>) {
    let printed = Arc::clone(printed);
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).into_owned();
            printed.0.lock().unwrap().lines.push(line);
            printed.1.notify_all();
        }
        printed.0.lock().unwrap().open -= 1;
        printed.1.notify_all();
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests of real processes wait in real time"
)]
fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests of real processes wait in real time"
)]
fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

#[test]
fn a_process_is_watched_signalled_and_waited_for() {
    let script =
        "trap 'kill $!; echo two >&2; exit 3' TERM; sleep 60 >/dev/null 2>&1 & echo one; wait";
    let mut command = Command::new("bash");
    command.args(["-c", script]);
    let mut process = Process::spawn(&mut command);
    process.wait_for(Duration::from_secs(10), |line| line == "one");
    process.signal(Signal::SIGTERM);
    let status = process.wait_for_exit(Duration::from_secs(10));
    assert_eq!(status.code(), Some(3));
    assert_eq!(process.lines(), ["one", "two"]);
}

#[test]
fn the_built_command_starts_in_a_clean_environment() {
    let mut process = Process::start(&["--version"], &[("WORKFLOW_STORE", "x/y")]);
    assert!(process.wait_for_exit(Duration::from_secs(10)).success());
}
