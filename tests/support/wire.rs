//! HTTP/1.1 as far as a proxy before the emulator needs it: whole messages in, whole messages out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Most header lines of a message.
const LINES_MAX: usize = 200;

/// A request or a reply, whole.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Request or status line.
    pub(crate) first: String,
    /// Headers, but for those that frame the body.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether it tells the length of its body, also if that is nothing.
    pub(crate) is_framed: bool,
}

impl Message {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut same = self
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        same.next().map(|(_, value)| value.as_str())
    }

    /// The words of the first line.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.first.split(' ').nth(at).unwrap_or_default()
    }

    /// The status of a reply.
    pub(crate) fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    /// Sends it as having a body of `length` bytes, whatever it has.
    pub(crate) fn send(&self, stream: &mut TcpStream, length: usize) -> io::Result<()> {
        let mut bytes = format!("{}\r\n", self.first).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if self.is_framed {
            bytes.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        stream.write_all(&bytes)
    }

    /// Reads the next message; none where the other side has ended the connection before it. `is_bare`: no body follows, whatever
    /// the head says.
    pub(crate) fn read(
        reader: &mut BufReader<TcpStream>,
        is_bare: bool,
    ) -> io::Result<Option<Self>> {
        let first = line(reader)?;
        if first.is_empty() {
            return Ok(None);
        }
        let mut headers = Vec::new();
        let (mut length, mut is_framed, mut is_chunked) = (0, false, false);
        for _ in 0..LINES_MAX {
            let text = line(reader)?;
            let Some((name, value)) = text.split_once(':') else {
                break;
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    length = value.parse().map_err(io::Error::other)?;
                    is_framed = true;
                }
                "transfer-encoding" => {
                    is_chunked = true;
                    is_framed = true;
                }
                "connection" | "keep-alive" => {}
                _ => headers.push((name.to_owned(), value.to_owned())),
            }
        }
        let mut message = Self {
            first,
            headers,
            body: Vec::new(),
            is_framed,
        };
        if is_bare || matches!(message.status(), 204 | 304) {
            return Ok(Some(message));
        }
        if is_chunked {
            loop {
                let size = line(reader)?;
                let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
                message.body.extend(exactly(reader, size)?);
                line(reader)?;
                if size == 0 {
                    break;
                }
            }
        } else {
            message.body = exactly(reader, length)?;
        }
        Ok(Some(message))
    }
}

/// A line without its end; empty at the end of the stream, too.
fn line(reader: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.read_until(b'\n', &mut bytes)?;
    let text = String::from_utf8(bytes).map_err(io::Error::other)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn exactly(reader: &mut BufReader<TcpStream>, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}
