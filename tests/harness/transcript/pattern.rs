//! Expected lines with placeholders in them.

use std::collections::HashMap;

/// The numbers that have got a name so far. Clients are in it as `id a`, what sessions are called as
/// `hex s`.
pub(super) type Names = HashMap<String, i128>;

/// Whether the lines fit; names that they bind are kept only if all of them do.
pub(super) fn matches(expected: &[String], seen: &[String], names: &mut Names) -> bool {
    let mut bound = names.clone();
    let fit = expected.len() == seen.len()
        && expected.iter().zip(seen).all(|(e, s)| line_matches(e, s, &mut bound));
    if fit {
        *names = bound;
    }
    fit
}

/// Whether one line fits, and binds what it names.
pub(super) fn line_matches(expected: &str, seen: &str, names: &mut Names) -> bool {
    let (mut seen, mut anything) = (seen, false);
    for piece in pieces(expected) {
        seen = match piece {
            Piece::Text("") if anything => "",
            Piece::Text(text) => {
                let from = if std::mem::take(&mut anything) { seen.find(text) } else { Some(0) };
                match from.and_then(|from| seen[from..].strip_prefix(text)) {
                    Some(rest) => rest,
                    None => return false,
                }
            }
            Piece::Placeholder("...") => {
                anything = true;
                seen
            }
            Piece::Placeholder(inside) if inside.starts_with("hex") => {
                match hex_matches(inside, seen, names) {
                    Some(rest) => rest,
                    None => return false,
                }
            }
            Piece::Placeholder(inside) => {
                let digits = seen
                    .bytes()
                    .enumerate()
                    .take_while(|(i, b)| b.is_ascii_digit() || *i == 0 && *b == b'-')
                    .count();
                let (number, rest) = seen.split_at(digits);
                match number.parse::<i64>().map(i128::from) {
                    Ok(number) if accepts(inside, number, names) => rest,
                    _ => return false,
                }
            }
        };
    }
    seen.is_empty()
}

/// A command with the known names put in; other braces stay as they are.
pub(super) fn fill_in(command: &str, names: &Names) -> String {
    let mut filled = String::new();
    let mut rest = command;
    while let Some((before, inside, after)) = braces(rest) {
        filled.push_str(before);
        match names.get(inside) {
            Some(number) if inside.starts_with("hex ") => filled.push_str(&hex(*number)),
            Some(number) => filled.push_str(&number.to_string()),
            None => filled.extend(["{", inside, "}"]),
        }
        rest = after;
    }
    filled + rest
}

/// `{hex s}` is all 32 digits of a session's name, `{hex8 s}` the first eight of one that is known.
fn hex_matches<'a>(inside: &str, seen: &'a str, names: &mut Names) -> Option<&'a str> {
    let (kind, name) = inside.split_once(' ')?;
    let name = format!("hex {name}");
    if kind == "hex8" {
        return seen.strip_prefix(&hex(*names.get(&name)?)[..8]);
    }
    let (digits, rest) = seen.split_at_checked(32)?;
    let number = u128::from_str_radix(digits, 16).ok()?.cast_signed();
    (*names.entry(name).or_insert(number) == number).then_some(rest)
}

