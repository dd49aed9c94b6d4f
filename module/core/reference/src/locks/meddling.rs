//! Changes of a key by ordinary server commands of other clients.

use kvlock_core::HOLDS_MAX;

use super::names::{OWNERS, Owner, lease};
use crate::Bytes;
use crate::sim::Foreign;

/// A change by another client. All except the first four and `Script` need an exclusive holder.
#[derive(Clone, Copy, Debug)]
pub enum Meddling {
    Delete,
    /// Overwrites the key with `SET`.
    Overwrite,
    Persist,
    /// `PEXPIRE` of an existing key.
    Expire(u64),
    /// Overwrites the key with a lock without a token, as a script may do: owner, holds, lease.
    Script(Owner, u64, u64),
    /// `HDEL` of the holder's field.
    DropHolder,
    /// Replaces the holder's field by one hold of this owner. The token stays.
    SwapHolder(Owner),
    /// Writes a valid token: the time plus this number of microseconds.
    TokenAhead(u64),
    /// Writes an invalid token.
    TokenSpoilt(&'static str),
    /// Adds a field that makes the hash invalid as a lock.
    SecondField(&'static str),
    /// Writes an invalid hold count.
    CountSpoilt(&'static str),
}

/// Decodes a change of a key.
pub fn meddling(bytes: &mut Bytes<'_>) -> Meddling {
    const TOKENS: [&str; 5] = ["", "x", "-7", "9007199254740993", "18446744073709551615"];
    const COUNTS: [&str; 5] = ["0", "-1", "x", "01", "9223372036854775808"];
    match bytes.below(27) {
        0..=8 => Meddling::Delete,
        9 => Meddling::Overwrite,
        10 => Meddling::Persist,
        11..=13 => Meddling::Expire(bytes.pick(&[1, 5, 30, 2_000])),
        14 | 15 => {
            let holds = bytes.pick(&[1, 2, HOLDS_MAX, HOLDS_MAX + 1]);
            Meddling::Script(bytes.pick(&OWNERS), holds, lease(bytes))
        }
        16..=18 => Meddling::DropHolder,
        19 | 20 => Meddling::SwapHolder(bytes.pick(&OWNERS)),
        21..=23 => Meddling::TokenAhead(bytes.pick(&[0, 1_000_777, 90_000_777])),
        24 => Meddling::TokenSpoilt(bytes.pick(&TOKENS)),
        25 => Meddling::SecondField(bytes.pick(&["eve", "lock-mode"])),
        _ => Meddling::CountSpoilt(bytes.pick(&COUNTS)),
    }
}

impl Meddling {
    /// Returns the server commands of this change. `holder` is the exclusive holder, if there is one.
    /// `free` is true if the lock is free. `us` is the time in microseconds.
    pub fn commands(&self, holder: Option<Owner>, free: bool, us: u64) -> Vec<Foreign> {
        let hset = |field: &str, value: &str| Foreign::Hset(field.to_owned(), value.to_owned());
        let hdel = |field: &str| Foreign::Hdel(field.to_owned());
        match (*self, holder) {
            (Self::Delete, _) => vec![Foreign::Del],
            (Self::Overwrite, _) => vec![Foreign::Set],
            (Self::Persist, _) => vec![Foreign::Persist],
            (Self::Expire(_), _) if free => Vec::new(),
            (Self::Expire(ms), _) => vec![Foreign::Pexpire(ms)],
            (Self::Script(owner, holds, lease), _) => {
                let holds = holds.to_string();
                vec![Foreign::Del, hset(owner, &holds), Foreign::Pexpire(lease)]
            }
            (_, None) => Vec::new(),
            (Self::DropHolder, Some(holder)) => vec![hdel(holder)],
            (Self::SwapHolder(new), Some(old)) if new == old => vec![hset(new, "1")],
            (Self::SwapHolder(new), Some(old)) => vec![hset(new, "1"), hdel(old)],
            (Self::TokenAhead(by), Some(_)) => {
                vec![hset("fencing-token", &format!("t{}", us + by))]
            }
            (Self::TokenSpoilt(token), Some(_)) => vec![hset("fencing-token", token)],
            (Self::SecondField(field), Some(_)) => vec![hset(field, "1")],
            (Self::CountSpoilt(count), Some(holder)) => vec![hset(holder, count)],
        }
    }
}
