//! Reading the arguments of commands, as bytes that any client may have sent. Numbers are strict
//! decimals. The first that is not as it should be is refused; no refusal repeats what was sent.
#![expect(clippy::missing_errors_doc, reason = "said above, and by `Refusal`")]

use std::fmt;

use crate::latch::Latch;
use crate::lock::{Acquire, Release};
use crate::mode::Want;
use crate::parse::{OWNER_BYTES_MAX, is_owner, strict_decimal};
use crate::semaphore::Permits;
use crate::token::{TOKEN_STORED_MAX, Token};
use crate::types::{HOLDS_MAX, Millis};
use crate::value::VALUE_BYTES_MAX;

/// The longest time that a command can ask for, in milliseconds: ten years.
pub const TEN_YEARS_MS: u64 = 315_360_000_000;

/// A minute in milliseconds: the longest that a session lives unread, and that a reader waits.
const MINUTE_MS: u64 = 60_000;

/// Most outcomes in one reply to a reader, unless it asks for fewer.
const READ_MAX: usize = 1000;

/// The most entries that a report shows.
const COUNT_MAX: u64 = 1000;

/// The most bytes in the name of a key that is waited for, observed or bound: the module keeps it in memory.
pub const KEY_BYTES_MAX: usize = 4_096;

/// The most keys that one step locks.
pub const SET_KEYS_MAX: usize = 64;

/// The error for a value of a sharer.
pub const NO_VALUE: &str = "ERR a lock that is shared has no VALUE";

/// Why arguments are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Words that are not there, or not together.
    Syntax,
    /// An invalid name of an owner or another party.
    Name(&'static str),
    /// An invalid number, or a number out of its range.
    Number {
        /// Which one.
        name: &'static str,
        /// The least that it may be.
        least: u64,
        /// The most that it may be.
        most: u64,
    },
    /// Longest value of a holder.
    Value,
    /// A value of a sharer.
    SharedValue,
    /// The name of a key that is too long.
    Key,
    /// A set with too many keys, or with a key twice.
    Set,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str("ERR syntax error"),
            Self::Name(what) => write!(
                f,
                "ERR invalid {what}: must be 1 to {OWNER_BYTES_MAX} bytes and not a reserved field name"
            ),
            Self::Number { name, least, most } => {
                write!(f, "ERR invalid {name}: must be between {least} and {most}")
            }
            Self::Value => write!(f, "ERR invalid VALUE: must be at most {VALUE_BYTES_MAX} bytes"),
            Self::SharedValue => f.write_str(NO_VALUE),
            Self::Set => {
                write!(
                    f,
                    "ERR invalid keys: at most {SET_KEYS_MAX} together, and none of them twice"
                )
            }
            Self::Key => write!(
                f,
                "ERR invalid key: to be waited for, observed or bound it must be at most {KEY_BYTES_MAX} bytes"
            ),
        }
    }
}

/// Refuses the name of a key that is too long to be waited for, observed or bound.
pub fn kept_key(name: &[u8]) -> Read<()> {
    if name.len() <= KEY_BYTES_MAX { Ok(()) } else { Err(Refusal::Key) }
}

/// The parsed arguments, or the reason for refusing them.
pub type Read<T> = Result<T, Refusal>;

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

/// Reads a timeout; 0 is none.
pub fn timeout(arg: &[u8]) -> Read<Option<Millis>> {
    let timeout = number("timeout-ms", arg, 0, TEN_YEARS_MS)?;
    Ok((timeout > 0).then_some(Millis(timeout)))
}

/// Takes `SHARED` off the options: it may come first or last.
pub fn want<A: AsRef<[u8]>>(options: &[A]) -> (Want, &[A]) {
    let (is_shared, others) = without(b"SHARED", options);
    (if is_shared { Want::Shared } else { Want::Exclusive }, others)
}

