//! Expected replies with placeholders in them.

use super::stage::StepResult;
use crate::module_file;
use regex::{Captures, Regex};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Values by name: numbers and ports; for `id a` the number of a client; for `hex s` the name of a session, a
/// node of a cluster or a thread of Redisson.
pub(super) type Names = HashMap<String, String>;

/// Marks a grant that has ended by the time its reply is read.
pub(super) const NO_MORE: &str = " (no more)";

/// Returns whether a reply is the expected one, in one line or as redis-cli prints it. In one line, `||` separates
/// alternatives, and `_` is any reply except an error. If the reply fits, binds the names.
pub(super) fn fits(expected: &[String], seen: &StepResult, names: &mut Names) -> bool {
    let line = in_one_line(expected);
    match seen {
        Err(note) => line == *note,
        Ok(reply) if line == "_" => !reply.is_error(),
        Ok(reply) => {
            let line = line.strip_suffix(NO_MORE).unwrap_or(&line);
            line.split(" || ").any(|one| matches(one, &reply.line(), names))
                || matches(&expected.join("\n"), &reply.to_string(), names)
        }
    }
}

/// Joins a reply that is written in several lines.
pub(super) fn in_one_line(expected: &[String]) -> String {
    expected.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// Returns whether a text is the expected one. Names are bound only if the whole text fits.
fn matches(expected: &str, seen: &str, names: &mut Names) -> bool {
    if !expected.contains('{') {
        return expected == seen;
    }
    let mut pattern = String::from("(?s)^");
    let mut insides = Vec::new();
    let mut rest = expected;
    while let Some((before, inside, after)) = braces(rest) {
        pattern += &regex::escape(before);
        pattern += &match inside.split_once(' ') {
            _ if !names.contains_key(inside) && !is_placeholder(before, inside) => {
                regex::escape(&format!("{{{inside}}}"))
            }
            _ if inside == "..." => ".*?".to_owned(),
            Some(("hex8", name)) => {
                names.get(&format!("hex {name}")).map_or("$.", |it| &it[..8]).to_owned()
            }
            of => {
                insides.push(inside);
                // The name of a Redisson thread is a UUID, a colon and a number.
                let name = of.is_some_and(|(word, _)| word == "hex");
                if name { "([0-9a-f:-]+)" } else { "(-?[0-9a-f]+)" }.to_owned()
            }
        };
        rest = after;
    }
    pattern += &regex::escape(rest);
    let pattern = Regex::new(&(pattern + "$")).expect("only what is escaped, and groups");
    let Some(found) = pattern.captures(seen) else { return false };
    let mut bound = names.clone();
    let texts = found.iter().skip(1).flatten();
    let fit =
        insides.iter().zip(texts).all(|(inside, text)| accepts(inside, text.as_str(), &mut bound));
    if fit {
        *names = bound;
    }
    fit
}

/// Returns whether braces are a placeholder. In the middle of a word they belong to the word, except `{...}`, and
/// except after the `t` of a stored token.
fn is_placeholder(before: &str, inside: &str) -> bool {
    let in_a_word = before.ends_with(|c: char| c.is_alphanumeric() || c == ':');
    inside == "..." || !in_a_word || before.ends_with("\"t")
}

/// Text before the first `{…}`, what is inside, and the rest.
fn braces(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (inside, after) = rest.split_once('}')?;
    Some((before, inside, after))
}

fn accepts(inside: &str, text: &str, names: &mut Names) -> bool {
    let number = |word: &str| {
        let word = names.get(word).map_or(word, String::as_str);
        word.parse::<i128>().ok()
    };
    let compared = |than: &str, holds: fn(&i128, &i128) -> bool| {
        number(text).zip(number(than)).is_some_and(|(it, than)| holds(&it, &than))
    };
    if let Some((low, high)) = inside.split_once("..") {
        return compared(low, i128::ge) && compared(high, i128::le);
    }
    let (name, holds) = match inside.split(' ').collect::<Vec<_>>()[..] {
        [name, ">", than] => (name, compared(than, i128::gt)),
        [name, ">=", than] => (name, compared(than, i128::ge)),
        [name, "<", than] => (name, compared(than, i128::lt)),
        [name, "<=", than] => (name, compared(than, i128::le)),
        _ => (inside, true),
    };
    let right = match name.starts_with("hex ") {
        true => text.len() >= 32,
        false => text.parse::<i64>().is_ok(),
    };
    match names.get(name) {
        Some(known) => holds && known == text,
        // A client that never connected has no number, and gets none here.
        None if name.starts_with("id ") => false,
        None => {
            if name != "_" && right && holds {
                names.insert(name.to_owned(), text.to_owned());
            }
            right && holds
        }
    }
}

/// Replaces known names, `{module}`, `{provoke}`, `{1000 x}` and `{1000 words}` in a command. Other braces do
/// not change.
pub(super) fn fill_in(command: &str, names: &Names) -> String {
    static BRACES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\{([^{}]*)\}").expect("it is one"));
    let known = |braces: &Captures<'_>| match &braces[1] {
        "module" => module_file::path().display().to_string(),
        "provoke" => module_file::provoke_path().display().to_string(),
        name => match name.split_once(' ').map(|(count, of)| (count.parse(), of)) {
            Some((Ok(count), "x")) => "x".repeat(count),
            Some((Ok(count), "words")) => "x ".repeat(count),
            _ => names.get(name).cloned().unwrap_or_else(|| braces[0].to_owned()),
        },
    };
    BRACES.replace_all(command, known).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_bound_once_and_then_compared() {
        let names = &mut Names::from([("id a".to_owned(), "7".to_owned())]);
        let mut fits = |expected, seen| matches(expected, seen, names);
        assert!(fits("1) (integer) {t1}", "1) (integer) 500"));
        assert!(fits("[{t1}, nil]", "[500, nil]") && !fits("{t1}", "501"));
        assert!(!fits("{t2 > t1}", "500"));
        assert!(fits("{t2 > t1}", "501") && fits("{t2}", "501"));
        assert!(fits("{_}", "-3") && fits("{_ < 0}", "-3") && !fits("{_}", "ff"));
        assert!(fits("{900..1000}", "900") && !fits("{900..t2}", "502"));
        assert!(!fits("{900..1000}", "1001") && !fits("{900..1000}", "899"));
        assert!(fits("{id a}", "7") && !fits("{id a}", "8") && !fits("{id b}", "8"));
    }

    #[test]
    fn the_name_of_a_session_is_thirty_two_digits_or_more() {
        let (names, digits) = (&mut Names::new(), "f".repeat(16) + &"0".repeat(16));
        let mut fits = |expected, seen: &str| matches(expected, seen, names);
        assert!(!fits("\"{hex8 s}\"", "\"ffffffff\""));
        assert!(fits("\"{hex s}\"", &format!("\"{digits}\"")));
        assert!(!fits("\"{hex s}\"", &format!("\"{}\"", "0".repeat(32))));
        assert!(!fits("\"{hex t}\"", "\"ffff\""));
        assert!(fits("\"{hex r}\"", "\"285475da-9152-4c83-822a-67ee2f116a79:52\""));
        assert!(fits("\"{hex8 s}\"", "\"ffffffff\"") && !fits("\"{hex8 s}\"", "\"fffffff0\""));
        assert_eq!(fill_in("SESSION.CLOSE {hex s}", names), format!("SESSION.CLOSE {digits}"));
    }

    #[test]
    fn braces_inside_a_word_are_text_and_three_dots_match_anything() {
        let names = &mut Names::new();
        let mut fits = |expected, seen| matches(expected, seen, names);
        assert!(fits("[\"channel:{k}\", \"t{t}\"]", "[\"channel:{k}\", \"t12\"]"));
        assert!(fits("\"{t}\"", "\"12\"") && !fits("\"channel:{k}\"", "\"channel:5\""));
        assert!(fits("(error) ERR {...}", "(error) ERR no such key"));
        assert!(fits("a {...} c {u}", "a b c 5") && !fits("(error) ERR {...}", "(error) OOM"));
    }

    #[test]
    fn nothing_is_bound_when_something_else_differs() {
        let names = &mut Names::new();
        assert!(!matches("[{t}, {t}]", "[5, 6]", names) && names.is_empty());
        names.insert("t".to_owned(), "5".to_owned());
        assert_eq!(fill_in("GET {t} ch:{k} {3 x} {2 words}", names), "GET 5 ch:{k} xxx x x ");
    }
}
