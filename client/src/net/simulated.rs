//! Connections that lead into a simulation: in one thread, in virtual time, without a socket.

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

/// While it is there, connections that this thread opens to a host are what the simulation gives for it.
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

/// Makes connections of this thread go to the simulation.
pub fn dial_with(dial: impl Fn(&str) -> io::Result<Box<dyn Stream>> + 'static) -> Dialling {
    DIAL.set(Some(Box::new(dial)));
    Dialling(())
}

/// A connection to that host; none in a thread that simulates nothing.
pub(super) fn dial(host: &str) -> Option<io::Result<Box<dyn Stream>>> {
    DIAL.with_borrow(|dial| dial.as_ref().map(|dial| dial(host)))
}
