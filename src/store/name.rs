//! Names that the service accepts, checked before any request is made.
//!
//! A name that breaks a rule would come back from the service as a puzzling 400 or, worse, as an authentication error; here it
//! is refused with the name and the rule.

use std::fmt;

/// A name that breaks a rule of the service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} name `{name}` {rule}")]
pub struct NameError {
    /// `container`, `queue`, `table`, `blob` or `row key`.
    pub what: &'static str,
    /// The name refused.
    pub name: String,
    /// The rule it breaks.
    pub rule: &'static str,
}

fn check(what: &'static str, name: &str, rules: &[(bool, &'static str)]) -> Result<(), NameError> {
    match rules.iter().find(|(kept, _)| !kept) {
        None => Ok(()),
        Some((_, rule)) => Err(NameError {
            what,
            name: name.to_owned(),
            rule,
        }),
    }
}

/// Rules that containers and queues share: 3–63 of `[a-z0-9-]`, letter or digit at both ends, no two dashes together.
fn dashed(what: &'static str, name: &str) -> Result<(), NameError> {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    check(
        what,
        name,
        &[
            (
                (3..=63).contains(&name.len()),
                "must have 3 to 63 characters",
            ),
            (
                name.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                "may hold only lower-case letters, digits and dashes",
            ),
            (
                word(name.chars().next()) && word(name.chars().last()),
                "must start and end with a lower-case letter or a digit",
            ),
            (!name.contains("--"), "must not hold two dashes in a row"),
        ],
    )
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(String);

        impl $type {
            /// Checks the name.
            ///
            /// # Errors
            /// The rule of the service that the name breaks.
            pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
                let name = name.into();
                let check: fn(&str) -> Result<(), NameError> = $check;
                check(&name)?;
                Ok(Self(name))
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
    };
}

name!(
    /// A blob container: 3–63 of `[a-z0-9-]`, no dash at either end, no two in a row.
    Container,
    |name| dashed("container", name)
);
name!(
    /// A queue: 3–63 of `[a-z0-9-]`, no dash at either end, no two in a row.
    Queue,
    |name| dashed("queue", name)
);
name!(
    /// A table: 3–63 letters and digits, a letter first.
    Table,
    |name| check(
        "table",
        name,
        &[
            ((3..=63).contains(&name.len()), "must have 3 to 63 characters"),
            (name.chars().all(|c| c.is_ascii_alphanumeric()), "may hold only letters and digits"),
            (name.starts_with(|c: char| c.is_ascii_alphabetic()), "must start with a letter"),
        ]
    )
);

/// Where a blob is: its container and its name in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobPath {
    container: Container,
    name: String,
}

impl BlobPath {
    /// Checks the name: 1–1,024 characters of `[A-Za-z0-9._=/-]`, every segment neither empty nor of dots alone (clients drop those
    /// segments, so that two names would meet in one blob).
    ///
    /// # Errors
    /// The rule that the name breaks.
    pub fn new(container: Container, name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        let plain = |c: char| c.is_ascii_alphanumeric() || "._=/-".contains(c);
        check(
            "blob",
            &name,
            &[
                (
                    (1..=1024).contains(&name.len()),
                    "must have 1 to 1,024 characters",
                ),
                (
                    name.chars().all(plain),
                    "may hold only letters, digits and `._=/-`",
                ),
                (
                    name.split('/')
                        .all(|segment| !segment.trim_matches('.').is_empty()),
                    "must not hold an empty segment or one of dots alone",
                ),
            ],
        )?;
        Ok(Self { container, name })
    }

    /// The container.
    #[must_use]
    pub const fn container(&self) -> &Container {
        &self.container
    }

    /// The name in the container.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for BlobPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.name)
    }
}

/// Where a row is: its partition and its place in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    partition: String,
    row: String,
}

impl RowKey {
    /// Checks both parts: at most 512 UTF-16 units, no `/ \ # ?` and no control characters.
    ///
    /// # Errors
    /// The rule that a part breaks.
    pub fn new(partition: impl Into<String>, row: impl Into<String>) -> Result<Self, NameError> {
        let (partition, row) = (partition.into(), row.into());
        for part in [&partition, &row] {
            check(
                "row key",
                part,
                &[
                    (
                        part.encode_utf16().count() <= 512,
                        "must have at most 512 UTF-16 units",
                    ),
                    (
                        !part.contains(['/', '\\', '#', '?']),
                        "must not hold any of `/ \\ # ?`",
                    ),
                    (
                        !part.contains(char::is_control),
                        "must not hold control characters",
                    ),
                ],
            )?;
        }
        Ok(Self { partition, row })
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> &str {
        &self.partition
    }

    /// The place in the partition.
    #[must_use]
    pub fn row(&self) -> &str {
        &self.row
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.row)
    }
}
