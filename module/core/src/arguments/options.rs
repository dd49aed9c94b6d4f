//! Splits the options of a command, and takes options off. The options may be in any order. An option that is
//! given twice is refused.
#![expect(clippy::missing_errors_doc, reason = "`Refusal` says why")]

use super::refusal::{Read, Refusal, SET_KEYS_MAX, TEN_YEARS_MS, is, number};
use crate::types::Millis;

/// The options of a command that were not taken off yet.
#[derive(Debug)]
pub struct Options<'a, A>(Vec<&'a [A]>);

/// Names of the options that have one argument.
const WITH_ONE_ARGUMENT: [&[u8]; 9] =
    [b"COUNT", b"HOLDERS", b"HOLDS", b"PX", b"SESSION", b"TOKEN", b"UNLESS", b"VALUE", b"WAITERS"];

/// Returns the number of words of the first option: its name and its arguments. All commands read their options
/// with it, and so does the report of a command's keys to the server. So an argument is never taken for an
/// option, and the report has exactly the keys that are used.
#[must_use]
pub fn width<A: AsRef<[u8]>>(words: &[A]) -> usize {
    let Some(option) = words.first() else { return 0 };
    let has = |names: &[&[u8]]| names.iter().any(|name| is(option, name));
    let width = if has(&[b"WITH", b"UNDER"]) {
        let count = words.get(1).and_then(|count| further_keys(count.as_ref()).ok());
        count.unwrap_or(0).saturating_add(2)
    } else if has(&[b"STORE"]) {
        if words.get(3).is_some_and(|word| is(word, b"PX")) { 5 } else { 3 }
    } else if has(&WITH_ONE_ARGUMENT) {
        2
    } else {
        1
    };
    width.min(words.len())
}

/// Reads the number of keys of `WITH` or `UNDER`.
fn further_keys(count: &[u8]) -> Read<usize> {
    let most = u64::try_from(SET_KEYS_MAX).unwrap_or(u64::MAX).saturating_sub(1);
    number("numkeys", count, 1, most).map(|count| usize::try_from(count).unwrap_or(usize::MAX))
}

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

/// The further keys of a command for several locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Further<'a, A> {
    /// Keys that are locked in the mode of the command.
    pub with: &'a [A],
    /// Keys that are locked shared, whatever the mode of the command.
    pub under: &'a [A],
}

impl<'a, A: AsRef<[u8]> + Copy> Options<'a, A> {
    /// Splits words into options.
    #[must_use]
    pub fn split(words: &'a [A]) -> Self {
        let (mut options, mut rest) = (Vec::new(), words);
        while !rest.is_empty() {
            let (option, others) = rest.split_at(width(rest));
            options.push(option);
            rest = others;
        }
        Self(options)
    }

