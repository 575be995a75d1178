//! Who coordinates, for how long, and what its counters say.

use std::time::Duration;

use super::{Check, Patient, Verdict};
use crate::protocol::{ReadError, leader};

/// What was found, and whether somebody leads.
#[derive(Debug)]
pub(super) struct Found {
    checks: Vec<Check>,
    pub(super) is_led: bool,
    /// The sentinel was read: where nobody leads, that is certain.
    is_certain: bool,
}

impl Found {
    /// Without the container of the sentinel there is nothing to look at.
    pub(super) fn unseen(container: &str) -> Self {
        Self {
            checks: vec![Check::warn(
                "coordinator",
                format!("not looked at, since `{container}` cannot be read"),
                "see above",
            )],
            is_led: false,
            is_certain: false,
        }
    }
}

/// The checks, once it is known how many workflows are unfinished: while there are some, somebody must lead.
pub(super) fn checks(found: Found, open: usize) -> Vec<Check> {
    let mut checks = found.checks;
    if let Some(check) = checks.first_mut()
        && found.is_certain
        && !found.is_led
        && open > 0
    {
        check.status = Verdict::Problem;
        let what = if open == 1 {
            "1 workflow is".to_owned()
        } else {
            format!("{open} workflows are")
        };
        check.message = format!("{}; {what} unfinished", check.message);
    }
    checks
}

/// Counters that tell of something wrong when they are not zero.
const BAD_COUNTERS: [&str; 4] = [
    "poison_messages",
    "workflows_broken",
    "panics",
    "newer_messages",
];

/// Looks at the sentinel and its lease.
pub(super) async fn check(patient: &Patient) -> Found {
    const NAME: &str = "coordinator";
    const START: &str = "start one: `workflow coordinator`";
    let found = leader(&patient.store, &patient.layout).await;
    let (record, leader, leased) = match found {
        Ok(Some(found)) => found,
        Ok(None) => return alone(Check::warn(NAME, "none has ever led here", START), true),
        Err(ReadError::Store(error)) => return alone(Check::refused(NAME, &error), false),
        Err(error @ ReadError::Decode { .. }) => {
            let help = "delete this blob while no coordinator runs; the next one makes it anew";
            return alone(Check::problem(NAME, error.to_string(), help), false);
        }
    };
    let holder = leader.holder.unwrap_or_else(|| "nobody".to_owned());
    if !leased {
        let message = format!(
            "nobody leads; the last was `{holder}` in epoch {}, {} ago",
            leader.epoch,
            ago(leader
                .age
                .saturating_sub(Duration::from_secs(record.led_for_s)))
        );
        return alone(Check::warn(NAME, message, START), true);
    }
    let mut checks = vec![Check::ok(
        NAME,
        format!(
            "`{holder}` holds the lease for {}, in epoch {}, with version {}",
            ago(leader.age),
            leader.epoch,
            record.version
        ),
    )];
    let counters: Vec<String> = record
        .statistics
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    let is_bad = |name: &str| record.statistics.get(name).copied().unwrap_or(0) > 0;
    let message = if counters.is_empty() {
        "no counter was stored yet".to_owned()
    } else {
        counters.join(", ")
    };
    checks.push(if BAD_COUNTERS.iter().any(|name| is_bad(name)) {
        Check::warn(
            "statistics",
            message,
            "look at the checks below and at the coordinator's log",
        )
    } else {
        Check::ok("statistics", message)
    });
    Found {
        checks,
        is_led: true,
        is_certain: true,
    }
}

fn alone(check: Check, is_certain: bool) -> Found {
    Found {
        checks: vec![check],
        is_led: false,
        is_certain,
    }
}

/// A stretch of time in whole seconds, minutes or hours.
pub(super) fn ago(age: Duration) -> String {
    match age.as_secs() {
        secs @ 0..120 => format!("{secs} s"),
        secs @ 120..7200 => format!("{} min", secs / 60),
        secs => format!("{} h", secs / 3600),
    }
}
