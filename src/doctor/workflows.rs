//! Workflows that nobody takes, that cannot be read, or whose tasks do not move.

use std::collections::BTreeSet;
use std::time::Duration;

use super::coordinator::ago;
use super::stuck::{Seen, Waits};
use super::{Check, Patient};
use crate::definition::{QueueName, WorkflowId};
use crate::engine::Status;
use crate::protocol::{
    FoundRow, Layout, ReadError, found, read_definition, read_head, read_sides, understand_state,
};
use crate::record::StateRecord;
use crate::store::StoreError;

/// How long a submitted workflow may wait before somebody should look.
const PENDING_MAX: Duration = Duration::from_secs(60);
/// Workflows named in one finding.
const NAMED_MAX: usize = 5;

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) checks: Vec<Check>,
    /// Unfinished workflows that were seen.
    pub(super) open: usize,
    /// The task queues that they use, and the usual one.
    pub(super) queues: BTreeSet<QueueName>,
}

impl Found {
    /// Without states or rows there is nothing to look at.
    pub(super) fn unseen() -> Self {
        let message = "not looked at, since states or index cannot be read";
        Self {
            checks: vec![Check::warn("unfinished workflows", message, "see above")],
            open: 0,
            queues: usual(),
        }
    }
}

/// What is collected over all unfinished workflows.
#[derive(Debug)]
struct Findings {
    open: usize,
    waiting: Vec<String>,
    unreadable: Vec<String>,
    purging: Vec<String>,
    waits: Waits,
    queues: BTreeSet<QueueName>,
}

fn usual() -> BTreeSet<QueueName> {
    BTreeSet::from([QueueName::new("default").expect("a legal name")])
}

/// Looks at all unfinished workflows.
pub(super) async fn look(patient: &Patient, is_led: bool) -> Found {
    let mut findings = Findings {
        open: 0,
        waiting: Vec::new(),
        unreadable: Vec::new(),
        purging: Vec::new(),
        waits: Waits::default(),
        queues: usual(),
    };
    let read = read_all(patient, &mut findings).await;
    let open = findings.open;
    let waits = if is_led {
        "look at the coordinator's log: it looks for new workflows every 10 s"
    } else {
        "start a coordinator: `workflow coordinator`"
    };
    let resends = if is_led {
        "wait: the coordinator sends them again, by default 10 to 12 minutes after it sent them or took over"
    } else {
        "start a coordinator: `workflow coordinator`; it sends them again, by default after 10 to 12 minutes"
    };
    let mut checks = vec![
        count(
            "pending workflows",
            &findings.waiting,
            "waiting longer than a minute for a coordinator",
            waits,
        ),
        count(
            "unreadable state",
            &findings.unreadable,
            "of the unfinished workflows cannot be read",
            "restore the blob from a copy, or remove the definition, then the row, and submit the workflow anew under another id; a row that is \
itself damaged, and no other, is made again from the state once it is deleted",
        ),
        count(
            "purges",
            &findings.purging,
            "under way for longer than a minute",
            "look at the coordinator's log: it names what cannot be removed, as a blob that is leased or kept by a policy",
        ),
    ];
    match findings.waits.judge(patient).await {
        Ok(verdicts) => checks.extend([
            count(
                "stuck tasks",
                &verdicts.unserved,
                "with tasks that have waited for more than 5 minutes on a queue where no worker was seen (since what they depend on \
ended, by the clocks of the machines that noted it)",
                "check that a worker with a free slot runs for these queues: `workflow worker --queue NAME`",
            ),
            count(
                "lost messages",
                &verdicts.lost,
                "with tasks that are stored as sent while their queue is empty",
                resends,
            ),
        ]),
        Err(error) => checks.push(Check::refused("stuck tasks", &error)),
    }
    checks.push(match read {
        Err(error) => Check::refused("unfinished workflows", &error),
        Ok(()) => Check::ok(
            "unfinished workflows",
            format!("{open}, all looked at; finished ones are not"),
        ),
    });
    Found {
        checks,
        open,
        queues: findings.queues,
    }
}