    /// Takes an option off, at most once. Returns its arguments.
    fn take(&mut self, name: &[u8]) -> Read<Option<&'a [A]>> {
        let is_named = |option: &&[A]| option.first().is_some_and(|first| is(first, name));
        let Some(at) = self.0.iter().position(is_named) else { return Ok(None) };
        let option = self.0.remove(at);
        if self.0.iter().any(is_named) {
            return Err(Refusal::Syntax);
        }
        Ok(option.split_first().map(|(_, arguments)| arguments))
    }

    /// Takes an option without arguments off, at most once. Returns whether it was given.
    pub fn word(&mut self, name: &[u8]) -> Read<bool> {
        self.take(name).map(|option| option.is_some())
    }

    /// Takes an option with one argument off, at most once.
    pub fn argument(&mut self, name: &[u8]) -> Read<Option<A>> {
        match self.take(name)? {
            None => Ok(None),
            Some([argument]) => Ok(Some(*argument)),
            Some(_) => Err(Refusal::Syntax),
        }
    }

    /// Takes an option with a number off, at most once. An error calls the number `what`.
    pub fn number(
        &mut self,
        name: &[u8],
        what: &'static str,
        least: u64,
        most: u64,
    ) -> Read<Option<u64>> {
        let argument = self.argument(name)?;
        argument.map(|argument| number(what, argument.as_ref(), least, most)).transpose()
    }

    /// Takes `STORE key value [PX lifetime-ms]` off, at most once.
    pub fn store(&mut self) -> Read<Option<Store<A>>> {
        let (key, value, lifetime) = match self.take(b"STORE")? {
            None => return Ok(None),
            Some([key, value]) => (*key, *value, None),
            Some([key, value, _, lifetime]) => (*key, *value, Some(lifetime)),
            Some(_) => return Err(Refusal::Syntax),
        };
        let read = |lifetime: &A| number("lifetime-ms", lifetime.as_ref(), 1, TEN_YEARS_MS);
        let lifetime = lifetime.map(read).transpose()?.map(Millis);
        Ok(Some(Store { key, value, lifetime }))
    }

    /// Takes `WITH numkeys key …` and `UNDER numkeys key …` off, each at most once. Returns `None` if neither
    /// was given.
    pub fn further(&mut self, key: A) -> Read<Option<Further<'a, A>>> {
        let (with, under) = (self.further_of(b"WITH")?, self.further_of(b"UNDER")?);
        if with.is_none() && under.is_none() {
            return Ok(None);
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
        Ok(Some(further))
    }

    fn further_of(&mut self, name: &[u8]) -> Read<Option<&'a [A]>> {
        let Some(arguments) = self.take(name)? else { return Ok(None) };
        let [count, keys @ ..] = arguments else { return Err(Refusal::Syntax) };
        if further_keys(count.as_ref())? != keys.len() {
            return Err(Refusal::Syntax);
        }
        Ok(Some(keys))
    }

    /// Refuses the options that were not taken off: the command does not have them.
    pub fn end(self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Refusal::Syntax) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of the options that were not taken off.
    fn others(options: Options<'_, &'static str>) -> Vec<&'static str> {
        options.0.concat()
    }

    fn argument(
        name: &[u8],
        words: &[&'static str],
    ) -> Read<(Option<&'static str>, Vec<&'static str>)> {
        let mut options = Options::split(words);
        options.argument(name).map(|argument| (argument, others(options)))
    }

    #[test]
    fn a_release_stores_at_most_one_result() {
        let read = |words: &[&'static str]| {
            let mut options = Options::split(words);
            options.store().map(|store| (store, others(options)))
        };
        let plain = Store { key: "r", value: "v", lifetime: None };
        assert_eq!(read(&["ALL"]), Ok((None, vec!["ALL"])));
        assert_eq!(read(&["store", "r", "v", "ALL"]), Ok((Some(plain), vec!["ALL"])));
        let short = Store { lifetime: Some(Millis(9)), ..plain };
        let words = ["HOLDS", "0", "STORE", "r", "v", "px", "9"];
        assert_eq!(read(&words), Ok((Some(short), vec!["HOLDS", "0"])));
        let named = Store { value: "STORE", ..plain };
        assert_eq!(read(&["STORE", "r", "STORE"]), Ok((Some(named), vec![])));
        for wrong in [
            &["STORE", "r"][..],
            &["STORE", "r", "v", "PX"],
            &["STORE", "r", "v", "STORE", "r", "v"],
        ] {
            assert_eq!(read(wrong), Err(Refusal::Syntax));
        }
        assert!(read(&["STORE", "r", "v", "PX", "0"]).is_err());
    }

    #[test]
    fn a_session_may_be_named_once_and_anywhere() {
        let session = |words: &[&'static str]| argument(b"SESSION", words);
        for words in [&["SESSION", "id", "HOLDS", "2"][..], &["holds", "2", "session", "id"]] {
            let mut options = Options::split(words);
            assert_eq!(options.argument(b"SESSION"), Ok(Some("id")));
            assert_eq!(options.number(b"HOLDS", "n", 1, 2), Ok(Some(2)));
            assert_eq!(options.end(), Ok(()));
        }
        assert_eq!(session(&["SHARED"]), Ok((None, vec!["SHARED"])));
        assert_eq!(session(&["SESSION"]), Err(Refusal::Syntax));
        assert_eq!(session(&["SESSION", "a", "SESSION", "a"]), Err(Refusal::Syntax));
        assert_eq!(session(&["SHARED", "SESSION"]), Err(Refusal::Syntax));
    }

    #[test]
    fn the_argument_of_an_option_is_never_an_option() {
        let words = ["VALUE", "SESSION", "SESSION", "VALUE"];
        assert_eq!(argument(b"VALUE", &words), Ok((Some("SESSION"), vec!["SESSION", "VALUE"])));
        assert_eq!(argument(b"SESSION", &words), Ok((Some("VALUE"), vec!["VALUE", "SESSION"])));
        for name in ["HOLDS", "TOKEN", "UNLESS", "holds"] {
            for words in [[name, "VALUE", "x"], [name, "WITH", "x"], [name, "STORE", "x"]] {
                let mut options = Options::split(&words);
                assert_eq!(options.argument(b"VALUE"), Ok(None));
                assert_eq!(options.further("k"), Ok(None));
                assert_eq!(options.store(), Ok(None));
                assert_eq!(others(options), words);
            }
        }
    }

    #[test]
    fn a_word_is_given_once_and_is_not_a_number() {
        let word = |name: &[u8], words: &[&'static str]| {
            let mut options = Options::split(words);
            options.word(name).map(|given| (given, others(options)))
        };
        for words in [&["BOUND", "SHARED"][..], &["shared", "bound"]] {
            let read = word(b"BOUND", words);
            assert_eq!(read.map(|(bound, others)| (bound, others.len())), Ok((true, 1)));
        }
        assert_eq!(word(b"BOUND", &["HOLDS", "BOUND"]), Ok((false, vec!["HOLDS", "BOUND"])));
        assert_eq!(word(b"BOUND", &["BOUND", "HOLDS", "2", "BOUND"]), Err(Refusal::Syntax));
        assert_eq!(word(b"HELD", &["held", "BOUND"]), Ok((true, vec!["BOUND"])));
    }

    #[test]
    fn further_keys_may_be_anywhere_among_the_options() {
        let read = |words: &[&'static str]| {
            let mut options = Options::split(words);
            let further = options.further("k");
            further.map(|further| {
                further.map(|it| (it.with.to_vec(), it.under.to_vec(), others(options)))
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
        let refused = |words: &[&str]| Options::split(words).further("k").expect_err("it is wrong");
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
            Options::split(&words).further("k").map(|further| further.is_some())
        };
        assert_eq!(of(&names[..32], &names[32..63]), Ok(true));
        assert_eq!(of(&names[..32], &names[32..]), Err(Refusal::Set));
    }
}
