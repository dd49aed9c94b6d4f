//! A moment, a lease and locks that several tests use.

#![expect(clippy::panic, reason = "a panic is how a test fails")]

use kvlock_core::{
    KeyRef, Limits, Millis, MonoMillis, Now, Observed, Results, SessionId, Situation, Table,
};

pub(crate) const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
pub(crate) const LEASE: Millis = Millis(50);
pub(crate) const FREE: Observed<'static> = Observed::Free { stored: None };

pub(crate) fn later(ms: u64) -> Now {
    Now { unix_us: NOW.unix_us + ms * 1_000, mono: NOW.mono.plus(Millis(ms)) }
}

/// A table with room for 99 waiters.
pub(crate) fn table() -> Table<u32> {
    Table::new(Limits { waiters: 99, waiters_per_key: 99, ..Limits::UNLIMITED })
}

/// The lock `name`, as it is seen at [`NOW`].
pub(crate) fn at<'a>(name: &'a [u8], seen: Observed<'a>) -> Situation<'a> {
    Situation { key: KeyRef::lock(0, name), seen, now: NOW, floor: Some(0), results: Results::NONE }
}

/// Opens a session with a ttl of a minute, which `name` distinguishes from others.
pub(crate) fn open(table: &mut Table<u32>, name: u8) -> SessionId {
    let opened = table.open_session([name; 32], b"user", Millis(60_000), NOW);
    opened.unwrap_or_else(|why| panic!("{why:?}"))
}
