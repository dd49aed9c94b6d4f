//! Takes options off the arguments. The options may be in any order. An option that is given twice
//! is refused.
#![expect(clippy::missing_errors_doc, reason = "`Refusal` says why")]

use super::refusal::{Read, Refusal, SET_KEYS_MAX, TEN_YEARS_MS, is, number};
use crate::types::Millis;

/// A result that a release stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<A> {
    /// Key under which the result is stored.
    pub key: A,
    /// Value of that key.
    pub value: A,
    /// Lifetime; `None` is unlimited.
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
    /// Keys that are locked shared, whatever the mode of the command.
    pub under: &'a [A],
}

/// Takes `WITH numkeys key …` and `UNDER numkeys key …` off the options, each at most once. `None`
/// if the options contain neither.
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
            // The arguments of an option may equal `WITH` or `UNDER`, so the whole option is skipped.
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
    // If `WITH` and `UNDER` are only arguments of other options, the command is for one lock.
    Ok((with.is_some() || under.is_some()).then_some((further, others)))
}

/// Returns the number of words of an option, including the first one. `PX` counts as an option of
/// its own.
fn width(option: &impl AsRef<[u8]>) -> usize {
    if is(option, b"STORE") {
        return 3;
    }
    let words = [&b"HOLDS"[..], b"SESSION", b"UNLESS", b"VALUE", b"TOKEN", b"PX"];
    if words.into_iter().any(|word| is(option, word)) { 2 } else { 1 }
}

/// Takes `WORD text` off the options for each of these words, at most once each. A word directly
/// after `HOLDS` is the argument of `HOLDS` and is not taken off.
pub fn named<A: AsRef<[u8]> + Copy, const N: usize>(
    words: [&[u8]; N],
    options: &[A],
) -> Read<([Option<A>; N], Vec<A>)> {
    let (mut found, mut others) = ([None; N], Vec::new());
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        let Some(place) = words.iter().zip(&mut found).find(|(word, _)| is(option, word)) else {
            add_option(option, &mut rest, &mut others);
            continue;
        };
        if place.1.replace(*rest.next().ok_or(Refusal::Syntax)?).is_some() {
            return Err(Refusal::Syntax);
        }
    }
    Ok((found, others))
}

/// Takes `SESSION id` off the options, at most once.
pub fn session<A: AsRef<[u8]> + Copy>(options: &[A]) -> Read<(Option<A>, Vec<A>)> {
    named([b"SESSION"], options).map(|([session], others)| (session, others))
}

/// Takes `BOUND` off the options, at most once. Leaves a word directly after `HOLDS`.
pub fn bound<A: AsRef<[u8]> + Copy>(options: &[A]) -> Read<(bool, Vec<A>)> {
    once(b"BOUND", options)
}

/// Takes `HELD` off the options, at most once. Leaves a word directly after `HOLDS`.
pub fn held<A: AsRef<[u8]> + Copy>(options: &[A]) -> Read<(bool, Vec<A>)> {
    once(b"HELD", options)
}

/// Takes a word off the options, at most once. Leaves it if it comes directly after `HOLDS`,
/// because it is the argument of `HOLDS` there.
fn once<A: AsRef<[u8]> + Copy>(word: &[u8], options: &[A]) -> Read<(bool, Vec<A>)> {
    let (mut found, mut others) = (0_usize, Vec::new());
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if is(option, word) {
            found = found.saturating_add(1);
            continue;
        }
        add_option(option, &mut rest, &mut others);
    }
    if found > 1 { Err(Refusal::Syntax) } else { Ok((found == 1, others)) }
}

/// Adds an option to the others. If the option is `HOLDS`, also adds its number.
fn add_option<A: AsRef<[u8]> + Copy>(
    option: &A,
    rest: &mut std::slice::Iter<'_, A>,
    others: &mut Vec<A>,
) {
    others.push(*option);
    if is(option, b"HOLDS") {
        others.extend(rest.next());
    }
}

#[cfg(test)]
mod tests {
    use super::super::holds;
    use super::*;

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
        // But the word directly after HOLDS is never taken as an option.
        let options = ["HOLDS", "VALUE", "1", "1"];
        assert_eq!(named([b"VALUE"], &options), Ok(([None], options.to_vec())));
    }

    #[test]
    fn bound_is_given_once_and_is_not_a_number() {
        for options in [&["BOUND", "SHARED"][..], &["shared", "bound"]] {
            assert_eq!(bound(options).map(|(bound, others)| (bound, others.len())), Ok((true, 1)));
        }
        assert_eq!(bound(&["HOLDS", "BOUND"]), Ok((false, vec!["HOLDS", "BOUND"])));
        assert_eq!(bound(&["BOUND", "HOLDS", "2", "BOUND"]), Err(Refusal::Syntax));
        assert_eq!(held(&["held", "BOUND"]), Ok((true, vec!["BOUND"])));
    }

    #[test]
    fn further_keys_may_be_anywhere_among_the_options() {
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
        // Arguments that equal the names of options.
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
