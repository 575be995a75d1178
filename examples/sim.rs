//! Runs seeds of the simulator: `sim SEED…` each with its trace, `sim --seeds FROM COUNT`, and fresh ones for a while with
//! `sim --soak [MINUTES]` or `sim --fresh [SECONDS]`.
//!
//! Prints, for each failing seed, what was broken and the line that replays it; ends with 1 if there was one.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for people that prints what it found"
)]

use std::time::{Duration, Instant};

use dagaz::env::real;
use dagaz::sim::{Report, run};

fn show(report: &Report) {
    println!("seed {} failed:", report.seed);
    for what in &report.violations {
        println!("  {what}");
    }
    println!("  replay: just sim {}", report.seed);
}

/// What came of many runs.
#[derive(Default)]
struct Counts {
    runs: u64,
    failed: u64,
    starts: u64,
    faults: u64,
    virtual_time: Duration,
}

impl Counts {
    /// Runs one seed without lines.
    fn run(&mut self, seed: u64) {
        let report = run(seed, false);
        if !report.violations.is_empty() {
            show(&report);
            self.failed += 1;
        }
        self.runs += 1;
        self.starts += report.starts;
        self.faults += report.faults;
        self.virtual_time += report.took;
    }

    fn print(&self) {
        println!(
            "{} runs, {} failed; {} executions, {} faults, {:.1} h of virtual time",
            self.runs,
            self.failed,
            self.starts,
            self.faults,
            self.virtual_time.as_secs_f64() / 3600.0
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "a soak lasts real minutes")]
fn soak(secs: u64) -> u64 {
    let (start, limit) = (Instant::now(), Duration::from_secs(secs));
    let mut seed = real::env().random();
    let mut counts = Counts::default();
    while start.elapsed() < limit {
        counts.run(seed);
        seed = seed.wrapping_add(1);
    }
    counts.print();
    counts.failed
}

fn seeds(from: u64, count: u64) -> u64 {
    let mut counts = Counts::default();
    (from..from + count).for_each(|seed| counts.run(seed));
    counts.print();
    counts.failed
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    let failed = match (arguments.first().map(String::as_str), &numbers[..]) {
        (Some("--soak" | "--fresh"), []) => soak(60),
        (Some("--soak"), [minutes]) => soak(60 * minutes),
        (Some("--fresh"), [secs]) => soak(*secs),
        (Some("--seeds"), [from, count]) => seeds(*from, *count),
        (Some(_), seeds) if seeds.len() == arguments.len() => {
            let mut failed = 0;
            for seed in seeds {
                let report = run(*seed, true);
                report.lines.iter().for_each(|line| println!("{line}"));
                println!(
                    "seed {seed}: {:.1} s of virtual time, {} polls, {} faults, {} starts, hash {:016x}",
                    report.took.as_secs_f64(),
                    report.polls,
                    report.faults,
                    report.starts,
                    report.hash
                );
                if !report.violations.is_empty() {
                    show(&report);
                    failed += 1;
                }
            }
            failed
        }
        _ => {
            eprintln!(
                "usage: sim SEED… | --seeds FROM COUNT | --soak [MINUTES] | --fresh [SECONDS]"
            );
            return std::process::ExitCode::from(2);
        }
    };
    std::process::ExitCode::from(u8::from(failed > 0))
}
