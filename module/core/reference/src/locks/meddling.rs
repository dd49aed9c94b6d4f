//! What somebody else does to a key, past the module.

use kvlock_core::HOLDS_MAX;
use proptest::prelude::*;
use proptest::sample::select;

use super::ops::{Owner, lease, owner};
use crate::sim::Foreign;

/// In one word. All but the first four and `Script` are done to a holder only.
#[derive(Clone, Copy, Debug)]
pub enum Meddling {
    Delete,
    /// `SET` over it.
    Overwrite,
    Persist,
    /// `PEXPIRE`, of whatever is not free.
    Expire(u64),
    /// The lock of a script that writes no token, whatever was there before: owner, holds, lease.
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
pub fn meddling() -> impl Strategy<Value = Meddling> {
    const SPOILT_TOKENS: [&str; 5] = ["", "x", "-7", "9007199254740993", "18446744073709551615"];
    const SPOILT_COUNTS: [&str; 5] = ["0", "-1", "x", "01", "9223372036854775808"];
    let holds = select(vec![1, 2, HOLDS_MAX, HOLDS_MAX + 1]);
    prop_oneof![
        9 => Just(Meddling::Delete),
        1 => Just(Meddling::Overwrite),
        1 => Just(Meddling::Persist),
        3 => select(&[1, 5, 30, 2_000][..]).prop_map(Meddling::Expire),
        2 => (owner(), holds, lease()).prop_map(|(o, n, l)| Meddling::Script(o, n, l)),
        3 => Just(Meddling::DropHolder),
        2 => owner().prop_map(Meddling::SwapHolder),
        3 => select(&[0, 1_000_777, 90_000_777][..]).prop_map(Meddling::TokenAhead),
        1 => select(&SPOILT_TOKENS[..]).prop_map(Meddling::TokenSpoilt),
        1 => select(&["eve", "lock-mode"][..]).prop_map(Meddling::SecondField),
        1 => select(&SPOILT_COUNTS[..]).prop_map(Meddling::CountSpoilt),
    ]
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
