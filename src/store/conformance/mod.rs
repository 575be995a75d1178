//! The store contract as code: one function per numbered clause of the traits in [`super`], run on every implementation.
//!
//! Invariants:
//! 1. Every clause of the contract has exactly one entry in [`CLAUSES`], by its number; a test reads the contract and compares.
//! 2. A clause keeps to its own [`Namespace`], so that all clauses run at once against one account that others use too.
//! 3. A clause proves "not yet" only with times long enough that a slow machine cannot break it, and waits for "now" by asking again.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{BoxFuture, join_all};

use super::{Container, Kind, NameError, Queue, Result as StoreResult, Store, StoreError, Table};
use crate::env::Env;

mod blobs;
mod queues;
mod rows;

#[cfg(test)]
mod tests;

/// Callers at once where a clause says that one wins.
const CALLERS: usize = 16;
/// Longest run of one clause.
const CLAUSE_LIMIT: Duration = Duration::from_secs(120);
/// Pause between two looks for something that takes time.
const POLL: Duration = Duration::from_millis(100);
/// How long a clause waits for something that is due.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a store does not keep a clause.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It did something that the clause excludes.
    #[error("{0}")]
    Broken(String),
    /// It refused what the clause promises.
    #[error("unexpected refusal: {0}")]
    Refused(#[from] StoreError),
    /// A name of the suite itself is wrong.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Whether a clause is kept.
pub type Outcome = Result<(), Failure>;

/// One clause of the contract.
#[derive(Clone, Copy)]
pub struct Clause {
    /// Its number in the contract, as `B1`.
    pub id: &'static str,
    /// What it says, in a few words.
    pub name: &'static str,
    /// Checks it.
    pub run: for<'a> fn(&'a Store, &'a Namespace, &'a Env) -> BoxFuture<'a, Outcome>,
}

impl fmt::Debug for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.name)
    }
}

macro_rules! clauses {
    ($($id:literal => $module:ident::$function:ident,)*) => {
        &[$(Clause {
            id: $id,
            name: stringify!($function),
            run: |store, names, env| Box::pin($module::$function(store, names, env)),
        }),*]
    };
}

/// All clauses, in the order of the contract.
pub const CLAUSES: &[Clause] = clauses! {
    "B1" => blobs::b1_one_of_many_creators_wins,
    "B2" => blobs::b2_one_of_many_swappers_wins,
    "B3" => blobs::b3_get_returns_what_was_put,
    "B4" => blobs::b4_each_put_gives_a_new_version,
    "B5" => blobs::b5_an_empty_body_is_refused,
    "B6" => blobs::b6_delete_removes_only_the_version_named,
    "B7" => blobs::b7_list_gives_every_name_once_in_order,
    "B8" => blobs::b8_a_missing_container_is_told_apart,
    "B9" => blobs::b9_one_of_many_lessees_wins,
    "B10" => blobs::b10_a_lease_protects_from_other_writers,
    "B11" => blobs::b11_a_renewal_extends_only_ones_own_lease,
    "B12" => blobs::b12_an_ended_lease_can_be_taken,
    "B13" => blobs::b13_there_must_be_a_lease_to_break,
    "B14" => blobs::b14_a_put_under_a_lease_that_is_not_there_is_refused,
    "B15" => blobs::b15_large_bodies_are_kept_whole,
    "Q1" => queues::q1_texts_come_back_as_sent,
    "Q2" => queues::q2_a_received_message_comes_back_after_its_time,
    "Q3" => queues::q3_a_delayed_message_is_hidden_until_due,
    "Q4" => queues::q4_receive_returns_at_most_what_was_asked,
    "Q5" => queues::q5_extend_sets_the_visibility_from_now,
    "Q6" => queues::q6_delete_takes_the_last_receipt_once,
    "Q7" => queues::q7_a_lost_message_cannot_be_extended,
    "Q8" => queues::q8_texts_end_at_64_kib,
    "Q9" => queues::q9_a_missing_queue_is_told_apart,
    "Q10" => queues::q10_depth_counts_hidden_messages_too,
    "Q11" => queues::q11_messages_do_not_expire,
    "Q12" => queues::q12_each_message_goes_to_one_of_many_receivers,
    "Q13" => queues::q13_peek_receives_nothing,
    "R1" => rows::r1_one_of_many_inserters_wins,
    "R2" => rows::r2_one_of_many_mergers_wins,
    "R3" => rows::r3_get_returns_what_was_written,
    "R4" => rows::r4_each_write_gives_a_new_version,
    "R5" => rows::r5_delete_removes_only_the_version_named,
    "R6" => rows::r6_query_gives_every_row_of_the_partition_once_in_order,
    "R7" => rows::r7_a_missing_table_is_told_apart,
    "R8" => rows::r8_texts_end_at_32_ki_units,
    "R9" => rows::r9_keys_keep_their_spelling,
    "R10" => rows::r10_times_are_of_one_clock,
};

