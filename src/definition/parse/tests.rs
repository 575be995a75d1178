//! What passes, what is refused, and what is said about it.

use std::io::Read as _;

use super::super::diagnostic::Severity;
use super::super::limits;
use super::super::model::{Command, DepPolicy, OnFailure, ResultPolicy};
use super::*;

mod random;
mod shown;

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
fn a_key_written_twice_is_refused_with_both_lines() {
    let in_task = "tasks:\n- name: a\n  cmd: x\n  depends_on: []\n  depends_on: [a]\n";
    assert_eq!(
        problems(in_task),
        ["5:3 the key `depends_on` is written twice; the first is on line 4"]
    );
    let in_env = "env:\n  A: 1\n  A: 2\ntasks: [{name: a, cmd: x}]\n";
    assert_eq!(
        problems(in_env),
        ["3:3 the key `A` is written twice; the first is on line 2"]
    );
    let at_top = "tasks: [{name: a, cmd: x}]\nname: x\ntasks: []\n";
    assert_eq!(
        problems(at_top),
        ["3:1 the key `tasks` is written twice; the first is on line 1"]
    );
    let json = Source::new("w.json", "{\"tasks\": [],\n\"tasks\": []}");
    assert_eq!(
        problems_of(&json)[1],
        "2:1 the key `tasks` is written twice; the first is on line 1"
    );
    let task = "tasks:\n- {name: a, cmd: x}\n- {name: a, cmd: y}\n";
    assert_eq!(
        problems(task),
        ["3:10 a second task is called `a`; the first is on line 2"]
    );
}

#[test]
fn names_are_what_is_written() {
    let text = "tasks: [{name: no, cmd: x}, {name: 1.0, cmd: x, depends_on: [no]}, {name: 01, cmd: x, depends_on: [1.0]}, {name: 1, cmd: x}, {name: 1e3, cmd: x, depends_on: [1]}, {name: on, cmd: x}]";
    let names: Vec<_> = accepted(text)
        .tasks
        .into_iter()
        .map(|t| t.name.to_string())
        .collect();
    assert_eq!(names, ["no", "1.0", "01", "1", "1e3", "on"]);
    let json = r#"{"tasks": [{"name": 1.0, "cmd": "x"}, {"name": "b", "cmd": "x", "depends_on": ["1.0"]}]}"#;
    assert!(parse(&Source::new("w.json", json)).is_ok());
}

#[test]
fn null_and_empty_names_are_refused_by_name() {
    let text = "tasks:\n- name: ~\n  cmd: x\n- name: null\n  cmd: x\n- name:\n  cmd: x\n- {name: '', cmd: x}\n- {name: '~', cmd: x, depends_on: [~]}\n";
    assert_eq!(
        problems(text),
        [
            "2:9 the name of the task is `~`, which means null",
            "4:9 the name of the task is `null`, which means null",
            "6:3 the name of the task is empty",
            "8:10 task name `` must not be empty",
            "9:36 a dependency is `~`, which means null",
        ]
    );
}

#[test]
fn line_ends_of_windows_do_not_reach_the_shell() {
    let text = "tasks:\r\n- name: a\r\n  cmd: |\r\n    x=1\r\n    test \"$x\" = 1\r\n";
    let cmd = accepted(text).tasks.remove(0).cmd;
    assert_eq!(cmd, Command::Shell("x=1\ntest \"$x\" = 1\n".to_owned()));
    let json = r#"{"tasks": [{"name": "a", "cmd": "x\r\ny"}, {"name": "b", "cmd": ["x", "y\r"]}]}"#;
    let found = problems_of(&Source::new("w.json", json));
    assert_eq!(found.len(), 2);
    assert!(found[0].contains("warning: the command of task `a` holds a carriage return"));
}

