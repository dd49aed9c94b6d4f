//! A connection as the crate has it: bytes in both directions, in one thread.

use crate::wire::{self, ConnId};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// What a client does over a connection.
#[derive(Debug)]
pub(super) enum Said {
    Command(Vec<Vec<u8>>),
    Close,
}

thread_local! {
    /// What was said and is not taken in yet.
    static SAID: RefCell<VecDeque<(ConnId, Said)>> = const { RefCell::new(VecDeque::new()) };
    static NEWS: Arc<Notify> = Arc::default();
}

/// All that was said and not taken in yet, put aside by `keep` if it is not its time.
pub(super) fn take_said(mut keep: impl FnMut(ConnId) -> bool) -> Vec<(ConnId, Said)> {
    SAID.with_borrow_mut(|said| {
        let (kept, taken) = said.drain(..).partition(|(conn, _)| keep(*conn));
        *said = kept;
        taken.into_iter().collect()
    })
}

/// Tells of something that was said.
pub(super) fn news() -> Arc<Notify> {
    NEWS.with(Arc::clone)
}

/// Forgets what was said in the run before.
pub(super) fn forget() {
    SAID.take();
}

fn say(conn: ConnId, said: Said) {
    SAID.with_borrow_mut(|all| all.push_back((conn, said)));
    NEWS.with(|news| news.notify_one());
}

#[derive(Debug, Default)]
struct Ends {
    from_client: Vec<u8>,
    to_client: VecDeque<u8>,
    closed: bool,
    reader: Option<Waker>,
}

/// One connection. The crate has one end; what comes out at the other is in [`take_said`].
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    conn: ConnId,
    ends: Arc<Mutex<Ends>>,
}

impl Pipe {
    pub(crate) fn new(conn: ConnId) -> Self {
        Self { conn, ends: Arc::default() }
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn answer(&self, bytes: &[u8]) {
        let mut ends = self.ends();
        ends.to_client.extend(bytes);
        ends.reader.take().into_iter().for_each(Waker::wake);
    }

    pub(crate) fn close(&self) {
        let mut ends = self.ends();
        ends.closed = true;
        ends.reader.take().into_iter().for_each(Waker::wake);
    }
}

/// The crate's end.
#[derive(Debug)]
pub(super) struct ClientEnd(pub(super) Pipe);

impl Drop for ClientEnd {
    fn drop(&mut self) {
        if !std::mem::replace(&mut self.0.ends().closed, true) {
            say(self.0.conn, Said::Close);
        }
    }
}

impl AsyncRead for ClientEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut ends = self.0.ends();
        let some = buffer.remaining().min(ends.to_client.len());
        if some == 0 && !ends.closed {
            ends.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let bytes: Vec<u8> = ends.to_client.drain(..some).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut ends = self.0.ends();
        if ends.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ends.from_client.extend(bytes);
        while let Some(words) = wire::take(&mut ends.from_client) {
            say(self.0.conn, Said::Command(words));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
