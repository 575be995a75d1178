//! What happens to the services from outside: crashes, pauses, lost networks, wrong clocks, and people who ask for things.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;

use super::process::Process;
use super::run::World;
use super::servers::Server;
use super::wire;
use super::workload::Workload;
use crate::client::{Answer, Client, ClientError};
use crate::protocol::break_lease;
use crate::store::layers::Op;

/// How long a person looks at a workflow, waiting for its end.
const LOOKS_FOR: Duration = Duration::from_secs(120);

/// Bad luck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    Crash,
    Pause,
    Stop,
    Cut,
    Outage,
    Hang,
    Jump,
    BreakLease,
    Garbage,
}

/// Strikes at random until the safety phase is over.
pub(super) async fn strike(world: Arc<World>) {
    let swarm = world.swarm;
    let blows: Vec<Blow> = [
        (swarm.crashes, Blow::Crash),
        (swarm.pauses, Blow::Pause),
        (swarm.stops, Blow::Stop),
        (swarm.cuts, Blow::Cut),
        (swarm.outages, Blow::Outage),
        (swarm.hangs, Blow::Hang),
        (swarm.wrong_clocks, Blow::Jump),
        (swarm.breaks_lease, Blow::BreakLease),
        (swarm.garbage, Blow::Garbage),
    ]
    .into_iter()
    .filter_map(|(is_on, blow)| is_on.then_some(blow))
    .collect();
    if blows.is_empty() {
        return;
    }
    let env = world.operator.env();
    let pace = world.roll(|dice| dice.pick(&[8_000, 30_000, 90_000]));
    loop {
        let (pause, blow) = world.roll(|dice| (dice.millis(100, pace), dice.pick(&blows)));
        env.sleep(pause).await;
        if world.is_calm() {
            return;
        }
        deal(&world, blow).await;
    }
}

async fn deal(world: &Arc<World>, blow: Blow) {
    let mut server = world.roll(|dice| dice.place(world.servers.len()));
    if blow == Blow::Pause && world.roll(|dice| dice.chance(400)) {
        // A leader that wakes up has the most to unlearn.
        let leads = world.oracle.leads();
        let place = |server: &Arc<Server>| Some(server.process.id) == leads;
        server = world.servers.iter().position(place).unwrap_or(server);
    }
    let process = &world.servers[server].process;
    let (now, swarm) = (world.scheduler.now(), world.swarm);
    world.event(&format!("{blow:?} ({})", process.name));
    match blow {
        Blow::Crash => {
            let clients = &world.clients;
            if world.roll(|dice| dice.chance(200)) {
                let client = world.roll(|dice| dice.place(clients.len()));
                world.scheduler.kill(clients[client].id);
            } else {
                world.scheduler.kill(process.id);
                // Its successor finds what is stored, but not what waits.
                if swarm.hangs && world.roll(|dice| dice.chance(500)) {
                    let length = world.roll(|dice| dice.millis(30_000, 120_000));
                    world.network.faults.hang(Op::QueueReceive, now + length);
                }
            }
        }
        Blow::Pause => {
            world.scheduler.pause(process.id);
            let longest = world.roll(|dice| dice.pick(&[5_000, 120_000]));
            let length = world.roll(|dice| dice.millis(500, longest));
            // To a clock that stood still with the process no time has passed.
            let stood_still = world.roll(|dice| dice.chance(500));
            let (world, process) = (Arc::clone(world), process.clone());
            let env = world.operator.env();
            world.operator.clone().start("resume", async move {
                env.sleep(length).await;
                world.event("resume");
                if stood_still {
                    process.turn_back(length);
                }
                world.scheduler.resume(process.id);
            });
        }
        Blow::Stop => world.servers[server].stop(),
        Blow::Cut => {
            let longest = world.roll(|dice| dice.pick(&[20_000, 100_000, 200_000]));
            let length = world.roll(|dice| dice.millis(1000, longest));
            world.network.faults.cut(process.id, now + length);
        }
        Blow::Outage => {
            let length = world.roll(|dice| dice.millis(1000, 70_000));
            world.network.faults.outage(now + length);
        }
        Blow::Hang => {
            let length = world.roll(|dice| dice.millis(1000, 150_000));
            let op = world.roll(|dice| dice.pick(&[Op::BlobPut, Op::BlobPut, Op::QueueReceive]));
            world.network.faults.hang(op, now + length);
        }
        Blow::Jump => {
            let millis = world.roll(|dice| dice.pick(&[-3_600_000, -61_000, 0, 45_000, 600_000]));
            process.set_skew(millis);
        }
        Blow::BreakLease => {
            // Nobody may hold it.
            break_lease(&world.network.store, &world.layout).await.ok();
        }
        Blow::Garbage => garbage(world).await,
    }
}

async fn garbage(world: &World) {
    let queues = &world.network.store.queues;
    let [default, _] = super::workload::queues();
    let to = if world.roll(|dice| dice.chance(500)) {
        world.layout.completions().clone()
    } else {
        world.layout.task_queue(&default)
    };
    let text = world.roll(|dice| dice.pick(&["rubbish", "eyJzY2hlbWEiOjF9", "bm90IEpTT04="]));
    let sent = queues.send(&to, text, Duration::ZERO).await;
    sent.expect("the store itself has no faults");
}

