//! Runs seeds of the simulator: `sim SEED…` each with its trace, `sim --seeds FROM COUNT`, `sim --soak [MINUTES]` with fresh ones.
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

/// Runs one seed without lines; tells whether it failed.
fn quietly(seed: u64) -> bool {
    let report = run(seed, false);
    if !report.violations.is_empty() {
        show(&report);
    }
    !report.violations.is_empty()
}

#[expect(clippy::disallowed_methods, reason = "a soak lasts real minutes")]
fn soak(minutes: u64) -> usize {
    let (start, limit) = (Instant::now(), Duration::from_secs(60 * minutes));
    let mut seed = real::env().random();
    let (mut failed, mut runs) = (0, 0_u64);
    while start.elapsed() < limit {
        failed += usize::from(quietly(seed));
        seed = seed.wrapping_add(1);
        runs += 1;
    }
    println!("{runs} runs, {failed} failed");
    failed
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    let failed = match (arguments.first().map(String::as_str), &numbers[..]) {
        (Some("--soak"), []) => soak(1),
        (Some("--soak"), [minutes]) => soak(*minutes),
        (Some("--seeds"), [from, count]) => {
            (*from..from + count).filter(|seed| quietly(*seed)).count()
        }
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
            eprintln!("usage: sim SEED… | --seeds FROM COUNT | --soak [MINUTES]");
            return std::process::ExitCode::from(2);
        }
    };
    std::process::ExitCode::from(u8::from(failed > 0))
}