fn count(name: &str, found: &[String], what: &str, help: &str) -> Check {
    if found.is_empty() {
        return Check::ok(name, "none");
    }
    let mut named = found[..found.len().min(NAMED_MAX)].join("; ");
    if found.len() > NAMED_MAX {
        named.push_str("; …");
    }
    Check::problem(name, format!("{} {what}: {named}", found.len()), help)
}

async fn read_all(patient: &Patient, findings: &mut Findings) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let rows = &patient.store.rows;
        let page = rows
            .query(patient.layout.index(), Layout::OPEN, after.as_ref())
            .await?;
        for row in page.items {
            findings.open += 1;
            match found(row) {
                Ok(found) => workflow(patient, &found, findings).await?,
                Err(error) => findings.unreadable.push(error.to_string()),
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Whether only a tombstone is left: the row was read a moment before it went.
async fn is_purged(patient: &Patient, id: &WorkflowId) -> Result<bool, StoreError> {
    match read_head(&patient.store, &patient.layout, id).await {
        Ok(state) => Ok(state.is_some_and(|stored| stored.record.live().is_none())),
        Err(ReadError::Store(error)) => Err(error),
        Err(ReadError::Decode { .. }) => Ok(false),
    }
}

async fn workflow(
    patient: &Patient,
    found: &FoundRow,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    let id = &found.record.workflow_id;
    let definition = match read_definition(&patient.store, &patient.layout, id).await {
        Ok(Some(stored)) => stored.record.definition,
        Ok(None) if is_purged(patient, id).await? => return Ok(()),
        Ok(None) => {
            findings
                .unreadable
                .push(format!("`{id}` has no definition blob"));
            return Ok(());
        }
        Err(ReadError::Store(error)) => return Err(error),
        Err(error) => {
            findings.unreadable.push(error.to_string());
            return Ok(());
        }
    };
    findings.queues.insert(definition.default_queue.clone());
    let named = definition
        .tasks
        .iter()
        .filter_map(|task| task.queue.clone());
    findings.queues.extend(named);
    let path = patient.layout.runtime(id);
    let Some(blob) = patient.store.blobs.get(&path).await? else {
        let row = &found.row;
        let age =
            Duration::try_from(row.read_at.duration_since(row.changed_at)).unwrap_or_default();
        if found.record.status != Status::Pending {
            findings.unreadable.push(format!("`{path}` is gone"));
        } else if age > PENDING_MAX {
            findings.waiting.push(format!("`{id}` for {}", ago(age)));
        }
        return Ok(());
    };
    let runtime = match understand_state(&path, &blob) {
        Ok(StateRecord::Live(runtime)) => {
            read_sides(&patient.store, &patient.layout, runtime).await
        }
        // What is left of it is being removed, by whoever leads.
        Ok(StateRecord::Purged(_)) => {
            let age = blob.read_at.duration_since(blob.changed_at);
            let age = Duration::try_from(age).unwrap_or_default();
            if age > PENDING_MAX {
                findings.purging.push(format!("`{id}` for {}", ago(age)));
            }
            return Ok(());
        }
        Err(error) => Err(error),
    };
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(ReadError::Store(error)) => return Err(error),
        Err(error) => {
            findings.unreadable.push(error.to_string());
            return Ok(());
        }
    };
    let states = match runtime.task_states() {
        Ok(states) if states.len() == definition.tasks.len() => states,
        Ok(_) => {
            findings
                .unreadable
                .push(format!("`{path}` does not fit its definition"));
            return Ok(());
        }
        Err(error) => {
            findings.unreadable.push(format!("`{path}` {error}"));
            return Ok(());
        }
    };
    let seen = Seen {
        definition: &definition,
        runtime: &runtime,
        states: &states,
        blob: &blob,
    };
    findings.waits.add(patient, &seen).await
}
