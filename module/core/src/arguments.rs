//! Parses the arguments of commands, which are arbitrary bytes from a client. Numbers are strict
//! decimals. An invalid argument is refused. The error never repeats the client's bytes.
#![expect(clippy::missing_errors_doc, reason = "said above, and by `Refusal`")]

mod options;
mod refusal;

pub use options::{Further, Options, Store, width};
pub use refusal::{KEY_BYTES_MAX, NO_VALUE, Read, Refusal, SET_KEYS_MAX, TEN_YEARS_MS};

use refusal::{is, number};

use crate::latch::Latch;
use crate::lock::{Acquire, Release};
use crate::mode::Want;
use crate::parse::is_owner;
use crate::semaphore::Permits;
use crate::token::{TOKEN_STORED_MAX, Token};
use crate::types::{HOLDS_MAX, Millis};
use crate::value::VALUE_BYTES_MAX;

/// A minute in milliseconds: the largest ttl of a session and the largest timeout of a reader.
const MINUTE_MS: u64 = 60_000;

/// Limit of outcomes in one reply if the reader sets none. The module may send fewer.
const READ_MAX: usize = 1000;

/// Largest count that [`count`] accepts.
const COUNT_MAX: u64 = 1000;

/// Checks that the name of a key is short enough to be waited for, observed or bound.
pub fn kept_key(name: &[u8]) -> Read<()> {
    if name.len() <= KEY_BYTES_MAX { Ok(()) } else { Err(Refusal::Key) }
}

/// Reads an owner.
pub fn owner(arg: &[u8]) -> Read<&[u8]> {
    name("owner", arg)
}

/// Reads a name: of an owner, a participant or a waiter.
pub fn name<'a>(what: &'static str, arg: &'a [u8]) -> Read<&'a [u8]> {
    if is_owner(arg) { Ok(arg) } else { Err(Refusal::Name(what)) }
}

/// Reads a lease of 1 to `most` milliseconds.
pub fn lease(arg: &[u8], most: u64) -> Read<Millis> {
    number("lease-ms", arg, 1, most).map(Millis)
}

/// Reads a timeout; 0 is no timeout.
pub fn timeout(arg: &[u8]) -> Read<Option<Millis>> {
    let timeout = number("timeout-ms", arg, 0, TEN_YEARS_MS)?;
    Ok((timeout > 0).then_some(Millis(timeout)))
}

/// Takes `SHARED` off the options.
pub fn want<A: AsRef<[u8]> + Copy>(options: &mut Options<'_, A>) -> Read<Want> {
    Ok(if options.word(b"SHARED")? { Want::Shared } else { Want::Exclusive })
}

/// Takes the `HOLDS n` of an acquire off, which is the last of its options.
fn holds<A: AsRef<[u8]> + Copy>(mut options: Options<'_, A>) -> Read<Option<u64>> {
    let holds = options.number(b"HOLDS", "HOLDS", 1, HOLDS_MAX)?;
    options.end().map(|()| holds)
}

/// Reads how many holds are released: one, all (`ALL`), or all but n (`HOLDS n`). The caller has taken all other
/// options off.
pub fn amount<A: AsRef<[u8]> + Copy>(mut options: Options<'_, A>) -> Read<Release> {
    let is_all = options.word(b"ALL")?;
    let left = options.number(b"HOLDS", "HOLDS", 0, HOLDS_MAX - 1)?;
    options.end()?;
    match (is_all, left) {
        (false, None) => Ok(Release::One),
        (false, Some(left)) => Ok(Release::DownTo(left)),
        (true, None) => Ok(Release::All),
        (true, Some(_)) => Err(Refusal::Syntax),
    }
}

/// Reads the arguments that acquiring a lock and waiting for it have in common: owner, lease,
/// `SHARED` and `HOLDS n`. The caller has taken all other options off.
pub fn acquire<'a, A: AsRef<[u8]> + Copy>(
    owner_arg: &'a [u8],
    lease_arg: &[u8],
    mut options: Options<'_, A>,
    max_lease_ms: u64,
) -> Read<Acquire<'a>> {
    let (owner, lease) = (owner(owner_arg)?, lease(lease_arg, max_lease_ms)?);
    let want = want(&mut options)?;
    Ok(Acquire { owner, lease, want, holds: holds(options)? })
}

