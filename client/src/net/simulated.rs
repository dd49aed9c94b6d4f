//! Connections to simulated servers: in one thread, in virtual time, without sockets.

use std::cell::RefCell;
use std::fmt;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to a simulated server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Dial = Box<dyn Fn(&str) -> io::Result<Box<dyn Stream>>>;

thread_local! {
    static DIAL: RefCell<Option<Dial>> = const { RefCell::new(None) };
}

/// A guard: until it is dropped, the simulation opens the TCP connections of this thread.
#[must_use]
pub struct Dialling(());

impl fmt::Debug for Dialling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialling")
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        drop(DIAL.take());
    }
}

/// Opens the TCP connections of this thread with `dial`, which gets the host, until the returned guard is
/// dropped.
pub fn dial_with(dial: impl Fn(&str) -> io::Result<Box<dyn Stream>> + 'static) -> Dialling {
    DIAL.set(Some(Box::new(dial)));
    Dialling(())
}

/// Opens a simulated connection to the host. Returns `None` in a thread without a simulation.
pub(super) fn dial(host: &str) -> Option<io::Result<Box<dyn Stream>>> {
    DIAL.with_borrow(|dial| dial.as_ref().map(|dial| dial(host)))
}
