//! Where everything of one prefix is stored. All names are checked before any request is made.
//!
//! Invariants:
//! 1. Names are injective: two workflows, tasks, attempts or executions never share a path or key. Bytes of a task's name
//!    outside `[A-Za-z0-9_-]` become `=XX`; `/` separates parts and occurs in none.
//! 2. An unfinished workflow has its row in partition [`Layout::OPEN`], a final one in [`Layout::DONE`]; if both exist the open one counts.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::definition::{QueueName, TaskName, WorkflowId};
use crate::engine::Attempt;
use crate::record::{RunId, Stamp};
use crate::store::{
    BlobPath, Container, NameError, Queue, Result as StoreResult, RowKey, Store, Table,
};

/// A prefix that cannot name anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// It breaks the rule of prefixes.
    #[error(
        "prefix `{prefix}` (from `--store`) {rule}; it names containers, queues and tables, as `{prefix}-workflows` and `{prefix}WorkflowsIndex`"
    )]
    Prefix {
        /// The prefix refused.
        prefix: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A name made from it breaks a rule of the service.
    #[error("prefix `{prefix}` (from `--store`) gives an illegal name: {source}")]
    Name {
        /// The prefix refused.
        prefix: String,
        /// The rule broken.
        source: NameError,
    },
}

/// The names of one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    prefix: String,
    workflows: Container,
    outputs: Container,
    logs: Container,
    index: Table,
    claims: Table,
    journal: Table,
    completions: Queue,
    completions_poison: Queue,
}

impl Layout {
    /// The partition of the rows of unfinished workflows.
    pub const OPEN: &'static str = "open";
    /// The partition of the rows of final workflows.
    pub const DONE: &'static str = "done";

