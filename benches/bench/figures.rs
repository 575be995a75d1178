//! Figures: what Linux tells of a process, and how counts and times are told.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use dagaz::store::layers::Op;
use dagaz::store::layers::meter::Count;

/// Requests by kind.
pub(crate) type Counts = BTreeMap<Op, Count>;

/// What was counted for one kind.
pub(crate) fn of(counts: &Counts, op: Op) -> Count {
    counts.get(&op).copied().unwrap_or_default()
}

pub(crate) fn requests(counts: &Counts) -> f64 {
    counts.values().map(|count| count.requests as f64).sum()
}

/// Requests by kind, as parts of `whole`; what is rare in one sum.
pub(crate) fn by_kind(counts: &Counts, whole: f64) -> String {
    const RARE: f64 = 0.001;
    let (mut text, mut service, mut rest) = (String::new(), "", 0.0);
    for (op, count) in counts {
        let part = count.requests as f64 / whole;
        if part < RARE {
            rest += part;
            continue;
        }
        let (of_service, word) = op.words();
        if service != of_service {
            service = of_service;
            write!(text, "{service} ").unwrap();
        }
        let digits = if part < 0.1 { 3 } else { 2 };
        write!(text, "{word} {part:.digits$}, ").unwrap();
    }
    write!(text, "other {rest:.3}").unwrap();
    text
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(values, 50)
}

/// The value that `percent` of all do not exceed.
pub(crate) fn percentile(values: impl Iterator<Item = f64>, percent: usize) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

/// Seconds of processor time of the threads of this process whose names are `wanted`, to the microsecond.
pub(crate) fn cpu_of_threads(wanted: impl Fn(&str) -> bool) -> f64 {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let cpu = |thread: &Path| {
        // One that has just ended is left out.
        let called = fs::read_to_string(thread.join("comm")).ok()?;
        let told = fs::read_to_string(thread.join("schedstat")).ok()?;
        let ns: f64 = told.split(' ').next()?.parse().ok()?;
        wanted(called.trim()).then_some(ns / 1e9)
    };
    threads
        .filter_map(|thread| cpu(&thread.unwrap().path()))
        .sum()
}

/// Seconds of processor time of a process, threads that have ended included, to a hundredth.
pub(crate) fn cpu(process: &str) -> f64 {
    let stat = fs::read_to_string(Path::new("/proc").join(process).join("stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum::<f64>()
        / 100.0
}

/// The most memory that a process has had, in MiB.
pub(crate) fn peak(process: &str) -> f64 {
    let status = fs::read_to_string(Path::new("/proc").join(process).join("status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    peak.parse::<f64>().unwrap() / 1024.0
}

/// Lets [`peak`] of this process begin anew, at what it has now.
pub(crate) fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}
