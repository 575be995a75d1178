//! What a user writes: the definition of a workflow, read from YAML or JSON and checked in one pass.
//!
//! [`parse()`] turns a [`Source`] into a checked [`Definition`] or into all its problems, each with line and column. Everything
//! behind this module works with a checked definition and checks the graph again ([`check_graph`]) when it loads one.
//!
//! The way of a text: `source` (bytes and places) → `yaml` or `json` (a `tree` with spans) → `workflow`, `task`, `dependencies`
//! (by way of `fields`) → `model`. What is wrong goes into a `diagnostic`. Apart: `fan_in` changes a
//! checked definition for who wants fewer tasks in flight.

mod dependencies;
mod diagnostic;
mod fan_in;
mod fields;
mod graph;
mod json;
pub mod limits;
mod model;
mod name;
mod parse;
mod source;
mod suggest;
mod task;
mod tree;
mod workflow;
mod yaml;

pub use diagnostic::{Diagnostic, Problems, Severity, render};
pub use fan_in::{TooManyMerges, limit_fan_in};
pub use graph::{GraphError, check_graph};
pub use model::{Command, Definition, DepPolicy, OnFailure, ResultPolicy, Task};
pub use name::{InvalidName, QueueName, TaskName, WorkflowId};
pub use parse::{Parsed, parse};
pub use source::{Format, Source, Span};