/// Names that no other clause and no other run uses.
#[derive(Debug, Clone)]
pub struct Namespace {
    container: Container,
    queue: Queue,
    table: Table,
}

impl Namespace {
    /// Fresh names for the clause `id`.
    ///
    /// # Errors
    /// A name that the service would refuse.
    pub fn new(id: &str, env: &Env) -> Result<Self, NameError> {
        let id = id.to_ascii_lowercase();
        let run = format!("{:016x}", env.random());
        Ok(Self {
            container: Container::new(format!("conf-{id}-{run}"))?,
            queue: Queue::new(format!("conf-{id}-{run}"))?,
            table: Table::new(format!("conf{id}{run}"))?,
        })
    }

    /// The clause's container.
    #[must_use]
    pub const fn container(&self) -> &Container {
        &self.container
    }

    /// The clause's queue.
    #[must_use]
    pub const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The clause's table.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }
}

/// Runs all clauses at once on `store`; takes a little longer than the shortest lease, 15 seconds.
///
/// # Errors
/// One line for every clause that is not kept.
pub async fn run_all(store: &Store, env: &Env) -> Result<(), String> {
    let failures = join_all(CLAUSES.iter().map(|clause| run(clause, store, env))).await;
    let lines: Vec<String> = failures.into_iter().filter_map(Result::err).collect();
    if lines.is_empty() {
        Ok(())
    } else {
        Err(lines.join("\n"))
    }
}

/// Runs one clause on `store`, under fresh names.
///
/// # Errors
/// What is not kept, with number and name of the clause.
pub async fn run(clause: &Clause, store: &Store, env: &Env) -> Result<(), String> {
    let told = |failure: Failure| format!("{clause:?}: {failure}");
    let names = Namespace::new(clause.id, env).map_err(|error| told(error.into()))?;
    env.timeout(CLAUSE_LIMIT, (clause.run)(store, &names, env))
        .await
        .unwrap_or_else(|over| Err(Failure::Broken(over.to_string())))
        .map_err(told)
}

fn ensure(kept: bool, broken: impl FnOnce() -> String) -> Outcome {
    if kept {
        Ok(())
    } else {
        Err(Failure::Broken(broken()))
    }
}

/// Demands that `result` is a refusal of this kind.
fn refused<T: fmt::Debug>(result: StoreResult<T>, kind: Kind, when: &str) -> Outcome {
    match result {
        Err(error) if error.kind == kind => Ok(()),
        other => Err(Failure::Broken(format!(
            "{when}: want `{kind}`, got {other:?}"
        ))),
    }
}

/// Runs `call` concurrently for each of [`CALLERS`] callers, on as many threads as there are.
async fn at_once<T, F>(env: &Env, call: impl Fn(usize) -> F) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let calls: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (reply, replied) = oneshot::channel();
            let call = call(caller);
            env.spawn("conformance caller", async move {
                // The clause waits for the reply unless it has failed already.
                reply.send(call.await).ok();
            });
            replied
        })
        .collect();
    let lost = |_| Failure::Broken("a caller ended without a reply".to_owned());
    join_all(calls)
        .await
        .into_iter()
        .map(|reply| reply.map_err(lost))
        .collect()
}

/// The one caller that won and what it got; every other must have met [`Kind::Conflict`].
fn one_winner<T: fmt::Debug>(replies: Vec<StoreResult<T>>) -> Result<(usize, T), Failure> {
    let mut winners = Vec::new();
    for (caller, reply) in replies.into_iter().enumerate() {
        match reply {
            Ok(won) => winners.push((caller, won)),
            lost @ Err(_) => refused(lost, Kind::Conflict, "a caller that came too late")?,
        }
    }
    let count = winners.len();
    match winners.pop() {
        Some(winner) if count == 1 => Ok(winner),
        _ => Err(Failure::Broken(format!("{count} of {CALLERS} callers won"))),
    }
}

/// Asks again until there is an answer.
async fn eventually<T, F>(env: &Env, what: &str, ask: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<Option<T>, Failure>>,
{
    let start = env.mono();
    while env.mono().since(start) < PATIENCE {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        env.sleep(POLL).await;
    }
    Err(Failure::Broken(format!("{what} did not happen in time")))
}
