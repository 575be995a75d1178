//! Definitions to measure with. All commands are the program `true`.
//!
//! `wfcommons/` holds the edges of two workflows made with WfCommons 1.6 from PyPI, `random` and `numpy.random` seeded with 7:
//! `WorkflowGenerator(MontageRecipe.from_num_tasks(1000)).build_workflow()`, and `EpigenomicsRecipe` with 10,000. Line i, counted from 0,
//! holds the places of the tasks that task i waits for, which may stand below it.

use dagaz::definition::{Definition, Source, TaskName, parse};

/// `count` tasks, each of which waits for the places given by `parents`.
pub(crate) fn shape(count: usize, parents: impl Fn(usize) -> Vec<usize>) -> Definition {
    let source = Source::new("bench.yaml", "tasks: [{name: a, cmd: ['true']}]");
    let template = parse(&source).unwrap().definition;
    let named = |place: usize| TaskName::new(format!("t{place}")).unwrap();
    let task = |place: usize| {
        let mut task = template.tasks[0].clone();
        task.name = named(place);
        task.depends_on = parents(place).into_iter().map(named).collect();
        task
    };
    Definition {
        tasks: (0..count).map(task).collect(),
        ..template.clone()
    }
}

pub(crate) fn flat(count: usize) -> Definition {
    shape(count, |_| vec![])
}

pub(crate) fn chain(count: usize) -> Definition {
    shape(count, |place| place.checked_sub(1).into_iter().collect())
}

/// `count` tasks and a join of them all.
pub(crate) fn with_a_join(count: usize) -> Definition {
    shape(count + 1, |place| {
        if place == count {
            (0..count).collect()
        } else {
            vec![]
        }
    })
}

pub(crate) fn montage() -> Definition {
    of_lines(include_str!("wfcommons/montage-1000.txt"))
}

pub(crate) fn epigenomics() -> Definition {
    of_lines(include_str!("wfcommons/epigenomics-10000.txt"))
}

fn of_lines(text: &str) -> Definition {
    let places = |line: &str| -> Vec<usize> {
        let words = line.split_whitespace();
        words.map(|word| word.parse().unwrap()).collect()
    };
    let parents: Vec<_> = text.lines().map(places).collect();
    shape(parents.len(), |place| parents[place].clone())
}
