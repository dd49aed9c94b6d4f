//! Connections for the crate: bytes in both directions, in one thread.

use crate::wire;
use std::pin::Pin;
use std::task::{Context, Waker};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

/// Size of the buffer: more than is in flight at any time.
const ROOM: usize = 1 << 20;

/// A command from a client on a connection, or the end of the connection.
#[derive(Debug)]
pub(crate) enum Said {
    Command(Vec<Vec<u8>>),
    Close,
}

/// The simulation's end of a connection. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    stream: DuplexStream,
    /// Received bytes that are not a complete command yet.
    bytes: Vec<u8>,
}

impl Pipe {
    /// The crate's end of a new connection, and the simulation's end.
    pub(crate) fn new() -> (DuplexStream, Self) {
        let (crates, stream) = duplex(ROOM);
        (crates, Self { stream, bytes: Vec::new() })
    }

    pub(crate) fn answer(&mut self, bytes: &[u8]) {
        let mut nobody = Context::from_waker(Waker::noop());
        // If the crate has closed its end, the reply is lost.
        let _written = Pin::new(&mut self.stream).poll_write(&mut nobody, bytes);
    }

    /// Takes the commands since the last call, and the end of the connection.
    pub(crate) fn take_said(&mut self, context: &mut Context<'_>) -> Vec<Said> {
        let mut room = [0; 4_096];
        let mut said = Vec::new();
        loop {
            let mut buffer = ReadBuf::new(&mut room);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
            if read.is_pending() {
                return said;
            }
            if buffer.filled().is_empty() {
                said.push(Said::Close);
                return said;
            }
            self.bytes.extend(buffer.filled());
            said.extend(std::iter::from_fn(|| wire::take(&mut self.bytes)).map(Said::Command));
        }
    }
}
