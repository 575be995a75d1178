//! What a command prints, in bounded memory: its first and last bytes, and the end of standard error.

use std::collections::VecDeque;

/// Bytes kept from the start, and again from the end.
pub(super) const LOG_HALF_BYTES: usize = 512 * 1024;
/// Bytes kept from the end of standard error.
pub(super) const STDERR_TAIL_BYTES: usize = 2 * 1024;

/// The last bytes of a stream.
#[derive(Debug)]
struct Tail {
    limit: usize,
    bytes: VecDeque<u8>,
    dropped: u64,
}

impl Tail {
    const fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: VecDeque::new(),
            dropped: 0,
        }
    }

    fn push(&mut self, chunk: &[u8]) {
        let passed_over = chunk.len().saturating_sub(self.limit);
        let kept = &chunk[passed_over..];
        let over = (self.bytes.len() + kept.len()).saturating_sub(self.limit);
        self.bytes.drain(..over);
        self.bytes.extend(kept);
        self.dropped += u64::try_from(passed_over + over).unwrap_or(u64::MAX);
    }
}

/// Both streams of one command as they come in.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: Tail,
    stderr: Tail,
}

impl Capture {
    pub(super) const fn new() -> Self {
        Self {
            head: Vec::new(),
            tail: Tail::new(LOG_HALF_BYTES),
            stderr: Tail::new(STDERR_TAIL_BYTES),
        }
    }

    pub(super) fn push_stdout(&mut self, chunk: &[u8]) {
        let room = LOG_HALF_BYTES - self.head.len();
        let (head, rest) = chunk.split_at(room.min(chunk.len()));
        self.head.extend_from_slice(head);
        self.tail.push(rest);
    }

    pub(super) fn push_stderr(&mut self, chunk: &[u8]) {
        self.push_stdout(chunk);
        self.stderr.push(chunk);
    }

    /// The log, with a mark for what was cut.
    pub(super) fn log(&self) -> Vec<u8> {
        let mut log = self.head.clone();
        if self.tail.dropped > 0 {
            let mark = format!("\n[... {} bytes cut ...]\n", self.tail.dropped);
            log.extend_from_slice(mark.as_bytes());
        }
        log.extend(&self.tail.bytes);
        log
    }

    pub(super) fn stderr_tail(&self) -> Vec<u8> {
        self.stderr.bytes.iter().copied().collect()
    }
}

/// Bytes of a command as text that no terminal and no XML stumbles over: lossy UTF-8, line ends as `\n`, other control
/// characters as `\u{fffd}`.
pub(super) fn safe_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let safe = |c: char| match c {
        '\n' | '\t' => c,
        '\r' => '\n',
        '\u{fffe}' | '\u{ffff}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_log_is_kept_whole_and_in_order() {
        let mut capture = Capture::new();
        capture.push_stdout(b"a");
        capture.push_stderr(b"b");
        capture.push_stdout(b"c");
        assert_eq!(capture.log(), b"abc");
        assert_eq!(capture.stderr_tail(), b"b");
    }

    #[test]
    fn a_log_of_exactly_both_halves_is_not_cut() {
        let mut capture = Capture::new();
        let bytes: Vec<u8> = (0..=255).cycle().take(2 * LOG_HALF_BYTES).collect();
        for chunk in bytes.chunks(1000) {
            capture.push_stdout(chunk);
        }
        assert_eq!(capture.log(), bytes);
    }

    #[test]
    fn a_flood_keeps_its_ends_and_says_what_was_cut() {
        let mut capture = Capture::new();
        capture.push_stdout(b"first");
        for _ in 0..20 {
            capture.push_stderr(&vec![b'x'; 3 * LOG_HALF_BYTES / 2]);
        }
        capture.push_stderr(b"last");
        let log = capture.log();
        assert!(log.starts_with(b"firstx") && log.ends_with(b"xlast"));
        let all = 20 * 3 * LOG_HALF_BYTES / 2 + 9;
        let mark = format!("\n[... {} bytes cut ...]\n", all - 2 * LOG_HALF_BYTES);
        assert_eq!(log.len(), 2 * LOG_HALF_BYTES + mark.len());
        assert_eq!(&log[LOG_HALF_BYTES..][..mark.len()], mark.as_bytes());
        assert_eq!(capture.stderr_tail().len(), STDERR_TAIL_BYTES);
    }

    #[test]
    fn bytes_of_a_command_are_shown_safely() {
        assert_eq!(
            safe_text(b"50%\r100%\r\nok\x1b[31m\xff\0"),
            "50%\n100%\nok\u{fffd}[31m\u{fffd}\u{fffd}"
        );
    }
}
