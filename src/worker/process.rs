//! Runs jobs as real processes, each in a process group of its own.
//!
//! Invariants:
//! 1. A signal goes to a whole group and to no other process; when a job is over, its group is killed, whoever is left in it.
//! 2. Nothing waits for the end of a pipe for longer than [`PIPE_LINGER`] after the end of the process: a process that left the group
//!    may hold it for ever.
//! 3. The time limit runs from the real start and counts time in which the machine slept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{join, pending};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tracing::warn;

use super::capture::Capture;
use super::environment;
use super::executor::{End, Execution, Executor, Job, Signals};
use super::files::Folder;
use super::sleep_until;
use crate::definition;
use crate::env::{Env, real};
use crate::record::Token;

/// How long output is still read when the process has ended.
const PIPE_LINGER: Duration = Duration::from_secs(1);
/// How often a stopped group is looked at.
const GROUP_POLL: Duration = Duration::from_millis(50);

/// Runs jobs as processes of this machine.
#[derive(Debug)]
pub struct ProcessExecutor {
    env: Env,
    vars: BTreeMap<OsString, OsString>,
    shell: Option<PathBuf>,
    temp: PathBuf,
}

impl ProcessExecutor {
    /// An executor whose jobs see this process's environment, less what is kept back and not in `pass_env`.
    #[must_use]
    pub fn new(env: Env, pass_env: &[String]) -> Self {
        Self::with(env, environment::passed_on(real::vars(), pass_env))
    }

    /// Checks that commands can have their temporary folders. What may pass by itself, as a full disk, is waited out at each start.
    ///
    /// # Errors
    /// Where it is, and what the system says.
    pub async fn check(&self) -> Result<(), String> {
        let token = Token::new(self.env.uuid());
        match Folder::create(&self.temp, token, b"{}").await {
            Err(error) if !is_lack(&error) => Err(format!("{}: {error}", self.temp.display())),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn with(env: Env, vars: BTreeMap<OsString, OsString>) -> Self {
        Self {
            env,
            shell: environment::shell(&vars),
            vars,
            temp: real::temp_dir(),
        }
    }

    /// The command of a job. A program that is named by its path, `by_path`, starts without a copy of this process, however large that is.
    fn command(&self, job: &Job, folder: &Folder, by_path: bool) -> Result<Command, End> {
        let vars = environment::of_job(&self.vars, job, &folder.inputs(), &folder.output());
        let mut command = match (&job.command, &self.shell) {
            (definition::Command::Shell(text), Some(shell)) => {
                let mut command = Command::new(shell);
                command.arg("-c").arg(text);
                command
            }
            (definition::Command::Shell(_), None) => {
                let why = "there is no shell: neither `bash` nor `sh` is on the worker's PATH";
                return Err(End::Refused(why.to_owned()));
            }
            (definition::Command::Merge, _) => {
                return Err(End::Refused("a merge runs nothing".to_owned()));
            }
            (definition::Command::Exec(words), _) => {
                let Some((program, arguments)) = words.split_first() else {
                    return Err(End::Refused("the command is empty".to_owned()));
                };
                let path = environment::program(&vars, program);
                let path = path.filter(|path| by_path && path.is_absolute());
                let mut command = Command::new(path.as_deref().unwrap_or(Path::new(program)));
                command.arg0(program).args(arguments);
                command
            }
        };
        if let Some(cwd) = &job.cwd {
            if !Path::new(cwd).is_dir() {
                let why = format!("the working directory `{cwd}` is not a directory on the worker");
                return Err(End::Refused(why));
            }
            command.current_dir(cwd);
        }
        command
            .env_clear()
            .envs(vars)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }

    async fn start(&self, job: &Job) -> Result<(Folder, Child), End> {
        let folder = Folder::create(&self.temp, job.token, &job.inputs)
            .await
            .map_err(|error| {
                End::NoRoom(format!("its temporary folder could not be made: {error}"))
            })?;
        let spawned = match self.command(job, &folder, true)?.spawn() {
            // A script that does not say what runs it: only the search by name hands it to a shell.
            Err(error) if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => {
                self.command(job, &folder, false)?.spawn()
            }
            spawned => spawned,
        };
        let child = spawned.map_err(|error| match (&job.command, error.kind()) {
            (definition::Command::Exec(words), io::ErrorKind::NotFound) => {
                End::Refused(format!("the program `{}` is not on the worker", words[0]))
            }
            _ => no_start("the command could not be started", &error),
        })?;
        Ok((folder, child))
    }

    /// Waits for the end of the leader, or ends it: the group first by request, then by force.
    async fn ended(
        &self,
        job: &Job,
        signals: &Signals,
        child: &mut Child,
        group: &Group,
    ) -> io::Result<(ExitStatus, Option<End>)> {
        let limit = job.time_limit.map(|limit| self.env.mono().plus(limit));
        let over = async {
            match limit {
                Some(deadline) => sleep_until(&self.env, deadline).await,
                None => pending().await,
            }
        };
        let why = tokio::select! {
            biased;
            status = child.wait() => return Ok((status?, None)),
            () = signals.kill.cancelled() => End::Stopped,
            () = signals.stop.cancelled() => End::Stopped,
            () = over => End::TimedOut,
        };
        group.signal(Signal::SIGTERM);
        let forced = self.env.mono().plus(job.grace);
        // The leader may go first while others of the group still tidy up.
        let gone = async {
            child.wait().await?;
            while group.is_alive() {
                self.env.sleep(GROUP_POLL).await;
            }
            io::Result::Ok(())
        };
        tokio::select! {
            biased;
            () = signals.kill.cancelled() => {}
            result = gone => result?,
            () = sleep_until(&self.env, forced) => {}
        }
        group.signal(Signal::SIGKILL);
        Ok((child.wait().await?, Some(why)))
    }

    async fn follow(
        &self,
        job: &Job,
        signals: &Signals,
        child: &mut Child,
        capture: &Mutex<Capture>,
    ) -> End {
        let mut group = Group::of(child);
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let printed = join(
            pump(stdout, |chunk| lock(capture).push_stdout(chunk)),
            pump(stderr, |chunk| lock(capture).push_stderr(chunk)),
        );
        tokio::pin!(printed);
        let mut all_read = false;
        let ended = {
            let ended = self.ended(job, signals, child, &group);
            tokio::pin!(ended);
            loop {
                tokio::select! {
                    biased;
                    ended = &mut ended => break ended,
                    _ = &mut printed, if !all_read => all_read = true,
                }
            }
        };
        group.end();
        if !all_read {
            let rest = self.env.timeout(PIPE_LINGER, &mut printed);
            let in_time = tokio::select! {
                biased;
                rest = rest => rest.is_ok(),
                () = signals.kill.cancelled() => false,
            };
            if !in_time {
                warn!(workflow_id = %job.workflow_id, task = %job.task, "pipe_left_open");
            }
        }
        match ended {
            Ok((_, Some(by_worker))) => by_worker,
            Ok((status, None)) => by_itself(status),
            Err(error) => End::Signalled(format!("its end could not be seen: {error}")),
        }
    }
}

#[async_trait]
impl Executor for ProcessExecutor {
    async fn run(&self, job: &Job, signals: &Signals) -> Execution {
        let (folder, mut child) = match self.start(job).await {
            Ok(started) => started,
            Err(end) => return Execution::not_started(end),
        };
        let started_at = Some(self.env.wall());
        let capture = Mutex::new(Capture::new());
        let end = self.follow(job, signals, &mut child, &capture).await;
        let written = folder.written(&self.env).await;
        let capture = lock(&capture);
        Execution {
            end,
            started_at,
            written,
            log: Bytes::from(capture.log()),
            stderr_tail: capture.stderr_tail(),
        }
    }
}

fn lock(capture: &Mutex<Capture>) -> MutexGuard<'_, Capture> {
    capture
        .lock()
        .expect("nothing panics while it holds the capture")
}

/// Whether this machine lacks something for now.
fn is_lack(error: &io::Error) -> bool {
    let lacks = [
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::EAGAIN,
        Errno::ENOMEM,
        Errno::ENOSPC,
        Errno::EDQUOT,
    ];
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| lacks.contains(&errno))
}

