//! A connection that never waits: what is to be sent waits in a box, what arrives is parsed.

use harness::resp::{Value, encode, parse};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

/// More bytes than this are not put into the box.
const BOX: usize = 1 << 18;

/// More commands than this are not sent before some are answered.
const AHEAD: u64 = 64;

#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    /// The version of RESP that the server speaks.
    protocol: u8,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    /// Whether the server has closed it.
    pub(super) closed: bool,
    /// Whether what arrives is no concern of ours any more, because what was sent was no RESP.
    pub(super) garbled: bool,
    pub(super) sent: u64,
    pub(super) replies: u64,
    /// How often each kind of error came.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Wire {
    pub(super) fn open(port: u16, protocol: u8) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut wire = Self {
            stream,
            protocol,
            outbox: Vec::new(),
            inbox: Vec::new(),
            closed: false,
            garbled: false,
            sent: 0,
            replies: 0,
            errors: BTreeMap::new(),
        };
        if protocol == 3 {
            wire.send(harness::cmd!["HELLO", 3]);
        }
        Ok(wire)
    }

    pub(super) fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether more is waiting to be sent, or answered, than makes sense.
    pub(super) fn is_full(&self) -> bool {
        self.outbox.len() > BOX || self.sent > self.replies + AHEAD
    }

    pub(super) fn send(&mut self, words: impl AsRef<[Vec<u8>]>) {
        self.sent += 1;
        self.outbox.extend(encode(words.as_ref()));
    }

    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// Sends and receives what can be, now.
    ///
    /// # Errors
    /// When what arrives is no RESP.
    pub(super) fn pump(&mut self) -> Result<(), String> {
        while !self.outbox.is_empty() && !self.closed {
            match self.stream.write(&self.outbox) {
                Ok(length) => drop(self.outbox.drain(..length)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.closed = true,
            }
        }
        let mut chunk = [0; 1 << 16];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.closed = true,
                Ok(length) => {
                    if !self.garbled {
                        self.inbox.extend_from_slice(&chunk[..length]);
                    }
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.closed = true,
            }
            return self.read();
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let mut at = 0;
        while let Some((value, length)) =
            parse(&self.inbox[at..], self.protocol).map_err(|why| {
                let shown = self.inbox[at..].escape_ascii().to_string();
                let shown: String = shown.chars().take(400).collect();
                format!("{why}, in RESP{}: {shown}", self.protocol)
            })?
        {
            at += length;
            self.replies += 1;
            // A mutated `LOCK.PROFILE RESET` is one, too.
            if matches!(&value, Value::Status(word) if word == "RESET") {
                self.protocol = 2;
            }
            if let Value::Array(opened) = &value
                && let [Value::Bulk(name), Value::Integer(_)] = &opened[..]
                && name.len() == 32
            {
                super::words::note_session(name);
            }
            if let Value::Error { code, .. } = value {
                *self.errors.entry(code).or_default() += 1;
            }
        }
        self.inbox.drain(..at);
        Ok(())
    }
}

/// Waits a moment for any of these to become ready.
pub(super) fn rest(wires: &[Wire]) {
    let ready = |wire: &Wire| {
        let out = if wire.outbox.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
        PollFlags::POLLIN | out
    };
    let open = wires.iter().filter(|wire| !wire.closed);
    let mut set: Vec<PollFd<'_>> =
        open.map(|wire| PollFd::new(wire.stream.as_fd(), ready(wire))).collect();
    // Interrupted is as good as ready.
    let _ready = poll(&mut set, PollTimeout::from(5_u8));
}
