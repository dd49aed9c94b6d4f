//! A strict parser of replies. It rejects a stray CR or LF in a line, a plus sign in an integer, and types of
//! the other protocol. It does not know the attributes and long errors of RESP3.

use super::value::Value;
use std::fmt;

/// A description of bytes that are no valid reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed reply: {}", self.0)
    }
}

/// Reads one reply from the start of `bytes`. Returns the reply and its length, or `None` if the end of the
/// reply has not arrived. `protocol` is 2 or 3, which allow different types.
///
/// # Errors
/// If the bytes are no valid reply. An invalid line may be found only when its end has arrived.
pub fn parse(bytes: &[u8], protocol: u8) -> Result<Option<(Value, usize)>, Malformed> {
    let mut reader = Reader { bytes, at: 0, protocol };
    match reader.value() {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed) => {
            let (good, bad) = bytes.split_at(reader.at);
            Err(Malformed(format!("{} and then {}", good.escape_ascii(), bad.escape_ascii())))
        }
    }
}

enum Stop {
    Incomplete,
    Malformed,
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
        match (kind, self.protocol) {
            (b'+', _) => Ok(Value::Status(self.text()?)),
            (b'-', _) => error(&self.text()?),
            (b':', _) => Ok(Value::Integer(self.number()?)),
            (b'$', _) => Ok(self.bulk()?.map_or(Value::Nil, Value::Bulk)),
            (b'*', _) => Ok(self.values()?.map_or(Value::Nil, Value::Array)),
            (b'_', 3) if self.line()?.is_empty() => Ok(Value::Nil),
            (b'#', 3) => match self.line()? {
                b"t" => Ok(Value::Bool(true)),
                b"f" => Ok(Value::Bool(false)),
                _ => Err(Stop::Malformed),
            },
            (b',', 3) => self.text()?.parse().map(Value::Double).or(Err(Stop::Malformed)),
            (b'(', 3) => Ok(Value::BigNumber(self.text()?)),
            (b'~', 3) => self.values()?.map(Value::Set).ok_or(Stop::Malformed),
            (b'>', 3) => self.values()?.map(Value::Push).ok_or(Stop::Malformed),
            (b'%', 3) => {
                let pairs = self.length()?.ok_or(Stop::Malformed)?;
                let pairs = (0..pairs).map(|_| Ok((self.value()?, self.value()?)));
                pairs.collect::<Result<_, _>>().map(Value::Map)
            }
            (b'=', 3) => match self.bulk()? {
                Some(bytes) if bytes.get(3) == Some(&b':') => {
                    Ok(Value::Verbatim(bytes[4..].to_vec()))
                }
                _ => Err(Stop::Malformed),
            },
            _ => Err(Stop::Malformed),
        }
    }

    /// A length, a string of that many bytes, and the CR LF after it. `None` is the null of RESP2.
    fn bulk(&mut self) -> Result<Option<Vec<u8>>, Stop> {
        let Some(length) = self.length()? else { return Ok(None) };
        let end = self.at + length;
        let bytes = self.bytes.get(self.at..end).ok_or(Stop::Incomplete)?;
        let after = self.bytes.get(end..end + 2).ok_or(Stop::Incomplete)?;
        self.at = end + 2;
        if after == b"\r\n" { Ok(Some(bytes.to_vec())) } else { Err(Stop::Malformed) }
    }

    fn values(&mut self) -> Result<Option<Vec<Value>>, Stop> {
        let length = self.length()?;
        length.map(|length| (0..length).map(|_| self.value()).collect()).transpose()
    }

    /// The length of a string, list or map; `None` is the null of RESP2.
    fn length(&mut self) -> Result<Option<usize>, Stop> {
        match self.number()? {
            -1 if self.protocol == 2 => Ok(None),
            number => usize::try_from(number).map(Some).or(Err(Stop::Malformed)),
        }
    }

    fn number(&mut self) -> Result<i64, Stop> {
        let text = self.text()?;
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let canonical = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|_| canonical).ok_or(Stop::Malformed)
    }

    fn text(&mut self) -> Result<String, Stop> {
        self.line().map(|line| String::from_utf8_lossy(line).into_owned())
    }

    /// A line up to CR LF. A single CR or LF in it is an error.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| matches!(b, b'\r' | b'\n')).ok_or(Stop::Incomplete)?;
        match &rest[end..] {
            [b'\r', b'\n', ..] => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            [b'\r'] => Err(Stop::Incomplete),
            _ => Err(Stop::Malformed),
        }
    }
}

fn error(line: &str) -> Result<Value, Stop> {
    let (code, text) = line.split_once(' ').unwrap_or((line, ""));
    let error = || Value::Error { code: code.to_owned(), text: text.to_owned() };
    (!line.is_empty()).then(error).ok_or(Stop::Malformed)
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
