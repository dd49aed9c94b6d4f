//! Simulates keys that temporarily cannot be opened for writing, in builds for tests.
//!
//! While Valkey 9.2 saves without a fork, a module cannot open a key for writing while the saving thread
//! writes this key out. The server delays commands on such a key, but it does not delay timers, nor writes to
//! keys that a command does not declare. The environment variable `KVLOCK_REFUSE_OPEN` is a percentage of
//! keys. In each run of a timer, about this share of all keys cannot be opened. In each command, about this
//! share of the token floors cannot be opened.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::entry::Entry;

/// Number of the last run of a timer or of a command. During one run, a key is always refused or never.
static TURN: AtomicU64 = AtomicU64::new(0);

/// `true` if the last run was of a timer, `false` if it was of a command.
static IN_TIMER: AtomicBool = AtomicBool::new(false);

static REFUSED: AtomicU64 = AtomicU64::new(0);

static PERCENT: LazyLock<u64> = LazyLock::new(|| {
    let named = std::env::var("KVLOCK_REFUSE_OPEN").ok();
    named.and_then(|named| named.parse().ok()).unwrap_or(0)
});

/// Prefix of the token floors, which commands write without declaring them.
const UNDECLARED: &[u8] = b"kvlock:floor";

/// Counts an entry of the server into the module, if it runs a timer or a command.
pub(super) fn enter(entry: Entry) {
    if matches!(entry, Entry::Timer | Entry::Command) {
        TURN.fetch_add(1, Ordering::Relaxed);
        IN_TIMER.store(entry == Entry::Timer, Ordering::Relaxed);
    }
}

/// Returns whether opening the key with this name for writing is refused now. Counts the refusals.
pub(super) fn is_refused(name: &[u8]) -> bool {
    if *PERCENT == 0 || !(IN_TIMER.load(Ordering::Relaxed) || name.starts_with(UNDECLARED)) {
        return false;
    }
    // FNV-1a, over the turn and the name.
    let turn = TURN.load(Ordering::Relaxed).to_le_bytes();
    let mixed = turn.iter().chain(name).fold(0xcbf2_9ce4_8422_2325_u64, |mixed, byte| {
        (mixed ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let is_refused = (mixed >> 32) % 100 < *PERCENT;
    REFUSED.fetch_add(u64::from(is_refused), Ordering::Relaxed);
    is_refused
}

/// Returns the number of times that a key was refused.
pub(crate) fn refused_opens() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}
