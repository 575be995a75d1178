//! What large workflows cost, and many: time, processor time, memory, bytes of state; and whether a large one holds up small ones.
//!
//! `cargo bench --bench large [-- TASKS] [WORD]`: all cases, or those with WORD in their name. One workflow of 100,000 tasks, or so many,
//! for each shape: first with all in this process over the store in memory (`memory flat`, `memory layered`, `memory join`), then with
//! a coordinator process of its own over an emulator, which needs Node 20 (`emulator flat` and so on). Then many workflows (`1x10000`,
//! `500x20`, `10000x3`), and small ones beside a large one (`small`), on the emulator too. But for the small ones and the 10,000, all are
//! submitted before the coordinator starts. The commands of the tasks do nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints what it measures, and one that cannot go on fails"
)]

use std::cell::RefCell;
use std::process::{Child, Command};

use dagaz::definition::Definition;
use dagaz::engine::Status;
use dagaz::protocol::{Layout, found, leader, read_row};
use dagaz::store::layers::Op;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use bench::azurite::azurite;
use bench::figures::{cpu, forget_peak, of, peak, percentile, requests};
use bench::shapes::{chain, flat, shape, with_a_join};
use bench::{Coordinator, On, Place, Work, Worker};

#[expect(dead_code, reason = "other benchmarks use the rest")]
mod bench;

/// Slots of the one worker.
const SLOTS: u16 = 64;
/// The pause between two looks at a count in this process.
const LOOK_MS: u64 = 5;
/// Tasks of one workflow.
const TASKS: usize = 100_000;
/// From so many workflows on the coordinator takes them as they are submitted: each message that waits makes each request of the emulator's
/// queues slower.
const AS_THEY_COME: usize = 10_000;
/// Small workflows beside a large one.
const SMALL: usize = 50;
/// So many tasks of the large workflow run before the small ones are submitted.
const HEAD_START: u64 = 1_000;

