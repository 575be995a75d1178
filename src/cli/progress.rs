//! Shows how a workflow goes on: a bar on a terminal, else one line a change.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Context;
use super::args::Format;
use super::error::CliError;
use super::print::{Ink, clean, local_time, note, paint};
use crate::client::{Counts, Summary, TaskView, TaskWord, Update};
use crate::engine::{Attempt, Status};

/// Where lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// They are what the command was asked for: stdout.
    AsData,
    /// They accompany other data: stderr.
    Aside,
}

/// The display of one workflow.
#[derive(Debug)]
pub(super) struct Progress {
    shown: Shown,
    bar: Option<ProgressBar>,
    status: Option<Status>,
    told: Vec<Option<(TaskWord, Attempt)>>,
}

impl Progress {
    /// A bar where both streams are a terminal that can redraw; lines elsewhere.
    pub(super) fn new(context: &Context, shown: Shown) -> Self {
        let live = context.global.output == Format::Text
            && io::stderr().is_terminal()
            && io::stdout().is_terminal()
            && crate::env::real::var("TERM").as_deref() != Some("dumb");
        let bar = live.then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self {
            shown,
            bar,
            status: None,
            told: Vec::new(),
        }
    }

    /// Shows what changed.
    pub(super) fn update(
        &mut self,
        context: &mut Context,
        update: &Update,
    ) -> Result<(), CliError> {
        let summary = &update.view.summary;
        let colour = match (self.bar.is_some(), self.shown) {
            (true, _) | (_, Shown::Aside) => context.printer.colour().stderr,
            (false, Shown::AsData) => context.printer.colour().stdout,
        };
        let time = local_time(context.env.wall());
        let time = time.get(11..19).unwrap_or(&time);
        let first = self.status.is_none();
        let news = self.news(update);
        if let Some(bar) = &self.bar {
            show_bar(bar, summary);
            let bad =
                |task: &&&TaskView| matches!(task.state, TaskWord::Failed | TaskWord::Retrying);
            for task in news.iter().filter(bad) {
                bar.println(task_line(time, task, colour));
            }
        } else if !first {
            for task in news {
                self.line(context, &task_line(time, task, colour))?;
            }
        }
        let turned = self.status.replace(summary.status) != Some(summary.status);
        if summary.status.is_final()
            && let Some(bar) = &self.bar
        {
            bar.finish_and_clear();
        }
        if turned && (self.bar.is_none() || summary.status.is_final()) {
            let line = format!("{time} {}", summary_line(summary, colour));
            self.line(context, &line)?;
        }
        Ok(())
    }

    /// The tasks whose line would read otherwise than the last one shown.
    fn news<'u>(&mut self, update: &'u Update) -> Vec<&'u TaskView> {
        let tasks = &update.view.tasks;
        self.told.resize(tasks.len(), None);
        let mut news = Vec::new();
        for at in &update.changed {
            let line = Some((tasks[*at].state, tasks[*at].attempt_no));
            if self.told[*at] != line {
                self.told[*at] = line;
                news.push(&tasks[*at]);
            }
        }
        news
    }

    fn line(&self, context: &mut Context, text: &str) -> Result<(), CliError> {
        match self.shown {
            Shown::AsData => context.printer.line(text),
            Shown::Aside => {
                note(text);
                Ok(())
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn show_bar(bar: &ProgressBar, summary: &Summary) {
    bar.set_length(summary.total);
    bar.set_position(summary.counts.ended());
    let counts = counts_text(&summary.counts, TaskWord::is_ended);
    bar.set_message(clean(&format!("{} {counts}", summary.name)));
}

/// `12:00:00 train: failed (attempt 2): exit code 3`
fn task_line(time: &str, task: &TaskView, colour: bool) -> String {
    let attempt = match task.attempt_no.number() {
        0 | 1 => String::new(),
        number => format!(" (attempt {number})"),
    };
    let state = word(task.state, colour);
    let mut line = format!("{time} {}: {state}{attempt}", task.name);
    if let Some(reason) = &task.reason {
        line.push_str(": ");
        line.push_str(&clean(reason));
    }
    line
}

/// `montage: running, 3 of 197 tasks ended (completed 3, pending 194): reason`
pub(super) fn summary_line(summary: &Summary, colour: bool) -> String {
    let name = clean(&summary.name);
    let shown = if name == summary.workflow_id.as_str() {
        name
    } else {
        format!("{name} ({})", summary.workflow_id)
    };
    let mut line = format!(
        "{shown}: {}, {} of {} ended ({})",
        status(summary.status, colour),
        summary.counts.ended(),
        tasks_text(summary.total),
        counts_text(&summary.counts, |_| false)
    );
    if let Some(reason) = &summary.reason {
        line.push_str(": ");
        line.push_str(&clean(reason));
    }
    line
}

/// `1 task`, `7 tasks`
pub(super) fn tasks_text(count: impl TryInto<u64>) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => "1 task".to_owned(),
        n => format!("{n} tasks"),
    }
}

/// `completed 3, pending 194`, without the states in `but`… unless nothing else is left.
pub(super) fn counts_text(counts: &Counts, but: impl Fn(TaskWord) -> bool) -> String {
    let shown = counts
        .iter()
        .filter(|(word, _)| !but(*word) || *word == TaskWord::Failed);
    let parts: Vec<String> = shown.map(|(word, n)| format!("{word} {n}")).collect();
    parts.join(", ")
}

/// A state in its colour.
pub(super) fn word(word: TaskWord, colour: bool) -> String {
    let ink = match word {
        TaskWord::Completed => Ink::Green,
        TaskWord::Failed | TaskWord::UpstreamFailed => Ink::Red,
        TaskWord::Retrying | TaskWord::Cancelled | TaskWord::Skipped => Ink::Yellow,
        TaskWord::Running => Ink::Cyan,
        TaskWord::Pending | TaskWord::Ready | TaskWord::Queued => return word.to_string(),
    };
    paint(colour, ink, word.word())
}

/// A status in its colour.
pub(super) fn status(status: Status, colour: bool) -> String {
    let ink = match status {
        Status::Completed => Ink::Green,
        Status::Failed => Ink::Red,
        Status::Cancelling | Status::Cancelled => Ink::Yellow,
        Status::Running => Ink::Cyan,
        Status::Pending => return status.to_string(),
    };
    paint(colour, ink, status.word())
}
