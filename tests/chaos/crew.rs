//! The processes of a run: started, struck, started again when they end, and looked over for what must never be in a log.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::diary::Diary;
use super::plan::{COORDINATORS, SEATS};
use crate::support::process::Process;
use crate::support::stack::{PATIENCE, Stack, until};

/// Short times, so that what is lost is found soon. A worker's death shows after 20 s, a coordinator's after 15 s.
const COORDINATOR: &str = "coordinator --standby --lease-duration-s 15 --visibility-timeout-s 10 --cancel-grace-s 10 \
    --activation-sweep-interval-s 2 --ready-sweep-interval-s 5 --ready-repair-threshold-s 15";
/// Starts are not bounded: here they fail by no fault of the command.
const WORKER: &str = "worker --slots 6 --max-idle-backoff-s 1 --visibility-timeout-s 20 --heartbeat-interval-s 2 --kill-grace-s 1 \
    --drain-timeout-s 2 --cancel-poll-interval-s 2 --max-deliveries 1000 --max-interruptions 1000";

#[derive(Debug)]
struct Seat {
    process: Process,
    name: String,
    /// How often it was told to end.
    told: u32,
    is_killed: bool,
    was_paused: bool,
}

#[derive(Debug)]
pub(super) struct Crew<'a> {
    stack: &'a Stack,
    diary: &'a Diary,
    seats: Vec<Seat>,
    past: Vec<Seat>,
    started: u32,
    /// Whether that may have kept one from starting, or cost it its lease.
    pub(super) storage_was_down: bool,
    /// What must not happen, and did.
    problems: Vec<String>,
}

impl<'a> Crew<'a> {
    pub(super) fn start(stack: &'a Stack, diary: &'a Diary) -> Self {
        let mut crew = Self {
            stack,
            diary,
            seats: Vec::new(),
            past: Vec::new(),
            started: 0,
            storage_was_down: false,
            problems: Vec::new(),
        };
        for seat in 0..SEATS {
            let seat = crew.sit(seat);
            crew.seats.push(seat);
        }
        crew
    }

    fn sit(&mut self, seat: usize) -> Seat {
        let (role, line) = if seat < COORDINATORS {
            ("coordinator", COORDINATOR)
        } else {
            ("worker", WORKER)
        };
        self.started += 1;
        let args: Vec<_> = line.split_whitespace().collect();
        let mut command = self.stack.command(&args);
        // What killed workers leave behind goes with the run.
        command.env("TMPDIR", self.stack.folder.path());
        Seat {
            process: Process::spawn(&mut command),
            name: format!("{:02}-{role}-{seat}", self.started),
            told: 0,
            is_killed: false,
            was_paused: false,
        }
    }

    /// Puts others in the place of those that have ended.
    pub(super) fn tend(&mut self) {
        for at in 0..self.seats.len() {
            if let Some(status) = self.seats[at].process.exited() {
                let next = self.sit(at);
                let ended = std::mem::replace(&mut self.seats[at], next);
                self.look_at(&ended, status);
                self.past.push(ended);
            }
        }
    }

    fn look_at(&mut self, seat: &Seat, status: ExitStatus) {
        let Seat { name, told, .. } = seat;
        let was_deaf = seat.process.lines().is_empty();
        let expected = match (status.code(), status.signal()) {
            (_, Some(9)) => seat.is_killed,
            // Before it listened to signals.
            (_, Some(15)) => *told > 0 && was_deaf,
            (Some(0), _) => *told > 0,
            (Some(143), _) => *told > 1,
            (Some(6), _) => self.storage_was_down,
            // Another leads: while it was paused, or since the emulator forgets leases when it restarts.
            (Some(8), _) => {
                name.contains("coordinator") && (seat.was_paused || self.storage_was_down)
            }
            _ => false,
        };
        if !expected {
            self.problems.push(format!(
                "{name} ended by {status} unexpectedly (told {told} times)"
            ));
        }
        self.diary.note(&format!("{name} ended by {status}"));
    }

    fn note(&self, what: &str, at: usize) {
        self.diary.note(&format!("{} {what}", self.seats[at].name));
    }

    pub(super) fn kill(&mut self, at: usize) {
        self.note("is killed", at);
        let seat = &mut self.seats[at];
        seat.is_killed = true;
        // Stopped first, so that it neither starts nor reports anything while its commands die.
        seat.process.signal(Signal::SIGSTOP);
        let pid = seat.process.pid();
        until("a process to stop", || {
            let state = stat(pid.as_raw()).map(|(state, _)| state);
            matches!(state, None | Some('T' | 'Z' | 'X')).then_some(())
        });
        signal_commands(pid, Signal::SIGKILL);
        seat.process.signal(Signal::SIGKILL);
    }

    pub(super) fn terminate(&mut self, at: usize) {
        self.note("is told to end", at);
        let seat = &mut self.seats[at];
        seat.told += 1;
        seat.process.signal(Signal::SIGTERM);
    }

    pub(super) fn pause(&mut self, at: usize, with_commands: bool) {
        let what = ["is paused alone", "is paused with its commands"];
        self.note(what[usize::from(with_commands)], at);
        let seat = &mut self.seats[at];
        seat.was_paused = true;
        let process = &seat.process;
        process.signal(Signal::SIGSTOP);
        if with_commands {
            signal_commands(process.pid(), Signal::SIGSTOP);
        }
    }

    pub(super) fn resume(&mut self, at: usize) {
        self.note("is resumed", at);
        let process = &self.seats[at].process;
        signal_commands(process.pid(), Signal::SIGCONT);
        process.signal(Signal::SIGCONT);
    }

    /// Ends all in order and looks over what they printed; their logs go to the folder of the diary.
    pub(super) fn end(mut self) -> Vec<String> {
        for at in 0..self.seats.len() {
            self.terminate(at);
        }
        for mut seat in std::mem::take(&mut self.seats) {
            let status = seat.process.wait_for_exit(PATIENCE);
            self.look_at(&seat, status);
            self.past.push(seat);
        }
        for seat in &self.past {
            let lines = seat.process.lines();
            let panics = lines.iter().filter(|line| line.contains("panicked"));
            self.problems
                .extend(panics.map(|line| format!("{} printed: {line}", seat.name)));
            let file = self.diary.folder.join(format!("{}.log", seat.name));
            std::fs::write(file, lines.join("\n")).unwrap();
        }
        self.problems
    }
}

/// Signals each command of a worker with its group: they are the children, each the leader of a group.
fn signal_commands(worker: Pid, signal: Signal) {
    for entry in std::fs::read_dir("/proc").unwrap() {
        let name = entry.unwrap().file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if stat(pid).is_some_and(|(_, parent)| parent == worker.as_raw()) {
            // By itself too: it may not have a group of its own yet. Both fail only for what has ended.
            killpg(Pid::from_raw(pid), signal).ok();
            kill(Pid::from_raw(pid), signal).ok();
        }
    }
}

/// The letter of the state of a process, and its parent.
fn stat(pid: i32) -> Option<(char, i32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((state, words.next()?.parse().ok()?))
}
