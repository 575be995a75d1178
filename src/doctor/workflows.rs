//! Workflows that nobody takes, that cannot be read, or whose tasks do not move.

use std::collections::BTreeSet;
use std::time::Duration;

use super::coordinator::ago;
use super::{Check, Patient};
use crate::definition::QueueName;
use crate::engine::{Status, TaskState};
use crate::protocol::{
    FoundClaim, FoundRow, Layout, ReadError, found, found_claim, list_claims, read_definition,
    understand,
};
use crate::record::RuntimeRecord;
use crate::store::StoreError;

/// How long a submitted workflow may wait before somebody should look.
const PENDING_MAX: Duration = Duration::from_secs(60);
/// How long a state may stand still with tasks that should move.
const STILL_MAX: Duration = Duration::from_secs(300);
/// Workflows named in one finding.
const NAMED_MAX: usize = 5;

/// What is collected over all unfinished workflows.
#[derive(Debug, Default)]
struct Findings {
    open: usize,
    waiting: Vec<String>,
    unreadable: Vec<String>,
    stuck: Vec<String>,
    refused: Option<StoreError>,
    queues: BTreeSet<QueueName>,
}

/// Looks at all unfinished workflows; also tells the task queues that they use.
pub(super) async fn checks(patient: &Patient, is_led: bool) -> (Vec<Check>, BTreeSet<QueueName>) {
    let mut findings = Findings::default();
    findings
        .queues
        .insert(QueueName::new("default").expect("a legal name"));
    if let Err(error) = look(patient, &mut findings).await {
        findings.refused = Some(error);
    }
    let waits = if is_led {
        "look at the coordinator's log: it looks for new workflows every 10 s"
    } else {
        "start a coordinator: `workflow coordinator`"
    };
    let mut checks = vec![
        count(
            "pending workflows",
            &findings.waiting,
            "wait longer than a minute for a coordinator",
            waits,
        ),
        count(
            "unreadable state",
            &findings.unreadable,
            "cannot be read",
            "restore the blob from a copy, or submit the workflow anew under another id",
        ),
        count(
            "stuck tasks",
            &findings.stuck,
            "have not moved for more than 5 minutes",
            "check that a worker runs for these queues: `workflow worker --queue NAME`",
        ),
    ];
    if let Some(error) = &findings.refused {
        checks.push(Check::refused("unfinished workflows", error));
    } else {
        let open = format!("{}", findings.open);
        checks.push(Check::ok("unfinished workflows", open));
    }
    (checks, findings.queues)
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

async fn look(patient: &Patient, findings: &mut Findings) -> Result<(), StoreError> {
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

async fn workflow(
    patient: &Patient,
    found: &FoundRow,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    let id = &found.record.workflow_id;
    let definition = match read_definition(&patient.store, &patient.layout, id).await {
        Ok(Some(stored)) => stored.record.definition,
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
    let queue_of = |at: usize| {
        let task = &definition.tasks[at];
        task.queue.as_ref().unwrap_or(&definition.default_queue)
    };
    findings
        .queues
        .extend((0..definition.tasks.len()).map(|at| queue_of(at).clone()));
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
    let runtime: RuntimeRecord = match understand(&path, &blob) {
        Ok(runtime) => runtime,
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
    let still =
        Duration::try_from(blob.read_at.duration_since(blob.changed_at)).unwrap_or_default();
    if still <= STILL_MAX {
        return Ok(());
    }
    let claimed = claimed(patient, &runtime).await?;
    let moves = |state: &TaskState| matches!(state, TaskState::Ready | TaskState::Dispatched);
    let waiting = states.iter().enumerate().filter(|(at, state)| {
        moves(state) && !claimed.contains(definition.tasks[*at].name.as_str())
    });
    let waiting: Vec<usize> = waiting.map(|(at, _)| at).collect();
    if let Some(first) = waiting.first() {
        findings.stuck.push(format!(
            "`{id}`: {} tasks for {}, as `{}` on queue `{}`, no worker seen",
            waiting.len(),
            ago(still),
            definition.tasks[*first].name,
            queue_of(*first)
        ));
    }
    Ok(())
}

/// The tasks that workers hold.
async fn claimed(
    patient: &Patient,
    runtime: &RuntimeRecord,
) -> Result<BTreeSet<String>, StoreError> {
    let mut names = BTreeSet::new();
    let mut after = None;
    loop {
        let id = &runtime.workflow_id;
        let page = list_claims(&patient.store, &patient.layout, id, after.as_ref()).await?;
        let claims = page
            .items
            .into_iter()
            .filter_map(|row| found_claim(row).ok());
        let live = claims.filter(FoundClaim::is_live);
        names.extend(live.map(|claim| claim.record.task.as_str().to_owned()));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(names),
        }
    }
}
