//! What happened, as one number to compare and as lines to read.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Mutex;
use std::time::Duration;

use super::scheduler::hold;

/// Lines kept for a failing seed.
const LINES_MAX: usize = 200_000;

#[derive(Debug, Default)]
struct Inside {
    hasher: DefaultHasher,
    lines: VecDeque<String>,
}

/// The trace of one run.
#[derive(Debug, Default)]
pub(super) struct Trace {
    keeps_lines: bool,
    inside: Mutex<Inside>,
}

impl Trace {
    pub(super) fn new(keeps_lines: bool) -> Self {
        Self {
            keeps_lines,
            inside: Mutex::default(),
        }
    }

    /// Notes that a task was polled.
    pub(super) fn poll(&self, process: u32, task: u64) {
        (process, task).hash(&mut hold(&self.inside).hasher);
    }

    /// Notes an event.
    pub(super) fn event(&self, at: Duration, who: &str, what: &str) {
        let mut inside = hold(&self.inside);
        (at, who, what).hash(&mut inside.hasher);
        if self.keeps_lines {
            if inside.lines.len() == LINES_MAX {
                inside.lines.pop_front();
            }
            let line = format!("{:>12.6} {who:<10} {what}", at.as_secs_f64());
            inside.lines.push_back(line);
        }
    }

    /// One number for all that happened.
    pub(super) fn hash(&self) -> u64 {
        hold(&self.inside).hasher.finish()
    }

    /// The lines kept.
    pub(super) fn lines(&self) -> Vec<String> {
        hold(&self.inside).lines.iter().cloned().collect()
    }
}
