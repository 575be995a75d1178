//! From a tree to a checked definition: the keys of the workflow, and its tasks as a graph.

use std::collections::HashMap;

use super::dependencies;
use super::diagnostic::Report;
use super::fields::{Field, Unknown, fields, seconds, text, variables, whole, word};
use super::limits::{DESCRIPTION_CHARS_MAX, NAME_CHARS_MAX, TASKS_MAX};
use super::model::{Definition, OnFailure, ResultPolicy};
use super::name::QueueName;
use super::source::Span;
use super::task::{self, Written};
use super::tree::{Kind, Node};

/// The queue of tasks that name none, in a workflow that names none.
const DEFAULT_QUEUE: &str = "default";

/// Reads the workflow; the report says whether what is returned may be used.
pub(super) fn read(report: &mut Report<'_>, root: &Node<'_>) -> Option<Definition> {
    let known = [
        "name",
        "description",
        "default_queue",
        "max_parallelism",
        "default_task_timeout_s",
        "result_policy",
        "on_failure",
        "env",
        "tasks",
        "$schema",
        "on_skipped_deps",
    ];
    let Some(found) = fields(report, root, &known, Unknown::TakeExtensions) else {
        let kind = root.kind().name();
        let message = format!("a workflow must be a mapping with a list of `tasks`, found {kind}");
        report.error(first_line(root.span), message);
        return None;
    };
    let [.., tasks, _, _] = found;
    let given = found.map(|field| field.and_then(Field::given));
    let [
        name,
        description,
        default_queue,
        max_parallelism,
        default_timeout_s,
        result_policy,
        on_failure,
        env,
        _,
        _,
        on_skipped_deps,
    ] = given;
    let name = name.and_then(|field| workflow_name(report, field));
    let description = description.and_then(|field| workflow_description(report, field));
    let default_queue = match default_queue {
        Some(field) => queue_name(report, field, "`default_queue`"),
        None => QueueName::new(DEFAULT_QUEUE).ok(),
    };
    let most_at_once = u32::try_from(TASKS_MAX).unwrap_or(u32::MAX);
    let max_parallelism = max_parallelism
        .and_then(|field| whole(report, field, "`max_parallelism`", 1..=most_at_once));
    let default_timeout_s =
        default_timeout_s.and_then(|field| seconds(report, field, "`default_task_timeout_s`"));
    let result_policy = result_policy.and_then(|field| {
        let known = [
            ("all_sinks_succeed", ResultPolicy::AllSinksSucceed),
            ("all_tasks_succeed", ResultPolicy::AllTasksSucceed),
        ];
        word(report, field, "`result_policy`", &known)
    });
    let on_failure = on_failure.and_then(|field| {
        let known = [
            ("continue", OnFailure::Continue),
            ("cancel", OnFailure::Cancel),
        ];
        word(report, field, "`on_failure`", &known)
    });
    if let Some(field) = on_skipped_deps {
        unsupported(report, field, "on_skipped_deps");
    }
    let env = env.map(|field| variables(report, field));
    let Some(tasks) = tasks else {
        let message = "the workflow has no `tasks`";
        let help = "a workflow has a list of `tasks`, each with `name` and `cmd`";
        report.error_help(first_line(root.span), message, help.to_owned());
        return None;
    };
    let tasks = task_nodes(report, tasks)?;
    let mut written: Vec<Written<'_, '_>> = tasks
        .iter()
        .map(|node| task::read(report, node, default_timeout_s))
        .collect();
    let names = unique_names(report, &written);
    dependencies::resolve(report, &mut written, &names);
    // A task without a value has been reported, so that the whole is refused.
    let tasks = written.into_iter().filter_map(|task| task.task).collect();
    Some(Definition {
        name,
        description,
        default_queue: default_queue?,
        max_parallelism,
        result_policy: result_policy.unwrap_or(ResultPolicy::AllSinksSucceed),
        on_failure: on_failure.unwrap_or(OnFailure::Continue),
        env: env.unwrap_or_default(),
        tasks,
    })
}

/// A key that has its place and no meaning yet: refused, because running as if it were not there would be wrong.
pub(super) fn unsupported(report: &mut Report<'_>, field: Field<'_, '_>, key: &str) {
    let help = format!("remove `{key}`; without it the task runs whenever its dependencies allow");
    report.error_help(field.key, format!("`{key}` is not supported yet"), help);
}

/// A queue of this prefix.
pub(super) fn queue_name(
    report: &mut Report<'_>,
    field: Field<'_, '_>,
    what: &str,
) -> Option<QueueName> {
    let name = text(report, field, what)?;
    match QueueName::new(name) {
        Ok(queue) => Some(queue),
        Err(error) => {
            report.error(field.place(), error.to_string());
            None
        }
    }
}

fn workflow_name(report: &mut Report<'_>, field: Field<'_, '_>) -> Option<String> {
    let name = text(report, field, "the name of the workflow")?;
    let problem = if name.trim().is_empty() {
        "must not be empty".to_owned()
    } else if name.contains(char::is_control) {
        "must not hold control characters".to_owned()
    } else if name.chars().count() > NAME_CHARS_MAX {
        let length = name.chars().count();
        format!("has {length} characters; at most {NAME_CHARS_MAX} are taken")
    } else {
        return Some(name.to_owned());
    };
    report.error(field.place(), format!("the name of the workflow {problem}"));
    None
}

fn workflow_description(report: &mut Report<'_>, field: Field<'_, '_>) -> Option<String> {
    let description = text(report, field, "`description`")?;
    let length = description.chars().count();
    if length > DESCRIPTION_CHARS_MAX {
        let message = format!(
            "`description` has {length} characters; at most {DESCRIPTION_CHARS_MAX} are taken"
        );
        report.error(field.place(), message);
        return None;
    }
    Some(description.to_owned())
}

fn task_nodes<'t, 's>(report: &mut Report<'_>, field: Field<'t, 's>) -> Option<&'t [Node<'s>]> {
    match field.value.kind() {
        Kind::Seq([]) | Kind::Null(_) => {
            report.error(
                field.key,
                "`tasks` is empty: a workflow has one task at least",
            );
        }
        Kind::Seq(tasks) if tasks.len() > TASKS_MAX => {
            let count = tasks.len();
            let message = format!("the workflow has {count} tasks; at most {TASKS_MAX} are taken");
            report.error(field.key, message);
        }
        Kind::Seq(tasks) => return Some(tasks),
        kind => {
            let message = format!("`tasks` must be a list, found {}", kind.name());
            let help = "write each task as `- name: …` below `tasks:`";
            report.error_help(field.key, message, help.to_owned());
        }
    }
    None
}

/// The place of each name; the second task of a name is an error.
fn unique_names<'t>(
    report: &mut Report<'_>,
    written: &[Written<'t, '_>],
) -> HashMap<&'t str, usize> {
    let mut names: HashMap<&str, usize> = HashMap::with_capacity(written.len());
    for (at, task) in written.iter().enumerate() {
        let Some(name) = task.name else { continue };
        if let Some(first) = names.get(name) {
            let line = report.line(written[*first].place);
            let message = format!(
                "a second task is called `{}`; the first is on line {line}",
                name.escape_debug()
            );
            report.error(task.place, message);
        } else {
            names.insert(name, at);
        }
    }
    names
}

/// A place at the start of what may be the whole file.
const fn first_line(span: Span) -> Span {
    Span {
        start: span.start,
        end: span.start,
    }
}
