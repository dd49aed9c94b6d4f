//! Reading arguments. Numbers are strict decimals; no error repeats what the caller sent.

use std::ffi::CString;

use kvlock_core::{
    Acquire, HOLDS_MAX, Latch, Millis, OWNER_BYTES_MAX, Permits, TOKEN_STORED_MAX, Token, Want,
    is_owner, strict_decimal,
};

use crate::config::TEN_YEARS_MS;
use crate::redis::{Arg, Reply};

pub(super) const SYNTAX: Reply = Reply::error(c"ERR syntax error");

/// Reads an owner.
pub(super) fn owner(arg: Arg<'_>) -> Result<Arg<'_>, Reply> {
    name("owner", arg)
}

/// Reads the name of somebody.
pub(super) fn name<'a>(what: &str, arg: Arg<'a>) -> Result<Arg<'a>, Reply> {
    if is_owner(arg.bytes()) {
        return Ok(arg);
    }
    Err(error(format!(
        "ERR invalid {what}: must be 1 to {OWNER_BYTES_MAX} bytes and not a reserved field name"
    )))
}

/// Reads a lease.
pub(super) fn lease(arg: Arg<'_>, most: u64) -> Result<Millis, Reply> {
    number("lease-ms", arg, 1, most).map(Millis)
}

/// Reads a timeout; 0 is none.
pub(super) fn timeout(arg: Arg<'_>) -> Result<Option<Millis>, Reply> {
    let timeout = number("timeout-ms", arg, 0, TEN_YEARS_MS)?;
    Ok((timeout > 0).then_some(Millis(timeout)))
}

/// Takes `SHARED` off the options: it may come first or last.
pub(super) fn want<'a, 'b>(options: &'b [Arg<'a>]) -> (Want, &'b [Arg<'a>]) {
    match options {
        [first, rest @ ..] if is(*first, b"SHARED") => (Want::Shared, rest),
        [rest @ .., last] if is(*last, b"SHARED") => (Want::Shared, rest),
        all => (Want::Exclusive, all),
    }
}

