//! Converts bytes that any client may have chosen into text for a terminal and for other programs.

use serde_json::Value;
use std::fmt::Write as _;

/// Largest number of characters of a name in a message.
const NAME_MAX: usize = 100;

/// Characters that are not escaped here, although `escape_debug` escapes them.
const PLAIN: [char; 3] = ['"', '\'', '\\'];

/// Formats bytes so that they are harmless to a terminal. Escapes control characters, format characters such
/// as U+202E and U+200B, other invisible characters, and invalid UTF-8.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        for part in
            chunk.valid().split_inclusive(|letter| PLAIN.contains(&letter) || is_blank(letter))
        {
            let last =
                part.chars().next_back().filter(|last| PLAIN.contains(last) || is_blank(*last));
            let before = last.map_or(part, |last| part.strip_suffix(last).unwrap_or(part));
            shown.extend(before.escape_debug());
            match last {
                Some(last) if is_blank(last) => shown.extend(last.escape_unicode()),
                last => shown.extend(last),
            }
        }
        // Writing into a string does not fail.
        let _written = write!(shown, "{}", chunk.invalid().escape_ascii());
    }
    if shown.is_empty() { "''".to_owned() } else { shown }
}

/// Returns whether a character is one of the invisible ones that `escape_debug` may not escape.
fn is_blank(letter: char) -> bool {
    matches!(
        letter,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{e0100}'..='\u{e01ef}'
    )
}

/// Formats the beginning of a key, for messages.
pub(crate) fn name(key: &[u8]) -> String {
    let shown = text(key);
    match shown.char_indices().nth(NAME_MAX).and_then(|(end, _)| shown.get(..end)) {
        Some(beginning) => format!("{beginning}…"),
        None => shown,
    }
}

/// Formats a line of JSON. Escapes characters that could change the display of a terminal.
pub(crate) fn json_line(value: &Value) -> String {
    let mut line = String::new();
    // Outside of strings, JSON is ASCII without control characters.
    for letter in value.to_string().chars() {
        if letter.is_ascii_graphic() || letter == ' ' || !is_hidden(letter) {
            line.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _written = write!(line, "\\u{unit:04x}");
            }
        }
    }
    line.push('\n');
    line
}

/// Returns whether [`text`] escapes the character at any position. `false` for combining marks, which it
/// does not escape after a letter. Must not be called for quotes and backslashes.
fn is_hidden(letter: char) -> bool {
    // In second position, because in the first one a combining mark would be escaped.
    let shown = ['a', letter].into_iter().collect::<String>();
    is_blank(letter) || !shown.escape_debug().eq(shown.chars())
}

/// Converts bytes to a string for JSON. Invalid UTF-8 becomes U+FFFD.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_escapes_control_characters_and_invalid_utf8() {
        assert_eq!(text("aufträge:42".as_bytes()), "aufträge:42");
        assert_eq!(text(b"a\x1b[2Jb\n\xff"), "a\\u{1b}[2Jb\\n\\xff");
        assert_eq!(text(b"it's \"a\\b\""), "it's \"a\\b\"");
        assert_eq!(text(b""), "''");
    }

    #[test]
    fn text_escapes_characters_that_cannot_be_seen() {
        for (name, shown) in [
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{200b}b", "a\\u{200b}b"),
            ("a\u{2028}b", "a\\u{2028}b"),
            ("a\u{feff}\u{ad}", "a\\u{feff}\\u{ad}"),
            ("a\u{e0041}", "a\\u{e0041}"),
            ("a\u{3164}\u{fe0f}b", "a\\u{3164}\\u{fe0f}b"),
            ("a\u{7f}\u{9b}b", "a\\u{7f}\\u{9b}b"),
        ] {
            assert_eq!(text(name.as_bytes()), shown);
        }
        // Combining marks are part of many scripts.
        for name in ["e\u{301}", "नमस्ते", "ที่"] {
            assert_eq!(text(name.as_bytes()), name);
        }
    }

    #[test]
    fn escaped_json_is_safe_on_a_terminal_and_equal() {
        let value =
            json!({"key": "é\u{7f}\u{9b}\u{202e}\u{e0041}\u{1b}e\u{301}\"\\", "n": [1, null]});
        let line = json_line(&value);
        assert!(
            line.contains("é\\u007f\\u009b\\u202e\\udb40\\udc41\\u001be\u{301}\\\"\\\\"),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }
}
