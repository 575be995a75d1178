//! What workflows cost in requests, counted in virtual time: the same on every machine and in every run.
//!
//! Counted is what coordinator and worker ask for from the submission of a workflow to its final row, receives that find nothing
//! included.

mod pipeline;

use std::time::Duration;

use pipeline::{Counted, Plan, chain, count, flat};

use crate::store::layers::Op;
use crate::store::layers::remote::Service;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// As Azure, and as the emulator: batches form differently in each.
fn services() -> [Service; 2] {
    [Service::wide(ms(5)), Service::narrow(ms(1))]
}

#[test]
fn a_flat_workflow_costs_six_requests_a_task_with_one_slot() {
    for service in services() {
        let counted = count(Plan::new(service.clone(), flat(500), 1));
        assert!(counted.per_task() <= 6.0, "{service:?}: {counted}");
    }
}

#[test]
fn a_flat_workflow_costs_two_point_six_requests_a_task_with_many_slots() {
    for service in services() {
        let counted = count(Plan::new(service.clone(), flat(500), 32));
        assert!(counted.per_task() <= 2.6, "{service:?}: {counted}");
        // Slots that free up together are filled by one receive, and what ends together shares a message.
        let shared = Shared::measured(&counted);
        let is_shared = shared.tasks >= 15.0 && shared.results >= 10.0;
        assert!(is_shared, "{shared:?}, {service:?}: {counted}");
    }
}

#[test]
fn without_shared_messages_a_flat_workflow_costs_four_point_six_requests_a_task() {
    for service in services() {
        let mut plan = Plan::new(service.clone(), flat(500), 32);
        plan.worker.results_per_message = 1;
        let counted = count(plan);
        assert!(counted.per_task() <= 4.6, "{service:?}: {counted}");
    }
}

/// State writes that follow from no receive: the first, the sentinel, and blobs beside the state of a large workflow.
const PUTS_BESIDE: u64 = 5;

#[test]
fn tasks_shorter_than_a_heartbeat_cost_no_claim_no_read_and_few_writes() {
    for service in services() {
        for (takes, tasks) in [(ms(500), 500), (ms(4000), 160)] {
            let counted = count(Plan {
                takes,
                ..Plan::new(service.clone(), flat(tasks), 32)
            });
            let Counted {
                coordinator,
                worker,
                ..
            } = &counted;
            assert_eq!(coordinator.claims + worker.claims, 0, "{counted}");
            assert_eq!(worker.of(Op::BlobGet), 0, "{counted}");
            let (rows, secs) = (coordinator.of(Op::RowWrite), counted.took.as_secs());
            assert!(rows <= secs / 2 + 2, "{counted}");
            // What was sent is noted with what comes back, or by itself after a second: once for each wave of long tasks.
            let waves = counted.tasks().div_ceil(32);
            let marks = if takes > ms(1000) { waves } else { 0 };
            let puts = coordinator.of(Op::BlobPut);
            let most = coordinator.finds() + marks + PUTS_BESIDE;
            assert!(puts <= most, "above {most}: {counted}");
        }
    }
}

/// Runs of the chain.
const SEEDS: u64 = 4;

#[test]
fn a_chain_takes_five_requests_and_twenty_ms_from_one_command_to_the_next() {
    for request in [ms(5), ms(1)] {
        // Pauses of two processes meet as chance has it: what holds of one seed says little.
        let runs = (0..SEEDS).map(|seed| {
            let plan = Plan {
                seed,
                ..Plan::new(Service::wide(request), chain(50), 1)
            };
            count(plan).hops()
        });
        let mut hops: Vec<_> = runs.flatten().collect();
        hops.sort();
        let (hop, most) = (hops[hops.len() / 2], 5 * request + ms(20));
        assert!(hop <= most, "{hop:?} at {request:?} a request");
    }
}

