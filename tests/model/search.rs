//! Looks at every reachable state, breadth first, so that what is found is found by the shortest way.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::state::State;
use super::{Model, Step};

/// What is wrong with a state from which the workflow cannot end.
pub(super) const NO_END: &str = "from here no end can be reached";

/// A hash of few instructions: without optimization the usual one takes most of the time.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

/// What an exhaustive search has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) steps: usize,
    /// How many states are the end of a workflow.
    pub(super) done: usize,
    /// What is wrong, and the steps that lead there.
    pub(super) wrong: Option<(&'static str, Vec<Step>)>,
}

/// Searches `model`; ends at the first thing that is wrong.
pub(super) fn search(model: Model) -> Found {
    let first = State::first(model.faults);
    let mut numbers: HashMap<_, u32, BuildHasherDefault<Mix>> = HashMap::default();
    numbers.insert(first, 0);
    let mut line = VecDeque::from([first]);
    // By number: how it was reached first; and who leads to it, for the way back.
    let mut ways: Vec<(u32, Option<Step>)> = vec![(0, None)];
    let mut arrows: Vec<(u32, u32)> = Vec::new();
    let mut done = Vec::new();
    let (mut from, mut steps) = (0_u32, 0);
    let mut next = Vec::new();
    while let Some(state) = line.pop_front() {
        if state.is_done() {
            done.push(from);
        }
        model.steps(&state, &mut next);
        for (step, to) in next.drain(..) {
            let to = match to {
                Ok(to) => model.hurry(to).in_order(),
                Err(what) => {
                    let mut way = way_to(&ways, from);
                    way.push(step);
                    let (states, done) = (ways.len(), done.len());
                    let wrong = Some((what, way));
                    return Found {
                        states,
                        steps,
                        done,
                        wrong,
                    };
                }
            };
            let new = u32::try_from(ways.len()).expect("fewer than memory holds");
            let number = *numbers.entry(to).or_insert_with(|| {
                ways.push((from, Some(step)));
                line.push_back(to);
                new
            });
            steps += 1;
            // That all can end is asked of a world in which nothing more goes wrong.
            if !step.is_fault() && to.left == state.left {
                arrows.push((from, number));
            }
        }
        from += 1;
    }
    let stuck = first_that_never_ends(ways.len(), &arrows, &done);
    let wrong = stuck.map(|state| (NO_END, way_to(&ways, state)));
    Found {
        states: ways.len(),
        steps,
        done: done.len(),
        wrong,
    }
}

fn way_to(ways: &[(u32, Option<Step>)], mut state: u32) -> Vec<Step> {
    let mut way = Vec::new();
    while let (from, Some(step)) = ways[state as usize] {
        way.push(step);
        state = from;
    }
    way.reverse();
    way
}

/// Goes back from all ends; the first state not met has none before it.
fn first_that_never_ends(states: usize, arrows: &[(u32, u32)], done: &[u32]) -> Option<u32> {
    // Arrows by their head: where those of each state begin, then their tails.
    let mut begins = vec![0_u32; states + 1];
    for (_, to) in arrows {
        begins[*to as usize + 1] += 1;
    }
    for at in 0..states {
        begins[at + 1] += begins[at];
    }
    let mut free = begins.clone();
    let mut tails = vec![0_u32; arrows.len()];
    for (from, to) in arrows {
        let place = &mut free[*to as usize];
        tails[*place as usize] = *from;
        *place += 1;
    }
    let mut ends = vec![false; states];
    let mut line = done.to_vec();
    for state in done {
        ends[*state as usize] = true;
    }
    while let Some(state) = line.pop() {
        let range = begins[state as usize] as usize..begins[state as usize + 1] as usize;
        for from in &tails[range] {
            if !std::mem::replace(&mut ends[*from as usize], true) {
                line.push(*from);
            }
        }
    }
    let stuck = ends.iter().position(|ends| !ends)?;
    u32::try_from(stuck).ok()
}
