//! Records queues while clients work. A checker needs them to tell whether waiters are served in order and in
//! time.

use crate::history::Recorder;
use crate::resp::Connection;
use crate::{Value, cmd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause between two reads of all queues. Short enough to see most waits, and long enough to leave the server
/// most of its time for the clients.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Reads and records the queues of these locks repeatedly until `over` is set or a read fails.
pub fn watch(
    mut connection: Connection,
    keys: &[impl AsRef<str>],
    recorder: &Recorder,
    over: &AtomicBool,
) {
    while !over.load(Ordering::Relaxed) {
        for key in keys.iter().map(AsRef::as_ref) {
            let asked = recorder.now();
            connection.send(cmd!["LOCK.INFO", key, "WAITERS", 1000]);
            match connection.receive(crate::observe::PATIENCE) {
                Ok(info) => drop(note(&info, key, asked, recorder)),
                Err(_) => return,
            }
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Records the queue in a reply to `LOCK.INFO`, `SEM.INFO` or `LATCH.INFO`, and returns its owners.
pub fn note(info: &Value, key: &str, asked: Duration, recorder: &Recorder) -> Vec<String> {
    // `SEM.INFO` replies with an error for a semaphore that is not set. A node of a cluster that does not have
    // the key also replies with an error.
    let Value::Array(_) = info else { return Vec::new() };
    let owners = info.field("queue").elements().iter().map(|waiter| waiter[0].text());
    owners.inspect(|owner| recorder.seen_in_queue(key, owner, asked)).collect()
}
