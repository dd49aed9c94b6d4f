//! A connection to a server.

use super::parser::parse;
use super::quoting::split;
use super::value::Value;
use crate::cmd;
use socket2::SockRef;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longest wait for a reply, if the caller does not pass a time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reason why no reply was received.
#[derive(Debug)]
pub enum ReceiveError {
    /// No complete reply arrived in time. It may still arrive.
    Timeout,
    /// The server has closed the connection, or reset it.
    Closed,
    /// The bytes that arrived are no valid reply in the connection's protocol.
    Malformed(String),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("no reply in time"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Malformed(why) => f.write_str(why),
        }
    }
}

/// A connection in RESP2, until [`hello`](Self::hello) or [`expect_protocol`](Self::expect_protocol) changes
/// the protocol.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    protocol: u8,
}

impl Connection {
    /// Connects to a port at 127.0.0.1.
    ///
    /// # Errors
    /// If the connection fails, for example because no process listens there.
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(3 * PATIENCE))?;
        Ok(Self { stream, received: Vec::new(), protocol: 2 })
    }

    /// Switches to the given protocol, 2 or 3.
    pub fn hello(&mut self, protocol: u8) {
        self.send(cmd!["HELLO", u32::from(protocol)]);
        self.expect_protocol(protocol);
        let reply = self.receive(PATIENCE).unwrap_or_else(|e| panic!("HELLO {protocol}: {e}"));
        assert!(!reply.is_error(), "HELLO {protocol}: {reply}");
    }

    /// Parses all further replies in the given protocol, 2 or 3, without sending `HELLO`.
    pub fn expect_protocol(&mut self, protocol: u8) {
        self.protocol = protocol;
    }

    /// Sends a command, as `cmd!` makes it, without waiting for the reply.
    pub fn send(&mut self, command: impl AsRef<[Vec<u8>]>) {
        self.send_raw(&encode(command.as_ref()));
    }

    /// Sends commands in one write, without waiting for the replies.
    pub fn send_all(&mut self, commands: &[Vec<Vec<u8>>]) {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        self.send_raw(&bytes);
    }

    /// Sends arbitrary bytes. If the server has closed the connection, the bytes are lost, and a later
    /// [`receive`](Self::receive) returns an error.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Err(e) if !is_closed(&e) => panic!("cannot send {} bytes: {e}", bytes.len()),
            _ => {}
        }
    }

    /// The next reply or push, if it arrives completely within the given time.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub fn receive(&mut self, within: Duration) -> Result<Value, ReceiveError> {
        let deadline = Instant::now() + within;
        loop {
            match parse(&self.received, self.protocol) {
                Ok(Some((value, length))) => {
                    self.received.drain(..length);
                    return Ok(value);
                }
                Ok(None) => self.read_more(deadline)?,
                Err(malformed) => return Err(ReceiveError::Malformed(malformed.to_string())),
            }
        }
    }

    /// Fills `bytes` with the next bytes that arrive. Fails the test if too few arrive.
    pub fn read_raw(&mut self, bytes: &mut [u8]) {
        let deadline = Instant::now() + PATIENCE;
        while self.received.len() < bytes.len() {
            self.read_more(deadline)
                .unwrap_or_else(|e| panic!("{e}; got only {:?}", self.received));
        }
        bytes.copy_from_slice(&self.received[..bytes.len()]);
        self.received.drain(..bytes.len());
    }

    /// Sends a command and returns its reply. Fails the test if no valid reply arrives.
    pub fn call(&mut self, command: impl AsRef<[Vec<u8>]>) -> Value {
        self.send(&command);
        self.receive(PATIENCE).unwrap_or_else(|e| panic!("{}: {e}", shorten(command.as_ref())))
    }

    /// Like [`call`](Self::call), for a connection that may break.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub fn ask(&mut self, command: impl AsRef<[Vec<u8>]>) -> Result<Value, ReceiveError> {
        self.send(command);
        self.receive(PATIENCE)
    }

    /// Like [`call`](Self::call), with a command line as in redis-cli.
    pub fn run(&mut self, line: &str) -> Value {
        self.call(split(line).unwrap_or_else(|e| panic!("{line}: {e}")))
    }

    /// The next reply; `None` if the server closes the connection instead. Panics in all other cases.
    pub fn receive_or_closed(&mut self) -> Option<Value> {
        match self.receive(PATIENCE) {
            Ok(reply) => Some(reply),
            Err(ReceiveError::Closed) => None,
            Err(other) => panic!("{other}"),
        }
    }

    /// The server's number for this connection.
    pub fn client_id(&mut self) -> i64 {
        self.run("CLIENT ID").integer()
    }

    /// Returns whether bytes have arrived that no call has returned yet.
    pub fn has_unread(&mut self) -> bool {
        !self.received.is_empty() || self.peek().is_ok_and(|length| length > 0)
    }

    /// Closes the connection (FIN).
    pub fn close(self) {}

    /// Resets the connection (RST).
    pub fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
    }

    fn read_more(&mut self, deadline: Instant) -> Result<(), ReceiveError> {
        let left = deadline.saturating_duration_since(Instant::now());
        // A timeout of zero is not allowed.
        self.stream
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))
            .expect("SO_RCVTIMEO");
        let mut chunk = [0; 1 << 16];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(ReceiveError::Closed),
            Ok(length) => {
                self.received.extend_from_slice(&chunk[..length]);
                Ok(())
            }
            Err(e) if is_closed(&e) => Err(ReceiveError::Closed),
            Err(e) if is_pending(&e) && left.is_zero() => Err(ReceiveError::Timeout),
            Err(e) if is_pending(&e) => Ok(()),
            Err(e) => panic!("cannot receive: {e}"),
        }
    }

    fn peek(&mut self) -> io::Result<usize> {
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        peeked
    }
}

/// The bytes by which a client sends a command.
pub fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn shorten(command: &[Vec<u8>]) -> String {
    let words: Vec<_> =
        command.iter().take(8).map(|a| String::from_utf8_lossy(&a[..a.len().min(40)])).collect();
    words.join(" ")
}

fn is_closed(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
    )
}

fn is_pending(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