/// Takes a word off the options, if it comes first or last.
fn without<'a, A: AsRef<[u8]>>(word: &[u8], options: &'a [A]) -> (bool, &'a [A]) {
    match options {
        [first, rest @ ..] if is(first, word) => (true, rest),
        [rest @ .., last] if is(last, word) => (true, rest),
        all => (false, all),
    }
}

/// Reads the `HOLDS n` of an acquire, if it is there.
pub fn holds<A: AsRef<[u8]>>(options: &[A]) -> Read<Option<u64>> {
    match options {
        [] => Ok(None),
        [word, n] if is(word, b"HOLDS") => number("HOLDS", n.as_ref(), 1, HOLDS_MAX).map(Some),
        _ => Err(Refusal::Syntax),
    }
}

/// Reads how much a release gives back.
pub fn amount<A: AsRef<[u8]>>(options: &[A]) -> Read<Release> {
    match options {
        [] => Ok(Release::One),
        [word] if is(word, b"ALL") => Ok(Release::All),
        [word, n] if is(word, b"HOLDS") => {
            number("HOLDS", n.as_ref(), 0, HOLDS_MAX - 1).map(Release::DownTo)
        }
        _ => Err(Refusal::Syntax),
    }
}

/// A result that a release stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<A> {
    /// The key under which it is stored.
    pub key: A,
    /// Its value.
    pub value: A,
    /// Lifetime; `None` is without limit.
    pub lifetime: Option<Millis>,
}

/// Takes `STORE key value [PX lifetime-ms]` off the options, at most once.
pub fn store<A: AsRef<[u8]> + Copy>(options: &[A]) -> Read<(Option<Store<A>>, Vec<A>)> {
    let (mut store, mut others) = (None, Vec::new());
    let mut rest = options;
    while let [option, after @ ..] = rest {
        if !is(option, b"STORE") {
            others.push(*option);
            rest = after;
            continue;
        }
        let [key, value, after @ ..] = after else { return Err(Refusal::Syntax) };
        let (lifetime, after) = match after {
            [word, n, after @ ..] if is(word, b"PX") => {
                (Some(Millis(number("lifetime-ms", n.as_ref(), 1, TEN_YEARS_MS)?)), after)
            }
            after => (None, after),
        };
        if store.replace(Store { key: *key, value: *value, lifetime }).is_some() {
            return Err(Refusal::Syntax);
        }
        rest = after;
    }
    Ok((store, others))
}

/// The further keys of a command for several locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Further<'a, A> {
    /// Keys that are locked in the mode of the command.
    pub with: &'a [A],
    /// Keys that are shared, whatever the mode of the command is.
    pub under: &'a [A],
}

/// Takes `WITH numkeys key …` and `UNDER numkeys key …` off the options, each at most once. `None` if there is neither.
pub fn further<'a, A: AsRef<[u8]> + Copy>(
    key: A,
    options: &'a [A],
) -> Read<Option<(Further<'a, A>, Vec<A>)>> {
    let names_keys = |option: &A| is(option, b"WITH") || is(option, b"UNDER");
    if !options.iter().any(names_keys) {
        return Ok(None);
    }
    let (mut with, mut under, mut others) = (None, None, Vec::new());
    let mut rest = options;
    while let [option, after @ ..] = rest {
        let found = if is(option, b"WITH") {
            &mut with
        } else if is(option, b"UNDER") {
            &mut under
        } else {
            // A text that reads like one of the words is none.
            let (option, after) = rest.split_at(width(option).min(rest.len()));
            others.extend_from_slice(option);
            rest = after;
            continue;
        };
        let [count, after @ ..] = after else { return Err(Refusal::Syntax) };
        let most = u64::try_from(SET_KEYS_MAX).unwrap_or(u64::MAX).saturating_sub(1);
        let count = number("numkeys", count.as_ref(), 1, most)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let Some((keys, after)) = after.split_at_checked(count) else {
            return Err(Refusal::Syntax);
        };
        if found.replace(keys).is_some() {
            return Err(Refusal::Syntax);
        }
        rest = after;
    }
    let further = Further { with: with.unwrap_or_default(), under: under.unwrap_or_default() };
    let keys = further.with.iter().chain(further.under).map(AsRef::as_ref);
    let mut names: Vec<_> = std::iter::once(key.as_ref()).chain(keys).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    if names.len() < count || count > SET_KEYS_MAX {
        return Err(Refusal::Set);
    }
    // Without a word that names keys, all options are options of a command for one lock.
    Ok((with.is_some() || under.is_some()).then_some((further, others)))
}

