//! Arguments in quotes, as redis-cli reads and prints them.

/// Splits a line into arguments: words, `"text with \x00 escapes"` and `'text'`, whose only escape is `\'`.
///
/// # Errors
/// If the quotes are not valid.
pub fn split(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut rest = line.trim_start();
    let mut arguments = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (argument, after) = match first {
            '"' => double_quoted(&rest[1..])?,
            '\'' => single_quoted(&rest[1..])?,
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest.as_bytes()[..end].to_vec(), &rest[end..])
            }
        };
        if !(after.is_empty() || after.starts_with(char::is_whitespace)) {
            return Err(format!("no space after a closing quote: {after}"));
        }
        arguments.push(argument);
        rest = after.trim_start();
    }
    Ok(arguments)
}

fn double_quoted(text: &str) -> Result<(Vec<u8>, &str), String> {
    let mut bytes = Vec::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((bytes, &text[at + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => bytes.push(b'\n'),
                Some('r') => bytes.push(b'\r'),
                Some('t') => bytes.push(b'\t'),
                Some('b') => bytes.push(8),
                Some('a') => bytes.push(7),
                Some('x') => {
                    let digits = text.get(at + 2..at + 4).ok_or("two digits must follow \\x")?;
                    bytes.push(
                        u8::from_str_radix(digits, 16).map_err(|e| format!("\\x{digits}: {e}"))?,
                    );
                    chars.nth(1);
                }
                Some(other) => bytes.extend(other.to_string().bytes()),
                None => break,
            },
            other => bytes.extend(other.to_string().bytes()),
        }
    }
    Err(format!("no closing quote after: {text}"))
}

fn single_quoted(text: &str) -> Result<(Vec<u8>, &str), String> {
    let mut bytes = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Ok((bytes, &text[at + 1..])),
            '\\' if chars.next_if(|(_, next)| *next == '\'').is_some() => bytes.push(b'\''),
            other => bytes.extend(other.to_string().bytes()),
        }
    }
    Err(format!("no closing quote after: {text}"))
}

/// The text that redis-cli prints between quotes for these bytes, but with `\x07` and `\x08` for `\a` and
/// `\b`.
pub fn escape(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\'", "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_quotes_and_escapes_are_split_as_by_redis_cli() {
        let line = r#"SET  "a \x00\xfF\r\n\"b" 'it\'s' "" plain\x"#;
        let expected: [&[u8]; 5] = [b"SET", b"a \x00\xff\r\n\"b", b"it's", b"", b"plain\\x"];
        assert_eq!(split(line).unwrap(), expected);
    }

    #[test]
    fn bad_quotes_are_refused() {
        for line in ["\"open", "'open", "\"a\"b", "\"\\x0\"", "\"\\xzz\""] {
            assert!(split(line).is_err(), "{line}");
        }
    }

    #[test]
    fn escaped_text_splits_into_the_original() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(split(&format!("\"{}\"", escape(&all))).unwrap(), [all]);
    }
}