/// Reads the arguments of a renewal: the lease, and the smallest token that the lock must have
/// afterwards.
pub fn renewal<A: AsRef<[u8]> + Copy>(
    owner_arg: &[u8],
    lease_arg: &[u8],
    mut options: Options<'_, A>,
    max_lease_ms: u64,
) -> Read<(Millis, Option<Token>)> {
    owner(owner_arg)?;
    let lease = lease(lease_arg, max_lease_ms)?;
    let at_least = options.number(b"TOKEN", "TOKEN", 1, TOKEN_STORED_MAX)?;
    options.end()?;
    Ok((lease, at_least.and_then(Token::from_stored)))
}

/// Reads the number of permits of a semaphore, and whether to set it only if the semaphore does not
/// exist.
pub fn permits_to_set<A: AsRef<[u8]> + Copy>(
    permits: &[u8],
    mut options: Options<'_, A>,
) -> Read<(u64, bool)> {
    let permits = number("permits", permits, 0, Permits::MAX)?;
    let only_new = options.word(b"NX")?;
    options.end().map(|()| (permits, only_new))
}

/// Reads the arguments that acquiring permits and waiting for them have in common.
pub fn permits<'a, A: AsRef<[u8]> + Copy>(
    owner_arg: &'a [u8],
    permits_arg: &[u8],
    lease_arg: &[u8],
    options: Options<'_, A>,
    max_lease_ms: u64,
) -> Read<(u64, Acquire<'a>)> {
    let owner = owner(owner_arg)?;
    let permits = number("permits", permits_arg, 1, Permits::MAX)?;
    let lease = lease(lease_arg, max_lease_ms)?;
    let holds = holds(options)?;
    let want = Want::Permits { more: permits, holds };
    Ok((permits, Acquire { owner, want, lease, holds }))
}

/// Reads the arguments of acquiring permits. The number of permits is `None` if the argument is
/// `ALL`.
pub fn permits_or_all<'a, A: AsRef<[u8]> + Copy>(
    owner_arg: &'a [u8],
    permits_arg: &[u8],
    lease_arg: &[u8],
    options: Options<'_, A>,
    max_lease_ms: u64,
) -> Read<(Option<u64>, Acquire<'a>)> {
    if !is(&permits_arg, b"ALL") {
        let some = permits(owner_arg, permits_arg, lease_arg, options, max_lease_ms);
        return some.map(|(permits, request)| (Some(permits), request));
    }
    let (owner, lease) = (owner(owner_arg)?, lease(lease_arg, max_lease_ms)?);
    let holds = holds(options)?;
    let want = Want::Permits { more: Permits::MAX, holds };
    Ok((None, Acquire { owner, want, lease, holds }))
}

/// Reads the count of a latch, its lifetime, and whether it replaces a latch that is not open yet.
pub fn latch<A: AsRef<[u8]> + Copy>(
    count: &[u8],
    mut options: Options<'_, A>,
) -> Read<(u64, Option<Millis>, bool)> {
    let count = number("count", count, 1, Latch::COUNT_MAX)?;
    let replace = options.word(b"REPLACE")?;
    let lifetime = options.number(b"PX", "lifetime-ms", 1, TEN_YEARS_MS)?;
    options.end()?;
    Ok((count, lifetime.map(Millis), replace))
}

/// Takes the option `NAME count` off.
fn take_count<A: AsRef<[u8]> + Copy>(
    options: &mut Options<'_, A>,
    name: &[u8],
) -> Read<Option<usize>> {
    let count = options.number(name, "count", 1, COUNT_MAX)?;
    Ok(count.and_then(|count| usize::try_from(count).ok()))
}

