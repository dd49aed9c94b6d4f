//! Changes of a key by other clients, without the module.

use kvlock_core::HOLDS_MAX;

use super::names::{OWNERS, Owner, lease};
use crate::Bytes;
use crate::sim::Foreign;

/// In one word. All but the first four and `Script` are done to a holder only.
#[derive(Clone, Copy, Debug)]
pub enum Meddling {
    Delete,
    /// `SET` over it.
    Overwrite,
    Persist,
    /// `PEXPIRE` of a key that exists.
    Expire(u64),
    /// The lock of a script that writes no token, over any value: owner, holds, lease.
    Script(Owner, u64, u64),
    /// `HDEL` of the owner's field.
    DropHolder,
    /// Another owner's field instead of the holder's, with the same token.
    SwapHolder(Owner),
    /// A token that is believed, this far ahead of the clock.
    TokenAhead(u64),
    /// A token that is not.
    TokenSpoilt(&'static str),
    /// A field that no lock of one holder has.
    SecondField(&'static str),
    /// A count that is none.
    CountSpoilt(&'static str),
}

/// Anything that may be done to a key.
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
    /// The commands of the server that do it to a key that has this holder or is free, at this
    /// time in microseconds.
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