    /// The names of `prefix`: `[a-z][a-z0-9]{2,23}`.
    ///
    /// # Errors
    /// The rule that the prefix breaks.
    pub fn new(prefix: &str) -> Result<Self, LayoutError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let rule = if !(3..=24).contains(&prefix.chars().count()) {
            Some("must have 3 to 24 characters")
        } else if !prefix.chars().all(plain) {
            Some("may hold only lower-case letters and digits")
        } else if !prefix.starts_with(|c: char| c.is_ascii_lowercase()) {
            Some("must start with a letter")
        } else {
            None
        };
        if let Some(rule) = rule {
            return Err(LayoutError::Prefix {
                prefix: prefix.to_owned(),
                rule,
            });
        }
        let named = || -> Result<Self, NameError> {
            Ok(Self {
                prefix: prefix.to_owned(),
                workflows: Container::new(format!("{prefix}-workflows"))?,
                outputs: Container::new(format!("{prefix}-outputs"))?,
                logs: Container::new(format!("{prefix}-logs"))?,
                index: Table::new(format!("{prefix}WorkflowsIndex"))?,
                claims: Table::new(format!("{prefix}Claims"))?,
                journal: Table::new(format!("{prefix}Journal"))?,
                completions: Queue::new(format!("{prefix}-workflow-completions"))?,
                completions_poison: Queue::new(format!("{prefix}-workflow-completions-poison"))?,
            })
        };
        named().map_err(|source| LayoutError::Name {
            prefix: prefix.to_owned(),
            source,
        })
    }

    /// The prefix.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The container of definitions, states and the sentinel.
    #[must_use]
    pub const fn workflows(&self) -> &Container {
        &self.workflows
    }

    /// The container of outputs, inputs and spilled messages.
    #[must_use]
    pub const fn outputs(&self) -> &Container {
        &self.outputs
    }

    /// The container of logs.
    #[must_use]
    pub const fn logs(&self) -> &Container {
        &self.logs
    }

    /// The table of index rows.
    #[must_use]
    pub const fn index(&self) -> &Table {
        &self.index
    }

    /// The table of claims.
    #[must_use]
    pub const fn claims(&self) -> &Table {
        &self.claims
    }

    /// The table of what operators did.
    #[must_use]
    pub const fn journal(&self) -> &Table {
        &self.journal
    }

    /// The queue of completions and requests.
    #[must_use]
    pub const fn completions(&self) -> &Queue {
        &self.completions
    }

    /// Where completions go that cannot be handled.
    #[must_use]
    pub const fn completions_poison(&self) -> &Queue {
        &self.completions_poison
    }

    /// The queue of tasks called `queue`.
    #[must_use]
    pub fn task_queue(&self, queue: &QueueName) -> Queue {
        Queue::new(format!("{}-q-{queue}", self.prefix))
            .expect("24 + 3 + 29 characters of the queue alphabet")
    }

    /// Where messages of `queue` go that cannot be handled.
    #[must_use]
    pub fn task_poison(&self, queue: &QueueName) -> Queue {
        Queue::new(format!("{}-q-{queue}-poison", self.prefix))
            .expect("24 + 3 + 29 + 7 characters of the queue alphabet")
    }

    /// The definition blob.
    #[must_use]
    pub fn definition(&self, id: &WorkflowId) -> BlobPath {
        blob(&self.workflows, format!("{id}.def.json"))
    }

    /// The ending that tells definition blobs from others in a listing.
    pub const DEFINITION_ENDING: &'static str = ".def.json";

    /// The ending of runtime blobs, and of nothing else whose stem is an id.
    pub const RUNTIME_ENDING: &'static str = ".json";

    /// The runtime blob.
    #[must_use]
    pub fn runtime(&self, id: &WorkflowId) -> BlobPath {
        blob(&self.workflows, format!("{id}.json"))
    }

    /// A blob beside the runtime blob, named by the write that names it first. No task's folder is called so.
    #[must_use]
    pub fn snapshot(&self, id: &WorkflowId, run: RunId, stamp: Stamp) -> BlobPath {
        blob(
            &self.outputs,
            format!("{id}/{run}/=state/{stamp}.snapshot.json"),
        )
    }

    /// As [`Layout::snapshot`].
    #[must_use]
    pub fn details(&self, id: &WorkflowId, run: RunId, stamp: Stamp) -> BlobPath {
        blob(
            &self.outputs,
            format!("{id}/{run}/=state/{stamp}.details.json"),
        )
    }

    /// The coordinator's sentinel.
    #[must_use]
    pub fn sentinel(&self) -> BlobPath {
        blob(&self.workflows, "_coordinator.lock".to_owned())
    }

    /// The row of an unfinished workflow.
    #[must_use]
    pub fn open_row(&self, id: &WorkflowId) -> RowKey {
        key(Self::OPEN, id.as_str())
    }

    /// The row of a final workflow.
    #[must_use]
    pub fn done_row(&self, id: &WorkflowId) -> RowKey {
        key(Self::DONE, id.as_str())
    }

    /// The claim on a task.
    #[must_use]
    pub fn claim(&self, id: &WorkflowId, task: &TaskName) -> RowKey {
        key(id.as_str(), &segment(task.as_str()))
    }

    /// The blobs of one execution of an attempt, or of one sending of it.
    #[must_use]
    pub fn execution(
        &self,
        id: &WorkflowId,
        run: RunId,
        task: &TaskName,
        attempt: Attempt,
        token: &str,
    ) -> Execution<'_> {
        let stem = format!(
            "{id}/{run}/{}/{attempt}-{}",
            segment(task.as_str()),
            segment(token)
        );
        Execution { layout: self, stem }
    }

    /// What the names of all blobs of one run begin with.
    #[must_use]
    pub fn run_folder(&self, id: &WorkflowId, run: RunId) -> String {
        format!("{id}/{run}/")
    }

    /// A blob of the outputs container by the name that a message gives.
    ///
    /// # Errors
    /// The rule that the name breaks.
    pub fn output_named(&self, name: &str) -> Result<BlobPath, NameError> {
        BlobPath::new(self.outputs.clone(), name)
    }

    /// What a success of a task of `queue` leaves under its idempotency key. No workflow id begins as these names do; the queue ends
    /// at the first line feed, whatever the key holds.
    #[must_use]
    pub fn key(&self, queue: &QueueName, key: &str) -> BlobPath {
        let hash = Sha256::digest(format!("{queue}\n{key}"));
        blob(&self.outputs, format!("_keys/{hash:x}.json"))
    }

    /// Makes what all services need: containers, tables and the completion queues. What exists is left as it is.
    ///
    /// # Errors
    /// The first request that did not succeed.
    pub async fn create(&self, store: &Store) -> StoreResult<()> {
        for container in [&self.workflows, &self.outputs, &self.logs] {
            store.blobs.create_container(container).await?;
        }
        for table in [&self.index, &self.claims, &self.journal] {
            store.rows.create_table(table).await?;
        }
        for queue in [&self.completions, &self.completions_poison] {
            store.queues.create_queue(queue).await?;
        }
        Ok(())
    }
}

