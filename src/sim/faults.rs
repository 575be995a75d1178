//! Which faults a run has, and what becomes of each request.
//!
//! Invariants:
//! 1. Each run draws its own set of faults (a swarm): what hides one fault behind another is off in some runs.
//! 2. After [`Faults::calm`] every request arrives and is answered.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::dice::Dice;
use super::scheduler::{ProcessId, hold};
use crate::store::layers::Op;

/// The client's time-out for a request.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How often what goes wrong, per mille of the requests; zero: not in this run.
#[derive(Debug, Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each fault is on or off by itself"
)]
pub(super) struct Swarm {
    pub(super) unreachable: u32,
    pub(super) reply_lost: u32,
    pub(super) silent: u32,
    pub(super) late: u32,
    pub(super) throttled: u32,
    pub(super) slow: u32,
    /// Of the messages put.
    pub(super) duplicate: u32,
    /// Of the messages put.
    pub(super) delayed: u32,
    /// Of the receives: the messages come back before their time.
    pub(super) early: u32,
    /// Of the task messages put: they are never there.
    pub(super) lost_messages: u32,
    pub(super) crashes: bool,
    pub(super) pauses: bool,
    pub(super) stops: bool,
    pub(super) cuts: bool,
    pub(super) outages: bool,
    pub(super) hangs: bool,
    pub(super) wrong_clocks: bool,
    pub(super) breaks_lease: bool,
    pub(super) garbage: bool,
    pub(super) hostile_outputs: bool,
    /// People purge what has ended, and submit it again.
    pub(super) purges: bool,
}

impl Swarm {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        // One run in eight is calm: what fails there needs no fault at all.
        if dice.chance(125) {
            return Self::default();
        }
        let mut rate = |rates: &[u32]| {
            if dice.chance(450) {
                dice.pick(rates)
            } else {
                0
            }
        };
        let often = [3, 15, 60, 150];
        let seldom = [2, 10, 30];
        let (unreachable, reply_lost, throttled) = (rate(&often), rate(&often), rate(&often));
        let (silent, late, slow) = (rate(&seldom), rate(&seldom), rate(&often));
        let (duplicate, delayed, early) = (rate(&often), rate(&often), rate(&seldom));
        let lost_messages = rate(&seldom);
        let drawn = Self {
            unreachable,
            reply_lost,
            silent,
            late,
            throttled,
            slow,
            duplicate,
            delayed,
            early,
            lost_messages,
            crashes: dice.chance(500),
            pauses: dice.chance(350),
            stops: dice.chance(350),
            cuts: dice.chance(300),
            outages: dice.chance(250),
            hangs: dice.chance(250),
            wrong_clocks: dice.chance(500),
            breaks_lease: dice.chance(150),
            garbage: dice.chance(150),
            hostile_outputs: dice.chance(300),
            purges: dice.chance(350),
        };
        // One run in four has a whole network: what rules hold there alone is looked for often.
        if dice.chance(250) {
            drawn.with_whole_network()
        } else {
            drawn
        }
    }

    const fn with_whole_network(self) -> Self {
        Self {
            unreachable: 0,
            reply_lost: 0,
            silent: 0,
            late: 0,
            throttled: 0,
            slow: 0,
            cuts: false,
            outages: false,
            hangs: false,
            ..self
        }
    }

    /// Whether each request is carried out and answered soon.
    pub(super) const fn has_whole_network(&self) -> bool {
        self.unreachable == 0
            && self.reply_lost == 0
            && self.silent == 0
            && self.late == 0
            && self.throttled == 0
            && self.slow == 0
            && !self.cuts
            && !self.outages
            && !self.hangs
    }

    /// Whether no attempt may run twice: nothing dies, and nothing shows a message to a second worker.
    pub(super) const fn forbids_repeats(&self) -> bool {
        self.forbids_overlap()
            && self.early == 0
            && self.lost_messages == 0
            && !self.crashes
            && !self.stops
            && !self.breaks_lease
    }

    /// Whether two executions of one attempt must never overlap: nothing keeps a heartbeat from arriving in time, and no message is
    /// doubled behind the protocol's back.
    pub(super) const fn forbids_overlap(&self) -> bool {
        self.has_whole_network() && self.duplicate == 0 && !self.pauses
    }
}

/// How the caller's wait ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ends {
    /// With the reply, so long after the request was carried out.
    Reply(Duration),
    /// Without one, so long after it was sent.
    NoReply(Duration),
    /// With the certainty that nothing was sent, so long after.
    Unreachable(Duration),
    /// With the wish to come back later, so long after.
    Throttled(Duration, Option<Duration>),
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fate {
    /// When it arrives, from its sending; none: never.
    pub(super) arrives: Option<Duration>,
    pub(super) ends: Ends,
    /// A message put is there twice, the second time after so long.
    pub(super) doubled: Option<Duration>,
    /// A message put becomes visible so much later.
    pub(super) delayed: Duration,
    /// If the message put is a person's request it becomes visible so much later: by then it may be out of date.
    pub(super) request_delayed: Duration,
    /// A message received comes back so many times sooner.
    pub(super) sooner: u32,
    /// A message put is never there.
    pub(super) vanishes: bool,
}

