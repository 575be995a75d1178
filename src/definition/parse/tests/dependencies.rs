//! Dependencies: names that do not exist, loops, and graphs of any size.

use super::*;

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
