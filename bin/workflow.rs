//! The command `workflow`: parse, run, exit code; nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    dagaz::cli::main(std::env::args_os())
}
