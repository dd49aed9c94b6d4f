//! Messages on stderr, one line each.
//!
//! A thread of its own writes them: a stderr that is not read (a full pipe, a stopped terminal, a
//! log driver that hangs) delays neither a signal to the command nor the end of this process.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of lines that wait to be written at most. Further ones are dropped.
const LINES: usize = 64;

/// Time that the end of the process waits for lines that are not written yet.
pub(crate) const AT_EXIT: Duration = Duration::from_secs(1);

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { lines: VecDeque::new(), writing: false, started: false });
static CHANGED: Condvar = Condvar::new();

struct Queue {
    lines: VecDeque<String>,
    /// The thread writes a line that is no longer in `lines`.
    writing: bool,
    started: bool,
}

/// Starts the thread. It inherits the signal mask of the caller.
pub(crate) fn start() -> io::Result<()> {
    let mut queue = lock();
    if !queue.started {
        // Ends with the process.
        std::thread::Builder::new().name("messages".to_owned()).spawn(write_all)?;
        queue.started = true;
    }
    Ok(())
}

/// Queues a message. Returns at once.
pub(crate) fn send(message: &str) {
    if start().is_err() {
        // Without a thread there is no lock to lose either: nothing was started.
        return write(message);
    }
    let mut queue = lock();
    if queue.lines.len() < LINES {
        queue.lines.push_back(message.to_owned());
    }
    CHANGED.notify_all();
}

/// Waits until all messages are written, for `limit` at most.
pub(crate) fn flush(limit: Duration) {
    let pending = |queue: &mut Queue| queue.writing || !queue.lines.is_empty();
    let _timed_out = CHANGED.wait_timeout_while(lock(), limit, pending);
}

/// Writes a message on this thread. Blocks as long as stderr does.
pub(crate) fn write(message: &str) {
    // The answer of a server may have several lines.
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

/// A panic while the lock is held leaves the queue as it was.
fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}
