//! Names in `depends_on` to tasks, the rules that need both, and loops.

use std::collections::HashMap;

use super::diagnostic::Report;
use super::fields::{Field, text};
use super::graph::{Edges, describe_loop};
use super::limits::EDGES_MAX;
use super::model::DepPolicy;
use super::source::Span;
use super::suggest::{difference, nearest};
use super::task::Written;
use super::tree::{Kind, Node};

/// Most missing names for which the nearest task is searched; each search reads all names.
const SEARCHES_MAX: usize = 20;
/// Most loops shown.
const LOOPS_MAX: usize = 10;

/// Fills in the dependencies of all tasks and reports what is wrong with them.
pub(super) fn resolve(
    report: &mut Report<'_>,
    written: &mut [Written<'_, '_>],
    names: &HashMap<&str, usize>,
) {
    let count: usize = written.iter().map(|task| task.depends_on.len()).sum();
    if count > EDGES_MAX {
        let first = written.iter().find_map(|task| task.depends_on.first());
        let message = format!("the tasks have {count} dependencies; at most {EDGES_MAX} are taken");
        report.error(first.map_or(Span::new(0, 0), |node| node.span), message);
        return;
    }
    let mut edges = Edges::default();
    let mut searches = SEARCHES_MAX;
    // Which task named this one last, and where: a second time by the same task is an error, found without a set for each task.
    let mut seen_by: Vec<(usize, Span)> = vec![(usize::MAX, Span::new(0, 0)); written.len()];
    for at in 0..written.len() {
        let (nodes, own) = (written[at].depends_on, written[at].name);
        let mut found = Vec::with_capacity(nodes.len());
        for node in nodes {
            let field = Field {
                key: node.span,
                value: node,
            };
            let Some(name) = text(report, field, "a dependency") else {
                continue;
            };
            if Some(name) == own {
                let message = format!("task `{}` depends on itself", name.escape_debug());
                report.error(node.span, message);
                continue;
            }
            let Some(target) = names.get(name).copied() else {
                missing(report, node.span, name, own, written, &mut searches);
                continue;
            };
            if seen_by[target].0 == at {
                let line = report.line(seen_by[target].1);
                let name = name.escape_debug();
                let message = format!(
                    "the dependency `{name}` is written twice; the first is on line {line}"
                );
                report.error(node.span, message);
                continue;
            }
            seen_by[target] = (at, node.span);
            edges.push(target);
            // A target without a value has been reported itself.
            found.extend(written[target].task.as_ref().map(|task| task.name.clone()));
        }
        edges.close_task();
        let policy = written[at].policy;
        if let Some(task) = &mut written[at].task {
            task.depends_on = found;
            let place = policy.unwrap_or(written[at].place);
            check_policy(report, place, task.dep_policy, nodes.len());
        }
    }
    for path in edges.loops(LOOPS_MAX) {
        report_loop(report, written, &path);
    }
}

fn check_policy(report: &mut Report<'_>, place: Span, policy: DepPolicy, dependencies: usize) {
    match policy {
        DepPolicy::AtLeast(number) if number as usize > dependencies => {
            let message = format!(
                "`dep_policy` asks for {number} dependencies, but the task has {dependencies}"
            );
            report.error(place, message);
        }
        DepPolicy::OnFailure if dependencies == 0 => {
            report.error(
                place,
                "`dep_policy: on_failure` needs a dependency that can fail",
            );
        }
        _ => {}
    }
}

fn missing(
    report: &mut Report<'_>,
    span: Span,
    name: &str,
    own: Option<&str>,
    written: &[Written<'_, '_>],
    searches: &mut usize,
) {
    let mut help = None;
    if *searches > 0 {
        *searches -= 1;
        // In the order of the file, so that of two equally near names the first is shown; the task itself is the last resort.
        let known = written.iter().filter_map(|task| task.name);
        let others = known.filter(|known| Some(*known) != own);
        help = nearest(name, others.chain(own)).map(|near| match difference(name, near) {
            None => format!("did you mean `{near}`?"),
            Some(told) => format!("did you mean `{near}`? ({told})"),
        });
    }
    let message = format!("the dependency `{}` does not exist", name.escape_debug());
    report.error_help(span, message, help);
}

fn report_loop(report: &mut Report<'_>, written: &[Written<'_, '_>], path: &[usize]) {
    let names: Vec<&str> = path.iter().filter_map(|at| written[*at].name).collect();
    let [first, .., _] = path else { return };
    let next = names.get(1).copied();
    let leads_on = |node: &&Node<'_>| match node.kind() {
        Kind::Scalar { text, .. } => Some(text) == next,
        _ => false,
    };
    let first = &written[*first];
    let span = first
        .depends_on
        .iter()
        .find(leads_on)
        .map_or(first.place, |node| node.span);
    report.error(span, describe_loop(&names));
}
