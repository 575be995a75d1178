//! `workflow tasks ID`

use std::time::Duration;

use comfy_table::presets;
use comfy_table::{ContentArrangement, Table};

use super::args::Target;
use super::exit::Exit;
use super::print::{clean, local_time, short_duration};
use super::{Context, Outcome, open};
use crate::client::{TaskView, TaskWord};

/// Arguments of `tasks`.
#[derive(Debug, clap::Args)]
pub(super) struct TasksArgs {
    #[command(flatten)]
    target: Target,
    /// Only tasks in this state; may be given several times
    #[arg(long, value_name = "STATE")]
    state: Vec<TaskWord>,
}

/// Shows the tasks of a workflow in the order of its definition.
pub(super) async fn tasks(context: &mut Context, args: &TasksArgs) -> Outcome {
    let client = open::client(context)?;
    let view = client.read(&args.target.id).await?;
    let wanted = |task: &&TaskView| args.state.is_empty() || args.state.contains(&task.state);
    let tasks: Vec<&TaskView> = view.tasks.iter().filter(wanted).collect();
    if context.is_json() {
        context.printer.json(&tasks)?;
    } else {
        context.printer.line(&table(&tasks))?;
    }
    Ok(Exit::Ok)
}

/// Tasks as a table.
pub(super) fn table(tasks: &[&TaskView]) -> String {
    let mut table = plain_table();
    table.set_header([
        "TASK", "STATE", "ATTEMPT", "STARTED", "TOOK", "EXIT", "WORKER", "REASON",
    ]);
    for task in tasks {
        let took = task.started_at.zip(task.ended_at).map(|(from, to)| {
            // Clocks may be set back between the two.
            Duration::try_from(to.duration_since(from)).unwrap_or_default()
        });
        table.add_row([
            clean(task.name.as_str()),
            task.state.to_string(),
            task.attempt_no.to_string(),
            task.started_at.map(local_time).unwrap_or_default(),
            took.map(short_duration).unwrap_or_default(),
            task.exit_code
                .map(|code| code.to_string())
                .unwrap_or_default(),
            task.worker.as_deref().map(clean).unwrap_or_default(),
            task.reason.as_deref().map(clean).unwrap_or_default(),
        ]);
    }
    trimmed(table)
}

/// An empty table without lines, its columns as wide as what they hold: rows are for grep as much as for eyes.
pub(super) fn plain_table() -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// The text of a table, two blanks between columns and none at the ends of lines.
pub(super) fn trimmed(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}
