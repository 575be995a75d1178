//! The two files through which a command meets its neighbours: what its dependencies wrote, and what it writes itself.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use tokio::io::AsyncReadExt;

use super::executor::{OUTPUT_BYTES_MAX, Written};
use crate::env::Env;
use crate::record::Token;

/// How often an output is looked for while too many files are open, and the pause between two looks.
const READ_TRIES: u32 = 60;
const READ_PAUSE: Duration = Duration::from_secs(1);
/// How long an output may take to be read: a link may lead to what never ends, and the slot is another task's.
const READ_MAX: Duration = Duration::from_secs(60);

/// A private folder of one execution, removed when this is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder below `temp` and writes the inputs into it.
    pub(super) async fn create(temp: &Path, token: Token, inputs: &[u8]) -> io::Result<Self> {
        let path = temp.join(format!("dagaz-{token}"));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Self(path);
        tokio::fs::write(folder.inputs(), inputs).await?;
        Ok(folder)
    }

    /// The file of inputs.
    pub(super) fn inputs(&self) -> PathBuf {
        self.0.join("inputs.json")
    }

    /// Where the command writes its output.
    pub(super) fn output(&self) -> PathBuf {
        self.0.join("output.json")
    }

    /// What the command wrote. Where this process has too many files open it waits a while: the task is not to blame.
    pub(super) async fn written(&self, env: &Env) -> Written {
        let mut tried = 1;
        loop {
            match in_time(env, read_bounded(&self.output())).await {
                Ok(written) => return written,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Written::Nothing,
                Err(error) if too_many_files(&error) && tried < READ_TRIES => {
                    tried += 1;
                    env.sleep(READ_PAUSE).await;
                }
                Err(error) => return Written::Unreadable(error.to_string()),
            }
        }
    }
}

fn too_many_files(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE))
}

/// Gives up on a read that does not end; it goes on in a thread of its own, which nobody waits for.
async fn in_time(
    env: &Env,
    read: impl Future<Output = io::Result<Written>>,
) -> io::Result<Written> {
    env.timeout(READ_MAX, read).await.unwrap_or_else(|_| {
        let why = format!("it could not be read within {} s", READ_MAX.as_secs());
        Ok(Written::Unreadable(why))
    })
}

async fn read_bounded(path: &Path) -> io::Result<Written> {
    // A command may have left a pipe there, which nobody will ever write to, or a link to what has nothing to give yet: neither the
    // opening nor, where the system can tell, the reading waits for it.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut options = tokio::fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .await?;
    let metadata = file.metadata().await?;
    if !metadata.is_file() {
        return Ok(Written::Unreadable("it is not a file".to_owned()));
    }
    if metadata.len() > OUTPUT_BYTES_MAX {
        return Ok(Written::TooLarge(metadata.len()));
    }
    let mut bytes = Vec::new();
    let mut limited = file.take(OUTPUT_BYTES_MAX + 1);
    let read = limited.read_to_end(&mut bytes).await?;
    let read = u64::try_from(read).unwrap_or(u64::MAX);
    Ok(if read > OUTPUT_BYTES_MAX {
        Written::TooLarge(read)
    } else if bytes.trim_ascii().is_empty() {
        Written::Nothing
    } else {
        Written::Bytes(Bytes::from(bytes))
    })
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind at worst: what a command did to the folder is not worth failing its attempt.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::real;
    use crate::store::memory::manual::ManualClock;

    #[tokio::test]
    async fn an_output_whose_read_does_not_end_is_unreadable_after_a_minute() {
        let clock = ManualClock::still();
        let env = clock.env();
        let reading = in_time(&env, std::future::pending());
        tokio::pin!(reading);
        let advance = async {
            for _ in 0..=READ_MAX.as_secs() {
                real::env().sleep(Duration::from_millis(1)).await;
                clock.advance(Duration::from_secs(1));
            }
            std::future::pending().await
        };
        let read = tokio::select! {
            read = reading => read,
            never = advance => never,
        };
        let why = Written::Unreadable("it could not be read within 60 s".to_owned());
        assert_eq!(read.expect("no error of the system"), why);
    }
}
