//! Commands and replies over one connection, with as little work as possible.

use std::collections::VecDeque;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The kinds of replies that are used here.
#[derive(Debug)]
pub(crate) enum Reply {
    Nil,
    Integer(i64),
    Text(Vec<u8>),
    Array(Vec<Self>),
}

/// Bytes reserved for the replies of a pipeline.
const PIPELINE: usize = 16_384;

pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    read: usize,
    /// Messages that arrived before an awaited reply.
    messages: VecDeque<Reply>,
}

impl Wire {
    pub(crate) async fn connect(url: &str) -> Self {
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new(), read: 0, messages: VecDeque::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends one command and returns its reply.
    pub(crate) async fn call(&mut self, command: &[&[u8]]) -> Reply {
        self.exchange(&encode(command)).await
    }

    /// Sends an encoded command and returns its reply.
    pub(crate) async fn exchange(&mut self, command: &[u8]) -> Reply {
        self.send(command).await;
        self.reply().await
    }

    /// Reads the next reply. Panics if it is an error.
    pub(crate) async fn reply(&mut self) -> Reply {
        loop {
            let mut at = self.read;
            if let Some(reply) = parse(&self.buffer, &mut at) {
                self.read = at;
                return reply;
            }
            self.read_more().await;
        }
    }

    /// Reads `replies` replies, and returns the first byte of the first one. It builds no values from them,
    /// because the load must cost less than the server's work.
    pub(crate) async fn skip_replies(&mut self, replies: usize) -> u8 {
        self.buffer.reserve(PIPELINE);
        let mut first = 0;
        for place in 0..replies {
            loop {
                let mut at = self.read;
                if let Some(kind) = skip(&self.buffer, &mut at) {
                    self.read = at;
                    first = if place == 0 { kind } else { first };
                    break;
                }
                self.read_more().await;
            }
        }
        first
    }

    async fn read_more(&mut self) {
        self.buffer.drain(..self.read);
        self.read = 0;
        let more = self.stream.read_buf(&mut self.buffer).await.unwrap();
        assert!(more > 0, "the server closed the connection");
    }

    /// Waits for the next reply that is not a message to a subscriber. Messages before it are stored for
    /// [`message`](Self::message).
    pub(crate) async fn reply_between_messages(&mut self) {
        loop {
            let reply = self.reply().await;
            if !is_message(&reply) {
                return;
            }
            self.messages.push_back(reply);
        }
    }

    pub(crate) async fn message(&mut self) {
        if self.messages.pop_front().is_some() {
            return;
        }
        while !is_message(&self.reply().await) {}
    }

    /// Drops the stored messages.
    pub(crate) fn forget_messages(&mut self) {
        self.messages.clear();
    }
}

fn is_message(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(parts) if matches!(parts.first(), Some(Reply::Text(kind)) if kind == b"message"))
}

pub(crate) fn encode(command: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for part in command {
        bytes.extend(format!("${}\r\n", part.len()).bytes());
        bytes.extend(*part);
        bytes.extend(b"\r\n");
    }
    bytes
}

pub(crate) fn request(command: &[&str]) -> Vec<u8> {
    let parts: Vec<&[u8]> = command.iter().map(|part| part.as_bytes()).collect();
    encode(&parts)
}

/// The reply that starts at `at`, if it is complete. Moves `at` behind the reply.
pub(crate) fn parse(bytes: &[u8], at: &mut usize) -> Option<Reply> {
    let kind = bytes.get(*at)?;
    let rest = bytes.get(*at + 1..)?;
    let length = rest.iter().position(|byte| *byte == b'\r')?;
    let line = rest.get(..length)?;
    let mut next = *at + 1 + length + 2;
    if next > bytes.len() {
        return None;
    }
    let reply = match kind {
        b'+' => Reply::Text(line.to_vec()),
        b':' => Reply::Integer(integer(line)),
        b'$' => match usize::try_from(integer(line)) {
            Err(_) => Reply::Nil,
            Ok(length) => {
                let text = bytes.get(next..next + length)?.to_vec();
                bytes.get(next + length + 1)?;
                next += length + 2;
                Reply::Text(text)
            }
        },
        b'*' => match usize::try_from(integer(line)) {
            Err(_) => Reply::Nil,
            Ok(count) => {
                let mut parts = Vec::with_capacity(count);
                for _ in 0..count {
                    parts.push(parse(bytes, &mut next)?);
                }
                Reply::Array(parts)
            }
        },
        _ => panic!("the server says {}", String::from_utf8_lossy(line)),
    };
    *at = next;
    Some(reply)
}

/// Moves `at` behind the reply that starts there, if it is complete, and returns its kind.
fn skip(bytes: &[u8], at: &mut usize) -> Option<u8> {
    let kind = *bytes.get(*at)?;
    let rest = bytes.get(*at + 1..)?;
    let length = rest.iter().position(|byte| *byte == b'\n')?;
    let mut next = *at + length + 2;
    // A negative length means nil, which has no content.
    let count = || usize::try_from(integer(rest.get(..length - 1)?)).ok();
    match kind {
        b'$' => next += count().map_or(0, |length| length + 2),
        b'*' => {
            for _ in 0..count().unwrap_or(0) {
                skip(bytes, &mut next)?;
            }
        }
        b'-' => panic!("the server says {}", String::from_utf8_lossy(rest)),
        _ => {}
    }
    if next > bytes.len() {
        return None;
    }
    *at = next;
    Some(kind)
}

fn integer(line: &[u8]) -> i64 {
    let (digits, sign) = line.strip_prefix(b"-").map_or((line, 1), |digits| (digits, -1));
    sign * digits.iter().fold(0, |number, digit| number * 10 + i64::from(*digit - b'0'))
}
