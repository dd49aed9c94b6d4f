//! The error for a wait that would complete a circle of owners that wait for each other.

use std::borrow::Cow;

use kvlock_core::{KeyRef, Link};

use crate::redis::{Ctx, Reply, Text};
use crate::replies::error;

/// Largest number of locks that the error names.
const NAMED: usize = 8;

/// Largest number of characters of a name that the error shows.
const SHOWN: usize = 64;

/// Returns the error, for example `DEADLOCK k1 held by a, who waits for k2 held by b`.
///
/// The error always names the first key, which the caller itself requested. It names any other key, with the
/// key's owner, only if the caller's user may read that key.
pub(super) fn deadlock(ctx: &Ctx<'_>, links: &[Link]) -> Reply {
    let first = links.first().map(|link| link.key.borrow());
    let describe = |link: &Link| {
        let key = link.key.borrow();
        let verb = if link.holds { "held" } else { "reserved" };
        if may_name(ctx, first, key) {
            format!("{} {verb} by {}", shown(key.name), shown(&link.owner))
        } else {
            format!("a key that this user may not read, {verb} by another owner")
        }
    };
    let named: Vec<_> = links.iter().take(NAMED).map(describe).collect();
    let rest = if links.len() > NAMED { ", and so on" } else { "" };
    error(format!("DEADLOCK {}{rest}", named.join(", who waits for ")))
}

fn may_name(ctx: &Ctx<'_>, first: Option<KeyRef<'_>>, key: KeyRef<'_>) -> bool {
    first == Some(key) || ctx.may_read(Text::new(key.name).lend())
}

/// Returns a name as the error shows it: shortened, and without control characters.
fn shown(name: &[u8]) -> String {
    let text: Cow<'_, str> = String::from_utf8_lossy(name);
    let plain = |letter: char| if letter.is_control() { '?' } else { letter };
    let mut shown: String = text.chars().take(SHOWN).map(plain).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
