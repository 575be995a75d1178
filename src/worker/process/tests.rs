//! Real processes: how they end, what they print, and that none is left behind.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::definition::{Command as Cmd, TaskName, WorkflowId};
use crate::engine::Attempt;
use crate::record::Token;
use crate::store::memory::manual::ManualClock;
use crate::worker::{OUTPUT_BYTES_MAX, Written};

fn job(command: Cmd) -> Job {
    Job {
        workflow_id: WorkflowId::new("w").expect("legal"),
        task: TaskName::new("a task").expect("legal"),
        attempt: Attempt::new(2),
        token: Token::new(real::env().uuid()),
        command,
        env: BTreeMap::new(),
        cwd: None,
        time_limit: None,
        grace: Duration::from_secs(10),
        inputs: Bytes::from_static(b"{\"p\":{}}"),
        idempotency_key: None,
    }
}

fn shell(text: &str) -> Job {
    job(Cmd::Shell(text.to_owned()))
}

fn exec(words: &[&str]) -> Job {
    job(Cmd::Exec(words.iter().map(ToString::to_string).collect()))
}

fn signals() -> Signals {
    Signals {
        stop: CancellationToken::new(),
        kill: CancellationToken::new(),
    }
}

async fn run(job: &Job) -> Execution {
    ProcessExecutor::new(real::env(), &[])
        .run(job, &signals())
        .await
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("printed by a test")
}

/// Waits, in real time, until `condition` holds.
async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        real::env().sleep(Duration::from_millis(5)).await;
    }
}

fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_command_sees_its_files_and_its_names_and_nothing_on_stdin() {
    let done = run(&shell(
        r#"cat; echo "$WORKFLOW_ID/$WORKFLOW_TASK/$WORKFLOW_ATTEMPT"; cat "$WORKFLOW_INPUTS"; echo '{"x": 1}' > "$WORKFLOW_OUTPUT""#,
    ))
    .await;
    assert_eq!(done.end, End::Exited(0));
    assert_eq!(text(&done.log), "w/a task/2\n{\"p\":{}}");
    assert_eq!(
        done.written,
        Written::Bytes(Bytes::from_static(b"{\"x\": 1}\n"))
    );
    assert!(done.started_at.is_some());
}

#[tokio::test]
async fn the_folder_of_an_execution_is_private_and_removed_afterwards() {
    let done = run(&shell(
        r#"dirname "$WORKFLOW_OUTPUT"; stat -c %a "$(dirname "$WORKFLOW_OUTPUT")""#,
    ))
    .await;
    let log = text(&done.log);
    let (folder, mode) = log.trim().split_once('\n').expect("two lines");
    assert_eq!(mode, "700");
    assert!(!Path::new(folder).exists());
}

#[tokio::test]
async fn exit_codes_and_signals_are_told_apart() {
    assert_eq!(run(&shell("exit 3")).await.end, End::Exited(3));
    let killed = run(&shell("kill -KILL $$")).await;
    assert_eq!(killed.end, End::Signalled("SIGKILL".to_owned()));
}

#[tokio::test]
async fn the_definitions_variables_win_and_the_workers_own_are_kept_back() {
    let vars = [("PATH", "/usr/bin:/bin"), ("A", "worker"), ("B", "worker")];
    let vars = vars.map(|(name, value)| (name.into(), value.into()));
    let executor = ProcessExecutor::with(real::env(), vars.into());
    let mut job = shell("echo $A $B ${USER-none}");
    job.env.insert("B".to_owned(), "task".to_owned());
    let done = executor.run(&job, &signals()).await;
    assert_eq!(text(&done.log), "worker task none\n");
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let reason = |end: End| match end {
        End::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    let program = reason(run(&exec(&["no-such-program"])).await.end);
    assert!(program.contains("`no-such-program`"), "{program}");
    let mut lost = shell("true");
    lost.cwd = Some("/no/such/folder".to_owned());
    let cwd = reason(run(&lost).await.end);
    assert!(cwd.contains("`/no/such/folder`"), "{cwd}");
    let long = reason(
        run(&shell(&format!("true {}", "x".repeat(3_000_000))))
            .await
            .end,
    );
    assert!(long.contains("argument list is too long"), "{long}");
    let bare = ProcessExecutor::with(real::env(), BTreeMap::new());
    let shell = reason(bare.run(&shell("true"), &signals()).await.end);
    assert!(shell.contains("no shell"), "{shell}");
}

#[tokio::test]
async fn a_program_is_looked_for_in_the_path_of_its_job_and_sees_its_own_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = |name: &str, lines: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, lines).expect("writable");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("ours");
    };
    script("with-a-shell", "#!/bin/sh\necho \"$1\"\n");
    script("without-a-first-line", "echo \"$1\"\n");
    for name in ["with-a-shell", "without-a-first-line"] {
        let mut job = exec(&[name, "here"]);
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        job.env.insert("PATH".to_owned(), path);
        let done = run(&job).await;
        assert_eq!((done.end, text(&done.log)), (End::Exited(0), "here\n"));
    }
    let done = run(&exec(&["sh", "-c", "echo $0"])).await;
    assert_eq!(text(&done.log), "sh\n");
    let mut job = exec(&["./with-a-shell", "there"]);
    job.cwd = Some(folder.path().display().to_string());
    assert_eq!(text(&run(&job).await.log), "there\n");
}