/// Reads the `HOLDS n` of an acquire, if it is there.
pub(super) fn holds(options: &[Arg<'_>]) -> Result<Option<u64>, Reply> {
    match options {
        [] => Ok(None),
        [word, n] if is(*word, b"HOLDS") => number("HOLDS", *n, 1, HOLDS_MAX).map(Some),
        _ => Err(SYNTAX),
    }
}

/// Reads the arguments of a renewal: who, for how long, and the least that the token is to be.
pub(super) fn renewal<'a>(
    owner_arg: Arg<'a>,
    lease_arg: Arg<'_>,
    options: &[Arg<'_>],
    max_lease_ms: u64,
) -> Result<(Arg<'a>, Millis, Option<Token>), Reply> {
    let (owner, lease) = (owner(owner_arg)?, lease(lease_arg, max_lease_ms)?);
    let at_least = match options {
        [] => None,
        [word, n] if is(*word, b"TOKEN") => {
            Token::from_stored(number("TOKEN", *n, 1, TOKEN_STORED_MAX)?)
        }
        _ => return Err(SYNTAX),
    };
    Ok((owner, lease, at_least))
}

/// A token was asked for that is larger than this, the largest that the clock lets.
pub(super) fn too_far_ahead(most: u64) -> Reply {
    error(format!(
        "ERR invalid TOKEN: ahead of this server's clock by more than a day, over {most}"
    ))
}

/// Reads how much a release gives back.
pub(super) fn amount(options: &[Arg<'_>]) -> Result<kvlock_core::Release, Reply> {
    use kvlock_core::Release;
    match options {
        [] => Ok(Release::One),
        [word] if is(*word, b"ALL") => Ok(Release::All),
        [word, n] if is(*word, b"HOLDS") => {
            number("HOLDS", *n, 0, HOLDS_MAX - 1).map(Release::DownTo)
        }
        _ => Err(SYNTAX),
    }
}

/// Reads how many permits a semaphore is to have, and whether only if it has none yet.
pub(super) fn permits_to_set(permits: Arg<'_>, options: &[Arg<'_>]) -> Result<(u64, bool), Reply> {
    let permits = number("permits", permits, 0, Permits::MAX)?;
    match options {
        [] => Ok((permits, false)),
        [word] if is(*word, b"NX") => Ok((permits, true)),
        _ => Err(SYNTAX),
    }
}

/// Reads the arguments that acquiring permits and waiting for them have in common.
pub(super) fn permits<'a>(
    owner_arg: Arg<'a>,
    permits_arg: Arg<'_>,
    lease_arg: Arg<'_>,
    options: &[Arg<'_>],
    max_lease_ms: u64,
) -> Result<(u64, Acquire<'a>), Reply> {
    let owner = owner(owner_arg)?.bytes();
    let permits = number("permits", permits_arg, 1, Permits::MAX)?;
    let lease = lease(lease_arg, max_lease_ms)?;
    let (want, holds) = (Want::Permits(permits), holds(options)?);
    Ok((permits, Acquire { owner, want, lease, holds }))
}

/// Reads the count of a latch, how long it lives, and whether it replaces one that counts.
pub(super) fn latch(
    count: Arg<'_>,
    options: &[Arg<'_>],
) -> Result<(u64, Option<Millis>, bool), Reply> {
    let count = number("count", count, 1, Latch::COUNT_MAX)?;
    let (replace, options) = match options {
        [first, rest @ ..] if is(*first, b"REPLACE") => (true, rest),
        [rest @ .., last] if is(*last, b"REPLACE") => (true, rest),
        all => (false, all),
    };
    let lifetime = match options {
        [] => None,
        [word, n] if is(*word, b"PX") => Some(number("lifetime-ms", *n, 1, TEN_YEARS_MS)?),
        _ => return Err(SYNTAX),
    };
    Ok((count, lifetime.map(Millis), replace))
}

/// Reads `WORD count`, if it is there.
pub(super) fn count(word: &[u8], options: &[Arg<'_>]) -> Result<Option<usize>, Reply> {
    match options {
        [] => Ok(None),
        [first, n] if is(*first, word) => {
            let n = number("count", *n, 1, COUNT_MAX)?;
            Ok(usize::try_from(n).ok())
        }
        _ => Err(SYNTAX),
    }
}

/// Reads `WORD count` and `OTHER count`, each if it is there, in any order.
pub(super) fn counts(
    word: &[u8],
    other: &[u8],
    options: &[Arg<'_>],
) -> Result<(Option<usize>, Option<usize>), Reply> {
    match options {
        [first, _, rest @ ..] if is(*first, other) => {
            let shown = options.get(..2).map_or(Ok(None), |pair| count(other, pair))?;
            Ok((count(word, rest)?, shown))
        }
        [_, _, rest @ ..] if !rest.is_empty() => {
            let shown = options.get(..2).map_or(Ok(None), |pair| count(word, pair))?;
            Ok((shown, count(other, rest)?))
        }
        all => Ok((count(word, all)?, None)),
    }
}

/// The most entries that a report shows.
const COUNT_MAX: u64 = 1000;

/// Reads the arguments that acquire and wait have in common: all but key and timeout.
pub(super) fn acquire<'a>(
    owner_arg: Arg<'a>,
    lease_arg: Arg<'a>,
    options: &[Arg<'a>],
    max_lease_ms: u64,
) -> Result<Acquire<'a>, Reply> {
    let (want, options) = want(options);
    Ok(Acquire {
        owner: owner(owner_arg)?.bytes(),
        lease: lease(lease_arg, max_lease_ms)?,
        want,
        holds: holds(options)?,
    })
}

fn is(arg: Arg<'_>, word: &[u8]) -> bool {
    arg.bytes().eq_ignore_ascii_case(word)
}

fn number(name: &str, arg: Arg<'_>, least: u64, most: u64) -> Result<u64, Reply> {
    let number = strict_decimal(arg.bytes()).filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| error(format!("ERR invalid {name}: must be between {least} and {most}")))
}

fn error(text: String) -> Reply {
    CString::new(text).map_or(SYNTAX, |text| Reply::Error(text.into()))
}