fn shapes(count: usize) -> [(&'static str, Definition); 3] {
    [
        ("flat", flat(count)),
        (
            "layered",
            // Layers of a thousand; each task waits for two of the layer above.
            shape(count, |place| match place.checked_sub(1_000) {
                Some(above) => vec![above, above / 1_000 * 1_000 + (above + 1) % 1_000],
                None => vec![],
            }),
        ),
        ("join", with_a_join(count - 1)),
    ]
}

/// A coordinator process; it ends with this value.
struct Process(RefCell<Child>);

impl Process {
    fn start(place: &Place) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workflow"));
        command
            .args(["coordinator", "--quiet", "--store", place.layout.prefix()])
            .args(["--stats-interval-s", "1"])
            .env(
                "AZURE_STORAGE_CONNECTION_STRING",
                azurite().connection_string(),
            );
        Self(RefCell::new(command.spawn().unwrap()))
    }

    fn id(&self) -> String {
        self.0.borrow().id().to_string()
    }

    /// Fails if it has ended by itself: nothing would ever be reached.
    fn check(&self) {
        let ended = self.0.borrow_mut().try_wait().unwrap();
        assert_eq!(ended, None, "the coordinator has ended");
    }

    fn end(self) {
        let pid = Pid::from_raw(self.0.borrow().id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let ended = self.0.borrow_mut().wait().unwrap();
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.0.get_mut();
        // Nothing is left to kill where it has ended.
        child.kill().ok();
        child.wait().ok();
    }
}

async fn in_memory(name: &str, definition: &Definition) {
    let place = Place::new(On::Memory, "bench").await;
    let worker = Worker::start(&place, SLOTS, Work::Nothing);
    let id = place.submit("bench", definition).await;
    forget_peak();
    let (began, cpu_before) = (place.env.mono(), cpu("self"));
    let coordinator = Coordinator::usual(&place);
    place.until("the end", 200, || place.all_ended()).await;
    let took = place.env.mono().since(began).as_secs_f64();
    let (all_cpu, own_cpu) = (cpu("self") - cpu_before, Coordinator::cpu());
    let counts = coordinator.meter.snapshot();
    coordinator.end().await;
    worker.end().await;
    place.check(&[id]).await;
    let tasks = definition.tasks.len() as f64;
    let writes = of(&counts, Op::BlobPut);
    println!(
        "memory {name:<8} {took:>6.1} s {:>6.0} us of processor time a task, worker and store included; coordinator: {:.0} us, {:.2} requests a task, {} state writes, {:.0} bytes of blobs a task; this process had at most {:.0} MiB",
        all_cpu * 1e6 / tasks,
        own_cpu * 1e6 / tasks,
        requests(&counts) / tasks,
        writes.requests,
        writes.sent as f64 / tasks,
        peak("self"),
    );
}

/// Whether no workflow waits to be taken up.
async fn all_taken_up(place: &Place) -> bool {
    let (rows, index) = (&place.store.rows, place.layout.index());
    let mut after = None;
    loop {
        let page = rows.query(index, Layout::OPEN, after.as_ref()).await;
        let page = page.unwrap();
        let mut statuses = page
            .items
            .into_iter()
            .map(|row| found(row).unwrap().record.status);
        if statuses.any(|status| status == Status::Pending) {
            return false;
        }
        if page.next.is_none() {
            return true;
        }
        after = page.next;
    }
}

async fn on_the_emulator(name: &str, count: usize, definition: &Definition) {
    let place = Place::new(On::Emulator, &format!("large{name}")).await;
    let worker = Worker::start(&place, SLOTS, Work::Nothing);
    let submit = place.submit_all("bench", count, definition);
    let tasks = (count * definition.tasks.len()) as f64;
    let (ids, began, coordinator);
    if count < AS_THEY_COME {
        ids = submit.await;
        began = place.env.mono();
        coordinator = Process::start(&place);
    } else {
        began = place.env.mono();
        coordinator = Process::start(&place);
        ids = submit.await;
    }
    let seconds = || place.env.mono().since(began).as_secs_f64();
    let taken_up = async || {
        coordinator.check();
        all_taken_up(&place).await
    };
    let pause = place.pause_ms(count).max(200);
    place.until("all to be taken up", pause, taken_up).await;
    let (taken_up, left) = (seconds(), tasks - worker.ran() as f64);
    let ran = async || {
        coordinator.check();
        worker.ran() as f64 >= tasks
    };
    // A look at the rows takes time of the emulator that the services would have: while tasks are left, a count tells.
    place.until("the last task to run", LOOK_MS, ran).await;
    let ended = async || {
        coordinator.check();
        place.all_ended().await
    };
    place.until("the end", pause, ended).await;
    let took = seconds();
    let (cpu, peak) = (cpu(&coordinator.id()), peak(&coordinator.id()));
    // It leaves its statistics when it goes.
    coordinator.end();
    let leader = leader(&place.store, &place.layout).await.unwrap();
    let statistics = leader.unwrap().0.statistics;
    worker.end().await;
    place.check(&ids).await;
    let told = |name: &str| statistics[name] as f64;
    println!(
        "emulator {name:<12} {took:>6.1} s {:>6.0} tasks/s, {:.0} from the last activation on, after {taken_up:.1} s; coordinator: {:.0} us of processor time a task, at most {peak:.0} MiB, {} state writes, {:.1} MiB of states, {:.0} bytes a task",
        tasks / took,
        left / (took - taken_up),
        cpu * 1e6 / tasks,
        told("state_writes"),
        told("state_bytes") / 1_048_576.0,
        told("state_bytes") / tasks,
    );
}

/// Small workflows that are submitted while one of `count` tasks runs; the large one is not waited for.
async fn small_beside_large(count: usize) {
    let place = Place::new(On::Emulator, "starve").await;
    let worker = Worker::start(&place, SLOTS, Work::Nothing);
    place.submit("large", &flat(count)).await;
    let coordinator = Process::start(&place);
    let begun = async || {
        coordinator.check();
        worker.ran() >= HEAD_START
    };
    place.until("the large one to run", 20, begun).await;
    let definition = chain(5);
    let ids = place.submit_all("small", SMALL, &definition).await;
    let ended = async || {
        coordinator.check();
        let (rows, index) = (&place.store.rows, place.layout.index());
        let open = rows.query(index, Layout::OPEN, None).await.unwrap().items;
        !open
            .into_iter()
            .any(|row| found(row).unwrap().record.workflow_id.as_str() != "large")
    };
    place.until("the end of the small ones", 50, ended).await;
    let ran = worker.ran() - (SMALL * definition.tasks.len()) as u64;
    place.check(&ids).await;
    let mut times = Vec::new();
    for id in &ids {
        let row = read_row(&place.store, &place.layout, id).await.unwrap();
        let row = row.unwrap().record;
        // Both clocks are this machine's.
        times.push(row.updated_at.duration_since(row.created_at).as_secs_f64());
    }
    let at = |percent| percentile(times.iter().copied(), percent);
    println!(
        "emulator {SMALL} chains of 5 beside {count} tasks: from submit to end {:.1} s (p50), {:.1} s (most); then {ran} of the {count} had run",
        at(50),
        at(100),
    );
    drop(coordinator);
    worker.end().await;
}

#[tokio::main]
async fn main() {
    let count = std::env::args().find_map(|word| word.parse().ok());
    let count = count.unwrap_or(TASKS);
    let word = bench::wanted();
    let wanted = |name: &str| name.contains(&word);
    let shapes = shapes(count);
    for (name, definition) in &shapes {
        if wanted(&format!("memory {name}")) {
            in_memory(name, definition).await;
        }
    }
    let many = [
        ("1x10000", 1, flat(10_000)),
        ("500x20", 500, flat(20)),
        ("10000x3", 10_000, chain(3)),
    ];
    let shapes = shapes.map(|(name, definition)| (name, 1, definition));
    for (name, workflows, definition) in shapes.iter().chain(&many) {
        if wanted(&format!("emulator {name}")) {
            on_the_emulator(name, *workflows, definition).await;
        }
    }
    if wanted("emulator small beside large") {
        small_beside_large(count * 6 / 10).await;
    }
}