/// The blobs of one execution.
#[derive(Debug, Clone)]
pub struct Execution<'a> {
    layout: &'a Layout,
    stem: String,
}

impl Execution<'_> {
    /// What the task wrote.
    #[must_use]
    pub fn output(&self) -> BlobPath {
        blob(&self.layout.outputs, format!("{}.output.json", self.stem))
    }

    /// What it printed.
    #[must_use]
    pub fn log(&self) -> BlobPath {
        blob(&self.layout.logs, format!("{}.log", self.stem))
    }

    /// What it is to run, where that does not fit into a message.
    #[must_use]
    pub fn spec(&self) -> BlobPath {
        blob(&self.layout.outputs, format!("{}.spec.json", self.stem))
    }
}

/// `text` with each byte outside `[A-Za-z0-9_-]` as `=XX`.
fn segment(text: &str) -> String {
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut out, byte| {
            if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
                out.push(char::from(byte));
            } else {
                write!(out, "={byte:02X}").expect("a string takes all that is written");
            }
            out
        })
}

fn blob(container: &Container, name: String) -> BlobPath {
    BlobPath::new(container.clone(), name).expect("ids and encoded names keep the rules of blobs")
}

fn key(partition: &str, row: &str) -> RowKey {
    RowKey::new(partition, row).expect("ids and encoded names keep the rules of keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_that_cannot_name_everything_are_refused_with_the_rule() {
        for prefix in [
            "ab",
            "Abc",
            "a--b",
            "-ab",
            "ab-",
            "a_b",
            "1abc",
            "my-app",
            "",
            &"a".repeat(60),
        ] {
            let error = Layout::new(prefix).expect_err(prefix);
            assert!(error.to_string().contains("--store"), "{error}");
            assert!(error.to_string().contains(prefix), "{error}");
        }
        Layout::new("abc").expect("legal");
        let longest = Layout::new(&"a".repeat(24)).expect("legal");
        let queue = QueueName::new("q".repeat(29)).expect("legal");
        assert_eq!(longest.task_poison(&queue).as_str().len(), 63);
    }

    #[test]
    fn names_joined_from_different_parts_never_meet() {
        let layout = Layout::new("abc").expect("legal");
        let run = RunId::new(uuid::Uuid::nil());
        let path = |id: &str, task: &str, attempt: u32, token: &str| {
            let id = WorkflowId::new(id).expect("legal");
            let task = TaskName::new(task).expect("legal");
            layout
                .execution(&id, run, &task, Attempt::new(attempt), token)
                .output()
                .name()
                .to_owned()
        };
        let claim = |id: &str, task: &str| {
            layout.claim(
                &WorkflowId::new(id).expect("legal"),
                &TaskName::new(task).expect("legal"),
            )
        };
        assert_ne!(path("wf-1", "1-x", 1, "t"), path("wf-1-1", "x", 1, "t"));
        assert_ne!(path("w", "a1", 1, "t"), path("w", "a", 11, "t"));
        assert_ne!(path("w", "a/b", 1, "t"), path("w", "a=2Fb", 1, "t"));
        assert_ne!(path("w", "a b", 1, "t"), path("w", "a_b", 1, "t"));
        let key = |queue: &str, key: &str| layout.key(&QueueName::new(queue).expect("legal"), key);
        assert_ne!(key("a", "b"), key("a", "c"));
        assert_ne!(key("a", "b"), key("b", "b"));
        assert_ne!(key("a", "1\nb"), key("a1", "\nb"));
        assert_ne!(claim("wf-1", "1-x"), claim("wf-1-1", "x"));
        assert_ne!(claim("w", "it's"), claim("w", "it=27s"));
    }

    #[test]
    fn the_longest_names_fit_into_paths_and_keys() {
        let layout = Layout::new("abc").expect("legal");
        let id = WorkflowId::new("i".repeat(64)).expect("legal");
        let task = TaskName::new("/".repeat(160)).expect("legal");
        let run = RunId::new(uuid::Uuid::nil());
        let longest = Attempt::new(u32::MAX);
        let execution = layout.execution(&id, run, &task, longest, &"t".repeat(32));
        assert!(execution.spec().name().len() <= 1024);
        assert!(layout.claim(&id, &task).row().len() <= 512);
    }
}