/// Reads the only option, `NAME count`.
pub fn count<A: AsRef<[u8]> + Copy>(
    mut options: Options<'_, A>,
    name: &[u8],
) -> Read<Option<usize>> {
    let count = take_count(&mut options, name)?;
    options.end().map(|()| count)
}

/// Reads `COUNT count`, the number of entries to show, and `RESET`.
pub fn profile<A: AsRef<[u8]> + Copy>(mut options: Options<'_, A>) -> Read<(Option<usize>, bool)> {
    let reset = options.word(b"RESET")?;
    count(options, b"COUNT").map(|count| (count, reset))
}

/// Reads how many waiters and holders are shown.
pub fn shown<A: AsRef<[u8]> + Copy>(
    mut options: Options<'_, A>,
) -> Read<(Option<usize>, Option<usize>)> {
    let waiters = take_count(&mut options, b"WAITERS")?;
    count(options, b"HOLDERS").map(|holders| (waiters, holders))
}

/// Reads the time after which a session without a reader ends.
pub fn ttl(arg: &[u8]) -> Read<Millis> {
    number("ttl-ms", arg, 100, MINUTE_MS).map(Millis)
}

/// Reads the time to live of a new session, and whether it has a bell.
pub fn open<A: AsRef<[u8]> + Copy>(
    ttl_ms: &[u8],
    mut options: Options<'_, A>,
) -> Read<(Millis, bool)> {
    let has_bell = options.word(b"BELL")?;
    options.end()?;
    Ok((ttl(ttl_ms)?, has_bell))
}

/// Reads the arguments of a reader: the acknowledged number, the timeout, and the largest number of
/// outcomes in one reply.
pub fn next<A: AsRef<[u8]> + Copy>(
    ack: &[u8],
    timeout: &[u8],
    options: Options<'_, A>,
) -> Read<(u64, Millis, usize)> {
    let ack = number("ack", ack, 0, TOKEN_STORED_MAX)?;
    let timeout = number("timeout-ms", timeout, 0, MINUTE_MS)?;
    let most = count(options, b"COUNT")?;
    Ok((ack, Millis(timeout), most.unwrap_or(READ_MAX)))
}

