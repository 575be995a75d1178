//! One run from its seed to its verdict.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::dice::Dice;
use super::faults::{Faults, Swarm};
use super::operator::{follow, strike};
use super::oracle::Oracle;
use super::process::Process;
use super::scheduler::{Scheduler, hold};
use super::servers::{Role, Server, keep_alive};
use super::trace::Trace;
use super::verdict::{Progress, final_words, lose_rows};
use super::wire::Network;
use super::workload::{Workload, queues};
use crate::protocol::Layout;
use crate::record::Limits;
use crate::store::memory::MemoryStore;

/// Most polls of one run: more means that something turns without end.
const POLLS_MAX: u64 = 6_000_000;
/// The longest time without any progress once nothing goes wrong any more. A message that was lost twice is sent again after twice 300 s,
/// and 300 s of looks that find nothing else (P26).
const STANDSTILL_MAX: Duration = Duration::from_secs(30 * 60);
/// The same where a definition has no row, as after a submit that landed late: those are compared hourly.
const ORPHANED_MAX: Duration = Duration::from_secs(70 * 60);
/// After this long every flag stored before was read: what hung then has timed out.
const FLAG_SEEN_WITHIN: Duration = Duration::from_secs(30);

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// One number for all that happened: equal for two runs of one seed.
    pub hash: u64,
    /// What was broken; empty for a good run.
    pub violations: Vec<String>,
    /// What happened, if lines were asked for.
    pub lines: Vec<String>,
    /// How long it took in virtual time.
    pub took: Duration,
    /// How many polls it took.
    pub polls: u64,
    /// How many requests met a fault.
    pub faults: u64,
    /// How many executions were started.
    pub starts: u64,
}

/// All that a run is made of.
#[derive(Debug)]
pub(super) struct World {
    pub(super) scheduler: Scheduler,
    pub(super) network: Arc<Network>,
    pub(super) layout: Layout,
    pub(super) oracle: Arc<Oracle>,
    pub(super) workloads: Arc<Vec<Workload>>,
    pub(super) swarm: Swarm,
    /// Does what no process of the product does; never crashes.
    pub(super) operator: Process,
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) clients: Vec<Process>,
    pub(super) slots: u16,
    pub(super) max_outstanding: Option<u32>,
    pub(super) state_limits: Limits,
    dice: Mutex<Dice>,
    calm: AtomicBool,
    /// Submits that must still succeed, and requests that must still end.
    begun: AtomicUsize,
}

impl World {
    fn of_seed(seed: u64, keeps_lines: bool) -> Self {
        let mut dice = Dice::new(seed);
        let swarm = Swarm::draw(&mut dice);
        let count = 1 + u32::try_from(dice.below(3)).expect("below 3");
        let workloads: Vec<Workload> = (0..count)
            .map(|number| Workload::draw(number, swarm.hostile_outputs, &mut dice))
            .collect();
        Self::new(dice, swarm, workloads, keeps_lines)
    }

    /// A world with these workflows and faults.
    pub(super) fn new(
        mut dice: Dice,
        swarm: Swarm,
        workloads: Vec<Workload>,
        keeps_lines: bool,
    ) -> Self {
        let workloads = Arc::new(workloads);
        let trace = Arc::new(Trace::new(keeps_lines));
        let scheduler = Scheduler::new(dice.fork(), trace);
        let layout = Layout::new("sim").expect("a legal prefix");
        let oracle = Arc::new(Oracle::new(&scheduler, &layout, &workloads, swarm));
        let service = Process::new(&scheduler, 0, "service", 0);
        let operator = Process::new(&scheduler, 1, "operator", 0);
        let network = Arc::new(Network {
            scheduler: scheduler.clone(),
            store: MemoryStore::open(service.env()),
            service,
            faults: Faults::new(dice.fork(), swarm),
            oracle: Arc::clone(&oracle),
        });
        let mut process = |number: u32, name: String| {
            let (drift, skew) = if swarm.wrong_clocks {
                let drift = i32::try_from(dice.below(20_001)).expect("small") - 10_000;
                (
                    drift,
                    dice.pick(&[-7_200_000, -90_000, 0, 0, 30_000, 86_400_000]),
                )
            } else {
                (0, 0)
            };
            let process = Process::new(&scheduler, number, name, drift);
            process.set_skew(skew);
            process
        };
        let mut servers = Vec::new();
        for number in 0..2 {
            let process = process(2 + number, format!("coord{number}"));
            servers.push(Arc::new(Server::new(process, Role::Coordinator)));
        }
        for number in 0..3 {
            let process = process(4 + number, format!("worker{number}"));
            servers.push(Arc::new(Server::new(process, Role::Worker)));
        }
        let clients = (10..)
            .zip(workloads.iter())
            .map(|(number, workload)| process(number, format!("client-{}", workload.id)));
        let clients = clients.collect();
        Self {
            network,
            layout,
            oracle,
            swarm,
            operator,
            servers,
            clients,
            slots: dice.pick(&[1, 2, 4]),
            max_outstanding: dice.pick(&[None, None, Some(2)]),
            begun: AtomicUsize::new(workloads.len()),
            workloads,
            calm: AtomicBool::new(false),
            dice: Mutex::new(dice.fork()),
            // The workflows of a run are small: in two of three what is for large ones is tried on them.
            state_limits: dice.pick(&[
                Limits::default(),
                Limits {
                    letters: 0,
                    details: 600,
                },
                Limits {
                    letters: 2,
                    details: 0,
                },
            ]),
            scheduler,
        }
    }