#[test]
fn a_tab_in_the_indentation_is_called_a_tab() {
    for (text, line) in [
        ("tasks:\n\t- id: x\n", 2),
        ("tasks:\n  - name: x\n\tcmd: y\n", 3),
        ("tasks:\n  - name: x\n    cmd: |\n\t  y\n", 4),
        ("tasks:\n- name: x\n  cmd: y\n  env:\n  \tA: 1\n", 5),
    ] {
        let found = problems(text);
        assert!(
            found[0].ends_with("a tab is used for indentation"),
            "{found:?}"
        );
        assert!(found[0].starts_with(&format!("{line}:")), "{found:?}");
    }
}

#[test]
fn a_file_holds_one_workflow() {
    let one = "tasks: [{name: a, cmd: x}]\n";
    accepted(&format!("--- # start\n{one}...\n"));
    accepted(&format!("\u{feff}{one}"));
    for (text, message) in [
        (
            format!("{one}---\n{one}"),
            "2:1 two documents found: a file holds one workflow",
        ),
        (String::new(), "1:1 the file is empty"),
        (" \n\n".to_owned(), "1:1 the file is empty"),
        (
            "# nothing\n".to_owned(),
            "1:1 the file holds no workflow, only comments or marks",
        ),
        (
            "---\n".to_owned(),
            "1:1 the file holds no workflow, only comments or marks",
        ),
        (
            "- a\n".to_owned(),
            "1:1 a workflow must be a mapping with a list of `tasks`, found a list",
        ),
        (
            "hello\n".to_owned(),
            "1:1 a workflow must be a mapping with a list of `tasks`, found text",
        ),
        ("name: x\n".to_owned(), "1:1 the workflow has no `tasks`"),
        (
            "tasks:\n".to_owned(),
            "1:1 `tasks` is empty: a workflow has one task at least",
        ),
        (
            "tasks: {a: {cmd: x}}\n".to_owned(),
            "1:1 `tasks` must be a list, found a mapping",
        ),
    ] {
        assert_eq!(problems(&text), [message], "{text}");
    }
}

#[test]
fn a_merge_key_is_refused_by_name() {
    let text = "x-d: &d {timeout_s: 5}\ntasks: [{<<: *d, name: a, cmd: x, depends_on: []}]";
    assert_eq!(problems(text), ["2:10 the merge key `<<` is not supported"]);
    assert_eq!(
        problems("tasks: [{name: a, cmd: x, env: {<<: {A: 1}}}]"),
        ["1:33 the merge key `<<` is not supported"]
    );
}

