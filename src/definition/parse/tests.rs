//! What passes, what is refused, and what is said about it.

use super::super::diagnostic::Severity;
use super::super::limits;
use super::super::model::{Command, DepPolicy, OnFailure, ResultPolicy};
use super::*;

mod dependencies;
mod form;
mod random;
mod shown;
mod values;

fn yaml(text: &str) -> Source {
    Source::new("w.yaml", text)
}

fn accepted(text: &str) -> Definition {
    let parsed = parse(&yaml(text)).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    assert_eq!(parsed.warnings, [], "{text}");
    parsed.definition
}

/// The problems of a text as `line:col message`, warnings marked.
fn problems_of(source: &Source) -> Vec<String> {
    let found = match parse(source) {
        Ok(parsed) => parsed.warnings,
        Err(problems) => problems.diagnostics,
    };
    let shown = |found: &Diagnostic| {
        let mark = match found.severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
        };
        format!("{}:{} {mark}{}", found.line, found.col, found.message)
    };
    found.iter().map(shown).collect()
}

fn problems(text: &str) -> Vec<String> {
    problems_of(&yaml(text))
}

fn help(text: &str) -> String {
    let problems = parse(&yaml(text)).unwrap_err();
    problems.diagnostics[0].help.clone().unwrap_or_default()
}

/// One text from a line for each number.
fn lines(numbers: std::ops::Range<usize>, line: impl Fn(usize) -> String) -> String {
    numbers.map(line).collect::<Vec<_>>().concat()
}

/// One task with more keys, in flow style.
fn task(keys: &str) -> String {
    format!("tasks: [{{name: b, cmd: x}}, {{name: a, cmd: x, {keys}}}]")
}

#[test]
fn every_key_reaches_its_field() {
    let definition = accepted(
        r"
$schema: https://example.com/workflow.schema.json
x-shared: &both [a, b]
name: nightly
description: what it is for
default_queue: cpu
max_parallelism: 8
default_task_timeout_s: 60
result_policy: all_tasks_succeed
on_failure: cancel
env: {A: 1, B: no}
tasks:
  - {name: a, cmd: echo}
  - {name: b, cmd: [echo, 3.10, no, ''], env: {C: '3'}, cwd: /tmp, queue: gpu-1, num_retries: 3, timeout_s: 1.5, idempotency_key: 2026-03-04}
  - {name: c, kwargs: {cmd: echo, env: {D: x}, cwd: .}, depends_on: *both, dep_policy: 2}
  - {name: d, cmd: echo, depends_on: a, dep_policy: on_failure, queue: null, env: ~}
",
    );
    assert_eq!(definition.name.as_deref(), Some("nightly"));
    assert_eq!(definition.description.as_deref(), Some("what it is for"));
    assert_eq!(definition.default_queue.as_str(), "cpu");
    assert_eq!(definition.max_parallelism, Some(8));
    assert_eq!(definition.result_policy, ResultPolicy::AllTasksSucceed);
    assert_eq!(definition.on_failure, OnFailure::Cancel);
    assert_eq!(definition.env["B"], "no");
    let [a, b, c, d] = definition.tasks.as_slice() else {
        panic!("four tasks");
    };
    assert_eq!(a.cmd, Command::Shell("echo".to_owned()));
    assert_eq!((a.timeout_s, b.timeout_s), (Some(60.0), Some(1.5)));
    let words = ["echo", "3.10", "no", ""].map(str::to_owned);
    assert_eq!(b.cmd, Command::Exec(words.to_vec()));
    assert_eq!(b.queue.as_ref().unwrap().as_str(), "gpu-1");
    assert_eq!((b.num_retries, a.num_retries), (3, 0));
    let key = b.idempotency_key.as_deref();
    assert_eq!((key, &a.idempotency_key), (Some("2026-03-04"), &None));
    assert_eq!(c.cmd, Command::Shell("echo".to_owned()));
    assert_eq!((c.env["D"].as_str(), c.cwd.as_deref()), ("x", Some(".")));
    assert_eq!(c.depends_on, [a.name.clone(), b.name.clone()]);
    assert_eq!(
        (c.dep_policy, b.dep_policy),
        (DepPolicy::AtLeast(2), DepPolicy::All)
    );
    assert_eq!(
        (d.dep_policy, d.depends_on.len()),
        (DepPolicy::OnFailure, 1)
    );
    assert!(d.queue.is_none() && d.env.is_empty());
}

#[test]
fn a_file_in_json_means_the_same_as_in_yaml_and_as_it_is_stored() {
    let json = r#"{"tasks": [{"name": "a", "cmd": "x", "timeout_s": 1e1}, {"name": "b", "cmd": ["y"], "depends_on": ["a"]}]}"#;
    let from_json = parse(&Source::new("w.json", json)).unwrap().definition;
    let text =
        "tasks:\n- cmd: x\n  name: a\n  timeout_s: 10\n- {name: b, cmd: [y], depends_on: [a]}\n";
    assert_eq!(accepted(text).canonical_json(), from_json.canonical_json());
    let stored: Definition = serde_json::from_str(&from_json.canonical_json()).unwrap();
    assert_eq!(stored, from_json);
}

#[test]
fn all_problems_come_in_one_pass_and_in_order() {
    let text = "name: ''\ntasks:\n- {name: a, cmd: '', depends_on: [zz]}\n- {cmd: x}\n- {name: b, timeout_s: 60s}\nmax_parallelism: 0\n";
    let found = problems(text);
    let lines: Vec<_> = found.iter().map(|found| &found[..1]).collect();
    assert_eq!(lines, ["1", "3", "3", "4", "5", "5", "6"], "{found:#?}");
}
