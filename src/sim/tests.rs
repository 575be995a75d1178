//! Fixed seeds, the promise that a seed is a whole history, and scenarios that seeds have found.

mod counts;

use std::sync::Arc;
use std::time::Duration;

use super::dice::Dice;
use super::faults::Swarm;
use super::operator::ask;
use super::run;
use super::run::{Report, World, play, start};
use super::workload::{Ending, Workload};
use crate::client::{Answer, ClientError};
use crate::definition::WorkflowId;
use crate::engine::Status;
use crate::store::layers::Op;

const FINE: Ending = Ending::Succeeds { output: 20 };

#[test]
fn a_seed_is_a_whole_history() {
    for seed in [1, 2, 3] {
        let (first, second) = (run(seed, false), run(seed, false));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.polls, second.polls, "seed {seed}");
    }
    assert_ne!(run(1, false).hash, run(2, false).hash);
}

#[test]
fn fixed_seeds_break_no_rule() {
    let mut broken = Vec::new();
    for seed in 0..32 {
        let report = run(seed, false);
        if !report.violations.is_empty() {
            broken.push(format!("just sim {seed}: {:?}", report.violations));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Runs a story without faults over one workflow, which the story has submitted for it.
fn scenario<F>(
    yaml: &str,
    told: &[(&str, Ending, Duration)],
    story: impl FnOnce(Arc<World>, WorkflowId) -> F + Send + 'static,
) -> Report
where
    F: Future<Output = ()> + Send + 'static,
{
    scenario_of(0, yaml, told, story)
}

/// The same with the order of what happens at once by `seed`.
fn scenario_of<F>(
    seed: u64,
    yaml: &str,
    told: &[(&str, Ending, Duration)],
    story: impl FnOnce(Arc<World>, WorkflowId) -> F + Send + 'static,
) -> Report
where
    F: Future<Output = ()> + Send + 'static,
{
    let workload = Workload::told(yaml, told);
    let (id, definition) = (workload.id.clone(), workload.definition.clone());
    let world = World::new(Dice::new(seed), Swarm::default(), vec![workload], true);
    let world = Arc::new(world);
    let of_story = Arc::clone(&world);
    let report = play(seed, &world, async move {
        start(&of_story).await;
        let of = id.clone();
        let submit =
            |client: crate::client::Client| async move { client.submit(&of, &definition).await };
        let submitted = ask(&of_story, &of_story.clients[0], submit).await;
        submitted.unwrap().unwrap();
        story(of_story, id).await;
    });
    assert!(
        report.violations.is_empty(),
        "{:?}\n{}",
        report.violations,
        report.lines.join("\n")
    );
    report
}

/// Waits until `holds`, asked every 10 ms.
async fn until(world: &World, mut holds: impl FnMut() -> bool) {
    while !holds() {
        world.operator.env().sleep(Duration::from_millis(10)).await;
    }
}

async fn cancel(world: &Arc<World>, id: &WorkflowId) -> Result<Answer, ClientError> {
    let id = id.clone();
    let wait = Duration::from_secs(5);
    let asked = ask(world, &world.clients[0], |client| async move {
        client.cancel(&id, wait).await
    });
    asked.await.unwrap()
}

#[test]
fn a_cancel_while_a_retry_waits_leaves_the_coordinator_at_rest() {
    let yaml = "tasks: [{name: long, cmd: x}, {name: bad, cmd: x, num_retries: 9}]";
    let told = [
        ("long", FINE, Duration::from_secs(300)),
        ("bad", Ending::Fails, Duration::from_millis(50)),
    ];
    let report = scenario(yaml, &told, |world, id| async move {
        let state = || world.oracle.state(&id);
        // From the fifth failure on the wait is long enough for a cancel to fall into it.
        until(&world, || {
            state().is_some_and(|state| {
                let waits = |task: &crate::record::TaskDetail| {
                    task.failures >= 5 && task.due.is_some_and(|due| due.delay_ms > 5000)
                };
                state.tasks.iter().any(waits)
            })
        })
        .await;
        assert_eq!(cancel(&world, &id).await, Ok(Answer::Applied));
        until(&world, || {
            state().is_some_and(|state| state.status.is_final())
        })
        .await;
    });
    // A loop without rest turns 500,000 times a second.
    assert!(report.polls < 100_000, "{} polls", report.polls);
}

#[test]
fn a_leader_whose_wall_clock_stood_still_with_it_sends_nothing_when_it_wakes() {
    let yaml = "tasks: [{name: bad, cmd: x, num_retries: 9}]";
    let told = [("bad", Ending::Fails, Duration::from_millis(50))];
    scenario(yaml, &told, |world, id| async move {
        let state = || world.oracle.state(&id);
        until(&world, || {
            state().is_some_and(|state| {
                let waits = |task: &crate::record::TaskDetail| {
                    task.failures >= 4 && task.due.is_some_and(|due| due.delay_ms > 2000)
                };
                state.tasks.iter().any(waits)
            })
        })
        .await;
        // The leader is to know that its write is stored.
        let known = Duration::from_millis(500);
        world.operator.env().sleep(known).await;
        let leads = world.oracle.leads();
        let mut servers = world.servers.iter();
        let leader = servers.find(|server| Some(server.process.id) == leads);
        let leader = &leader.unwrap().process;
        // While it stands still the retry falls due, its lease ends, and another leads; when it wakes, its wall clock says that no time
        // has passed.
        let pause = Duration::from_secs(100);
        world.scheduler.pause(leader.id);
        world.operator.env().sleep(pause).await;
        assert_ne!(world.oracle.leads(), leads);
        leader.turn_back(pause);
        world.scheduler.resume(leader.id);
        until(&world, || {
            state().is_some_and(|state| state.status.is_final())
        })
        .await;
    });
}

#[test]
fn a_cancel_of_a_run_that_was_purged_does_not_reach_the_next_run() {
    let yaml = "tasks: [{name: a, cmd: x}]";
    let told = [("a", FINE, Duration::from_secs(5))];
    // What the sweep has read and the next submit meet as chance has it.
    for seed in 0..12 {
        scenario_of(seed, yaml, &told, |world, id| async move {
            let definition = world.workloads[0].definition.clone();
            let is_final = || {
                let state = world.oracle.state(&id);
                state.is_some_and(|state| state.status.is_final())
            };
            assert_eq!(cancel(&world, &id).await, Ok(Answer::Applied));
            until(&world, || is_final() && world.oracle.is_over(&id)).await;
            // The flag stays in the row, which the leader's sweep reads while the purge takes its time.
            let hangs_until = world.scheduler.now() + Duration::from_secs(15);
            world.network.faults.hang(Op::RowDelete, hangs_until);
            let of = id.clone();
            let purge = |client: crate::client::Client| async move {
                client.purge(&of, Duration::ZERO).await
            };
            let purged = ask(&world, &world.clients[0], purge).await;
            assert_eq!(purged.unwrap(), Ok(Answer::Stored));
            until(&world, || world.oracle.was_purged(&id)).await;
            // Submitted the moment it can be.
            until(&world, || !world.oracle.is_defined(&id)).await;
            let of = id.clone();
            let submit = |client: crate::client::Client| async move {
                client.submit(&of, &definition).await
            };
            let submitted = ask(&world, &world.clients[0], submit).await;
            assert!(submitted.unwrap().unwrap().is_new);
            until(&world, || !world.oracle.is_purged(&id) && is_final()).await;
            assert_eq!(world.oracle.state(&id).unwrap().status, Status::Completed);
        });
    }
}
