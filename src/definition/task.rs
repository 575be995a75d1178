//! The keys of one task. Its dependencies are resolved when all tasks are known.

use super::diagnostic::Report;
use super::fields::{Field, Unknown, argument, fields, seconds, text, variables, whole};
use super::limits::{CMD_BYTES_MAX, CWD_BYTES_MAX, KEY_BYTES_MAX, RETRIES_MAX};
use super::model::{Command, DepPolicy, Task};
use super::name::TaskName;
use super::source::Span;
use super::suggest::nearest;
use super::tree::{Kind, Node};
use super::workflow::{queue_name, unsupported};

/// A task as written.
#[derive(Debug)]
pub(super) struct Written<'t, 's> {
    /// Its name, also one that breaks a rule: whoever depends on it is not to blame.
    pub(super) name: Option<&'t str>,
    /// Where to point: at the name, or at the start of the task.
    pub(super) place: Span,
    /// The names it depends on.
    pub(super) depends_on: &'t [Node<'s>],
    /// Where its policy is written.
    pub(super) policy: Option<Span>,
    /// The task without its dependencies; nothing when a part was refused.
    pub(super) task: Option<Task>,
}

/// Reads one task.
pub(super) fn read<'t, 's>(
    report: &mut Report<'_>,
    node: &'t Node<'s>,
    default_timeout_s: Option<f64>,
) -> Written<'t, 's> {
    let known = [
        "name",
        "cmd",
        "kwargs",
        "env",
        "cwd",
        "depends_on",
        "queue",
        "dep_policy",
        "num_retries",
        "timeout_s",
        "idempotency_key",
        "condition",
        "on_skipped_deps",
    ];
    let mut written = Written {
        name: None,
        place: node.span,
        depends_on: &[],
        policy: None,
        task: None,
    };
    let Some(found) = fields(report, node, &known, Unknown::Refuse) else {
        let kind = node.kind().name();
        let message = format!("a task must be a mapping with `name` and `cmd`, found {kind}");
        report.error(node.span, message);
        return written;
    };
    let [name, cmd, _, _, _, depends_on, ..] = found;
    let given = found.map(|field| field.and_then(Field::given));
    let [
        _,
        _,
        kwargs,
        env,
        cwd,
        _,
        queue,
        dep_policy,
        num_retries,
        timeout_s,
        idempotency_key,
        condition,
        on_skipped_deps,
    ] = given;
    written.place = match (&name, node.kind()) {
        (Some(name), _) => name.place(),
        (None, Kind::Map([(first, _), ..])) => first.span,
        _ => node.span,
    };
    written.name = name.and_then(|field| text(report, field, "the name of the task"));
    if name.is_none() {
        report.error(written.place, "the task has no `name`");
    }
    let run = Run { cmd, env, cwd };
    let run = match kwargs {
        Some(kwargs) => with_kwargs(report, run, kwargs),
        None => run,
    };
    if run.cmd.is_none() {
        report.error(written.place, "the task has no `cmd`");
    }
    let name = written
        .name
        .and_then(|name| task_name(report, name, written.place));
    let cmd = run
        .cmd
        .and_then(|field| command(report, field, written.name));
    let env = run.env.map(|field| variables(report, field));
    let cwd = run.cwd.and_then(|field| directory(report, field));
    let queue = queue.and_then(|field| queue_name(report, field, "`queue`"));
    written.depends_on = depends_on.map_or(&[], |field| dependency_nodes(report, field));
    written.policy = dep_policy.map(|field| field.place());
    let dep_policy = dep_policy.and_then(|field| policy(report, field));
    let num_retries =
        num_retries.and_then(|field| whole(report, field, "`num_retries`", 0..=RETRIES_MAX));
    let timeout_s = timeout_s.and_then(|field| seconds(report, field, "`timeout_s`"));
    let idempotency_key = idempotency_key.and_then(|field| key(report, field));
    if let Some(field) = condition {
        unsupported(report, field, "condition");
    }
    if let Some(field) = on_skipped_deps {
        unsupported(report, field, "on_skipped_deps");
    }
    if let (Some(name), Some(cmd)) = (name, cmd) {
        written.task = Some(Task {
            name,
            cmd,
            env: env.unwrap_or_default(),
            cwd,
            depends_on: Vec::new(),
            queue,
            dep_policy: dep_policy.unwrap_or(DepPolicy::All),
            num_retries: num_retries.unwrap_or(0),
            timeout_s: timeout_s.or(default_timeout_s),
            idempotency_key,
        });
    }
    written
}

fn task_name(report: &mut Report<'_>, name: &str, place: Span) -> Option<TaskName> {
    match TaskName::new(name) {
        Ok(name) => Some(name),
        Err(error) => {
            let length = format!("this one has {} bytes", name.len());
            let help = (name.len() > 160).then_some(length);
            report.error_help(place, error.to_string(), help);
            None
        }
    }
}

/// The three keys that say what runs, and how.
#[derive(Debug, Clone, Copy)]
struct Run<'t, 's> {
    cmd: Option<Field<'t, 's>>,
    env: Option<Field<'t, 's>>,
    cwd: Option<Field<'t, 's>>,
}

