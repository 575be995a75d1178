//! What of the worker's surroundings a task sees: no credentials of the worker, nothing that changes a shell behind its back.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::executor::Job;

/// Variables kept back: credentials and settings of the worker itself.
const KEPT_BACK_PREFIXES: &[&str] = &["AZURE_", "IDENTITY_", "MSI_", "WORKFLOW_", "JOBQ_"];
/// Variables kept back: they run files in, or end, every shell.
const KEPT_BACK: &[&str] = &["BASH_ENV", "ENV", "TMOUT"];

/// What the worker passes on of its own environment; `pass` names variables that are passed although they would be kept back.
pub(super) fn passed_on(
    vars: Vec<(OsString, OsString)>,
    pass: &[String],
) -> BTreeMap<OsString, OsString> {
    let kept_back = |name: &OsStr| {
        let bytes = name.as_bytes();
        let by_prefix = |prefix: &&str| bytes.starts_with(prefix.as_bytes());
        KEPT_BACK_PREFIXES.iter().any(by_prefix) || KEPT_BACK.iter().any(|kept| name == *kept)
    };
    let passed = |name: &OsStr| pass.iter().any(|asked| name == asked.as_str());
    vars.into_iter()
        .filter(|(name, _)| passed(name) || !kept_back(name))
        .collect()
}

/// The whole environment of a job: what is passed on, then what the definition sets, then what names the job.
pub(super) fn of_job(
    passed_on: &BTreeMap<OsString, OsString>,
    job: &Job,
    inputs: &Path,
    output: &Path,
) -> BTreeMap<OsString, OsString> {
    let mut env = passed_on.clone();
    env.extend(
        job.env
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    let own: [(&str, OsString); 5] = [
        ("WORKFLOW_ID", job.workflow_id.as_str().into()),
        ("WORKFLOW_TASK", job.task.as_str().into()),
        ("WORKFLOW_ATTEMPT", job.attempt.to_string().into()),
        ("WORKFLOW_INPUTS", inputs.into()),
        ("WORKFLOW_OUTPUT", output.into()),
    ];
    env.extend(own.map(|(name, value)| (name.into(), value)));
    env
}

/// The shell of the worker's `PATH`: `bash`, `sh` where there is none.
pub(super) fn shell(passed_on: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
    program(passed_on, "bash").or_else(|| program(passed_on, "sh"))
}

/// Where `PATH` finds a program that is named without a path.
pub(super) fn program(vars: &BTreeMap<OsString, OsString>, name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    let path = vars.get(OsStr::new("PATH"))?;
    let runs = |file: &PathBuf| {
        std::fs::metadata(file)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_shell_traps_are_kept_back_but_for_what_is_asked_for() {
        let vars = [
            "HOME",
            "AZURE_CLIENT_SECRET",
            "AZURE_REGION",
            "MSI_ENDPOINT",
            "BASH_ENV",
            "ENV",
            "ENVIRONMENT",
            "TMOUT",
            "WORKFLOW_ID",
        ];
        let vars = vars.iter().map(|name| (name.into(), "v".into())).collect();
        let kept: Vec<_> = passed_on(vars, &["AZURE_REGION".to_owned()])
            .into_keys()
            .collect();
        assert_eq!(kept, ["AZURE_REGION", "ENVIRONMENT", "HOME"]);
    }
}