#[tokio::test]
async fn a_closed_pipe_ends_a_writer_quietly() {
    let done = run(&shell("yes | head -1; echo ${PIPESTATUS[0]}")).await;
    assert_eq!(text(&done.log), "y\n141\n");
}

#[tokio::test]
async fn a_time_limit_ends_the_whole_group_from_the_real_start() {
    let clock = ManualClock::still();
    let executor = ProcessExecutor::new(clock.env(), &[]);
    let mut job = shell("sleep 1000 & echo $! >&2; wait");
    job.time_limit = Some(Duration::from_secs(100));
    let started = real::env().mono();
    let signals = signals();
    let done = tokio::select! {
        done = executor.run(&job, &signals) => done,
        () = until(|| { clock.advance(Duration::from_millis(500)); false }) => unreachable!("waits for ever"),
    };
    assert_eq!(done.end, End::TimedOut);
    assert!(
        clock
            .env()
            .mono()
            .since(crate::env::Mono::new(Duration::ZERO))
            >= Duration::from_secs(100)
    );
    assert!(real::env().mono().since(started) < Duration::from_secs(100));
    assert!(!lives(text(&done.stderr_tail).trim()));
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_is_killed_after_its_grace() {
    let mark = tempfile::tempdir().unwrap();
    let up = mark.path().join("up");
    let mut job = shell(&format!(
        "trap '' TERM; touch {}; sleep 1000; sleep 1000",
        up.display()
    ));
    job.grace = Duration::from_millis(300);
    let signals = signals();
    let stop = async {
        until(|| up.exists()).await;
        signals.stop.cancel();
    };
    let started = real::env().mono();
    let executor = ProcessExecutor::new(real::env(), &[]);
    let (done, ()) = join(executor.run(&job, &signals), stop).await;
    assert_eq!(done.end, End::Stopped);
    let took = real::env().mono().since(started);
    assert!(Duration::from_millis(300) <= took && took < Duration::from_secs(100));
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_at_its_time_limit_is_killed_after_the_grace_and_timed_out()
{
    let mark = tempfile::tempdir().unwrap();
    let up = mark.path().join("up");
    let mut job = shell(&format!("trap '' TERM; touch {}; sleep 1000", up.display()));
    job.time_limit = Some(Duration::from_secs(2));
    job.grace = Duration::from_secs(3);
    let clock = ManualClock::still();
    let executor = ProcessExecutor::new(clock.env(), &[]);
    let signals = signals();
    let time = async {
        until(|| up.exists()).await;
        until(|| {
            clock.advance(Duration::from_millis(100));
            false
        })
        .await;
    };
    let done = tokio::select! {
        done = executor.run(&job, &signals) => done,
        () = time => unreachable!("waits for ever"),
    };
    assert_eq!(done.end, End::TimedOut);
    let zero = crate::env::Mono::new(Duration::ZERO);
    assert!(clock.env().mono().since(zero) >= Duration::from_secs(5));
}

#[tokio::test]
async fn a_thousand_time_limits_about_the_end_of_a_process_meet_nobody_or_end_it() {
    let executor = ProcessExecutor::new(real::env(), &[]);
    let signals = signals();
    let mut job = exec(&["true"]);
    // Never waited for: the process always goes when it is asked to, if it has not gone before.
    job.grace = Duration::from_secs(1000);
    let mut seen = BTreeMap::new();
    for round in 0..1000 {
        job.token = Token::new(real::env().uuid());
        job.time_limit = Some(Duration::from_micros(round % 100 * 100));
        let end = executor.run(&job, &signals).await.end;
        *seen.entry(format!("{end:?}")).or_insert(0) += 1;
    }
    let all: Vec<_> = seen.keys().map(String::as_str).collect();
    assert_eq!(all, ["Exited(0)", "TimedOut"], "{seen:?}");
}

#[tokio::test]
async fn a_stopped_command_has_its_grace_to_tidy_up_also_below_a_shell() {
    let mark = tempfile::tempdir().unwrap();
    let (up, tidy) = (mark.path().join("up"), mark.path().join("tidy"));
    let job = shell(&format!(
        "bash -c 'trap \"sleep 0.2; touch {}; exit\" TERM; touch {}; while :; do sleep 0.05; done'; true",
        tidy.display(),
        up.display()
    ));
    let signals = signals();
    let stop = async {
        until(|| up.exists()).await;
        signals.stop.cancel();
    };
    let executor = ProcessExecutor::new(real::env(), &[]);
    let (done, ()) = join(executor.run(&job, &signals), stop).await;
    assert_eq!(done.end, End::Stopped);
    assert!(tidy.exists());
}

#[tokio::test]
async fn a_kill_does_not_wait_for_the_grace() {
    let mark = tempfile::tempdir().unwrap();
    let up = mark.path().join("up");
    let mut job = shell(&format!("trap '' TERM; touch {}; sleep 1000", up.display()));
    job.grace = Duration::from_secs(1000);
    let signals = signals();
    let stop = async {
        until(|| up.exists()).await;
        signals.stop.cancel();
        signals.kill.cancel();
    };
    let executor = ProcessExecutor::new(real::env(), &[]);
    let (done, ()) = join(executor.run(&job, &signals), stop).await;
    assert_eq!(done.end, End::Stopped);
}

#[tokio::test]
async fn a_grandchild_that_left_the_group_and_holds_the_pipe_does_not_hold_the_task() {
    let job = shell("setsid sleep 1000 & echo $!; exit 0");
    let started = real::env().mono();
    let done = run(&job).await;
    assert_eq!(done.end, End::Exited(0));
    assert!(real::env().mono().since(started) < Duration::from_secs(100));
    let pid: i32 = text(&done.log).trim().parse().expect("a process id");
    nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
}

#[tokio::test]
async fn what_a_command_leaves_running_in_its_group_dies_with_it() {
    let done = run(&shell("sleep 1000 & echo $!; exit 0")).await;
    assert_eq!(done.end, End::Exited(0));
    let pid = text(&done.log).trim().to_owned();
    until(|| !lives(&pid)).await;
}

#[tokio::test]
async fn dropping_a_run_kills_its_group() {
    let mark = tempfile::tempdir().unwrap();
    let file = mark.path().join("pid");
    let job = shell(&format!(
        "sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait",
        file.display()
    ));
    let executor = ProcessExecutor::new(real::env(), &[]);
    let signals = signals();
    tokio::select! {
        _ = executor.run(&job, &signals) => panic!("it sleeps"),
        () = until(|| file.exists()) => {}
    }
    let pid = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    until(|| !lives(&pid)).await;
}

#[tokio::test]
async fn a_flood_of_output_is_cut_in_bounded_memory() {
    let done = run(&shell("head -c 30000000 /dev/zero; echo end")).await;
    assert!(done.log.len() < 1_100_000);
    assert!(done.log.ends_with(b"end\n"));
    assert_eq!(done.end, End::Exited(0));
}

#[tokio::test]
async fn a_temporary_folder_that_cannot_be_made_is_no_fault_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let executor = ProcessExecutor {
        temp: folder.path().join("nowhere"),
        ..ProcessExecutor::new(real::env(), &[])
    };
    assert!(executor.check().await.unwrap_err().contains("nowhere"));
    let done = executor.run(&shell("true"), &signals()).await;
    assert!(matches!(done.end, End::NoRoom(_)), "{done:?}");
}

#[tokio::test]
async fn an_output_that_has_nothing_to_give_yet_is_not_waited_for() {
    // As a link to `/proc/kmsg`, which looks like a file and blocks who reads it.
    for command in [
        "mkfifo \"$WORKFLOW_OUTPUT\"",
        "mkfifo pipe; ln -s \"$PWD/pipe\" \"$WORKFLOW_OUTPUT\"",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut job = shell(command);
        job.cwd = Some(folder.path().display().to_string());
        let env = real::env();
        let done = env.timeout(Duration::from_secs(20), run(&job)).await;
        assert_eq!(
            done.expect("nothing is waited for").written,
            Written::Unreadable("it is not a file".to_owned())
        );
    }
}

#[tokio::test]
async fn outputs_that_cannot_be_taken_are_told_apart() {
    let large = run(&shell(
        "truncate -s 64M \"$WORKFLOW_OUTPUT\"; echo >> \"$WORKFLOW_OUTPUT\"",
    ))
    .await;
    assert_eq!(large.written, Written::TooLarge(OUTPUT_BYTES_MAX + 1));
    assert_eq!(
        run(&shell("echo > \"$WORKFLOW_OUTPUT\"")).await.written,
        Written::Nothing
    );
}

#[test]
fn what_this_machine_lacks_is_no_fault_of_the_job() {
    let lacks = [
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::EAGAIN,
        Errno::ENOMEM,
        Errno::ENOSPC,
        Errno::EDQUOT,
    ];
    for errno in lacks {
        let error = io::Error::from_raw_os_error(errno as i32);
        let End::NoRoom(why) = no_start("it could not be started", &error) else {
            panic!("{errno}")
        };
        assert!(why.contains(&error.to_string()), "{why}");
    }
    let denied = io::Error::from_raw_os_error(Errno::EACCES as i32);
    assert!(matches!(no_start("x", &denied), End::Refused(_)));
}
