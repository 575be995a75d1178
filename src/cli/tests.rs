//! What the command line promises about itself.

use std::collections::BTreeSet;

use super::args::command;
use super::error::CliError;
use super::exit::Exit;
use crate::protocol::ReadError;
use crate::record::DecodeError;

/// Variables that tasks are given.
const OF_TASKS: [&str; 5] = [
    "WORKFLOW_ID",
    "WORKFLOW_TASK",
    "WORKFLOW_ATTEMPT",
    "WORKFLOW_INPUTS",
    "WORKFLOW_OUTPUT",
];

fn variables(command: &clap::Command, found: &mut Vec<(String, String)>) {
    for arg in command.get_arguments() {
        if let Some(name) = arg.get_env() {
            let flag = arg.get_long().unwrap_or_default().to_owned();
            found.push((name.to_str().unwrap().to_owned(), flag));
        }
    }
    for sub in command.get_subcommands() {
        variables(sub, found);
    }
}

#[test]
fn the_command_line_is_well_formed() {
    command().debug_assert();
}

#[test]
fn no_flag_reads_a_variable_that_tasks_are_given() {
    let mut found = Vec::new();
    variables(&command(), &mut found);
    for (name, flag) in found {
        assert!(!OF_TASKS.contains(&name.as_str()), "--{flag} reads {name}");
    }
}

#[test]
fn each_flag_of_a_service_has_a_variable_of_its_name() {
    let command = command();
    for service in ["coordinator", "worker"] {
        let sub = command.find_subcommand(service).unwrap();
        let mut names = BTreeSet::new();
        for arg in sub.get_arguments().filter(|arg| !arg.is_global_set()) {
            let flag = arg.get_long().unwrap();
            if ["help", "version"].contains(&flag) {
                continue;
            }
            let own = format!("WORKFLOW_{service}_{flag}")
                .to_uppercase()
                .replace('-', "_");
            let read = arg.get_env().map(|name| name.to_str().unwrap().to_owned());
            assert_eq!(read.as_deref(), Some(own.as_str()), "--{flag}");
            names.insert(own);
        }
        assert!(names.len() >= 12, "{names:?}");
    }
}

#[test]
fn what_cannot_be_read_has_a_kind_of_its_own_and_is_named() {
    let newer = DecodeError::Newer { found: 9, known: 1 };
    let damaged = DecodeError::Nonsense {
        what: "runtime blob",
        why: "no JSON".to_owned(),
    };
    for (source, help) in [(newer, "newer `workflow`"), (damaged, "restore it")] {
        let place = "p-workflows/w.json".to_owned();
        let CliError::Told(told) = ReadError::Decode { place, source }.into() else {
            panic!("it is told");
        };
        assert_eq!((told.exit, told.exit.code()), (Exit::Unreadable, 1));
        assert!(told.message.contains("`p-workflows/w.json`"), "{told:?}");
        assert!(told.help.as_ref().unwrap().contains(help), "{told:?}");
    }
}
