//! Reading arguments: what the core says of them, as replies.

use std::ffi::CString;

use kvlock_core::arguments::{self, Read};
use kvlock_core::{Acquire, Millis, Release, Token, Want};

use crate::redis::{Arg, Reply};

pub(super) const SYNTAX: Reply = Reply::error(c"ERR syntax error");

pub(super) fn owner(arg: Arg<'_>) -> Result<Arg<'_>, Reply> {
    or_error(arguments::owner(arg.bytes())).map(|_| arg)
}

pub(super) fn name<'a>(what: &'static str, arg: Arg<'a>) -> Result<Arg<'a>, Reply> {
    or_error(arguments::name(what, arg.bytes())).map(|_| arg)
}

pub(super) fn lease(arg: Arg<'_>, most: u64) -> Result<Millis, Reply> {
    or_error(arguments::lease(arg.bytes(), most))
}

pub(super) fn timeout(arg: Arg<'_>) -> Result<Option<Millis>, Reply> {
    or_error(arguments::timeout(arg.bytes()))
}

pub(super) fn want<'a, 'b>(options: &'b [Arg<'a>]) -> (Want, &'b [Arg<'a>]) {
    arguments::want(options)
}

pub(super) fn amount(options: &[Arg<'_>]) -> Result<Release, Reply> {
    or_error(arguments::amount(options))
}

pub(super) fn renewal<'a>(
    owner: Arg<'a>,
    lease: Arg<'_>,
    options: &[Arg<'_>],
    max_lease_ms: u64,
) -> Result<(Arg<'a>, Millis, Option<Token>), Reply> {
    let read = arguments::renewal(owner.bytes(), lease.bytes(), options, max_lease_ms);
    or_error(read).map(|(lease, at_least)| (owner, lease, at_least))
}

/// A token was asked for that is larger than this, the largest that the clock lets.
pub(super) fn too_far_ahead(most: u64) -> Reply {
    error(format!(
        "ERR invalid TOKEN: ahead of this server's clock by more than a day, over {most}"
    ))
}

pub(super) fn acquire<'a>(
    owner: Arg<'a>,
    lease: Arg<'_>,
    options: &[Arg<'_>],
    max_lease_ms: u64,
) -> Result<Acquire<'a>, Reply> {
    or_error(arguments::acquire(owner.bytes(), lease.bytes(), options, max_lease_ms))
}

pub(super) fn permits_to_set(permits: Arg<'_>, options: &[Arg<'_>]) -> Result<(u64, bool), Reply> {
    or_error(arguments::permits_to_set(permits.bytes(), options))
}

pub(super) fn permits<'a>(
    owner: Arg<'a>,
    permits: Arg<'_>,
    lease: Arg<'_>,
    options: &[Arg<'_>],
    max_lease_ms: u64,
) -> Result<(u64, Acquire<'a>), Reply> {
    let (owner, permits, lease) = (owner.bytes(), permits.bytes(), lease.bytes());
    or_error(arguments::permits(owner, permits, lease, options, max_lease_ms))
}

pub(super) fn permits_or_all<'a>(
    owner: Arg<'a>,
    permits: Arg<'_>,
    lease: Arg<'_>,
    options: &[Arg<'_>],
    max_lease_ms: u64,
) -> Result<(Option<u64>, Acquire<'a>), Reply> {
    let (owner, permits, lease) = (owner.bytes(), permits.bytes(), lease.bytes());
    or_error(arguments::permits_or_all(owner, permits, lease, options, max_lease_ms))
}

pub(super) fn latch(
    count: Arg<'_>,
    options: &[Arg<'_>],
) -> Result<(u64, Option<Millis>, bool), Reply> {
    or_error(arguments::latch(count.bytes(), options))
}

pub(super) fn count(word: &[u8], options: &[Arg<'_>]) -> Result<Option<usize>, Reply> {
    or_error(arguments::count(word, options))
}

pub(super) fn ttl(arg: Arg<'_>) -> Result<Millis, Reply> {
    or_error(arguments::ttl(arg.bytes()))
}

pub(super) fn next(
    ack: Arg<'_>,
    timeout: Arg<'_>,
    options: &[Arg<'_>],
) -> Result<(u64, Millis, usize), Reply> {
    or_error(arguments::next(ack.bytes(), timeout.bytes(), options))
}

pub(super) fn session<'a>(options: &[Arg<'a>]) -> Result<(Option<Arg<'a>>, Vec<Arg<'a>>), Reply> {
    or_error(arguments::session(options))
}

pub(super) fn counts(
    word: &[u8],
    other: &[u8],
    options: &[Arg<'_>],
) -> Result<(Option<usize>, Option<usize>), Reply> {
    or_error(arguments::counts(word, other, options))
}

fn or_error<T>(read: Read<T>) -> Result<T, Reply> {
    read.map_err(|refusal| error(refusal.to_string()))
}

fn error(text: String) -> Reply {
    CString::new(text).map_or(SYNTAX, |text| Reply::Error(text.into()))
}
