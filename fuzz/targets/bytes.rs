//! Parses arbitrary bytes as arguments of commands and as fields of hashes. Fails if a parser panics
//! or returns a wrong value.
#![no_main]

use kvlock_core::arguments::{self, Options, SET_KEYS_MAX, TEN_YEARS_MS};
use kvlock_core::{
    HOLDS_MAX, Latch, Mode, Observed, Permits, Share, Token, UnixMillis, is_owner, strict_decimal,
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((what, rest)) = data.split_first() else { return };
    // The words are separated by a byte that no keyword contains.
    let mut words = rest.split(|byte| *byte == 0x1f);
    let [first, second, third] = [(); 3].map(|()| words.next().unwrap_or_default());
    let mut options = [&b""[..]; 5];
    let mut count = 0;
    for (place, word) in options.iter_mut().zip(words) {
        (*place, count) = (word, count + 1);
    }
    let options = &options[..count];
    match what % 9 {
        0 => acquire(first, second, options),
        1 => permits(first, second, third, options),
        2 => latch(first, options),
        3 => others(first, options),
        4 | 5 => lock(rest),
        6 => values(rest),
        7 => with_keys(first, options),
        _ => number(rest),
    }
});

fn acquire(owner: &[u8], lease: &[u8], options: &[&[u8]]) {
    match arguments::acquire(owner, lease, Options::split(options), 1_000) {
        Ok(read) => {
            assert!(is_owner(read.owner) && read.owner == owner);
            assert!((1..=1_000).contains(&read.lease.0));
            assert!(read.holds.is_none_or(|n| (1..=HOLDS_MAX).contains(&n)));
            assert!(options.len() <= 3);
        }
        Err(refusal) => says_nothing_of_it(&refusal),
    }
}

fn permits(owner: &[u8], permits: &[u8], lease: &[u8], options: &[&[u8]]) {
    match arguments::permits(owner, permits, lease, Options::split(options), TEN_YEARS_MS) {
        Ok((permits, read)) => {
            assert!((1..=Permits::MAX).contains(&permits) && is_owner(read.owner));
            assert!((1..=TEN_YEARS_MS).contains(&read.lease.0));
        }
        Err(refusal) => says_nothing_of_it(&refusal),
    }
    if let Ok((permits, _)) = arguments::permits_to_set(permits, Options::split(options)) {
        assert!(permits <= Permits::MAX && options.len() <= 1);
    }
}

fn latch(count: &[u8], options: &[&[u8]]) {
    if let Ok((count, lifetime, _)) = arguments::latch(count, Options::split(options)) {
        assert!((1..=Latch::COUNT_MAX).contains(&count));
        assert!(lifetime.is_none_or(|lifetime| (1..=TEN_YEARS_MS).contains(&lifetime.0)));
    }
}

fn others(word: &[u8], options: &[&[u8]]) {
    if let Ok(Some(timeout)) = arguments::timeout(word) {
        assert!((1..=TEN_YEARS_MS).contains(&timeout.0));
    }
    if let Ok((lease, at_least)) = arguments::renewal(b"owner", word, Options::split(options), 1_000) {
        assert!((1..=1_000).contains(&lease.0));
        believable(at_least);
    }
    let release = arguments::amount(Options::split(options));
    assert!(release.is_err() || options.len() <= 2);
    if let Ok((waiters, holders)) = arguments::shown(Options::split(options)) {
        for shown in [waiters, holders].into_iter().flatten() {
            assert!((1..=1_000).contains(&shown));
        }
        assert_eq!(options.len(), 2 * [waiters, holders].into_iter().flatten().count());
    }
}

/// Parses options that name keys. If nothing is left over, each word was parsed.
fn with_keys(key: &[u8], options: &[&[u8]]) {
    let mut left = Options::split(options);
    if let Ok(store) = left.store() {
        let lifetime = store.and_then(|store| store.lifetime);
        assert!(lifetime.is_none_or(|lifetime| (1..=TEN_YEARS_MS).contains(&lifetime.0)));
        let words = store.map_or(0, |_| 3) + lifetime.map_or(0, |_| 2);
        assert_eq!(left.end().is_ok(), words == options.len());
    }
    let mut left = Options::split(options);
    if let Ok(Some(further)) = left.further(key) {
        let mut keys = [further.with, further.under].concat();
        let words = [further.with, further.under].map(|keys| keys.len() + 2 * usize::from(!keys.is_empty()));
        assert_eq!(left.end().is_ok(), words.iter().sum::<usize>() == options.len());
        keys.push(key);
        let count = keys.len();
        assert!((2..=SET_KEYS_MAX).contains(&count));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
    let mut left = Options::split(options);
    if let (Ok(session), Ok(held)) = (left.argument(b"SESSION"), left.word(b"HELD")) {
        let words = 2 * usize::from(session.is_some()) + usize::from(held);
        assert_eq!(left.end().is_ok(), words == options.len());
    }
}

fn says_nothing_of_it(refusal: &arguments::Refusal) {
    let text = refusal.to_string();
    assert!(text.starts_with("ERR ") && !text.contains(['\r', '\n', '\0']));
}

/// Reads a lock from a hash of up to four fields.
fn lock(bytes: &[u8]) {
    let mut words = bytes.split(|byte| *byte == 0x1f);
    let mut fields = [(&b""[..], &b""[..]); 4];
    let mut count = 0;
    while let (Some(place), Some(field), Some(value)) =
        (fields.get_mut(count), words.next(), words.next())
    {
        (*place, count) = ((field, value), count + 1);
    }
    let until = Some(UnixMillis(7));
    match Observed::from_fields(fields[..count].iter().copied(), until) {
        Observed::Free { stored } => believable(stored),
        Observed::Held(held) => {
            assert!(fields[..count].iter().any(|(field, _)| *field == held.owner));
            assert!((1..=i64::MAX.cast_unsigned()).contains(&held.holds) && held.until == until);
            assert!(held.shared <= HOLDS_MAX);
            believable(held.token);
        }
        Observed::Shared(sharing) => {
            assert!(sharing.own.is_some_and(|share| (1..=HOLDS_MAX).contains(&share.holds)));
            believable(sharing.token);
        }
        Observed::NotALock { until: same } => assert_eq!(same, until),
    }
}

fn believable(token: Option<Token>) {
    assert!(token.is_none_or(|token| (1..1 << 53).contains(&token.value())));
}

/// Checks that a parsed value is formatted as the same bytes.
fn values(bytes: &[u8]) {
    if let Some(mode) = Mode::read(bytes) {
        assert_eq!(mode.text().as_bytes(), bytes);
    }
    if let Some(share) = Share::read(bytes) {
        assert_eq!(share.text().as_bytes(), bytes);
    }
    if let Some((limit, used)) = Permits::read(bytes) {
        assert_eq!(Permits::text(limit, used).as_bytes(), bytes);
    }
}

fn number(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or("");
    // The standard library also accepts a plus sign and leading zeros.
    let plain = text == "0" || !text.starts_with(['0', '+']);
    let expected = if plain { text.parse::<u64>().ok() } else { None };
    assert_eq!(strict_decimal(bytes), expected, "{bytes:?}");
}
