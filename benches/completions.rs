//! How fast a coordinator takes completions that wait for it, and what each costs.
//!
//! `cargo bench --bench completions`: 998 completions of one workflow, one and 32 a message, beside the same requests made by a plain loop;
//! then 60,000 of 100 workflows. On the store in memory and on an emulator of its own (needs Node 20).
//!
//! The completions are made by hand and wait in the queue before the coordinator starts; the time runs from its start, becoming leader
//! included, to its last acknowledgement.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints what it measures, and one that cannot go on fails"
)]

use std::time::Duration;

use dagaz::engine::{AttemptReport, Outcome};
use dagaz::env::{Env, Timestamp, real};
use dagaz::record::{
    CompletionRecord, CompletionResult, TaskMessage, decode_message, encode_message,
};
use dagaz::store::Store;
use dagaz::store::layers::Op;
use dagaz::store::memory::MemoryStore;

use bench::bare::{all, bare};
use bench::figures::{Counts, forget_peak, median, of, peak};
use bench::shapes::with_a_join;
use bench::{Coordinator, On, Place};

#[expect(dead_code, reason = "other benchmarks use the rest")]
mod bench;

/// Rounds of which the median is told.
const ROUNDS: usize = 5;

/// Completions that wait in the queue.
#[derive(Clone, Copy)]
struct Load {
    workflows: usize,
    /// Of each workflow; its join waits for them.
    leaves: usize,
    /// Completions in one message.
    batch: usize,
}

impl Load {
    fn completions(self) -> usize {
        self.workflows * self.leaves
    }

    fn messages(self) -> usize {
        self.completions().div_ceil(self.batch)
    }

    /// Lets the completions be there and nobody lead. The task messages go to a queue in memory: nobody measures them, and a long
    /// queue makes an emulator slow.
    async fn prepare(self, place: &Place) {
        let aside = MemoryStore::open(real::env()).queues;
        let beside = |store: Store| Store {
            queues: aside.clone(),
            ..store
        };
        let all_aside = place.seen_through(beside(place.store.clone())).await;
        let first = Coordinator::start(&all_aside, beside(place.store_again()), None);
        let definition = with_a_join(self.leaves);
        all_aside
            .submit_all("bench", self.workflows, &definition)
            .await;
        let queue = place.queue();
        let wanted = self.completions() as u64;
        let sent = async || aside.depth(&queue).await.unwrap() == wanted;
        place.until("all leaves to be sent", 20, sent).await;
        first.end().await;
        self.answer(place, &all_aside.store).await;
    }

    /// Answers every task message of `asked` with success.
    async fn answer(self, place: &Place, asked: &Store) {
        let (mut tasks, queue) = (Vec::new(), place.queue());
        while tasks.len() < self.completions() {
            let hidden = Duration::from_secs(600);
            let messages = asked.queues.receive(&queue, 32, hidden).await.unwrap();
            let decoded = messages
                .iter()
                .map(|message| decode_message::<TaskMessage>(&message.body).unwrap());
            tasks.extend(decoded);
        }
        let texts: Vec<_> = tasks
            .chunks(self.batch)
            .map(|tasks| completion(tasks, &place.env))
            .collect();
        let (queues, completions) = (&place.store.queues, place.layout.completions());
        let sends = texts
            .iter()
            .map(|text| queues.send(completions, text, Duration::ZERO));
        all(sends).await;
    }
}

/// The message that tells the success of some tasks.
fn completion(tasks: &[TaskMessage], env: &Env) -> String {
    let now = Timestamp::from_millisecond(env.wall().as_millisecond()).unwrap();
    let result = |task: &TaskMessage| CompletionResult {
        workflow_id: task.workflow_id.clone(),
        run_id: task.run_id,
        generation: task.generation,
        task: task.task.clone(),
        attempt_no: task.attempt_no,
        report: AttemptReport {
            outcome: Outcome::Succeeded,
            token: env.uuid().simple().to_string(),
            worker: "worker-17/4242".to_owned(),
            started_at: Some(now),
            ended_at: now,
            exit_code: Some(0),
            output: None,
            has_log: false,
            stderr_tail: None,
            reused_from: None,
        },
    };
    encode_message(&CompletionRecord::of_results(
        tasks.iter().map(result).collect(),
    ))
}

