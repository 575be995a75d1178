//! Chance from a seed: small, fast, and the same on every machine.

use std::time::Duration;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

/// Mixes the bits of a number, so that neighbours have nothing in common.
pub(super) const fn mix(number: u64) -> u64 {
    let a = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ (b >> 31)
}

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x6461_6761_7a21))
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`, which is not zero.
    pub(super) const fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A place in a list of `len`, which is not zero.
    pub(super) fn place(&mut self, len: usize) -> usize {
        let place = self.below(len as u64);
        usize::try_from(place).expect("below a usize")
    }

    /// One of `choices`, which are not none.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.place(choices.len())]
    }

    /// True `per_mille` times in a thousand.
    pub(super) fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// A duration of `low` to `high` milliseconds.
    pub(super) fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(low * 1000 + self.below((high - low) * 1000 + 1))
    }

    /// A stream of its own.
    pub(super) const fn fork(&mut self) -> Self {
        Self::new(self.next())
    }
}
