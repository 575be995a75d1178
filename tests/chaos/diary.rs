//! What was done when, printed and kept in a file, in the time of the run and in that of the commands.

use std::fs::{File, create_dir_all, remove_dir_all};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;

#[derive(Debug)]
pub(super) struct Diary {
    /// Where the diary is, and what else is to be kept of the run.
    pub(super) folder: PathBuf,
    file: Mutex<File>,
    began: Instant,
}

#[expect(
    clippy::disallowed_methods,
    reason = "what other processes do is in real time"
)]
impl Diary {
    /// Begins a diary in place of the last one of that name.
    pub(super) fn begin(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        // There may be none.
        remove_dir_all(&folder).ok();
        create_dir_all(folder.join("notes")).unwrap();
        Self {
            file: Mutex::new(File::create(folder.join("diary.txt")).unwrap()),
            folder,
            began: Instant::now(),
        }
    }

    /// Where commands note what they do.
    pub(super) fn notes(&self) -> PathBuf {
        self.folder.join("notes")
    }

    /// How long the run has lasted.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until the run has lasted so long.
    pub(super) fn wait_until(&self, time: Duration) {
        std::thread::sleep(time.saturating_sub(self.elapsed()));
    }

    #[expect(clippy::print_stdout, reason = "who looks on sees what is done")]
    pub(super) fn note(&self, text: &str) {
        let line = format!("{:8.3} {text}", self.elapsed().as_secs_f64());
        println!("{line}");
        writeln!(self.file.lock().unwrap(), "{line}").unwrap();
    }
}

/// Microseconds by the clock that commands read.
#[expect(
    clippy::disallowed_methods,
    reason = "what other processes do is in real time"
)]
pub(super) fn wall_us() -> i64 {
    Timestamp::now().as_microsecond()
}
