//! Who holds and who waits for a lock, as the server says; when a lease ends, and how much later somebody
//! else has the lock.
//!
//! A token is the server's date of the grant in microseconds, so it says when the lock was granted
//! even if nobody looked.

use super::process::{Process, SOON};
use super::said::now;
use crate::report::Report;
use harness::{Connection, cmd, wait};
use std::time::SystemTime;

/// Later than this is what we do not want.
pub(super) const LATE_US: i64 = 20_000;

/// When a lease ends, by the date of the server and on the clock of all processes.
pub(super) struct End {
    date_ms: i64,
    pub(super) at: u64,
}

/// For how much of the time since a lease ended the server wanted a processor and had none, in
/// nanoseconds.
pub(super) struct Waited(u64);

/// Whose clients wait, first in line first.
pub(super) fn queue(control: &mut Connection, key: &str) -> Vec<String> {
    let info = control.call(cmd!["LOCK.INFO", key, "WAITERS", 1000]);
    let owners = info.field("queue").elements().iter().map(|waiter| waiter[0].text());
    owners.map(|owner| owner.split(':').next().unwrap_or_default().to_owned()).collect()
}

/// With which token that process has the lock, as the server says, and until when; if it has it.
pub(super) fn lease_of(
    control: &mut Connection,
    key: &str,
    process: &Process,
) -> Option<(u64, End)> {
    control.run("MULTI");
    control.call(cmd!["LOCK.INFO", key]);
    control.call(cmd!["PEXPIRETIME", key]);
    let both = control.run("EXEC");
    let owner = both[0].field("owner");
    let is_its = !owner.is_nil() && owner.text().starts_with(&process.client()?);
    let token = both[0].field("token");
    is_its.then(|| (token.integer().cast_unsigned(), End::at_date(both[1].integer())))
}

impl End {
    /// At that date, in milliseconds.
    fn at_date(date_ms: i64) -> Self {
        let date = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let date = i128::try_from(date.as_nanos()).expect("a date");
        let left = i128::from(date_ms) * 1_000_000 - date;
        Self { date_ms, at: u64::try_from(i128::from(now()) + left).expect("a moment") }
    }

    /// Waits for what comes after this end, and looks what the server with that process id had to
    /// wait for meanwhile.
    pub(super) fn await_next<T>(&self, server: u32, look: impl Fn() -> Option<T>) -> (T, Waited) {
        let mut before = waited(server);
        wait::until("the next in line holds the lock", SOON, || {
            if now() < self.at {
                before = waited(server);
            }
            let next = look().ok_or("not yet")?;
            Ok((next, Waited(waited(server) - before)))
        })
    }

    /// How many microseconds after this end a grant came.
    pub(super) fn late_us(&self, token: u64) -> i64 {
        token.cast_signed() - self.date_ms * 1000
    }

    /// Notes how late a grant was; one that was early is wrong.
    pub(super) fn judge(&self, token: u64, waited: &Waited, what: &str, report: &Report) {
        let late = self.late_us(token);
        if late < 0 {
            report.violation(format!("Early: {token} {} us before the end: {what}", -late));
        }
        let own = (late - (waited.0 / 1000).cast_signed()).max(0);
        for (what, late) in [(what, late), (&without_waiting(what), own)] {
            report.time(what, late);
            report.add(&format!("{what}: more than 20 ms"), u64::from(late > LATE_US));
        }
    }
}

/// The name of the same times, as they would be if the server had always had a processor.
pub(super) fn without_waiting(what: &str) -> String {
    format!("{what}, without the time in which the server had no processor")
}

/// For how many nanoseconds of its life a process wanted a processor and had none.
fn waited(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    stat.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}
