//! What a user writes: the definition of a workflow, read from YAML or JSON and checked in one pass.
//!
//! [`parse`] turns text into a checked [`Definition`] or into all its problems, each with line and column. Everything
//! behind this module works with a checked definition and still re-checks the graph when it loads one.

mod model;
mod name;
mod parse;

pub use model::{Command, Definition, DepPolicy, OnFailure, ResultPolicy, Task};
pub use name::{InvalidName, QueueName, TaskName, WorkflowId};