    /// Rolls the dice of the world, which are not those of the scheduler.
    pub(super) fn roll<T>(&self, roll: impl FnOnce(&mut Dice) -> T) -> T {
        roll(&mut hold(&self.dice))
    }

    /// Notes what happens.
    pub(super) fn event(&self, what: &str) {
        let now = self.scheduler.now();
        self.scheduler.trace.event(now, "OPERATOR", what);
    }

    /// Whether nothing goes wrong any more.
    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    pub(super) fn note_begun(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn note_done(&self) {
        self.begun.fetch_sub(1, Ordering::SeqCst);
    }

    fn all_is_done(&self) -> bool {
        self.begun.load(Ordering::SeqCst) == 0
    }

    /// Ends all that goes wrong.
    fn calm_down(&self) {
        self.calm.store(true, Ordering::SeqCst);
        self.network.faults.calm();
        for server in &self.servers {
            self.scheduler.resume(server.process.id);
        }
        self.event("from here on nothing goes wrong");
    }
}

/// Simulates the history of `seed`; `keeps_lines` keeps what happened to be read.
#[must_use]
pub fn run(seed: u64, keeps_lines: bool) -> Report {
    let world = Arc::new(World::of_seed(seed, keeps_lines));
    world.event(&format!("{:?}", world.swarm));
    play(seed, &world, phases(Arc::clone(&world)))
}

/// Lets `story` happen in `world`.
pub(super) fn play(
    seed: u64,
    world: &Arc<World>,
    story: impl Future<Output = ()> + Send + 'static,
) -> Report {
    let over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&over);
    world.operator.start("run", async move {
        story.await;
        ends.store(true, Ordering::SeqCst);
    });
    while !over.load(Ordering::SeqCst) && !world.oracle.is_broken() {
        if world.scheduler.polls() > POLLS_MAX {
            let (process, task) = world.scheduler.last();
            let what = format!("task `{task}` of process {} turns without end", process.0);
            world.oracle.broken(what);
        }
        if !world.scheduler.step() {
            world.oracle.broken("nothing is left to happen");
        }
    }
    for panic in world.scheduler.panics() {
        world.oracle.broken(panic);
    }
    let report = Report {
        seed,
        hash: world.scheduler.trace.hash(),
        violations: world.oracle.violations(),
        lines: world.scheduler.trace.lines(),
        took: world.scheduler.now(),
        polls: world.scheduler.polls(),
        faults: world.network.faults.happened(),
        starts: world.oracle.starts(),
    };
    // Tasks hold the world, and the world the tasks.
    world.scheduler.clear();
    report
}

/// Makes what the services need and starts them.
pub(super) async fn start(world: &Arc<World>) {
    let store = &world.network.store;
    let made = world.layout.create(store).await;
    made.expect("the store itself has no faults");
    for queue in queues() {
        let queue = world.layout.task_queue(&queue);
        let made = store.queues.create_queue(&queue);
        made.await.expect("the store itself has no faults");
    }
    for server in &world.servers {
        let kept = keep_alive(Arc::clone(world), Arc::clone(server));
        world.operator.start("server", kept);
    }
}

/// The two phases of a run.
async fn phases(world: Arc<World>) {
    let env = world.operator.env();
    start(&world).await;
    for number in 0..world.workloads.len() {
        world
            .operator
            .start("person", follow(Arc::clone(&world), number));
    }
    world.operator.start("luck", strike(Arc::clone(&world)));
    let length = world.roll(|dice| dice.millis(60_000, 600_000));
    env.sleep(length).await;
    world.calm_down();
    let mut progress = Progress::default();
    let mut since = world.scheduler.now();
    let mut flagged = None;
    let calm_since = world.scheduler.now();
    loop {
        env.sleep(Duration::from_secs(1)).await;
        let now = Progress::look(&world).await;
        if now != progress {
            progress = now;
            since = world.scheduler.now();
        }
        let is_settled = world.scheduler.now() > calm_since + FLAG_SEEN_WITHIN;
        if flagged.is_none() && is_settled && world.all_is_done() {
            flagged = Some(super::verdict::flagged(&world));
        }
        if progress.is_over() && world.all_is_done() {
            break;
        }
        let is_orphan = |workload: &Workload| world.oracle.is_orphan(&workload.id);
        let limit = if world.workloads.iter().any(is_orphan) {
            ORPHANED_MAX
        } else {
            STANDSTILL_MAX
        };
        if world.scheduler.now() > since + limit {
            world
                .oracle
                .broken(format!("nothing moves any more: {progress:?}"));
            return;
        }
    }
    final_words(&world, &flagged.unwrap_or_default()).await;
    let loses_rows = world.roll(|dice| dice.chance(250));
    if loses_rows && !world.oracle.is_broken() {
        world.event("all rows are lost");
        lose_rows(&world).await;
    }
}
