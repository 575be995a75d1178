//! Identities and counters that only stored forms need.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

macro_rules! random_id {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(Uuid);

        impl $type {
            /// Takes over a random UUID.
            #[must_use]
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.simple().fmt(f)
            }
        }
    };
}

random_id!(
    /// One life of a workflow id, minted by submit: what carries another is old news.
    RunId
);
random_id!(
    /// Marks one state write, so that its writer can recognise it after a lost reply.
    Stamp
);
random_id!(
    /// Names one execution of an attempt in the paths of its output and log.
    Token
);

/// The largest counter that a stored form may have; more is damage. It is far beyond what counting reaches, and far below the numbers that a
/// fault is likely to leave (2^53 - 1, 2^63 - 1, 2^64 - 1): what counts on from one that was read neither ends at a limit nor leaves what nobody reads.
pub const COUNTER_MAX: u64 = 1 << 48;

pub(super) fn counted<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(from)?;
    if number > COUNTER_MAX {
        let why = format!("{number} is no counter, they end at {COUNTER_MAX}");
        return Err(D::Error::custom(why));
    }
    Ok(number)
}

macro_rules! counter {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(#[serde(deserialize_with = "counted")] u64);

        impl $type {
            /// The value `number`.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The number.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0
            }

            /// The value after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// The number of a leader: raised whenever a coordinator takes the lease.
    Epoch
);
counter!(
    /// How often the state of a workflow was written.
    Revision
);
counter!(
    /// How many requests of people were applied to a workflow: a request names the number it saw.
    ControlSeq
);
