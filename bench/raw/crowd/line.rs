//! A connection that is polled for replies, and a probe that measures round trips.

use crate::wire::{Reply, parse};
use driver::now;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// Longest wait for a reply.
const PATIENCE_NS: u64 = 20_000_000_000;

pub(super) struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
    pub(super) fn connect(url: &str) -> Self {
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Sends one or more commands, which must fit into the socket buffer.
    pub(super) fn send(&mut self, command: &[u8]) {
        self.stream.write_all(command).unwrap();
    }

    /// The next reply, if it has arrived.
    pub(super) fn look(&mut self) -> Option<Reply> {
        let mut bytes = [0; 512];
        match self.stream.read(&mut bytes) {
            Ok(0) => panic!("the server closed the connection"),
            Ok(read) => self.buffer.extend(bytes.iter().take(read)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        let mut at = 0;
        let reply = parse(&self.buffer, &mut at)?;
        self.buffer.drain(..at);
        Some(reply)
    }

    /// Waits for the next reply. The probe continues during that time.
    pub(super) fn take(&mut self, probe: &mut Probe) -> Reply {
        let begun = now();
        loop {
            // Always poll the probe, so that its times do not depend on other replies.
            probe.look();
            if let Some(reply) = self.look() {
                return reply;
            }
            assert!(now() - begun < PATIENCE_NS, "no reply");
        }
    }

    pub(super) fn call(&mut self, command: &[u8], probe: &mut Probe) -> Reply {
        self.send(command);
        self.take(probe)
    }
}

/// The connection of another client. After `begin(true)`, it has a `PING` in flight until `end`.
pub(super) struct Probe {
    line: Line,
    /// Time at which the `PING` in flight was sent.
    sent: Option<u64>,
    longest: u64,
}

impl Probe {
    pub(super) fn connect(url: &str) -> Self {
        Self { line: Line::connect(url), sent: None, longest: 0 }
    }

    pub(super) fn begin(&mut self, on: bool) {
        self.longest = 0;
        if on {
            self.send();
        }
    }

    fn send(&mut self) {
        self.sent = Some(now());
        self.line.send(PING);
    }

    /// Polls for the reply, and sends the next `PING` after it.
    pub(super) fn look(&mut self) {
        if self.answered() {
            self.send();
        }
    }

    fn answered(&mut self) -> bool {
        let Some(sent) = self.sent else { return false };
        let answered = self.line.look().is_some();
        if answered {
            self.longest = self.longest.max(now() - sent);
        }
        answered
    }

    /// Waits for the `PING` in flight, and returns the longest round trip.
    pub(super) fn end(&mut self) -> u64 {
        while self.sent.is_some() {
            if self.answered() {
                self.sent = None;
            }
        }
        self.longest
    }

    /// Returns when the server has read all that was sent to it on any connection: what arrived
    /// before the first `PING` is read in the same turn of its event loop, or earlier.
    pub(super) fn settle(&mut self) {
        for _ in 0..2 {
            self.begin(true);
            self.end();
        }
    }
}
