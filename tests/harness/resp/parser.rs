//! The strict parser: what the protocol does not allow is refused, not repaired.

use super::value::Value;
use std::fmt;

/// Bytes that are no RESP, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed reply: {}", self.0)
    }
}

/// Reads one reply from the start of `bytes`: the reply and how long it was, or `None` when its end
/// is not there yet. `protocol` is 2 or 3, because what is allowed differs.
///
/// # Errors
/// When no continuation could make these bytes a reply.
pub fn parse(bytes: &[u8], protocol: u8) -> Result<Option<(Value, usize)>, Malformed> {
    let mut reader = Reader { bytes, at: 0, protocol };
    match reader.value() {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed(why)) => Err(Malformed(why)),
    }
}

enum Stop {
    Incomplete,
    Malformed(String),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    protocol: u8,
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Result<Value, Stop> {
        let kind = *self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        self.at += 1;
        match kind {
            b'+' => self.text().map(Value::Status),
            b'-' => self.text().and_then(error),
            b':' => self.number().map(Value::Integer),
            b'$' => self.bulk(),
            b'*' => match self.length()? {
                Some(length) => self.values(length).map(Value::Array),
                None => Ok(Value::Nil),
            },
            _ if self.protocol == 3 => self.value_of_resp3(kind),
            other => malformed(format!("type byte 0x{other:02x} in RESP2")),
        }
    }

    fn value_of_resp3(&mut self, kind: u8) -> Result<Value, Stop> {
        match kind {
            b'_' => match self.line()? {
                [] => Ok(Value::Nil),
                other => malformed(format!("a null with content {other:?}")),
            },
            b'#' => match self.line()? {
                b"t" => Ok(Value::Bool(true)),
                b"f" => Ok(Value::Bool(false)),
                other => malformed(format!("the boolean {other:?}")),
            },
            b',' => {
                let text = self.text()?;
                text.parse().map(Value::Double).or_else(|_| malformed(format!("the double {text}")))
            }
            b'(' => self.text().map(Value::BigNumber),
            b'%' => self.pairs().map(Value::Map),
            b'~' => self.sized().map(Value::Set),
            b'>' => self.sized().map(Value::Push),
            b'=' => match self.bulk()? {
                Value::Bulk(bytes) if bytes.get(3) == Some(&b':') => {
                    Ok(Value::Verbatim(bytes[4..].to_vec()))
                }
                other => malformed(format!("the verbatim string {other}")),
            },
            other => malformed(format!("type byte 0x{other:02x}")),
        }
    }

    fn bulk(&mut self) -> Result<Value, Stop> {
        let Some(length) = self.length()? else {
            return Ok(Value::Nil);
        };
        let end = self.at + length;
        let bytes = self.bytes.get(self.at..end).ok_or(Stop::Incomplete)?;
        match self.bytes.get(end..end + 2).ok_or(Stop::Incomplete)? {
            b"\r\n" => {}
            other => return malformed(format!("{other:?} after a string of {length} bytes")),
        }
        self.at = end + 2;
        Ok(Value::bulk(bytes))
    }

    fn values(&mut self, length: usize) -> Result<Vec<Value>, Stop> {
        (0..length).map(|_| self.value()).collect()
    }

    fn sized(&mut self) -> Result<Vec<Value>, Stop> {
        match self.length()? {
            Some(length) => self.values(length),
            None => malformed("a null length in RESP3".to_owned()),
        }
    }

    fn pairs(&mut self) -> Result<Vec<(Value, Value)>, Stop> {
        match self.length()? {
            Some(length) => (0..length).map(|_| Ok((self.value()?, self.value()?))).collect(),
            None => malformed("a null length in RESP3".to_owned()),
        }
    }

    /// The length of what follows; `None` is the null of RESP2.
    fn length(&mut self) -> Result<Option<usize>, Stop> {
        match self.number()? {
            -1 if self.protocol == 2 => Ok(None),
            number => usize::try_from(number)
                .map(Some)
                .or_else(|_| malformed(format!("the length {number}"))),
        }
    }

    fn number(&mut self) -> Result<i64, Stop> {
        let text = self.text()?;
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let canonical = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(number) if canonical => Ok(number),
            _ => malformed(format!("the number {text:?}")),
        }
    }

    fn text(&mut self) -> Result<String, Stop> {
        self.line().map(|line| String::from_utf8_lossy(line).into_owned())
    }

    /// Up to CR LF; neither of them may stand alone in it.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| matches!(b, b'\r' | b'\n')).ok_or(Stop::Incomplete)?;
        match &rest[end..] {
            [b'\r', b'\n', ..] => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            [b'\r'] => Err(Stop::Incomplete),
            _ => malformed(format!(
                "a stray CR or LF after {:?}",
                String::from_utf8_lossy(&rest[..end])
            )),
        }
    }
}

fn malformed<T>(why: String) -> Result<T, Stop> {
    Err(Stop::Malformed(why))
}

fn error(line: String) -> Result<Value, Stop> {
    match line.split_once(' ') {
        Some((code, text)) => Ok(Value::Error { code: code.to_owned(), text: text.to_owned() }),
        None if line.is_empty() => malformed("an error without a code".to_owned()),
        None => Ok(Value::Error { code: line, text: String::new() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8], protocol: u8) -> Value {
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut], protocol), Ok(None), "cut after {cut} bytes");
        }
        let (value, length) = parse(bytes, protocol).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        value
    }

    #[test]
    fn every_type_is_read_and_no_prefix_is_taken_for_it() {
        assert_eq!(
            whole(b"*3\r\n:-5\r\n$-1\r\n*-1\r\n", 2).to_string(),
            "1) (integer) -5\n2) (nil)\n3) (nil)"
        );
        assert_eq!(whole(b"$4\r\na\r\nb\r\n", 2), Value::bulk("a\r\nb"));
        assert_eq!(
            whole(b"%1\r\n+k\r\n_\r\n", 3),
            Value::Map(vec![(Value::Status("k".into()), Value::Nil)])
        );
        assert_eq!(whole(b"=5\r\ntxt:x\r\n", 3), Value::Verbatim(b"x".to_vec()));
        assert_eq!(
            whole(b">2\r\n#t\r\n,1.5\r\n", 3),
            Value::Push(vec![Value::Bool(true), Value::Double(1.5)])
        );
        assert_eq!(whole(b"-ERR no\r\n", 2).code(), "ERR");
    }

    #[test]
    fn an_error_line_with_a_stray_cr_or_lf_is_malformed() {
        for bytes in [&b"-ERR a\nb\r\n"[..], b"-ERR a\rb\r\n", b"+OK\n", b"-ERR a\r\r\n"] {
            assert!(parse(bytes, 2).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_belongs_to_the_other_protocol_is_malformed() {
        for bytes in [&b"_\r\n"[..], b"%0\r\n", b"#t\r\n"] {
            assert!(parse(bytes, 2).is_err());
        }
        for bytes in [&b"$-1\r\n"[..], b"*-1\r\n", b"%-1\r\n"] {
            assert!(parse(bytes, 3).is_err());
        }
    }

    #[test]
    fn odd_numbers_and_lengths_are_malformed() {
        for bytes in [
            &b":+5\r\n"[..],
            b":5.0\r\n",
            b":\r\n",
            b"$-2\r\n",
            b"$1\r\nab\r\n",
            b"*x\r\n",
            b"?\r\n",
            b"-\r\n",
        ] {
            assert!(parse(bytes, 2).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
