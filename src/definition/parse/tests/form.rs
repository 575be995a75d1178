//! The file as text: keys, names, lines, documents, aliases, depth, size and bytes.

use std::io::Read as _;

use super::*;

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