/// The number of words of an option of a command for locks, with the word that it begins with.
fn width(option: &impl AsRef<[u8]>) -> usize {
    if is(option, b"STORE") {
        return 3;
    }
    let words = [&b"HOLDS"[..], b"SESSION", b"UNLESS", b"VALUE", b"TOKEN", b"PX"];
    if words.into_iter().any(|word| is(option, word)) { 2 } else { 1 }
}

/// Reads the arguments that acquiring a lock and waiting for it have in common: all but key and
/// timeout.
pub fn acquire<'a, A: AsRef<[u8]>>(
    owner_arg: &'a [u8],
    lease_arg: &[u8],
    options: &[A],
    max_lease_ms: u64,
) -> Read<Acquire<'a>> {
    let (want, options) = want(options);
    let (owner, lease) = (owner(owner_arg)?, lease(lease_arg, max_lease_ms)?);
    Ok(Acquire { owner, lease, want, holds: holds(options)? })
}

/// Reads the arguments of a renewal: the lease, and the smallest token afterwards.
pub fn renewal<A: AsRef<[u8]>>(
    owner_arg: &[u8],
    lease_arg: &[u8],
    options: &[A],
    max_lease_ms: u64,
) -> Read<(Millis, Option<Token>)> {
    owner(owner_arg)?;
    let lease = lease(lease_arg, max_lease_ms)?;
    let at_least = match options {
        [] => None,
        [word, n] if is(word, b"TOKEN") => {
            Token::from_stored(number("TOKEN", n.as_ref(), 1, TOKEN_STORED_MAX)?)
        }
        _ => return Err(Refusal::Syntax),
    };
    Ok((lease, at_least))
}

/// Reads the number of permits of a semaphore, and whether to set it only if it is new.
pub fn permits_to_set<A: AsRef<[u8]>>(permits: &[u8], options: &[A]) -> Read<(u64, bool)> {
    let permits = number("permits", permits, 0, Permits::MAX)?;
    match options {
        [] => Ok((permits, false)),
        [word] if is(word, b"NX") => Ok((permits, true)),
        _ => Err(Refusal::Syntax),
    }
}

/// Reads the arguments that acquiring permits and waiting for them have in common.
pub fn permits<'a, A: AsRef<[u8]>>(
    owner_arg: &'a [u8],
    permits_arg: &[u8],
    lease_arg: &[u8],
    options: &[A],
    max_lease_ms: u64,
) -> Read<(u64, Acquire<'a>)> {
    let owner = owner(owner_arg)?;
    let permits = number("permits", permits_arg, 1, Permits::MAX)?;
    let lease = lease(lease_arg, max_lease_ms)?;
    let (want, holds) = (Want::Permits(permits), holds(options)?);
    Ok((permits, Acquire { owner, want, lease, holds }))
}

/// Reads the arguments of acquiring permits. Their number may also be `ALL`, which is `None` here.
pub fn permits_or_all<'a, A: AsRef<[u8]>>(
    owner_arg: &'a [u8],
    permits_arg: &[u8],
    lease_arg: &[u8],
    options: &[A],
    max_lease_ms: u64,
) -> Read<(Option<u64>, Acquire<'a>)> {
    if !is(&permits_arg, b"ALL") {
        let some = permits(owner_arg, permits_arg, lease_arg, options, max_lease_ms);
        return some.map(|(permits, request)| (Some(permits), request));
    }
    let (owner, lease) = (owner(owner_arg)?, lease(lease_arg, max_lease_ms)?);
    let (want, holds) = (Want::Permits(Permits::MAX), holds(options)?);
    Ok((None, Acquire { owner, want, lease, holds }))
}

