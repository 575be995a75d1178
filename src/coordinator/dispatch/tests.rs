//! When a ready task is due.

use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::coordinator::Config;
use crate::definition::{Source, parse};
use crate::engine::Outcome;
use crate::engine::{AttemptId, AttemptReport, Changes, Generation, Graph, RetryAfter, Runtime};
use crate::env::Env;
use crate::protocol::{Candidate, Layout, Try, try_to_lead};
use crate::record::{DefinitionRecord, RunId};
use crate::store::memory::MemoryStore;
use crate::store::memory::manual::ManualClock;

async fn context(env: &Env) -> Context {
    let (store, layout) = (
        MemoryStore::open(env.clone()),
        Layout::new("test").expect("legal"),
    );
    layout.create(&store).await.expect("memory");
    let candidate = Candidate {
        holder: "test/1".to_owned(),
        lease: Duration::from_secs(60),
    };
    let hurry = CancellationToken::new();
    match try_to_lead(env, &store, &layout, &candidate, &hurry).await {
        Ok(Try::Leads(leads)) => {
            Context::new(env, &layout, &Config::default(), Arc::new(*leads), &hurry)
        }
        other => panic!("{other:?}"),
    }
}

/// One task, ready for the first time.
fn book() -> Book {
    book_of("tasks: [{name: a, cmd: x, num_retries: 1}]")
}

fn book_of(yaml: &str) -> Book {
    let parsed = parse(&Source::new("test.yaml", yaml)).expect("legal");
    let graph = Arc::new(Graph::new(&parsed.definition).expect("legal"));
    let definition = DefinitionRecord {
        schema: 1,
        workflow_id: "w".parse().expect("legal"),
        run_id: RunId::new(uuid::Uuid::nil()),
        submitted_at: Timestamp::UNIX_EPOCH,
        submitted_by: "test".to_owned(),
        definition: parsed.definition,
    };
    let runtime = Runtime::start(graph, &mut Changes::default());
    Book::new(Arc::new(definition), runtime, Timestamp::UNIX_EPOCH)
}

/// The report of a command that failed.
fn failed() -> AttemptReport {
    AttemptReport {
        outcome: Outcome::Failed(Failure {
            kind: FailureKind::Exit,
            message: "exit code 1".to_owned(),
            is_final: false,
        }),
        token: "t".to_owned(),
        worker: "script/1".to_owned(),
        started_at: None,
        ended_at: Timestamp::UNIX_EPOCH,
        output: None,
        exit_code: Some(1),
        has_log: false,
        stderr_tail: None,
        reused_from: None,
    }
}

#[tokio::test]
async fn a_ready_task_that_nobody_attends_to_is_due_after_the_threshold() {
    let clock = ManualClock::still();
    let env = clock.env();
    let (ctx, book, mut dispatch) = (context(&env).await, book(), Dispatch::default());
    let due = env.mono().plus(ctx.config.ready_repair_threshold);
    dispatch.repair(&ctx, &book);
    assert_eq!(dispatch.next_due(), Some(due));
    clock.advance(Duration::from_secs(60));
    dispatch.repair(&ctx, &book);
    assert_eq!(dispatch.next_due(), Some(due), "it is attended to now");
}

#[tokio::test]
async fn a_retry_is_late_by_no_more_than_its_delay_whatever_the_clock() {
    let env = ManualClock::still().env();
    let (ctx, mut book, mut dispatch) = (context(&env).await, book(), Dispatch::default());
    let day = Duration::from_secs(86_400);
    let (task, delay) = (TaskIx::new(0), Duration::from_secs(10));
    let id = AttemptId {
        task,
        generation: Generation::FIRST,
        attempt: Attempt::new(1),
    };
    // The leader before had a clock that is a day ahead of this one's.
    let retry = RetryAfter {
        now: env.wall() + day,
        delay,
    };
    let changes = &mut Changes::default();
    let applied = book
        .runtime
        .apply_report(id, failed(), retry, |_, _| false, changes);
    assert_eq!(applied, crate::engine::Applied::Changed);
    dispatch.enqueue(&ctx, &book, task);
    assert_eq!(dispatch.next_due(), Some(env.mono().plus(delay)));
}