#[test]
fn an_alias_bomb_is_refused_by_its_limit() {
    let lists = (1..10).map(|level| {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        format!("x-{level}: &a{level} [{aliases}]\n")
    });
    let bomb: String = std::iter::once("x-0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned())
        .chain(lists)
        .chain(["tasks: *a9\n".to_owned()])
        .collect();
    assert!(problems(&bomb)[0].contains("aliases stand for more than 5000000 values"));
    let texts = format!(
        "x-0: &a {}\ntasks: [{}]",
        "x".repeat(100_000),
        "*a, ".repeat(1_000)
    );
    assert!(problems(&texts)[0].contains("aliases stand for more than 67108864 bytes of text"));
    let chain = lines(1..200, |at| format!("x-{at}: &a{at} [*a{}]\n", at - 1));
    assert!(
        problems(&format!("x-0: &a0 [x]\n{chain}"))[0].contains("nested deeper than 64 levels")
    );
    assert_eq!(
        problems("tasks: &a [*a]\n"),
        ["1:12 an alias stands inside what it stands for"]
    );
}

#[test]
fn deep_nesting_is_refused_by_its_limit() {
    for text in ["[".repeat(5_000), "- ".repeat(5_000), "{a: ".repeat(5_000)] {
        let found = problems(&text);
        assert!(
            found[0].ends_with("nested deeper than 64 levels"),
            "{found:?}"
        );
    }
}

#[test]
fn a_file_over_the_limit_is_refused() {
    let mut bytes = b"name: x\n#".to_vec();
    std::io::repeat(b'x')
        .take((limits::FILE_BYTES_MAX + 1) as u64)
        .read_to_end(&mut bytes)
        .unwrap();
    assert_eq!(
        problems_of(&Source::new("w.yaml", bytes)),
        ["1:1 the file is larger than 134217728 bytes (128 MiB)"]
    );
}

#[test]
fn what_is_no_text_is_refused_where_it_stands() {
    let found = |bytes: &[u8]| problems_of(&Source::new("w.yaml", bytes));
    assert_eq!(
        found(b"a: \xe4\n"),
        ["1:4 the file is not UTF-8: byte 0xE4 is not part of a character"]
    );
    assert_eq!(found(b"\xff\xfea\0"), ["1:1 the file is UTF-16, not UTF-8"]);
    assert_eq!(
        found(b"a: b\nc: \0d\n"),
        ["2:4 the file holds the control character U+0000"]
    );
}

#[test]
fn unknown_keys_are_refused_with_the_nearest() {
    let text = task("depnds_on: [b]");
    assert_eq!(problems(&text), ["1:46 unknown key `depnds_on`"]);
    assert_eq!(help(&text), "did you mean `depends_on`?");
    assert_eq!(
        help(&format!("max_paralelism: 1\n{}", task(""))),
        "did you mean `max_parallelism`?"
    );
    assert!(help(&task("color: red")).starts_with("known keys: name, cmd, kwargs, env"));
    assert_eq!(
        problems("? [a]\n: b\ntasks: [{name: a, cmd: x}]"),
        ["1:3 a key must be text, found a list"]
    );
}

#[test]
fn keys_in_kwargs_count_once_and_others_are_named() {
    assert_eq!(
        problems("tasks:\n- name: a\n  cmd: x\n  kwargs: {cmd: y}\n"),
        ["4:12 `cmd` stands in the task (line 3) and in its `kwargs`: one of them is too many"]
    );
    assert_eq!(
        problems("tasks: [{name: a, kwargs: {cmd: y, image: z}}]"),
        ["1:36 warning: the key `image` is ignored"]
    );
    assert_eq!(
        problems("tasks: [{name: a, kwargs: {}}]"),
        ["1:16 the task has no `cmd`"]
    );
    assert_eq!(
        problems("tasks: [{name: a, cmd: x, kwargs: y}]"),
        ["1:35 `kwargs` must be a mapping with `cmd`, found text"]
    );
}

#[test]
fn all_problems_come_in_one_pass_and_in_order() {
    let text = "name: ''\ntasks:\n- {name: a, cmd: '', depends_on: [zz]}\n- {cmd: x}\n- {name: b, timeout_s: 60s}\nmax_parallelism: 0\n";
    let found = problems(text);
    let lines: Vec<_> = found.iter().map(|found| &found[..1]).collect();
    assert_eq!(lines, ["1", "3", "3", "4", "5", "5", "6"], "{found:#?}");
}

#[test]
fn what_comes_later_is_refused_by_field_and_line() {
    let text = "tasks:\n- name: a\n  cmd: x\n  condition: inputs.b.ok\n  on_skipped_deps: skip\non_skipped_deps: run\n";
    assert_eq!(
        problems(text),
        [
            "4:3 `condition` is not supported yet",
            "5:3 `on_skipped_deps` is not supported yet",
            "6:1 `on_skipped_deps` is not supported yet",
        ]
    );
}

/// Keys of a task and what is said about them.
const REFUSED: [(&str, &str); 30] = [
    (
        "timeout_s: 0",
        "`timeout_s` must be a number of seconds above 0 and at most 2592000, found `0`",
    ),
    (
        "timeout_s: -1",
        "`timeout_s` must be a number of seconds above 0 and at most 2592000, found `-1`",
    ),
    (
        "timeout_s: 60s",
        "`timeout_s` must be a number of seconds above 0 and at most 2592000, found `60s`",
    ),
    (
        "timeout_s: '60'",
        "`timeout_s` must be a number of seconds above 0 and at most 2592000, found `60`",
    ),
    (
        "timeout_s: inf",
        "`timeout_s` must be a number of seconds above 0 and at most 2592000, found `inf`",
    ),
    (
        "timeout_s: 1e9",
        "`timeout_s` must be a number of seconds above 0 and at most 2592000, found `1e9`",
    ),
    (
        "num_retries: 1001",
        "`num_retries` must be a whole number from 0 to 1000, found `1001`",
    ),
    (
        "num_retries: 1.5",
        "`num_retries` must be a whole number from 0 to 1000, found `1.5`",
    ),
    (
        "num_retries: '3'",
        "`num_retries` must be a whole number from 0 to 1000, found text",
    ),
    ("idempotency_key: ''", "`idempotency_key` is empty"),
    (
        "idempotency_key: [a]",
        "`idempotency_key` must be text, found a list",
    ),
    ("idempotency_kye: a", "unknown key `idempotency_kye`"),
    (
        "queue: My_Queue",
        "queue name `My_Queue` may hold only lower-case letters, digits and single dashes",
    ),
    (
        "queue: sb://ns/q",
        "queue name `sb://ns/q` is an address: queues of Service Bus or other brokers are not supported, name a queue of this prefix",
    ),
    (
        "queue: acc/q",
        "queue name `acc/q` names an account: queues of other accounts are not supported, name a queue of this prefix",
    ),
    ("dep_policy: most", "`dep_policy` cannot be `most`"),
    (
        "dep_policy: 0",
        "`dep_policy` as a number must be a whole number from 1 to 4294967295, found `0`",
    ),
    (
        "dep_policy: 2, depends_on: b",
        "`dep_policy` asks for 2 dependencies, but the task has 1",
    ),
    (
        "dep_policy: on_failure",
        "`dep_policy: on_failure` needs a dependency that can fail",
    ),
    (
        "depends_on: {b: 1}",
        "`depends_on` must be a list of task names, found a mapping",
    ),
    (
        "depends_on: [[b]]",
        "a dependency must be text, found a list",
    ),
    (
        "depends_on: [b, b]",
        "the dependency `b` is written twice; the first is on line 1",
    ),
    ("depends_on: [a]", "task `a` depends on itself"),
    (
        "env: [A=1]",
        "`env` must be a mapping of names to texts, found a list",
    ),
    ("env: {A: }", "the variable `A` is empty"),
    (
        "env: {A: [1]}",
        "the variable `A` must be text, found a list",
    ),
    (
        "env: {'A=B': 1}",
        "`A=B` cannot be the name of a variable: it must not be empty nor hold `=` or U+0000",
    ),
    (
        "env: {A: \"\\0\"}",
        "the variable `A` holds the character U+0000",
    ),
    ("cwd: ''", "`cwd` is empty"),
    ("cwd: !abs x", "the tag `!abs` is not supported"),
];

#[test]
fn values_outside_their_rules_are_refused() {
    for (keys, message) in REFUSED {
        let found = problems(&task(keys));
        assert_eq!(found.len(), 1, "{keys}: {found:?}");
        assert_eq!(found[0].split_once(' ').unwrap().1, message, "{keys}");
    }
    assert!(help(&task("timeout_s: 60s")).contains("seconds alone"));
    assert!(help(&task("idempotency_kye: a")).contains("`idempotency_key`"));
    let long = |bytes| format!("idempotency_key: {}", "k".repeat(bytes));
    assert_eq!(problems(&task(&long(256))).len(), 0);
    assert!(problems(&task(&long(257)))[0].contains("has 257 bytes; at most 256 are taken"));
}

#[test]
fn commands_are_not_empty_and_fit_an_argument() {
    let command = |cmd: &str| problems(&format!("tasks: [{{name: a, cmd: {cmd}}}]"));
    let said = "the command of task `a`";
    assert_eq!(command("' '"), [format!("1:24 {said} is empty")]);
    assert_eq!(command("[]"), [format!("1:24 {said} is empty")]);
    assert_eq!(command("['', x]"), [format!("1:24 {said} is empty")]);
    assert_eq!(
        command("~"),
        [format!("1:24 {said} is `~`, which means null")]
    );
    assert_eq!(
        command("{a: b}"),
        [format!(
            "1:24 {said} must be text or a list of texts, found a mapping"
        )]
    );
    assert_eq!(
        command("[a, [b]]"),
        ["1:28 an argument of task `a` must be text, found a list"]
    );
    let most = limits::CMD_BYTES_MAX;
    assert_eq!(command(&"x".repeat(most)), [""; 0]);
    let long = format!("1:24 {said} has 131072 bytes; at most 131071 are taken");
    assert_eq!(command(&"x".repeat(most + 1)), [long.as_str()]);
    assert_eq!(
        command(&format!("[x, {}]", "x".repeat(most - 2))),
        [long.as_str()]
    );
}

#[test]
fn environments_have_a_limit() {
    let many = lines(0..limits::ENV_VARS_MAX + 1, |at| format!("V{at}: 1, "));
    assert_eq!(
        problems(&task(&format!("env: {{{many}}}"))),
        ["1:46 `env` has 1001 variables; at most 1000 are taken"]
    );
    let large = format!("env: {{A: {0}, B: {0}}}", "x".repeat(70_000));
    assert_eq!(
        problems(&task(&large)),
        ["1:46 `env` has 140006 bytes; at most 131071 are taken"]
    );
}

#[test]
fn names_and_descriptions_have_limits_in_bytes_and_characters() {
    let named = |length: usize| {
        problems(&format!(
            "tasks: [{{name: {}, cmd: x}}]",
            "n".repeat(length)
        ))
    };
    assert_eq!(named(63).len() + named(64).len() + named(160).len(), 0);
    for length in [161, 255, 256, 1_024] {
        let found = named(length);
        assert!(
            found[0].ends_with("must have at most 160 bytes of UTF-8"),
            "{found:?}"
        );
        assert!(found[0].len() < 200, "{found:?}");
    }
    let top =
        |key: &str, text: &str| problems(&format!("{key}: {text}\ntasks: [{{name: a, cmd: x}}]"));
    assert_eq!(top("description", &"😀".repeat(8_192)), [""; 0]);
    assert_eq!(
        top("description", &"d".repeat(40_000)),
        ["1:14 `description` has 40000 characters; at most 8192 are taken"]
    );
    assert_eq!(
        top("name", &"n".repeat(257)),
        ["1:7 the name of the workflow has 257 characters; at most 256 are taken"]
    );
    assert_eq!(
        top("name", "\"a\\nb\""),
        ["1:7 the name of the workflow must not hold control characters"]
    );
}

#[test]
fn too_many_dependencies_are_refused_by_their_limit() {
    let names: Vec<String> = (0..2_500).map(|at| format!("n{at}")).collect();
    let shared = format!("x-all: &all [{}]\n", names.join(","));
    let tasks = lines(0..1_999, |at| {
        format!("- {{name: t{at}, cmd: x, depends_on: *all}}\n")
    });
    // Written out twice, because aliases have the same limit.
    let more = format!(
        "- {{name: u0, cmd: x, depends_on: [{}]}}\n",
        vec!["n0"; 4_000].join(",")
    );
    assert_eq!(
        problems(&format!("{shared}tasks:\n{tasks}{more}")),
        ["1:14 the tasks have 5001500 dependencies; at most 5000000 are taken"]
    );
}

#[test]
fn a_loop_is_shown_as_one_real_loop_at_an_entry_of_it() {
    let text = "tasks:\n- {name: d, cmd: x, depends_on: [a]}\n- {name: a, cmd: x, depends_on: [free, b]}\n- {name: b, cmd: x, depends_on: [c]}\n- {name: c, cmd: x, depends_on: [a]}\n- {name: free, cmd: x}\n";
    assert_eq!(
        problems(text),
        ["3:40 dependency loop: `a -> b -> c -> a` (each depends on the next)"]
    );
    let two = "tasks: [{name: a, cmd: x, depends_on: b}, {name: b, cmd: x, depends_on: a}, {name: c, cmd: x, depends_on: d}, {name: d, cmd: x, depends_on: c}]";
    assert_eq!(problems(two).len(), 2);
    let tasks = (0..3_000).map(|at| {
        let before = if at == 0 { 2_999 } else { at - 1 };
        format!("- {{name: t{at}, cmd: x, depends_on: [t{before}]}}\n")
    });
    let found = problems(&format!("tasks:\n{}", tasks.collect::<String>()));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].contains("`t0 -> t2999 -> ") && found[0].contains(" … 2990 more … "),
        "{found:?}"
    );
}