/// Reads the count of a latch, its lifetime, and whether it replaces a latch that counts.
pub fn latch<A: AsRef<[u8]>>(count: &[u8], options: &[A]) -> Read<(u64, Option<Millis>, bool)> {
    let count = number("count", count, 1, Latch::COUNT_MAX)?;
    let (replace, options) = without(b"REPLACE", options);
    let lifetime = match options {
        [] => None,
        [word, n] if is(word, b"PX") => Some(number("lifetime-ms", n.as_ref(), 1, TEN_YEARS_MS)?),
        _ => return Err(Refusal::Syntax),
    };
    Ok((count, lifetime.map(Millis), replace))
}

/// Reads `WORD count`, if it is there.
pub fn count<A: AsRef<[u8]>>(word: &[u8], options: &[A]) -> Read<Option<usize>> {
    match options {
        [] => Ok(None),
        [first, n] if is(first, word) => {
            let n = number("count", n.as_ref(), 1, COUNT_MAX)?;
            Ok(usize::try_from(n).ok())
        }
        _ => Err(Refusal::Syntax),
    }
}

/// Reads the number of entries to show, and whether to start again after that: `COUNT count` and `RESET`, each if
/// it is there, in any order.
pub fn profile<A: AsRef<[u8]>>(options: &[A]) -> Read<(Option<usize>, bool)> {
    let (reset, options) = without(b"RESET", options);
    Ok((count(b"COUNT", options)?, reset))
}

/// Reads `WORD count` and `OTHER count`, each if it is there, in any order.
pub fn counts<A: AsRef<[u8]>>(
    word: &[u8],
    other: &[u8],
    options: &[A],
) -> Read<(Option<usize>, Option<usize>)> {
    let (first, second) = options.split_at(options.len().min(2));
    match options {
        [name, ..] if is(name, other) => {
            let shown = count(other, first)?;
            Ok((count(word, second)?, shown))
        }
        _ => Ok((count(word, first)?, count(other, second)?)),
    }
}

/// Reads the time to live of a session without a reader.
pub fn ttl(arg: &[u8]) -> Read<Millis> {
    number("ttl-ms", arg, 100, MINUTE_MS).map(Millis)
}

/// Reads the time to live of a new session, and whether it has a bell.
pub fn open<A: AsRef<[u8]>>(ttl_ms: &[u8], options: &[A]) -> Read<(Millis, bool)> {
    let has_bell = match options {
        [] => false,
        [word] if is(word, b"BELL") => true,
        _ => return Err(Refusal::Syntax),
    };
    Ok((ttl(ttl_ms)?, has_bell))
}

/// Reads the arguments of a reader: the acknowledged number, its timeout, and the most outcomes of one reply.
pub fn next<A: AsRef<[u8]>>(
    ack: &[u8],
    timeout: &[u8],
    options: &[A],
) -> Read<(u64, Millis, usize)> {
    let ack = number("ack", ack, 0, TOKEN_STORED_MAX)?;
    let timeout = number("timeout-ms", timeout, 0, MINUTE_MS)?;
    let most = count(b"COUNT", options)?;
    Ok((ack, Millis(timeout), most.unwrap_or(READ_MAX)))
}