impl Fate {
    /// Whether the sender certainly learns that the request was carried out.
    pub(super) fn is_answered(&self) -> bool {
        match (self.arrives, self.ends) {
            // Clocks may run a little fast.
            (Some(arrives), Ends::Reply(after)) => arrives + after < REQUEST_TIMEOUT * 9 / 10,
            _ => false,
        }
    }
}

#[derive(Debug)]
struct Inside {
    dice: Dice,
    swarm: Swarm,
    /// Until when a process has no network.
    cut: BTreeMap<ProcessId, Duration>,
    outage_until: Duration,
    /// Which requests hang, and until when.
    hangs: Option<(Op, Duration)>,
    happened: u64,
}

/// The faults of one run.
#[derive(Debug)]
pub(super) struct Faults(Mutex<Inside>);

impl Faults {
    pub(super) fn new(dice: Dice, swarm: Swarm) -> Self {
        Self(Mutex::new(Inside {
            dice,
            swarm,
            cut: BTreeMap::new(),
            outage_until: Duration::ZERO,
            hangs: None,
            happened: 0,
        }))
    }

    /// Ends all faults.
    pub(super) fn calm(&self) {
        let mut inside = hold(&self.0);
        inside.swarm = Swarm::default();
        inside.cut.clear();
        inside.outage_until = Duration::ZERO;
        inside.hangs = None;
    }

    /// Takes the network from a process.
    pub(super) fn cut(&self, process: ProcessId, until: Duration) {
        hold(&self.0).cut.insert(process, until);
    }

    /// Takes the service from all.
    pub(super) fn outage(&self, until: Duration) {
        hold(&self.0).outage_until = until;
    }

    /// Lets one kind of request hang, while all else works.
    pub(super) fn hang(&self, op: Op, until: Duration) {
        hold(&self.0).hangs = Some((op, until));
    }

    /// How many requests met a fault.
    pub(super) fn happened(&self) -> u64 {
        hold(&self.0).happened
    }

    /// Decides about one request.
    pub(super) fn draw(&self, process: ProcessId, op: Op, now: Duration) -> Fate {
        let mut inside = hold(&self.0);
        let Inside {
            dice,
            swarm,
            cut,
            outage_until,
            hangs,
            happened,
        } = &mut *inside;
        let mut fate = Fate {
            arrives: Some(dice.millis(1, 15)),
            ends: Ends::Reply(dice.millis(1, 15)),
            doubled: None,
            delayed: Duration::ZERO,
            request_delayed: Duration::ZERO,
            sooner: 1,
            vanishes: false,
        };
        let is_cut = cut.get(&process).is_some_and(|until| *until > now);
        let roll = |dice: &mut Dice, rate: u32| rate > 0 && dice.chance(rate);
        if is_cut || *outage_until > now {
            *happened += 1;
            let quick = dice.chance(700);
            fate.arrives = None;
            fate.ends = if quick {
                Ends::Unreachable(dice.millis(1, 50))
            } else {
                Ends::NoReply(REQUEST_TIMEOUT)
            };
            return fate;
        }
        if hangs.is_some_and(|(of, until)| of == op && until > now) {
            *happened += 1;
            fate.arrives = fate.arrives.filter(|_| dice.chance(200));
            fate.ends = Ends::NoReply(REQUEST_TIMEOUT);
            return fate;
        }
        let calm = fate;
        if roll(dice, swarm.unreachable) {
            fate.arrives = None;
            fate.ends = Ends::Unreachable(dice.millis(1, 2000));
        } else if roll(dice, swarm.throttled) {
            let wish = dice.chance(700).then(|| dice.millis(500, 4000));
            fate.arrives = None;
            fate.ends = Ends::Throttled(dice.millis(1, 30), wish);
        } else if roll(dice, swarm.silent) {
            fate.arrives = None;
            fate.ends = Ends::NoReply(REQUEST_TIMEOUT);
        } else if roll(dice, swarm.reply_lost) {
            let soon = dice.chance(600);
            fate.ends = Ends::NoReply(if soon {
                dice.millis(1, 40)
            } else {
                REQUEST_TIMEOUT
            });
        } else if roll(dice, swarm.late) {
            fate.arrives = Some(dice.millis(500, 40_000));
            fate.ends = Ends::NoReply(if dice.chance(500) {
                dice.millis(1, 500)
            } else {
                REQUEST_TIMEOUT
            });
        } else if roll(dice, swarm.slow) {
            fate.arrives = Some(dice.millis(1, 7000));
            fate.ends = Ends::Reply(dice.millis(1, 7000));
        }
        if op == Op::QueueSend {
            fate.doubled = roll(dice, swarm.duplicate).then(|| dice.millis(0, 90_000));
            fate.vanishes = roll(dice, swarm.lost_messages);
            if roll(dice, swarm.delayed) {
                fate.delayed = dice.millis(10, 40_000);
            }
            if swarm.delayed > 0 && dice.chance(400) {
                fate.request_delayed = dice.millis(0, 60_000);
            }
        }
        if matches!(op, Op::QueueReceive | Op::QueueExtend) && roll(dice, swarm.early) {
            fate.sooner = 4;
        }
        let met = fate.arrives != calm.arrives
            || fate.doubled.is_some()
            || fate.vanishes
            || !fate.delayed.is_zero()
            || fate.sooner > 1;
        *happened += u64::from(met);
        fate
    }
}