fn hex(number: i128) -> String {
    format!("{number:032x}")
}

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// Braces count outside of quotes, and in quotes around the whole string, or all of it but the `t` with
/// which a stored token begins.
fn pieces(expected: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = expected;
    let mut quoted = false;
    while let Some((before, inside, after)) = braces(rest) {
        quoted ^= before.matches('"').count() % 2 == 1;
        let whole = before.ends_with('"') || before.ends_with("\"t");
        if quoted && !(whole && after.starts_with('"')) {
            let end = before.len() + inside.len() + 2;
            pieces.push(Piece::Text(&rest[..end]));
        } else {
            pieces.extend([Piece::Text(before), Piece::Placeholder(inside)]);
        }
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    pieces
}

/// Text before the first `{…}`, what is inside, and the rest.
fn braces(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (inside, after) = rest.split_once('}')?;
    Some((before, inside, after))
}

fn accepts(inside: &str, number: i128, names: &mut Names) -> bool {
    if inside == "_" {
        return true;
    }
    if let Some((low, high)) = inside.split_once("..") {
        return value(low, names) <= Some(number)
            && value(high, names).is_some_and(|high| number <= high);
    }
    let (name, condition) = match inside.split_once(' ') {
        Some((name, condition)) if name != "id" => (name, Some(condition)),
        _ => (inside, None),
    };
    let holds = condition.is_none_or(|condition| compare(number, condition, names));
    // A client that never connected has no number, and gets none here.
    let known = name.starts_with("id ") || names.contains_key(name);
    if known {
        return holds && names.get(name) == Some(&number);
    }
    if name != "_" && holds {
        names.insert(name.to_owned(), number);
    }
    holds
}

fn compare(number: i128, condition: &str, names: &Names) -> bool {
    let Some((operator, operand)) = condition.split_once(' ') else {
        return false;
    };
    let Some(operand) = value(operand, names) else {
        return false;
    };
    match operator {
        ">" => number > operand,
        ">=" => number >= operand,
        "<" => number < operand,
        "<=" => number <= operand,
        _ => false,
    }
}

fn value(text: &str, names: &Names) -> Option<i128> {
    text.parse().ok().or_else(|| names.get(text).copied())
}

/// Whether a reply is the expected one: one of those between `||`, or with `_` any that is no error.
pub(super) fn fits(expected: &[String], seen: &[String], names: &mut Names) -> bool {
    match (expected, seen) {
        ([one], [seen]) if one == "_" => !seen.starts_with("(error)"),
        ([one], _) if one.contains(" || ") => {
            one.split(" || ").any(|one| matches(&[one.to_owned()], seen, names))
        }
        ([one], _) => {
            let one = one.strip_suffix(NO_MORE).unwrap_or(one).to_owned();
            matches(&[one], seen, names)
        }
        _ => matches(expected, seen, names),
    }
}

/// Behind a grant that is over by the time its reply is read.
pub(super) const NO_MORE: &str = " (no more)";

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(expected: &str, seen: &str, names: &mut Names) -> bool {
        matches(&[expected.to_owned()], &[seen.to_owned()], names)
    }

    #[test]
    fn a_name_is_bound_once_and_then_compared() {
        let names = &mut Names::from([("id a".to_owned(), 7)]);
        assert!(fits("1) (integer) {t1}", "1) (integer) 500", names));
        assert!(fits("(integer) {t1}", "(integer) 500", names));
        assert!(!fits("(integer) {t1}", "(integer) 501", names));
        assert!(!fits("{t2 > t1}", "500", names) && !names.contains_key("t2"));
        assert!(fits("{t2 > t1}", "501", names) && fits("{t2}", "501", names));
        assert!(
            fits("{_}", "-3", names) && fits("{_ < 0}", "-3", names) && !fits("{_}", "x", names)
        );
        assert!(
            fits("{900..1000}", "900", names)
                && !fits("{900..1000}", "1001", names)
                && !fits("{900..1000}", "899", names)
        );
        assert!(
            fits("{id a}", "7", names)
                && !fits("{id a}", "8", names)
                && !fits("{id b}", "8", names)
        );
    }

    #[test]
    fn the_name_of_a_session_is_thirty_two_digits() {
        let (names, digits) = (&mut Names::new(), "f".repeat(16) + &"0".repeat(16));
        assert!(!fits("\"{hex8 s}\"", "\"ffffffff\"", names));
        assert!(fits("1) \"{hex s}\"", &format!("1) \"{digits}\""), names));
        assert!(!fits("\"{hex s}\"", &format!("\"{}\"", "0".repeat(32)), names));
        assert!(!fits("\"{hex t}\"", "\"ffff\"", names));
        assert!(fits("\"{hex8 s}\"", "\"ffffffff\"", names));
        assert_eq!(fill_in("SESSION.CLOSE {hex s}", names), format!("SESSION.CLOSE {digits}"));
    }

    #[test]
    fn in_quotes_only_a_whole_string_is_a_placeholder() {
        let names = &mut Names::new();
        assert!(fits("4) \"{t}\"", "4) \"12\"", names) && names["t"] == 12);
        assert!(fits("2) \"channel:{k}\"", "2) \"channel:{k}\"", names));
        assert!(!fits("2) \"channel:{k}\"", "2) \"channel:5\"", names));
        assert!(fits("\"a{b}\" => {t}", "\"a{b}\" => 12", names));
    }

    #[test]
    fn three_dots_are_anything() {
        let names = &mut Names::new();
        assert!(fits("(error) ERR {...}", "(error) ERR no such key", names));
        assert!(fits("a {...} c {t}", "a b c 5", names) && names["t"] == 5);
        assert!(!fits("(error) ERR {...}", "(error) OOM", names));
    }

    #[test]
    fn nothing_is_bound_when_a_later_line_differs() {
        let names = &mut Names::new();
        let lines = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        assert!(!matches(&lines("{t}", "x"), &lines("5", "y"), names) && names.is_empty());
        assert!(!matches(&lines("{t}", "x"), &["5".to_owned()], names));
    }

    #[test]
    fn commands_get_the_names_that_are_known() {
        let names = Names::from([("t".to_owned(), 5), ("id a".to_owned(), 9)]);
        assert_eq!(
            fill_in("CLIENT KILL ID {id a} {t} ch:{k}", &names),
            "CLIENT KILL ID 9 5 ch:{k}"
        );
    }
}