/// Reads the `VALUE` of a holder. Refuses a `VALUE` in a request to share a lock.
pub fn value<A: AsRef<[u8]>>(value: Option<&A>, want: Want) -> Read<Option<&[u8]>> {
    match value.map(AsRef::as_ref) {
        Some(_) if want == Want::Shared => Err(Refusal::SharedValue),
        Some(value) if value.len() > VALUE_BYTES_MAX => Err(Refusal::Value),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    fn split<'a>(words: &'a [&'static str]) -> Options<'a, &'static str> {
        Options::split(words)
    }

    #[test]
    fn a_lock_is_shared_or_not_and_has_holds() {
        for words in [&["SHARED", "HOLDS", "2"][..], &["holds", "2", "shared"]] {
            let read = acquire(b"a", b"5", split(words), 9);
            assert!(read.is_ok_and(|read| read.want == Want::Shared && read.holds == Some(2)));
        }
        let read = acquire(b"a", b"5", split(&NONE), 9);
        assert!(read.is_ok_and(|read| read.want == Want::Exclusive && read.holds.is_none()));
        for words in [&["SHARED", "SHARED"][..], &["HOLDS"], &["TIMES", "2"], &["HOLDS", "2", "2"]]
        {
            assert_eq!(acquire(b"a", b"5", split(words), 9).err(), Some(Refusal::Syntax));
        }
        let holds = Refusal::Number { name: "HOLDS", least: 1, most: HOLDS_MAX };
        for words in [["HOLDS", "0"], ["HOLDS", "SHARED"]] {
            assert_eq!(acquire(b"a", b"5", split(&words), 9).err(), Some(holds));
        }
    }

    #[test]
    fn ranges_include_their_ends() {
        assert_eq!(lease(b"1", 9), Ok(Millis(1)));
        assert_eq!(lease(b"9", 9), Ok(Millis(9)));
        let refusal = Err(Refusal::Number { name: "lease-ms", least: 1, most: 9 });
        assert_eq!([lease(b"0", 9), lease(b"10", 9)], [refusal, refusal]);
        assert_eq!(timeout(b"0"), Ok(None));
        assert_eq!(timeout(b"315360000000"), Ok(Some(Millis(TEN_YEARS_MS))));
        assert!(timeout(b"315360000001").is_err());
        assert_eq!(amount(split(&["HOLDS", "4294967294"])), Ok(Release::DownTo(HOLDS_MAX - 1)));
        assert!(amount(split(&["HOLDS", "4294967295"])).is_err());
        assert_eq!(permits_to_set(b"0", split(&["nx"])), Ok((0, true)));
        assert_eq!(count(split(&["COUNT", "1000"]), b"COUNT"), Ok(Some(1000)));
        assert!(count(split(&["COUNT", "1001"]), b"COUNT").is_err());
        assert!(count(split(&["COUNT", "0"]), b"COUNT").is_err());
        assert_eq!(count(split(&["MOST", "9"]), b"COUNT"), Err(Refusal::Syntax));
    }

    #[test]
    fn unknown_words_are_refused() {
        assert_eq!(amount(split(&NONE)), Ok(Release::One));
        assert_eq!(amount(split(&["all"])), Ok(Release::All));
        for words in [&["SOME"][..], &["LEAVE", "2"], &["ALL", "ALL"], &["ALL", "HOLDS", "2"]] {
            assert_eq!(amount(split(words)), Err(Refusal::Syntax), "{words:?}");
        }
        assert_eq!(renewal(b"a", b"5", split(&["LEASE", "9"]), 9), Err(Refusal::Syntax));
        assert_eq!(permits_to_set(b"3", split(&NONE)), Ok((3, false)));
        assert_eq!(permits_to_set(b"3", split(&["XX"])), Err(Refusal::Syntax));
        assert_eq!(latch(b"3", split(&["EX", "9"])), Err(Refusal::Syntax));
        assert_eq!(next(b"0", b"0", split(&["MOST", "9"])), Err(Refusal::Syntax));
    }

    #[test]
    fn all_permits_is_not_a_number() {
        let read = |permits| permits_or_all(b"a", permits, b"5", split(&NONE), 9).map(|(n, _)| n);
        assert_eq!([read(b"all"), read(b"3")], [Ok(None), Ok(Some(3))]);
        assert!(read(b"0").is_err() && read(b"ALLL").is_err());
    }

    #[test]
    fn a_renewal_may_raise_the_token() {
        let token = Token::from_stored(9);
        assert!(token.is_some());
        assert_eq!(renewal(b"a", b"5", split(&["token", "9"]), 9), Ok((Millis(5), token)));
        assert_eq!(renewal(b"a", b"5", split(&NONE), 9), Ok((Millis(5), None)));
        assert_eq!(renewal(b"a", b"5", split(&["TOKEN"]), 9), Err(Refusal::Syntax));
        for wrong in ["0", "4503599627370497", "-1"] {
            assert!(renewal(b"a", b"5", split(&["TOKEN", wrong]), 9).is_err(), "{wrong}");
        }
        assert_eq!(renewal(b"", b"5", split(&NONE), 9), Err(Refusal::Name("owner")));
    }

    #[test]
    fn a_profile_is_reset_and_shown_in_any_order() {
        assert_eq!(profile(split(&NONE)), Ok((None, false)));
        for words in [["RESET", "COUNT", "3"], ["count", "3", "reset"]] {
            assert_eq!(profile(split(&words)), Ok((Some(3), true)));
        }
        assert_eq!(profile(split(&["RESET", "RESET"])), Err(Refusal::Syntax));
    }

    #[test]
    fn waiters_and_holders_are_shown_by_count() {
        let read = |words: &[&'static str]| shown(split(words));
        assert_eq!(read(&[]), Ok((None, None)));
        assert_eq!(read(&["WAITERS", "1"]), Ok((Some(1), None)));
        assert_eq!(read(&["holders", "2", "waiters", "1"]), Ok((Some(1), Some(2))));
        for wrong in [&["WAITERS"][..], &["WAITERS", "1", "WAITERS", "1"], &["COUNT", "1"]] {
            assert_eq!(read(wrong), Err(Refusal::Syntax), "{wrong:?}");
        }
    }

    #[test]
    fn a_value_is_short_and_belongs_to_one_holder() {
        let long = [0; VALUE_BYTES_MAX + 1];
        let read =
            |bytes: &[u8], want| value(Some(&bytes), want).map(|value| value.map(<[u8]>::len));
        assert_eq!(read(&long[1..], Want::Exclusive), Ok(Some(VALUE_BYTES_MAX)));
        assert_eq!(read(&long, Want::Exclusive), Err(Refusal::Value));
        assert_eq!(read(b"", Want::Shared), Err(Refusal::SharedValue));
        assert_eq!(value(None::<&&[u8]>, Want::Shared), Ok(None));
        assert_eq!(Refusal::Value.to_string(), "ERR invalid VALUE: must be at most 1024 bytes");
        assert_eq!(Refusal::SharedValue.to_string(), "ERR a lock that is shared has no VALUE");
    }

    #[test]
    fn a_read_has_acknowledgement_timeout_and_count() {
        assert_eq!(next(b"0", b"0", split(&NONE)), Ok((0, Millis(0), 1_000)));
        assert_eq!(next(b"7", b"60000", split(&["count", "3"])), Ok((7, Millis(60_000), 3)));
        assert!(
            next(b"-1", b"0", split(&NONE)).is_err() && next(b"0", b"60001", split(&NONE)).is_err()
        );
        assert!(next(b"0", b"0", split(&["COUNT", "0"])).is_err());
        assert_eq!([ttl(b"100"), ttl(b"60000")], [Ok(Millis(100)), Ok(Millis(60_000))]);
        assert!(ttl(b"99").is_err() && ttl(b"60001").is_err());
    }

    #[test]
    fn options_of_a_latch_come_in_any_order() {
        let all = Ok((3, Some(Millis(9)), true));
        assert_eq!(latch(b"3", split(&["REPLACE", "PX", "9"])), all);
        assert_eq!(latch(b"3", split(&["PX", "9", "REPLACE"])), all);
        assert_eq!(latch(b"3", split(&NONE)), Ok((3, None, false)));
        assert_eq!(latch(b"3", split(&["PX"])), Err(Refusal::Syntax));
        assert!(latch(b"0", split(&NONE)).is_err());
    }

    #[test]
    fn an_error_names_the_valid_range_and_not_the_argument() {
        let refusal = name("participant", b"\r\nfencing-token\r\n".trim_ascii());
        let text = refusal.err().map(|refusal| refusal.to_string()).unwrap_or_default();
        let text_of =
            "ERR invalid participant: must be 1 to 1024 bytes and not a reserved field name";
        assert_eq!(text, text_of);
        let number = Refusal::Number { name: "count", least: 1, most: 5 };
        assert_eq!(number.to_string(), "ERR invalid count: must be between 1 and 5");
        assert_eq!(Refusal::Syntax.to_string(), "ERR syntax error");
    }

    #[test]
    fn a_key_that_is_kept_in_memory_is_short() {
        assert_eq!(kept_key(&[0; KEY_BYTES_MAX]), Ok(()));
        assert_eq!(kept_key(&[0; KEY_BYTES_MAX + 1]), Err(Refusal::Key));
    }

    #[test]
    fn a_session_may_be_opened_with_a_bell() {
        assert_eq!(open(b"100", split(&NONE)), Ok((Millis(100), false)));
        assert_eq!(open(b"100", split(&["bell"])), Ok((Millis(100), true)));
        for wrong in [&["RING"][..], &["BELL", "BELL"]] {
            assert_eq!(open(b"100", split(wrong)), Err(Refusal::Syntax), "{wrong:?}");
        }
        assert!(open(b"99", split(&["BELL"])).is_err());
    }
}