#[test]
fn names_that_read_alike_when_joined_stay_apart() {
    accepted(
        "tasks: [{name: A, cmd: x}, {name: BC, cmd: x, depends_on: A}, {name: D, cmd: x, depends_on: BC}, {name: AB, cmd: x}, {name: C, cmd: x, depends_on: AB}]",
    );
}

#[test]
fn a_missing_dependency_is_refused_with_the_nearest_name() {
    let text = |dependency: &str| {
        format!("tasks: [{{name: build, cmd: x}}, {{name: a, cmd: x, depends_on: [{dependency}]}}]")
    };
    assert_eq!(
        problems(&text("biuld")),
        ["1:63 the dependency `biuld` does not exist"]
    );
    assert_eq!(help(&text("biuld")), "did you mean `build`?");
    assert_eq!(help(&text("Build")), "did you mean `build`?");
    assert_eq!(
        help(&text("'build '")),
        "did you mean `build`? (there is a blank around the name)"
    );
    assert_eq!(
        help(&text("\u{430}")),
        "did you mean `a`? (`\u{430}` U+0430, not `a` U+0061)"
    );
    assert_eq!(help(&text("unrelated")), "");
}

#[test]
fn a_task_with_a_bad_name_is_blamed_once() {
    let text = "tasks: [{name: '.', cmd: x}, {name: a, cmd: x, depends_on: ['.']}, {name: b, depends_on: [a]}, {name: c, cmd: x, depends_on: [b]}]";
    assert_eq!(
        problems(text),
        [
            "1:16 task name `.` is reserved",
            "1:75 the task has no `cmd`"
        ]
    );
}

