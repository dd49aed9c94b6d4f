//! What every command that is refused has in common.

use crate::asking::{error, state};
use harness::{Connection, Value};

/// Bytes that are no numbers, or none that we take; one that must not be echoed.
pub(crate) const NOT_NUMBERS: [&[u8]; 23] = [
    b"-1",
    b"-0",
    b"+5",
    b"5.0",
    b"1e3",
    b" 5",
    b"5 ",
    b"0x10",
    b"",
    b"NaN",
    b"inf",
    b"five",
    b"secret",
    b"1_000",
    b"01",
    b"5\0",
    b"5\r\n",
    b"\xff",
    b"--1",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999999999999",
];

/// The command is refused with an error that begins so and echoes nothing, and nothing changes: not
/// its key, and `info` shows nobody who waits.
#[track_caller]
pub(crate) fn expect_refusal(
    connections: &mut [Connection; 2],
    command: &[Vec<u8>],
    beginning: &str,
    info: &str,
) {
    for connection in connections {
        let key = command.get(1).cloned().unwrap_or_default();
        let before = state(connection, &key);
        let text = error(&connection.call(command));
        assert!(text.starts_with(beginning), "{command:?} answers {text}");
        assert!(text.is_ascii() && !text.contains("secret"), "{command:?} is echoed in {text}");
        assert_eq!(state(connection, &key), before, "{command:?} changed the key");
        let info = connection.run(info);
        assert_eq!(info.field("waiters"), &Value::Integer(0), "{command:?} waits");
    }
}
