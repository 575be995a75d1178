//! A command that came to nothing: what happened, what to do next, and the exit code.

use serde::Serialize;
use serde_json::value::RawValue;

use super::exit::Exit;
use crate::client::ClientError;
use crate::protocol::{LayoutError, ReadError};
use crate::record::{DecodeError, IndexRecord, Record as _, SentinelRecord};
use crate::store::azure::ConfigError;
use crate::store::{Kind, StoreError};

/// What ends a command.
#[derive(Debug, Clone)]
pub(super) enum CliError {
    /// Something to tell.
    Told(Box<Told>),
    /// Nobody reads stdout any more: nothing to tell.
    ClosedPipe,
}

/// An error to tell.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) exit: Exit,
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// Problems of definitions, as values, and as text ready to show.
    pub(super) problems: Option<(Box<RawValue>, String)>,
}

/// `{"error": {"kind", "message", "help"}}`
#[derive(Debug, Serialize)]
pub(super) struct ErrorJson<'a> {
    error: Fields<'a>,
}

#[derive(Debug, Serialize)]
struct Fields<'a> {
    kind: &'static str,
    message: &'a str,
    help: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problems: Option<&'a RawValue>,
}

impl Told {
    /// The JSON form.
    pub(super) fn json(&self) -> ErrorJson<'_> {
        ErrorJson {
            error: Fields {
                kind: self.exit.word(),
                message: &self.message,
                help: self.help.as_deref(),
                problems: self.problems.as_ref().map(|(values, _)| &**values),
            },
        }
    }
}

impl CliError {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self::Told(Box::new(Told {
            exit,
            message: message.into(),
            help: None,
            problems: None,
        }))
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(Exit::Internal, message)
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        if let Self::Told(told) = &mut self {
            told.help = Some(help.into());
        }
        self
    }

    /// Names what it is about.
    pub(super) fn about(mut self, what: &str) -> Self {
        if let Self::Told(told) = &mut self {
            told.message = format!("`{what}`: {}", told.message);
        }
        self
    }

    /// Adds to the help there is.
    pub(super) fn and_help(mut self, more: &str) -> Self {
        if let Self::Told(told) = &mut self {
            let first = told.help.take();
            let first = first.map_or_else(String::new, |help| format!("{help}; "));
            told.help = Some(format!("{first}{more}"));
        }
        self
    }

    pub(super) fn problems(mut self, values: Box<RawValue>, text: String) -> Self {
        if let Self::Told(told) = &mut self {
            told.problems = Some((values, text));
        }
        self
    }
}

/// What no layer has a kind for.
impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        Self::internal(format!("{error:#}"))
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        let (exit, help) = match error.kind {
            Kind::Denied => (
                Exit::Denied,
                "check the key or signature, or the roles of your identity on the account: `workflow doctor` says which service refuses",
            ),
            Kind::Unavailable | Kind::Throttled | Kind::Ambiguous => (
                Exit::Unreachable,
                "check `--store` and the network, then run the command again: `workflow doctor` shows which service answers",
            ),
            Kind::NoResource => (
                Exit::NotFound,
                "check the prefix in `--store`; `workflow submit` or `workflow doctor --fix` sets up a new one",
            ),
            Kind::NotFound => (Exit::NotFound, "run `workflow list` to see what there is"),
            Kind::Conflict => (
                Exit::Conflict,
                "somebody else changed it at the same moment: run the command again",
            ),
            Kind::Gone | Kind::Invalid | Kind::Corrupt | Kind::Fenced => (
                Exit::Internal,
                "run the command again with `-v` and report what it prints",
            ),
        };
        Self::new(exit, error.to_string()).help(help)
    }
}

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        let message = error.to_string();
        let help = match error {
            ReadError::Store(error) => return error.into(),
            ReadError::Decode {
                source: DecodeError::Newer { .. },
                ..
            } => "use a newer `workflow`",
            ReadError::Decode {
                source: DecodeError::Nonsense { what, .. },
                ..
            } if what == IndexRecord::WHAT => {
                "delete this row from the table: the coordinator makes it again from the state"
            }
            ReadError::Decode {
                source: DecodeError::Nonsense { what, .. },
                ..
            } if what == SentinelRecord::WHAT => {
                "delete this blob while no coordinator runs: the next one makes it anew"
            }
            ReadError::Decode { .. } => {
                "restore it from a copy or from its soft-deleted version, or submit the workflow anew under another id; what is listed as ended can be purged"
            }
        };
        Self::new(Exit::Unreadable, message).help(help)
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::Read(error) => error.into(),
            ClientError::NoWorkflow(_) => Self::new(Exit::NotFound, message)
                .help("run `workflow list` to see the workflows of this prefix"),
            ClientError::NoTask { id, nearest, .. } => {
                let help = nearest.map_or_else(
                    || format!("run `workflow tasks {id}` to see its tasks"),
                    |nearest| format!("there is a task `{nearest}`"),
                );
                Self::new(Exit::NotFound, message).help(help)
            }
            ClientError::Nothing { id, .. } => Self::new(Exit::NotFound, message)
                .help(format!("run `workflow status {id}` to see where it stands")),
            ClientError::Taken(_) => Self::new(Exit::Conflict, message)
                .help("choose another `--id`, or leave it out to get a new one"),
            ClientError::Purging(_) => Self::new(Exit::Conflict, message)
                .help("run the command again in a moment; a coordinator has to run for that"),
            ClientError::Refused { id, .. } => Self::new(Exit::Conflict, message)
                .help(format!("run `workflow status {id}` to see where it stands")),
            ClientError::Graph(_) => Self::new(Exit::InvalidDefinition, message)
                .help("run `workflow validate FILE` to see all problems"),
            ClientError::Contended(_) => {
                Self::new(Exit::Conflict, message).help("run the command again")
            }
            ClientError::TimedOut { id, .. } => Self::new(Exit::TimedOut, message).help(format!(
                "it goes on: run `workflow watch {id}` to wait longer"
            )),
        }
    }
}

impl From<LayoutError> for CliError {
    fn from(error: LayoutError) -> Self {
        Self::usage(error.to_string()).help(
            "choose a prefix of 3 to 24 lower-case letters and digits that starts with a letter",
        )
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.problem).help(error.help)
    }
}