/// Takes `WORD text` off the options for each of these words, once, wherever it stands among them but for
/// the place of a number.
pub fn named<A: AsRef<[u8]> + Copy, const N: usize>(
    words: [&[u8]; N],
    options: &[A],
) -> Read<([Option<A>; N], Vec<A>)> {
    let (mut found, mut others) = ([None; N], Vec::new());
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        let Some(place) = words.iter().zip(&mut found).find(|(word, _)| is(option, word)) else {
            keep(option, &mut rest, &mut others);
            continue;
        };
        if place.1.replace(*rest.next().ok_or(Refusal::Syntax)?).is_some() {
            return Err(Refusal::Syntax);
        }
    }
    Ok((found, others))
}

/// Takes `SESSION id` off the options, wherever it stands among them, once.
pub fn session<A: AsRef<[u8]> + Copy>(options: &[A]) -> Read<(Option<A>, Vec<A>)> {
    named([b"SESSION"], options).map(|([session], others)| (session, others))
}

/// Reads the value of a holder, if there is one. A sharer cannot have one.
pub fn value<A: AsRef<[u8]>>(value: Option<&A>, want: Want) -> Read<Option<&[u8]>> {
    match value.map(AsRef::as_ref) {
        Some(_) if want == Want::Shared => Err(Refusal::SharedValue),
        Some(value) if value.len() > VALUE_BYTES_MAX => Err(Refusal::Value),
        value => Ok(value),
    }
}

/// Takes `BOUND` off the options, once, wherever it stands among them but for the place of a number.
pub fn bound<A: AsRef<[u8]> + Copy>(options: &[A]) -> Read<(bool, Vec<A>)> {
    once(b"BOUND", options)
}

/// Takes `HELD` off the options, wherever it stands among them, once.
pub fn held<A: AsRef<[u8]> + Copy>(options: &[A]) -> Read<(bool, Vec<A>)> {
    once(b"HELD", options)
}

/// Takes a word off the options, wherever it stands among them but in the place of a number, once.
fn once<A: AsRef<[u8]> + Copy>(word: &[u8], options: &[A]) -> Read<(bool, Vec<A>)> {
    let (mut found, mut others) = (0_usize, Vec::new());
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if is(option, word) {
            found = found.saturating_add(1);
            continue;
        }
        keep(option, &mut rest, &mut others);
    }
    if found > 1 { Err(Refusal::Syntax) } else { Ok((found == 1, others)) }
}

/// Leaves an option to others, with its number if it has one.
fn keep<A: AsRef<[u8]> + Copy>(
    option: &A,
    rest: &mut std::slice::Iter<'_, A>,
    others: &mut Vec<A>,
) {
    others.push(*option);
    if is(option, b"HOLDS") {
        others.extend(rest.next());
    }
}

fn is(arg: &impl AsRef<[u8]>, word: &[u8]) -> bool {
    arg.as_ref().eq_ignore_ascii_case(word)
}

