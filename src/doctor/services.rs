//! Whether the three services answer, and whether what the prefix needs is there.

use super::{Check, Patient};
use crate::definition::{TaskName, WorkflowId};
use crate::store::{Kind, Result, StoreError};

/// One check for each service: that it answers, and that nothing is missing.
pub(super) async fn checks(patient: &Patient) -> Vec<Check> {
    vec![
        verdict("blob storage", blobs(patient).await),
        verdict("queue storage", queues(patient).await),
        verdict("table storage", tables(patient).await),
    ]
}

fn verdict(name: &str, missing: Result<Vec<String>>) -> Check {
    match missing {
        Ok(missing) if missing.is_empty() => Check::ok(name, "answers, nothing is missing"),
        Ok(missing) => Check::problem(
            name,
            format!("answers, but there is no {}", missing.join(", no ")),
            "run `workflow doctor --fix`, or submit a workflow",
        ),
        Err(error) => Check::refused(name, &error),
    }
}

/// Notes a missing resource; any other fault ends the check.
fn note<T>(missing: &mut Vec<String>, name: &str, result: Result<T>) -> Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(StoreError {
            kind: Kind::NoResource,
            ..
        }) => {
            missing.push(format!("`{name}`"));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn blobs(patient: &Patient) -> Result<Vec<String>> {
    let layout = &patient.layout;
    let mut missing = Vec::new();
    for container in [layout.workflows(), layout.outputs(), layout.logs()] {
        // A name that nothing has: the reply is short whatever the container holds.
        let page = patient.store.blobs.list(container, "~", None).await;
        note(&mut missing, container.as_str(), page)?;
    }
    Ok(missing)
}

async fn queues(patient: &Patient) -> Result<Vec<String>> {
    let layout = &patient.layout;
    let mut missing = Vec::new();
    for queue in [layout.completions(), layout.completions_poison()] {
        let depth = patient.store.queues.depth(queue).await;
        note(&mut missing, queue.as_str(), depth)?;
    }
    Ok(missing)
}

async fn tables(patient: &Patient) -> Result<Vec<String>> {
    let layout = &patient.layout;
    let id = WorkflowId::new("doctor").expect("a legal id");
    let task = TaskName::new("doctor").expect("a legal name");
    let key = layout.claim(&id, &task);
    let mut missing = Vec::new();
    for table in [layout.index(), layout.claims(), layout.journal()] {
        let row = patient.store.rows.get(table, &key).await;
        note(&mut missing, table.as_str(), row)?;
    }
    Ok(missing)
}
