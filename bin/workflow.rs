//! The command `workflow`: parse, run, exit code; nothing else.

fn main() {}
