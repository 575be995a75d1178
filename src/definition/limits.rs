//! The limits of a definition, each with its unit. `docs/definition.md` states them; a refusal names the one it hit.
//!
//! Invariants:
//! 1. What passes can be run: no accepted command or environment is larger than what Linux takes as one argument.
//! 2. Work and memory of reading are bounded by these numbers, whatever the text says.

/// Most bytes of a definition file: 128 MiB.
pub const FILE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Most levels of lists and mappings inside each other, counted through aliases.
pub const DEPTH_MAX: usize = 64;
/// Most values (texts, lists, mappings) written in one file.
pub const NODES_MAX: usize = 24_000_000;
/// Most values that all aliases of a file stand for.
pub const ALIAS_NODES_MAX: usize = 5_000_000;
/// Most bytes of text that all aliases of a file stand for: 64 MiB.
pub const ALIAS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most tasks of a workflow.
pub const TASKS_MAX: usize = 1_000_000;
/// Most dependencies of all tasks together.
pub const EDGES_MAX: usize = 5_000_000;
/// Most bytes of a command, all arguments together: one less than what Linux takes as one argument, which counts a closing zero.
pub const CMD_BYTES_MAX: usize = 131_071;
/// Most variables of one `env`.
pub const ENV_VARS_MAX: usize = 1_000;
/// Most bytes of one `env`, names and values together.
pub const ENV_BYTES_MAX: usize = 131_071;
/// Most bytes of a working directory, the longest path of Linux.
pub const CWD_BYTES_MAX: usize = 4_095;
/// Most bytes of an idempotency key.
pub const KEY_BYTES_MAX: usize = 256;
/// Most characters of the name of a workflow.
pub const NAME_CHARS_MAX: usize = 256;
/// Most characters of a description: it fits a table row, which counts UTF-16 units.
pub const DESCRIPTION_CHARS_MAX: usize = 8_192;
/// Most failures of a task that are tried again.
pub const RETRIES_MAX: u32 = 1_000;
/// Longest time-out in seconds: 30 days.
pub const TIMEOUT_SECS_MAX: f64 = 30.0 * 86_400.0;
/// Most diagnostics of one severity that are kept; the rest is counted.
pub const DIAGNOSTICS_MAX: usize = 1_000;

// A table row holds 32,768 UTF-16 units in one text; a character takes up to two.
const _: () = assert!(2 * DESCRIPTION_CHARS_MAX <= 32_768);
// Offsets into a file are kept as `u32`.
const _: () = assert!(FILE_BYTES_MAX < u32::MAX as usize);