/// Adds what stands in `kwargs`, where other tools write the same three keys.
fn with_kwargs<'t, 's>(
    report: &mut Report<'_>,
    outer: Run<'t, 's>,
    kwargs: Field<'t, 's>,
) -> Run<'t, 's> {
    let known = ["cmd", "env", "cwd"];
    let Some(found) = fields(report, kwargs.value, &known, Unknown::Warn) else {
        let kind = kwargs.value.kind().name();
        let message = format!("`kwargs` must be a mapping with `cmd`, found {kind}");
        report.error(kwargs.place(), message);
        return outer;
    };
    let [cmd, env, dir] = found;
    let (env, dir) = (env.and_then(Field::given), dir.and_then(Field::given));
    let mut either = |key: &str, outer: Option<Field<'t, 's>>, inner: Option<Field<'t, 's>>| {
        if let (Some(outer), Some(inner)) = (outer, inner) {
            let line = report.line(outer.key);
            let message = format!(
                "`{key}` stands in the task (line {line}) and in its `kwargs`: one of them is too many"
            );
            report.error(inner.key, message);
        }
        outer.or(inner)
    };
    Run {
        cmd: either("cmd", outer.cmd, cmd),
        env: either("env", outer.env, env),
        cwd: either("cwd", outer.cwd, dir),
    }
}

fn command(report: &mut Report<'_>, field: Field<'_, '_>, task: Option<&str>) -> Option<Command> {
    let task = task.unwrap_or_default().escape_debug().to_string();
    let what = format!("the command of task `{task}`");
    let command = match field.value.kind() {
        Kind::Seq(items) => {
            let argument = |item| {
                let field = Field {
                    key: field.key,
                    value: item,
                };
                let what = format!("an argument of task `{task}`");
                argument(report, field, &what, CMD_BYTES_MAX).map(str::to_owned)
            };
            let arguments: Vec<Option<String>> = items.iter().map(argument).collect();
            Command::Exec(arguments.into_iter().collect::<Option<_>>()?)
        }
        Kind::Map(_) => {
            let message = format!("{what} must be text or a list of texts, found a mapping");
            report.error(field.place(), message);
            return None;
        }
        Kind::Scalar { .. } | Kind::Null(_) => {
            Command::Shell(argument(report, field, &what, CMD_BYTES_MAX)?.to_owned())
        }
    };
    let (empty, bytes, carriage_return) = match &command {
        Command::Shell(text) => (text.trim().is_empty(), text.len(), text.contains('\r')),
        Command::Merge => (false, 0, false),
        Command::Exec(arguments) => (
            arguments.first().is_none_or(String::is_empty),
            arguments.iter().map(|text| text.len() + 1).sum(),
            arguments.iter().any(|text| text.contains('\r')),
        ),
    };
    if empty {
        report.error(field.place(), format!("{what} is empty"));
        return None;
    }
    if bytes > CMD_BYTES_MAX {
        let message = format!("{what} has {bytes} bytes; at most {CMD_BYTES_MAX} are taken");
        let help = "put the script into a file that the workers can read";
        report.error_help(field.place(), message, help.to_owned());
        return None;
    }
    if carriage_return {
        let message =
            format!("{what} holds a carriage return, which the shell takes as part of a word");
        let help = "end lines with a line feed alone (`\\n`, not `\\r\\n`)";
        report.warn(field.place(), message, help.to_owned());
    }
    Some(command)
}

fn directory(report: &mut Report<'_>, field: Field<'_, '_>) -> Option<String> {
    let directory = argument(report, field, "`cwd`", CWD_BYTES_MAX)?;
    if directory.is_empty() {
        report.error(field.place(), "`cwd` is empty");
        return None;
    }
    Some(directory.to_owned())
}

fn key(report: &mut Report<'_>, field: Field<'_, '_>) -> Option<String> {
    let key = argument(report, field, "`idempotency_key`", KEY_BYTES_MAX)?;
    if key.is_empty() {
        report.error(field.place(), "`idempotency_key` is empty");
        return None;
    }
    Some(key.to_owned())
}

/// The names: a list, or one name alone.
fn dependency_nodes<'t, 's>(report: &mut Report<'_>, field: Field<'t, 's>) -> &'t [Node<'s>] {
    match field.value.kind() {
        Kind::Seq(items) => return items,
        Kind::Scalar { .. } => return std::slice::from_ref(field.value),
        Kind::Null("") => {
            let help = "write `[]`, or leave the key out, if the task depends on nothing";
            report.warn(field.key, "`depends_on` is empty", help.to_owned());
        }
        Kind::Null(_) => {}
        Kind::Map(_) => {
            let message = "`depends_on` must be a list of task names, found a mapping";
            report.error(field.place(), message);
        }
    }
    &[]
}

fn policy(report: &mut Report<'_>, field: Field<'_, '_>) -> Option<DepPolicy> {
    const KNOWN: [(&str, DepPolicy); 5] = [
        ("all", DepPolicy::All),
        ("any", DepPolicy::Any),
        ("all_settled", DepPolicy::AllSettled),
        ("always", DepPolicy::Always),
        ("on_failure", DepPolicy::OnFailure),
    ];
    let text = match field.value.kind() {
        Kind::Scalar { text, plain } => {
            let number = plain && text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            if number {
                let number = whole(report, field, "`dep_policy` as a number", 1..=u32::MAX)?;
                return Some(DepPolicy::AtLeast(number));
            }
            text
        }
        kind => {
            let message = format!(
                "`dep_policy` must be a word or a whole number, found {}",
                kind.name()
            );
            report.error(field.place(), message);
            return None;
        }
    };
    let found = KNOWN.iter().find(|(word, _)| *word == text);
    if found.is_none() {
        let words = KNOWN.map(|(word, _)| word);
        let help = match nearest(text, words) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("one of {}, or a whole number", words.join(", ")),
        };
        report.error_help(
            field.place(),
            format!("`dep_policy` cannot be `{text}`"),
            help,
        );
    }
    found.map(|(_, policy)| *policy)
}