#[test]
fn what_a_task_costs_does_not_grow_with_the_workflow() {
    for service in services() {
        let each = |tasks| count(Plan::new(service.clone(), flat(tasks), 32)).per_task();
        let (few, many) = (each(500), each(5000));
        assert!(many <= few * 1.02, "{few} and {many}, {service:?}");
    }
}

/// How much is shared: what the capacity model goes by.
#[derive(Debug)]
struct Shared {
    /// Results a completion message.
    results: f64,
    /// Task messages a receive of the worker.
    tasks: f64,
    /// Completion messages a receive of the coordinator.
    messages: f64,
}

impl Shared {
    fn measured(counted: &Counted) -> Self {
        let Counted {
            coordinator,
            worker,
            ..
        } = counted;
        let (tasks, messages) = (counted.tasks() as f64, worker.of(Op::QueueSend) as f64);
        Self {
            results: tasks / messages,
            tasks: tasks / worker.finds() as f64,
            messages: messages / coordinator.finds() as f64,
        }
    }

    /// Requests a task while there is always work. Receives that find nothing come on top: one for each pause of a queue at rest.
    fn predicts(&self) -> f64 {
        // Its message is sent and deleted, and so is the message with its result.
        let messages = 2.0 + 2.0 / self.results;
        let receives = 1.0 / self.tasks + 1.0 / (self.messages * self.results);
        // What a receive brings is stored at once.
        let puts = 1.0 / (self.messages * self.results);
        messages + receives + puts
    }
}

#[test]
fn a_workflow_begins_and_ends_with_few_requests_beside_those_of_its_tasks() {
    for service in services() {
        let counted = count(Plan::new(service, chain(1), 1));
        let of = |op| counted.coordinator.of(op);
        // Its state, its definition and its row are looked at. Its row is shown, moved, and removed where it was.
        let looks = [of(Op::BlobGet), of(Op::RowGet)];
        let writes = [of(Op::BlobPut), of(Op::RowWrite), of(Op::RowDelete)];
        assert_eq!((looks, writes), ([2, 1], [2, 2, 1]), "{counted}");
    }
}

#[test]
fn a_workflow_that_waits_long_and_is_soon_through_shows_no_step_on_its_way() {
    let workflows = 200;
    let counted = count(Plan {
        workflows,
        ..Plan::new(Service::wide(ms(5)), flat(20), 32)
    });
    // Each is shown when it begins, and moved; few are on their way for more than two seconds.
    let (rows, most) = (counted.coordinator.of(Op::RowWrite), workflows * 5 / 2);
    assert!(rows <= most as u64, "{rows} above {most}: {counted}");
}

#[test]
fn a_service_that_is_slow_is_not_asked_for_ever_more_at_once() {
    let service = Service::narrow(ms(40));
    count(Plan {
        workflows: 200,
        ..Plan::new(service.clone(), chain(2), 4)
    });
    let mut waits = service.waits();
    waits.sort();
    // Of four requests one; with all 64 turns on the way at once it has stood in line for close to three seconds.
    let wait = waits[waits.len() / 4 * 3];
    assert!(wait <= ms(1800), "{wait:?}");
}

#[test]
fn requests_a_task_follow_from_what_is_shared() {
    for service in services() {
        for slots in [1, 4, 32] {
            let counted = count(Plan::new(service.clone(), flat(500), slots));
            let shared = Shared::measured(&counted);
            let (predicted, each) = (shared.predicts(), counted.per_task());
            let is_near = (predicted / each - 1.0).abs() <= 0.05;
            assert!(
                is_near,
                "{predicted} by {shared:?}, {slots} slots: {counted}"
            );
            if slots == 1 {
                let alone = [counted.worker.of(Op::QueueSend), counted.worker.finds()];
                assert_eq!(alone, [counted.tasks(); 2], "nothing to share: {counted}");
            }
        }
    }
}

#[test]
fn counts_are_the_same_in_every_run() {
    let run = || count(Plan::new(Service::wide(ms(5)), flat(100), 4)).to_string();
    assert_eq!(run(), run());
}