/// What a failed start means: a lack of this machine, or a fault of the job.
fn no_start(what: &str, error: &io::Error) -> End {
    let text = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::E2BIG) => format!(
            "{what}: the argument list is too long (arguments and environment together, or one of them alone)"
        ),
        _ if is_lack(error) => return End::NoRoom(format!("{what}: {error}")),
        _ => format!("{what}: {error}"),
    };
    End::Refused(text)
}

fn by_itself(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(number)) => End::Signalled(
            Signal::try_from(number).map_or_else(|_| number.to_string(), |name| name.to_string()),
        ),
        (None, None) => End::Signalled("unknown".to_owned()),
    }
}

/// Hands everything that comes through a pipe to `push`, to its end.
async fn pump(pipe: Option<impl AsyncRead + Unpin>, push: impl Fn(&[u8])) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; 32 * 1024];
    loop {
        match pipe.read(&mut buffer).await {
            // An error of a pipe is its end, too: there is nothing more to get.
            Ok(0) | Err(_) => return,
            Ok(read) => push(&buffer[..read]),
        }
    }
}

/// The process group of one job; killed when this is dropped.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.map(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // Nobody left to hear it is what was wanted.
            killpg(group, signal).ok();
        }
    }

    /// Kills what is left, for the last time: the number may be another group's later.
    fn end(&mut self) {
        self.signal(Signal::SIGKILL);
        self.0 = None;
    }

    fn is_alive(&self) -> bool {
        self.0.is_some_and(|group| killpg(group, None).is_ok())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
