//! Keys and their values: which are known, and which rules and limits they have.

use super::*;

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