/// Lets a person do one thing in the process of a client; none if that died meanwhile.
pub(super) async fn ask<T, F>(
    world: &Arc<World>,
    person: &Process,
    what: impl FnOnce(Client) -> F,
) -> Option<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let store = wire::store(&world.network, person);
    let client = Client::new(person.env(), store, world.layout.clone(), &*person.name);
    let asked = what(client);
    let (tell, told) = oneshot::channel();
    person.start("ask", async move {
        tell.send(asked.await).ok();
    });
    told.await.ok()
}

/// Submits one workflow, and asks for cancels and retries at random moments.
pub(super) async fn follow(world: Arc<World>, number: usize) {
    let env = world.operator.env();
    let person = world.clients[number].clone();
    let workload = world.workloads[number].clone();
    let start = world.roll(|dice| dice.millis(0, 60_000));
    env.sleep(start).await;
    submit_at_last(&world, &person, &workload).await;
    let steps = world.roll(|dice| dice.below(5));
    for _ in 0..steps {
        let pause = world.roll(|dice| dice.millis(50, 150_000));
        env.sleep(pause).await;
        if world.is_calm() {
            return;
        }
        // People look first, and then ask for what can be had.
        if world.roll(|dice| dice.chance(400)) {
            see_its_end(&world, &workload).await;
        }
        if world.roll(|dice| dice.chance(300)) {
            // Several people at once, none of whom waits for the others or for an answer.
            let count = world.roll(|dice| 2 + dice.below(3));
            let asked = (0..count).map(|_| request(&world, &person, &workload, Duration::ZERO));
            let dies = world.swarm.crashes && world.roll(|dice| dice.chance(400));
            let after = world.roll(|dice| dice.millis(1, 100));
            let death = async {
                // Half of what a request is made of may be done by then.
                if dies {
                    env.sleep(after).await;
                    world.scheduler.kill(person.id);
                }
            };
            futures::future::join(futures::future::join_all(asked), death).await;
        } else {
            request(&world, &person, &workload, Duration::from_secs(5)).await;
        }
    }
}

/// Looks at a workflow until it has ended, or it takes too long.
async fn see_its_end(world: &World, workload: &Workload) {
    let is_final = || {
        let state = world.oracle.state(&workload.id);
        state.is_some_and(|state| state.status.is_final())
    };
    let until = world.scheduler.now() + LOOKS_FOR;
    while !is_final() && world.scheduler.now() < until && !world.is_calm() {
        let pause = Duration::from_millis(500);
        world.operator.env().sleep(pause).await;
    }
}

/// Asks for a purge, a cancel or a retry. Until that is over the world does not end: what was asked for may come last of all.
async fn request(world: &Arc<World>, person: &Process, workload: &Workload, wait: Duration) {
    world.note_begun();
    ask_for_something(world, person, workload, wait).await;
    world.note_done();
}

async fn ask_for_something(
    world: &Arc<World>,
    person: &Process,
    workload: &Workload,
    wait: Duration,
) {
    let id = &workload.id;
    let of = id.clone();
    if world.swarm.purges && world.roll(|dice| dice.chance(300)) {
        see_its_end(world, workload).await;
        let asked = ask(world, person, |client| async move {
            client.purge(&of, wait).await
        });
        let answer = asked.await;
        world.event(&format!("purge of {id}: {answer:?}"));
        let begun = matches!(answer, Some(Ok(Answer::Applied | Answer::Underway)));
        if begun && !world.oracle.was_purged(id) {
            let what = format!("a purge of {id} is said to be applied");
            world.oracle.broken(what);
        }
        if world.roll(|dice| dice.chance(500)) {
            world.note_begun();
            submit_at_last(world, person, workload).await;
        }
    } else if world.roll(|dice| dice.chance(400)) {
        let asked = ask(world, person, |client| async move {
            client.cancel(&of, wait).await
        });
        let answer = asked.await;
        world.event(&format!("cancel of {id}: {answer:?}"));
        let applied = matches!(answer, Some(Ok(Answer::Applied)));
        if applied && !world.oracle.was_cancelled(id) {
            let what = format!("a cancel of {id} is said to be applied");
            world.oracle.broken(what);
        }
    } else {
        let asked = ask(world, person, |client| async move {
            client.retry(&of, wait).await
        });
        let answer = asked.await;
        world.event(&format!("retry of {id}: {answer:?}"));
    }
}

/// Submits until that has succeeded.
async fn submit_at_last(world: &Arc<World>, person: &Process, workload: &Workload) {
    while !submit(world, person, workload).await {
        let pause = world.roll(|dice| dice.millis(100, 20_000));
        world.operator.env().sleep(pause).await;
    }
    world.note_done();
}

async fn submit(world: &Arc<World>, person: &Process, workload: &Workload) -> bool {
    let (id, definition) = (workload.id.clone(), workload.definition.clone());
    let asked = ask(world, person, |client| async move {
        client.submit(&id, &definition).await
    });
    let answer = asked.await;
    if let Some(Err(ClientError::Taken(id))) = &answer {
        world
            .oracle
            .broken(format!("{id} is said to be taken by another definition"));
    }
    let text = match &answer {
        Some(Ok(submitted)) => format!("new: {}", submitted.is_new),
        Some(Err(error)) => error.to_string(),
        None => "killed".to_owned(),
    };
    world.event(&format!("submit of {}: {text}", workload.id));
    matches!(answer, Some(Ok(_)))
}