fn number(name: &'static str, arg: &[u8], least: u64, most: u64) -> Read<u64> {
    let number = strict_decimal(arg).filter(|n| (least..=most).contains(n));
    number.ok_or(Refusal::Number { name, least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_comes_first_or_last_and_only_once() {
        for options in [&["SHARED", "HOLDS", "2"][..], &["holds", "2", "shared"]] {
            let read = acquire(b"a", b"5", options, 9);
            assert!(read.is_ok_and(|read| read.want == Want::Shared && read.holds == Some(2)));
        }
        for options in [&["HOLDS", "SHARED", "2"][..], &["SHARED", "SHARED"], &["HOLDS"]] {
            assert_eq!(acquire(b"a", b"5", options, 9).err(), Some(Refusal::Syntax));
        }
    }

    #[test]
    fn the_ends_of_each_range_are_in_it() {
        assert_eq!(lease(b"1", 9), Ok(Millis(1)));
        assert_eq!(lease(b"9", 9), Ok(Millis(9)));
        let refusal = Err(Refusal::Number { name: "lease-ms", least: 1, most: 9 });
        assert_eq!([lease(b"0", 9), lease(b"10", 9)], [refusal, refusal]);
        assert_eq!(timeout(b"0"), Ok(None));
        assert_eq!(timeout(b"315360000000"), Ok(Some(Millis(TEN_YEARS_MS))));
        assert!(timeout(b"315360000001").is_err());
        assert_eq!(amount(&["HOLDS", "4294967294"]), Ok(Release::DownTo(HOLDS_MAX - 1)));
        assert!(amount(&["HOLDS", "4294967295"]).is_err());
        assert!(amount(&["ALL", "ALL"]).is_err());
        assert_eq!(permits_to_set(b"0", &["nx"]), Ok((0, true)));
        assert_eq!(count(b"COUNT", &["COUNT", "1000"]), Ok(Some(1000)));
        assert!(count(b"COUNT", &["COUNT", "1001"]).is_err());
    }

    #[test]
    fn other_words_than_those_that_are_known_are_refused() {
        assert_eq!(holds(&["HOLDS", "2"]), Ok(Some(2)));
        assert_eq!(holds(&["TIMES", "2"]), Err(Refusal::Syntax));
        assert_eq!(amount(&[""; 0]), Ok(Release::One));
        assert_eq!(amount(&["all"]), Ok(Release::All));
        assert_eq!(amount(&["SOME"]), Err(Refusal::Syntax));
        assert_eq!(amount(&["LEAVE", "2"]), Err(Refusal::Syntax));
        assert_eq!(renewal(b"a", b"5", &["LEASE", "9"], 9), Err(Refusal::Syntax));
        assert_eq!(permits_to_set(b"3", &[""; 0]), Ok((3, false)));
        assert_eq!(permits_to_set(b"3", &["XX"]), Err(Refusal::Syntax));
        assert_eq!(latch(b"3", &["EX", "9"]), Err(Refusal::Syntax));
        assert_eq!(count(b"COUNT", &["MOST", "9"]), Err(Refusal::Syntax));
    }

    #[test]
    fn a_release_stores_at_most_one_result() {
        let read = |options: &[&'static str]| store(options);
        let plain = Store { key: "r", value: "v", lifetime: None };
        assert_eq!(read(&["ALL"]), Ok((None, vec!["ALL"])));
        assert_eq!(read(&["store", "r", "v", "ALL"]), Ok((Some(plain), vec!["ALL"])));
        let short = Store { lifetime: Some(Millis(9)), ..plain };
        let options = ["HOLDS", "0", "STORE", "r", "v", "px", "9"];
        assert_eq!(read(&options), Ok((Some(short), vec!["HOLDS", "0"])));
        let named = Store { value: "STORE", ..plain };
        assert_eq!(read(&["STORE", "r", "STORE"]), Ok((Some(named), vec![])));
        for wrong in [&["STORE", "r"][..], &["STORE", "r", "v", "STORE", "r", "v"]] {
            assert_eq!(read(wrong), Err(Refusal::Syntax));
        }
        assert!(read(&["STORE", "r", "v", "PX", "0"]).is_err());
    }

    #[test]
    fn all_permits_are_no_number() {
        let read = |permits| permits_or_all(b"a", permits, b"5", &[""; 0], 9).map(|(n, _)| n);
        assert_eq!([read(b"all"), read(b"3")], [Ok(None), Ok(Some(3))]);
        assert!(read(b"0").is_err() && read(b"ALLL").is_err());
    }

    #[test]
    fn a_renewal_may_raise_the_token() {
        let token = Token::from_stored(9);
        assert!(token.is_some());
        assert_eq!(renewal(b"a", b"5", &["token", "9"], 9), Ok((Millis(5), token)));
        assert_eq!(renewal(b"a", b"5", &[""; 0], 9), Ok((Millis(5), None)));
        assert_eq!(renewal(b"a", b"5", &["TOKEN"], 9), Err(Refusal::Syntax));
        for wrong in ["0", "4503599627370497", "-1"] {
            assert!(renewal(b"a", b"5", &["TOKEN", wrong], 9).is_err(), "{wrong}");
        }
        assert_eq!(renewal(b"", b"5", &[""; 0], 9), Err(Refusal::Name("owner")));
    }

    #[test]
    fn two_counts_come_in_any_order() {
        let read = |options: &[&str]| counts(b"W", b"H", options);
        assert_eq!(read(&[]), Ok((None, None)));
        assert_eq!(read(&["W", "1"]), Ok((Some(1), None)));
        assert_eq!(read(&["H", "2"]), Ok((None, Some(2))));
        assert_eq!(read(&["W", "1", "H", "2"]), Ok((Some(1), Some(2))));
        assert_eq!(read(&["H", "2", "W", "1"]), Ok((Some(1), Some(2))));
        for wrong in [&["W"][..], &["W", "1", "W", "1"], &["H", "2", "H", "2"], &["W", "1", "H"]] {
            assert_eq!(read(wrong), Err(Refusal::Syntax), "{wrong:?}");
        }
    }

    #[test]
    fn a_session_may_be_named_once_and_anywhere() {
        for options in [&["SESSION", "id", "HOLDS", "2"][..], &["holds", "2", "session", "id"]] {
            let (session, others) = session(options).expect("it is well formed");
            assert_eq!((session, others.len()), (Some("id"), 2));
            assert_eq!(holds(&others), Ok(Some(2)));
        }
        assert_eq!(session(&["SHARED"]), Ok((None, vec!["SHARED"])));
        assert_eq!(session(&["SESSION"]), Err(Refusal::Syntax));
        assert_eq!(session(&["SESSION", "a", "SESSION", "a"]), Err(Refusal::Syntax));
        // A value may equal the name of an option.
        let both = named([&b"SESSION"[..], b"VALUE"], &["VALUE", "SESSION", "SESSION", "VALUE"]);
        assert_eq!(both, Ok(([Some("VALUE"), Some("SESSION")], vec![])));
        // But an option's name between HOLDS and its number is not that option.
        let options = ["HOLDS", "VALUE", "1", "1"];
        assert_eq!(named([b"VALUE"], &options), Ok(([None], options.to_vec())));
    }

    #[test]
    fn a_value_is_short_and_of_one_holder() {
        let long = [0; VALUE_BYTES_MAX + 1];
        let read = |said: &[u8], want| value(Some(&said), want).map(|said| said.map(<[u8]>::len));
        assert_eq!(read(&long[1..], Want::Exclusive), Ok(Some(VALUE_BYTES_MAX)));
        assert_eq!(read(&long, Want::Exclusive), Err(Refusal::Value));
        assert_eq!(read(b"", Want::Shared), Err(Refusal::SharedValue));
        assert_eq!(value(None::<&&[u8]>, Want::Shared), Ok(None));
        assert_eq!(Refusal::Value.to_string(), "ERR invalid VALUE: must be at most 1024 bytes");
        assert_eq!(Refusal::SharedValue.to_string(), "ERR a lock that is shared has no VALUE");
    }

    #[test]
    fn bound_is_said_once_and_is_no_number() {
        for options in [&["BOUND", "SHARED"][..], &["shared", "bound"]] {
            assert_eq!(bound(options).map(|(bound, others)| (bound, others.len())), Ok((true, 1)));
        }
        assert_eq!(bound(&["HOLDS", "BOUND"]), Ok((false, vec!["HOLDS", "BOUND"])));
        assert_eq!(bound(&["BOUND", "HOLDS", "2", "BOUND"]), Err(Refusal::Syntax));
        assert_eq!(held(&["held", "BOUND"]), Ok((true, vec!["BOUND"])));
    }

    #[test]
    fn a_reader_says_what_it_knows_how_long_it_waits_and_how_much_it_takes() {
        assert_eq!(next(b"0", b"0", &[""; 0]), Ok((0, Millis(0), 1_000)));
        assert_eq!(next(b"7", b"60000", &["count", "3"]), Ok((7, Millis(60_000), 3)));
        assert!(next(b"-1", b"0", &[""; 0]).is_err() && next(b"0", b"60001", &[""; 0]).is_err());
        assert!(next(b"0", b"0", &["COUNT", "0"]).is_err());
        assert_eq!([ttl(b"100"), ttl(b"60000")], [Ok(Millis(100)), Ok(Millis(60_000))]);
        assert!(ttl(b"99").is_err() && ttl(b"60001").is_err());
    }

    #[test]
    fn a_latch_is_read_in_any_order() {
        let all = Ok((3, Some(Millis(9)), true));
        assert_eq!(latch(b"3", &["REPLACE", "PX", "9"]), all);
        assert_eq!(latch(b"3", &["PX", "9", "REPLACE"]), all);
        assert_eq!(latch(b"3", &[""; 0]), Ok((3, None, false)));
        assert_eq!(latch(b"3", &["PX"]), Err(Refusal::Syntax));
        assert!(latch(b"0", &[""; 0]).is_err());
    }

    #[test]
    fn a_refusal_says_what_would_do_and_not_what_was_sent() {
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
    fn further_keys_are_taken_off_wherever_they_stand() {
        let read = |words: &[&'static str]| {
            let read = further("k", words);
            read.map(|read| {
                read.map(|(further, others)| {
                    (further.with.to_vec(), further.under.to_vec(), others)
                })
            })
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["SHARED", "HOLDS", "2"]), Ok(None));
        let all = ["with", "2", "a", "UNDER", "HOLDS", "2", "under", "1", "b", "SHARED"];
        let others = vec!["HOLDS", "2", "SHARED"];
        assert_eq!(read(&all), Ok(Some((vec!["a", "UNDER"], vec!["b"], others))));
        // Texts that read like the words.
        for text in ["VALUE", "SESSION", "UNLESS"] {
            assert_eq!(read(&[text, "WITH"]), Ok(None));
            let others = vec![text, "WITH"];
            assert_eq!(
                read(&[text, "WITH", "UNDER", "1", "b"]),
                Ok(Some((vec![], vec!["b"], others)))
            );
        }
        let store = ["STORE", "WITH", "UNDER", "PX", "9", "WITH", "1", "a"];
        assert_eq!(read(&store), Ok(Some((vec!["a"], vec![], store[..5].to_vec()))));
    }

    #[test]
    fn sets_with_wrong_keys_are_refused() {
        let refused = |words: &[&str]| further("k", words).expect_err("it is wrong");
        for words in [
            &["WITH"][..],
            &["WITH", "1"],
            &["WITH", "2", "a"],
            &["WITH", "1", "a", "WITH", "1", "b"],
        ] {
            assert_eq!(refused(words), Refusal::Syntax, "{words:?}");
        }
        let numkeys = Refusal::Number { name: "numkeys", least: 1, most: 63 };
        for count in ["0", "64", "-1", "01", "x"] {
            assert_eq!(refused(&["WITH", count, "a"]), numkeys, "{count}");
        }
        for words in [
            &["WITH", "1", "k"][..],
            &["WITH", "2", "a", "a"],
            &["WITH", "1", "a", "UNDER", "1", "a"],
        ] {
            assert_eq!(refused(words), Refusal::Set, "{words:?}");
        }
        let names: Vec<_> = (0..64).map(|number| format!("k{number}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let of = |with: &[&str], under: &[&str]| {
            let (w, u) = (with.len().to_string(), under.len().to_string());
            let words = [&["WITH", &w][..], with, &["UNDER", &u], under].concat();
            further("k", &words).map(|read| read.is_some())
        };
        assert_eq!(of(&names[..32], &names[32..63]), Ok(true));
        assert_eq!(of(&names[..32], &names[32..]), Err(Refusal::Set));
    }
}
