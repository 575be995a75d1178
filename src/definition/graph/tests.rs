//! The graph rules over definitions made by hand.

use std::collections::BTreeMap;

use super::super::model::{Command, DepPolicy, OnFailure, ResultPolicy, Task};
use super::super::name::QueueName;
use super::*;

fn name(text: &str) -> TaskName {
    TaskName::new(text).unwrap()
}

fn definition<'a>(tasks: impl IntoIterator<Item = (&'a str, Vec<&'a str>)>) -> Definition {
    let task = |(task, deps): (&str, Vec<&str>)| Task {
        name: name(task),
        cmd: Command::Shell("true".to_owned()),
        env: BTreeMap::new(),
        cwd: None,
        depends_on: deps.into_iter().map(name).collect(),
        queue: None,
        dep_policy: DepPolicy::All,
        num_retries: 0,
        timeout_s: None,
        idempotency_key: None,
    };
    Definition {
        name: None,
        description: None,
        default_queue: QueueName::new("default").unwrap(),
        max_parallelism: None,
        result_policy: ResultPolicy::AllSinksSucceed,
        on_failure: OnFailure::Continue,
        env: BTreeMap::new(),
        tasks: tasks.into_iter().map(task).collect(),
    }
}

#[test]
fn a_graph_without_loops_passes() {
    let joined = [
        ("A", vec![]),
        ("BC", vec!["A"]),
        ("D", vec!["BC"]),
        ("AB", vec![]),
        ("C", vec!["AB"]),
    ];
    check_graph(&definition(joined)).unwrap();
}

#[test]
fn each_broken_rule_has_its_error() {
    let error =
        |tasks: Vec<(&str, Vec<&str>)>| check_graph(&definition(tasks)).unwrap_err().to_string();
    assert_eq!(
        error(vec![("a", vec![]), ("a", vec![])]),
        "two tasks are called `a`"
    );
    assert_eq!(
        error(vec![("a", vec!["b"])]),
        "task `a` depends on `b`, which does not exist"
    );
    assert_eq!(error(vec![("a", vec!["a"])]), "task `a` depends on itself");
    assert_eq!(
        error(vec![("b", vec![]), ("a", vec!["b", "b"])]),
        "task `a` names its dependency `b` twice"
    );
    assert_eq!(
        error(vec![
            ("d", vec!["a"]),
            ("a", vec!["b"]),
            ("b", vec!["c"]),
            ("c", vec!["a"])
        ]),
        "dependency loop: `a -> b -> c -> a` (each depends on the next)"
    );
}

#[test]
fn a_long_loop_is_found_without_recursion_and_its_middle_left_out() {
    let names: Vec<String> = (0..200_000).map(|at| format!("t{at}")).collect();
    let last = names.len() - 1;
    let before = |at: usize| if at == 0 { last } else { at - 1 };
    let tasks = (0..=last).map(|at| (names[at].as_str(), vec![names[before(at)].as_str()]));
    let error = check_graph(&definition(tasks)).unwrap_err();
    let GraphError::Cycle { path } = &error else {
        panic!("{error}");
    };
    assert_eq!(path.len(), names.len());
    let text = error.to_string();
    assert!(
        text.contains("t0 -> t199999") && text.contains("199990 more"),
        "{text}"
    );
    assert!(text.len() < 250, "{text}");
}

#[test]
fn every_group_of_tasks_that_wait_for_each_other_gives_one_real_loop() {
    let mut edges = Edges::default();
    for targets in [vec![1], vec![0, 2], vec![], vec![4, 5], vec![5], vec![3, 0]] {
        for target in targets {
            edges.push(target);
        }
        edges.close_task();
    }
    assert_eq!(edges.loops(9), [vec![0, 1], vec![3, 5]]);
    assert_eq!(edges.loops(1), [vec![0, 1]]);
}
