//! Connections as the crate has them: bytes in both directions, in one thread.

use crate::wire;
use std::pin::Pin;
use std::task::{Context, Waker};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

/// More than is under way at any time.
const ROOM: usize = 1 << 20;

/// What a client does over a connection.
#[derive(Debug)]
pub(crate) enum Said {
    Command(Vec<Vec<u8>>),
    Close,
}

/// The other end of a connection of the crate. Dropped, it is closed.
#[derive(Debug)]
pub(crate) struct Pipe {
    stream: DuplexStream,
    /// What was said and is no whole command yet.
    bytes: Vec<u8>,
}

impl Pipe {
    /// The end of the crate, and this one.
    pub(crate) fn new() -> (DuplexStream, Self) {
        let (crates, stream) = duplex(ROOM);
        (crates, Self { stream, bytes: Vec::new() })
    }

    pub(crate) fn answer(&mut self, bytes: &[u8]) {
        let mut nobody = Context::from_waker(Waker::noop());
        // If the crate has closed it, the reply is lost.
        let _written = Pin::new(&mut self.stream).poll_write(&mut nobody, bytes);
    }

    /// What was said since.
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
