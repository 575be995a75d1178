//! Whether the three services answer, and whether what the prefix needs is there.

use std::collections::BTreeSet;

use super::{Check, Patient};
use crate::definition::{TaskName, WorkflowId};
use crate::store::{Kind, Result};

/// What the services have.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) checks: Vec<Check>,
    /// Containers, queues and tables that are there.
    present: BTreeSet<String>,
    /// Whether queue storage answers at all.
    pub(super) has_queues: bool,
}

impl Found {
    /// Whether a container, queue or table is there and can be read.
    pub(super) fn has(&self, name: &str) -> bool {
        self.present.contains(name)
    }
}

/// One check for each service: that it answers, and that nothing is missing.
pub(super) async fn look(patient: &Patient) -> Found {
    let mut found = Found::default();
    let answers = blobs(patient).await;
    found.note("blob storage", answers);
    let answers = queues(patient).await;
    found.has_queues = answers.is_ok();
    found.note("queue storage", answers);
    let answers = tables(patient).await;
    found.note("table storage", answers);
    found
}

/// Names, and whether each is there.
type Answers = Vec<(String, bool)>;

impl Found {
    fn note(&mut self, service: &str, answers: Result<Answers>) {
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => return self.checks.push(Check::refused(service, &error)),
        };
        let (present, missing): (Answers, Answers) =
            answers.into_iter().partition(|(_, is_there)| *is_there);
        self.present
            .extend(present.into_iter().map(|(name, _)| name));
        self.checks.push(if missing.is_empty() {
            Check::ok(service, "answers, nothing is missing")
        } else {
            let names: Vec<String> = missing
                .iter()
                .map(|(name, _)| format!("`{name}`"))
                .collect();
            Check::problem(
                service,
                format!("answers, but there is no {}", names.join(", no ")),
                "run `workflow doctor --fix`, or submit a workflow",
            )
        });
    }
}

/// Notes whether a resource is there; any fault but that ends the check.
fn note<T>(answers: &mut Answers, name: &str, result: Result<T>) -> Result<()> {
    let is_there = match result {
        Ok(_) => true,
        Err(error) if error.kind == Kind::NoResource => false,
        Err(error) => return Err(error),
    };
    answers.push((name.to_owned(), is_there));
    Ok(())
}

async fn blobs(patient: &Patient) -> Result<Answers> {
    let layout = &patient.layout;
    let mut answers = Vec::new();
    for container in [layout.workflows(), layout.outputs(), layout.logs()] {
        // A name that nothing has: the reply is short whatever the container holds.
        let page = patient.store.blobs.list(container, "~", None).await;
        note(&mut answers, container.as_str(), page)?;
    }
    Ok(answers)
}

async fn queues(patient: &Patient) -> Result<Answers> {
    let layout = &patient.layout;
    let mut answers = Vec::new();
    for queue in [layout.completions(), layout.completions_poison()] {
        let depth = patient.store.queues.depth(queue).await;
        note(&mut answers, queue.as_str(), depth)?;
    }
    Ok(answers)
}

async fn tables(patient: &Patient) -> Result<Answers> {
    let layout = &patient.layout;
    let id = WorkflowId::new("doctor").expect("a legal id");
    let task = TaskName::new("doctor").expect("a legal name");
    let key = layout.claim(&id, &task);
    let mut answers = Vec::new();
    for table in [layout.index(), layout.claims(), layout.journal()] {
        let row = patient.store.rows.get(table, &key).await;
        note(&mut answers, table.as_str(), row)?;
    }
    Ok(answers)
}