#[test]
fn the_nearest_name_is_searched_for_the_first_missing_ones_only() {
    let tasks = lines(0..2_000, |at| {
        format!("- {{name: task-{at}, cmd: x, depends_on: [taks-{at}]}}\n")
    });
    let found = parse(&yaml(&format!("tasks:\n{tasks}"))).unwrap_err();
    let helped = found.diagnostics.iter().filter(|d| d.help.is_some());
    assert_eq!(helped.count(), 20);
    assert_eq!(found.diagnostics.len(), limits::DIAGNOSTICS_MAX + 1);
}

#[test]
fn a_large_graph_is_read_in_one_pass() {
    const TASKS: usize = 20_000;
    let mut json = String::from("{\"tasks\": [");
    for at in 0..TASKS {
        let deps: Vec<String> = (1..=10)
            .filter(|back| at >= *back)
            .map(|back| format!("\"t{}\"", at - back))
            .collect();
        let comma = if at == 0 { "" } else { "," };
        json.push_str(
            &[
                comma,
                "{\"name\": \"t",
                &at.to_string(),
                "\", \"cmd\": \"true\", \"depends_on\": [",
                &deps.join(","),
                "]}",
            ]
            .concat(),
        );
    }
    json.push_str("]}");
    let definition = parse(&Source::new("w.json", json.as_str()))
        .unwrap()
        .definition;
    assert_eq!(definition.tasks.len(), TASKS);
    assert_eq!(accepted(&json), definition, "JSON is YAML");
}
