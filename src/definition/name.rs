//! Names that users choose: workflow ids, task names and queue names, with their rules.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A name that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{}` {rule}", shown(.name))]
pub struct InvalidName {
    /// `workflow id`, `task name` or `queue name`.
    pub what: &'static str,
    /// The name refused.
    pub name: String,
    /// The rule it breaks.
    pub rule: &'static str,
}

/// A name fit for one line of a message: escaped, and cut after 80 characters.
fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    if name.chars().count() > 80 {
        text.push('…');
    }
    text
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $rules:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks the name.
            ///
            /// # Errors
            /// The rule that the name breaks.
            pub fn new(name: impl Into<String>) -> Result<Self, InvalidName> {
                let name = name.into();
                let broken: fn(&str) -> Option<&'static str> = $rules;
                match broken(&name) {
                    None => Ok(Self(name)),
                    Some(rule) => Err(InvalidName { what: $what, name, rule }),
                }
            }

            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;

            fn try_from(name: String) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl std::str::FromStr for $type {
            type Err = InvalidName;

            fn from_str(name: &str) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }
    };
}

name!(
    /// The id of a workflow: `[A-Za-z0-9][A-Za-z0-9_-]{0,63}`.
    WorkflowId,
    "workflow id",
    |name| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !(1..=64).contains(&name.chars().count()) {
            Some("must have 1 to 64 characters")
        } else if !name.chars().all(plain) {
            Some("may hold only ASCII letters, digits, `_` and `-`")
        } else if name.starts_with(['_', '-']) {
            Some("must start with a letter or a digit")
        } else {
            None
        }
    }
);

name!(
    /// The name of a task: 1–160 bytes of UTF-8 without control characters, no blank at either end, not `.` or `..`.
    TaskName,
    "task name",
    |name| {
        if name.is_empty() {
            Some("must not be empty")
        } else if name.len() > 160 {
            Some("must have at most 160 bytes of UTF-8")
        } else if name.chars().any(char::is_control) {
            Some("must not hold control characters")
        } else if name.trim() != name {
            Some("must not start or end with a blank")
        } else if name == "." || name == ".." {
            Some("is reserved")
        } else {
            None
        }
    }
);

name!(
    /// The name of a task queue: `[a-z0-9]+(-[a-z0-9]+)*`, at most 29 characters, not ending in `-poison`.
    QueueName,
    "queue name",
    |name| {
        if name.contains("://") {
            Some("is an address: queues of Service Bus or other brokers are not supported, name a queue of this prefix")
        } else if name.contains('/') {
            Some("names an account: queues of other accounts are not supported, name a queue of this prefix")
        } else if !(1..=29).contains(&name.chars().count()) {
            Some("must have 1 to 29 characters")
        } else if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
            Some("may hold only lower-case letters, digits and single dashes")
        } else if name.split('-').any(str::is_empty) {
            Some("must not start or end with a dash nor hold two in a row")
        } else if name.ends_with("-poison") || name == "poison" {
            Some("must not end in `poison`: such queues hold what could not be handled")
        } else {
            None
        }
    }
);