/// How one round went.
struct Round {
    took: f64,
    /// Seconds of processor time.
    cpu: f64,
    counts: Counts,
}

/// One coordinator over a load.
async fn taken(place: &Place, load: Load) -> Round {
    load.prepare(place).await;
    let wanted = load.messages() as u64;
    let began = place.env.mono();
    let coordinator = Coordinator::start(place, place.store_again(), None);
    let meter = &coordinator.meter;
    let deleted = async || of(&meter.snapshot(), Op::QueueDelete).requests >= wanted;
    place.until("the last acknowledgement", 1, deleted).await;
    let took = place.env.mono().since(began).as_secs_f64();
    let (cpu, counts) = (Coordinator::cpu(), meter.snapshot());
    // So all leaves were taken for ended.
    let (queues, queue) = (&place.store.queues, place.queue());
    let joins = load.workflows as u64;
    let sent = async || queues.depth(&queue).await.unwrap() == joins;
    place.until("the joins to be sent", 5, sent).await;
    coordinator.end().await;
    Round { took, cpu, counts }
}

/// What the transport needs for the same requests; the completions wait already.
async fn beside(place: &Place, load: Load, recorded: &Counts) -> Round {
    let bare = bare(place, recorded, load.messages() as u64).await;
    Round {
        took: bare.rest,
        cpu: bare.cpu_of_rest,
        counts: Counts::new(),
    }
}

/// One line: rates and costs of completions.
fn print_rounds(what: &str, load: Load, rounds: &[Round]) {
    let count = load.completions() as f64;
    let rates = || rounds.iter().map(|round| count / round.took);
    let least = rates().fold(f64::MAX, f64::min);
    let most = rates().fold(0.0, f64::max);
    let cpu = median(rounds.iter().map(|round| round.cpu));
    print!(
        "  {what:<42} {:>7.0}/s ({least:.0} to {most:.0}), {:>4.0} us of processor time each",
        median(rates()),
        cpu * 1e6 / count,
    );
    let counts = &rounds[0].counts;
    let (writes, deletes) = (of(counts, Op::BlobPut), of(counts, Op::QueueDelete));
    if writes.requests > 0 {
        print!(
            ", {} deletions, {} blob writes, {} bytes",
            deletes.requests, writes.requests, writes.sent
        );
    }
    println!();
}

async fn one_workflow(on: On) {
    for batch in [1, 32] {
        let load = Load {
            workflows: 1,
            leaves: 998,
            batch,
        };
        let (mut rounds, mut bare_rounds) = (Vec::new(), Vec::new());
        // In turns, so that both have the same company on the machine.
        for round in 0..ROUNDS {
            let place = Place::new(on, &format!("b{batch}r{round}")).await;
            let done = taken(&place, load).await;
            bare_rounds.push(beside(&place, load, &done.counts).await);
            rounds.push(done);
        }
        print_rounds(
            &format!("998 of one workflow, {batch} a message"),
            load,
            &rounds,
        );
        print_rounds(
            "the same requests without a coordinator",
            load,
            &bare_rounds,
        );
        let pairs = rounds.iter().zip(&bare_rounds);
        let ratio = median(pairs.map(|(round, bare)| round.took / bare.took));
        println!("  the coordinator takes {ratio:.2} times as long");
    }
}

async fn many_workflows(on: On) {
    let load = Load {
        workflows: 100,
        leaves: 600,
        batch: 32,
    };
    let place = Place::new(on, "many").await;
    forget_peak();
    let round = taken(&place, load).await;
    print_rounds("60,000 of 100 workflows, 32 a message", load, &[round]);
    let peak = peak("self");
    println!("  this process had at most {peak:.0} MiB, preparation included");
}

#[tokio::main]
async fn main() {
    for on in [On::Memory, On::Emulator] {
        println!("\n{}, medians of {ROUNDS} where there are more", on.name());
        one_workflow(on).await;
        many_workflows(on).await;
    }
}