#[tokio::test]
async fn a_task_that_becomes_ready_again_waits_in_one_place_only() {
    let env = ManualClock::still().env();
    let (ctx, mut book, mut dispatch) = (context(&env).await, book(), Dispatch::default());
    let task = TaskIx::new(0);
    // Another leader had made it ready, and perhaps sent it.
    dispatch.reload(&ctx, &book, &BTreeSet::new());
    for _ in 0..2 {
        dispatch.ended(&ctx, &book, [(task, true)]);
        dispatch.enqueue(&ctx, &book, task);
    }
    dispatch.drained(&ctx, &book);
    let mut outbox = Outbox::default();
    let (mailbox, _inbox) = tokio::sync::mpsc::unbounded_channel();
    let id = "w".parse().expect("legal");
    let chosen = dispatch.choose(&ctx, &book, &mut outbox, &id, &mailbox);
    assert_eq!(chosen.len(), 1, "{chosen:?}");
    // One found lost stands in line; its failure, of which a late completion tells, makes it ready again.
    let mut changes = Changes::default();
    let _marked = book.runtime.mark_sent(task, chosen[0].attempt);
    let name = book.runtime.graph().name(task).clone();
    dispatch.send_again(&ctx, &book, &[(name, chosen[0].attempt)]);
    let id = AttemptId {
        task,
        generation: Generation::FIRST,
        attempt: chosen[0].attempt,
    };
    let retry = RetryAfter {
        now: env.wall(),
        delay: Duration::ZERO,
    };
    let _applied = book
        .runtime
        .apply_report(id, failed(), retry, |_, _| true, &mut changes);
    dispatch.ended(&ctx, &book, [(task, true)]);
    dispatch.enqueue(&ctx, &book, task);
    let waiting = dispatch.line.values().flatten().count() + dispatch.later.len();
    assert_eq!(waiting, 1, "{dispatch:?}");
}

/// The places of all tasks of a book stand in line.
fn all_in_line(ctx: &Context, book: &Book) -> (Dispatch, Outbox) {
    let (mut dispatch, mut outbox) = (Dispatch::default(), Outbox::default());
    for task in book.runtime.graph().tasks() {
        outbox.made_ready(task, book.runtime.task(task).attempt);
        dispatch.enqueue(ctx, book, task);
    }
    (dispatch, outbox)
}

/// A cancel ends all of a long line: looked through for each task, it would take hours.
#[tokio::test]
async fn tasks_that_end_in_line_are_taken_out_together() {
    let env = ManualClock::still().env();
    let book = book_of("tasks: [{name: a, cmd: x}, {name: b, cmd: x}, {name: c, cmd: x}]");
    let ctx = context(&env).await;
    let (mut dispatch, _) = all_in_line(&ctx, &book);
    let in_line = |dispatch: &Dispatch| dispatch.line.values().map(VecDeque::len).sum::<usize>();
    let tasks: Vec<_> = book.runtime.graph().tasks().collect();
    let gone: BTreeSet<_> = tasks[..2].iter().copied().collect();
    for task in &gone {
        let is_in_line = dispatch.note_end(&ctx, &book, *task, false);
        assert!(is_in_line);
    }
    assert_eq!(in_line(&dispatch), 3, "nobody has looked through the line");
    dispatch.unplace(&gone);
    assert_eq!(in_line(&dispatch), 1);
}

#[tokio::test]
async fn queues_take_turns_however_few_may_be_sent_at_once() {
    let env = ManualClock::still().env();
    let ctx = context(&env).await;
    for (most, turns) in [
        (1, [["a"], ["b"], ["a"]].map(Vec::from)),
        (3, [vec!["a", "a", "b"], vec!["a", "b", "b"], vec![]]),
    ] {
        let tasks: Vec<_> = ["a", "a", "a", "b", "b", "b"]
            .iter()
            .enumerate()
            .map(|(place, queue)| format!("{{name: t{place}, cmd: x, queue: {queue}}}"))
            .collect();
        let book = book_of(&format!(
            "max_parallelism: {most}\ntasks: [{}]",
            tasks.join(", ")
        ));
        let (mut dispatch, mut outbox) = all_in_line(&ctx, &book);
        let id = book.definition.workflow_id.clone();
        let (mailbox, _mail) = tokio::sync::mpsc::unbounded_channel();
        for turn in turns {
            let mut chosen = dispatch.choose(&ctx, &book, &mut outbox, &id, &mailbox);
            chosen.sort_by_key(|chosen| chosen.queue.clone());
            let queues: Vec<_> = chosen.iter().map(|chosen| chosen.queue.as_str()).collect();
            assert_eq!(queues, turn);
            for chosen in &chosen {
                dispatch.ended(&ctx, &book, [(chosen.task, true)]);
            }
        }
    }
}
