//! Looks for the waiters in line, while clients work: without that no checker can tell whether they are
//! served in order and in time.

use crate::history::Recorder;
use crate::resp::Connection;
use crate::{Value, cmd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Often enough to see most waits, seldom enough to leave the server to the clients.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Looks again and again until it is `over`, or the server is gone.
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

/// Notes the waiters in line by that answer to `LOCK.INFO`, `SEM.INFO` or `LATCH.INFO`, and returns
/// their owners.
pub fn note(info: &Value, key: &str, asked: Duration, recorder: &Recorder) -> Vec<String> {
    // Of a lock that is nobody's, or is elsewhere, nothing is told.
    let Value::Array(_) = info else { return Vec::new() };
    let owners = info.field("queue").elements().iter().map(|waiter| waiter[0].text());
    owners.inspect(|owner| recorder.seen_in_line(key, owner, asked)).collect()
}
