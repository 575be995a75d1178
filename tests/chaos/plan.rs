//! What happens when, all of it from one seed: the workflows and the blows.

use std::time::Duration;

use super::dice::Dice;
use super::workload::{Asks, Workload};

/// The seats of coordinators, then those of workers.
pub(super) const COORDINATORS: usize = 2;
/// All seats.
pub(super) const SEATS: usize = 5;
/// The longest pause of a process: beyond the lease, and beyond the visibility of a task.
const PAUSE_MS_MAX: u64 = 28_000;
/// How long the storage is down at most.
const OUTAGE_MS_MAX: u64 = 6000;

/// What is asked of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) seed: u64,
    /// How long workflows are submitted and blows fall.
    pub(super) length: Duration,
    pub(super) workflows: usize,
    /// The shortest and the longest time between two blows; none in a calm run.
    pub(super) pace_ms: Option<(u64, u64)>,
    pub(super) outages: u32,
}

/// Something that is done to the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// SIGKILL to the process at this seat and to the commands that it runs, as if the machine died.
    Kill(usize),
    Terminate(usize),
    /// The process alone, or with its commands as if the machine was suspended.
    Pause(usize, WithCommands),
    Resume(usize),
    /// The storage stops and starts again so much later, with all it had.
    Outage(Duration),
}

/// Whether commands share the fate of their worker.
pub(super) type WithCommands = bool;

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) workloads: Vec<Workload>,
    /// By rising time.
    pub(super) blows: Vec<(Duration, Blow)>,
}

impl Plan {
    pub(super) fn new(asked: Asked) -> Self {
        let mut dice = Dice(asked.seed);
        let length_ms = u64::try_from(asked.length.as_millis()).unwrap();
        // So many that something runs all the time.
        let size = asked.length.as_secs() * 2 / asked.workflows as u64;
        let size = usize::try_from(size.clamp(8, 60)).unwrap();
        let workloads = (0..asked.workflows).map(|number| {
            let at = dice.millis(0, length_ms * 9 / 10);
            let asks = match dice.below(10) {
                0 => Asks::Cancel(dice.millis(0, 6000)),
                1 => Asks::CancelThenRetry(dice.millis(0, 6000)),
                2 => Asks::Retry,
                _ => Asks::Nothing,
            };
            Workload::roll(&mut dice, number, at, asks, size)
        });
        let workloads = workloads.collect();
        let blows = asked
            .pace_ms
            .map(|pace| blows(&mut dice, asked, pace))
            .unwrap_or_default();
        Self { workloads, blows }
    }
}

fn blows(dice: &mut Dice, asked: Asked, (least, most): (u64, u64)) -> Vec<(Duration, Blow)> {
    let mut blows = Vec::new();
    let mut now = Duration::ZERO;
    loop {
        now += dice.millis(least, most);
        if now > asked.length {
            break;
        }
        let coordinator = dice.place(COORDINATORS);
        let worker = COORDINATORS + dice.place(SEATS - COORDINATORS);
        // Coordinators die less often than workers: who takes over waits for the lease, and something is to happen between two deaths.
        match dice.below(20) {
            0..=2 => blows.push((now, Blow::Kill(coordinator))),
            3..=5 => blows.push((now, Blow::Terminate(coordinator))),
            6..=12 => blows.push((now, Blow::Kill(worker))),
            13..=16 => blows.push((now, Blow::Terminate(worker))),
            number => {
                let seat = if number == 17 { coordinator } else { worker };
                let with_commands = dice.below(2) == 0;
                blows.push((now, Blow::Pause(seat, with_commands)));
                let end = now + dice.millis(500, PAUSE_MS_MAX);
                blows.push((end, Blow::Resume(seat)));
            }
        }
    }
    for number in 0..asked.outages {
        let share = asked.length / asked.outages;
        let share_ms = u64::try_from(share.as_millis()).unwrap();
        let at = share * number + dice.millis(share_ms / 5, share_ms * 3 / 5);
        blows.push((at, Blow::Outage(dice.millis(0, OUTAGE_MS_MAX))));
    }
    blows.sort_by_key(|(at, _)| *at);
    blows
}

#[test]
fn a_seed_makes_one_plan() {
    let asked = Asked {
        seed: 7,
        length: Duration::from_secs(60),
        workflows: 5,
        pace_ms: Some((1000, 5000)),
        outages: 2,
    };
    let [one, same] = [asked; 2].map(|asked| format!("{:?}", Plan::new(asked)));
    assert_eq!(one, same);
    let other = Plan::new(Asked { seed: 8, ..asked });
    assert_ne!(one, format!("{other:?}"));
}
