//! Messages on stderr, one line each.
//!
//! A separate thread writes them, because a write to stderr may block: on a full pipe, a stopped terminal, or
//! a log driver that hangs. A blocked write does not delay signals to the command. It delays the end of this
//! process by at most [`AT_EXIT`].

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Largest number of lines that wait to be written. Further lines are dropped.
const LINES: usize = 64;

/// Longest time that the process waits at its end for lines that are not written yet.
pub(crate) const AT_EXIT: Duration = Duration::from_secs(1);

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { lines: VecDeque::new(), writing: false, started: false });
static CHANGED: Condvar = Condvar::new();

struct Queue {
    lines: VecDeque<String>,
    /// `true` while the thread writes a line, which is already removed from `lines`.
    writing: bool,
    started: bool,
}

/// Starts the thread, unless it runs already. It inherits the signal mask of the caller.
pub(crate) fn start() -> io::Result<()> {
    let mut queue = lock();
    if !queue.started {
        // Ends with the process.
        std::thread::Builder::new().name("messages".to_owned()).spawn(write_all)?;
        queue.started = true;
    }
    Ok(())
}

/// Queues a message and returns at once. If the thread cannot be started, writes the message here.
pub(crate) fn send(message: &str) {
    if start().is_err() {
        // Blocking here delays no signal to a command: without the thread, `block_on_with_signals` runs no
        // work.
        return write(message);
    }
    let mut queue = lock();
    if queue.lines.len() < LINES {
        queue.lines.push_back(message.to_owned());
    }
    CHANGED.notify_all();
}

/// Waits until all messages are written, but at most for `limit`.
pub(crate) fn flush(limit: Duration) {
    let pending = |queue: &mut Queue| queue.writing || !queue.lines.is_empty();
    let _timed_out = CHANGED.wait_timeout_while(lock(), limit, pending);
}

/// Writes a message on this thread. Blocks as long as stderr does.
pub(crate) fn write(message: &str) {
    // An error from a server may have several lines.
    let message = message.trim_end().replace(['\r', '\n'], " ");
    // A closed stderr is no error.
    let _closed = writeln!(io::stderr().lock(), "kvlock: {message}");
}

fn write_all() {
    let mut queue = lock();
    loop {
        queue.writing = false;
        CHANGED.notify_all();
        let idle = |queue: &mut Queue| queue.lines.is_empty();
        queue = CHANGED.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner);
        if let Some(message) = queue.lines.pop_front() {
            queue.writing = true;
            drop(queue);
            write(&message);
            queue = lock();
        }
    }
}

/// Locks the queue. A poisoned mutex is ignored, because a panic cannot leave the queue inconsistent.
fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}
