//! Bad arguments change nothing, and what they are never comes back in an error: for each argument of
//! each command that `COMMAND DOCS` tells of.

use crate::asking::{acquire, error, state, token};
use harness::docs::{self, Argument, Command};
use harness::resp::split;
use harness::{Connection, Server, Value, cmd, observe};

/// Bytes that any name may be.
const NAMES: [&[u8]; 9] = [
    b"\0",
    b"a\0b",
    b"\xff",
    b"\xc3\x28",
    b"\r\n",
    b"+OK\r\n",
    b"{}",
    b" ",
    "schl\u{fc}ssel".as_bytes(),
];

/// Bytes that are no numbers, or none that we take; one that must not be echoed. What else is none is
/// tested where numbers are read, in `kvlock-core`.
const NOT_NUMBERS: [&[u8]; 6] = [b"-1", b"", b"secret", b"5\r\n", b"\xff", b"18446744073709551615"];

const TEN_YEARS_MS: u64 = 315_360_000_000;
const UNSIGNED_MAX: u64 = 4_294_967_295;

/// What errors call a number, and its least and greatest value. The limits of a command that has
/// its own come first.
const NUMBERS: [(&str, &str, u64, u64); 14] = [
    ("latch.set", "count", 1, UNSIGNED_MAX),
    ("lock.release", "HOLDS", 0, UNSIGNED_MAX - 1),
    ("sem.release", "HOLDS", 0, UNSIGNED_MAX - 1),
    ("sem.set", "permits", 0, UNSIGNED_MAX),
    ("session.next", "timeout-ms", 0, 60_000),
    ("session.next", "ack", 0, 1 << 52),
    ("", "HOLDS", 1, UNSIGNED_MAX),
    ("", "TOKEN", 1, 1 << 52),
    ("", "count", 1, 1000),
    ("", "lease-ms", 1, 86_400_000),
    ("", "lifetime-ms", 1, TEN_YEARS_MS),
    ("", "permits", 1, UNSIGNED_MAX),
    ("", "timeout-ms", 0, TEN_YEARS_MS),
    ("", "ttl-ms", 100, 60_000),
];

/// A server where alice holds the lock `lock` and permits of `sem`, and `latch` is a latch; and
/// connections in both protocols.
struct Refusing {
    server: Server,
    commands: Vec<Command>,
    connections: [Connection; 2],
}

impl Refusing {
    fn start() -> Self {
        let server = Server::start();
        let mut connections = [2, 3].map(|protocol| server.connect_resp(protocol));
        let [connection, _] = &mut connections;
        token(&acquire(connection, "lock", "alice"));
        for (line, reply) in [
            ("SEM.SET sem 3", 1),
            ("SEM.ACQUIRE sem alice 2 600000", 2),
            ("LATCH.SET latch 3 PX 600000", 1),
        ] {
            assert_eq!(connection.run(line), Value::Integer(reply), "{line}");
        }
        let commands = docs::ours(connection);
        Self { server, commands, connections }
    }

    /// The command is refused with an error that begins so and echoes nothing, and nothing changes:
    /// not its key, and nobody waits.
    #[track_caller]
    fn refuses(&mut self, words: &[Vec<u8>], beginning: &str) {
        for connection in &mut self.connections {
            let key = words.get(1).cloned().unwrap_or_default();
            let before = state(connection, &key);
            let text = error(&connection.call(words));
            let shown =
                words.iter().take(9).map(|it| it[..it.len().min(40)].escape_ascii().to_string());
            let shown = shown.collect::<Vec<_>>().join(" ");
            assert!(text.starts_with(beginning), "{shown} answers {text}");
            assert!(text.is_ascii() && !text.contains("secret"), "{shown} is echoed in {text}");
            assert_eq!(state(connection, &key), before, "{shown} changed the key");
            let waiting = observe::info_number(connection, "kvlock_waiters");
            assert_eq!(waiting, 0, "{shown} waits");
        }
    }
}

/// What there is at a key of that name, for a command of that family.
fn key_of(command: &Command) -> &str {
    command.name.split('.').next().unwrap()
}

/// The arguments that have to be there; of several that can be, the first.
fn required(command: &Command) -> impl Iterator<Item = &Argument> {
    let needed = command.arguments.iter().filter(|argument| !argument.optional);
    needed.map(|argument| argument.parts.first().unwrap_or(argument))
}

/// All words that may follow, and the value of those that have one.
fn options(command: &Command) -> Vec<&Argument> {
    let optional = command.arguments.iter().filter(|argument| argument.optional);
    let each = optional
        .flat_map(|it| if it.parts.is_empty() { std::slice::from_ref(it) } else { &it.parts });
    each.filter(|argument| argument.token.is_some()).collect()
}

/// What errors call an argument.
fn label(argument: &Argument) -> &str {
    if argument.name == "n" { argument.token.as_ref().unwrap() } else { &argument.name }
}

/// A value that is right.
fn value(argument: &Argument, key: &str, owner: &[u8]) -> Vec<u8> {
    match argument.name.as_str() {
        "key" => key.as_bytes().to_vec(),
        "owner" | "waiter" | "participant" => owner.to_vec(),
        "id" => vec![b'0'; 32],
        "lease-ms" | "timeout-ms" | "ttl-ms" => b"1000".to_vec(),
        "permits" | "count" | "n" | "ack" | "lifetime-ms" | "value" => b"1".to_vec(),
        _ if argument.kind == "pure-token" => Vec::new(),
        other => panic!("what is {other}?"),
    }
}

/// An option as it is sent.
fn option(argument: &Argument, value: Vec<u8>) -> Vec<Vec<u8>> {
    let token = argument.token.clone().unwrap().into_bytes();
    if argument.kind == "pure-token" { vec![token] } else { vec![token, value] }
}

/// The command with all that it needs; `instead` takes the place of the values of that argument,
/// which is added if it is an option.
fn words(
    command: &Command,
    key: &str,
    owner: &[u8],
    instead: Option<(&Argument, &[u8])>,
) -> Vec<Vec<u8>> {
    let chosen = |argument: &Argument| match instead {
        Some((it, value)) if std::ptr::eq(it, argument) => value.to_vec(),
        _ => value(argument, key, owner),
    };
    let mut words = vec![command.name.to_uppercase().into_bytes()];
    for argument in required(command) {
        words.extend(argument.token.clone().map(String::into_bytes));
        words.push(chosen(argument));
    }
    if let Some((it, value)) = instead.filter(|(it, _)| it.optional || it.token.is_some()) {
        words.extend(if it.token.is_some() {
            option(it, value.to_vec())
        } else {
            vec![value.to_vec()]
        });
    }
    words
}

/// All arguments of a command for which that holds.
fn those(command: &Command, which: impl Fn(&Argument) -> bool) -> Vec<&Argument> {
    let optional = command
        .arguments
        .iter()
        .filter(|it| it.optional && it.token.is_none() && it.parts.is_empty());
    required(command).chain(optional).chain(options(command)).filter(|it| which(it)).collect()
}

#[test]
fn numbers_are_strict_decimals_within_their_limits() {
    let mut refusing = Refusing::start();
    for command in &refusing.commands.clone() {
        for argument in those(command, |it| it.kind == "integer") {
            let (name, label) = (&command.name, label(argument));
            let limits =
                NUMBERS.iter().find(|it| it.1 == label && (it.0 == name || it.0.is_empty()));
            let Some((_, _, least, most)) = limits else { panic!("{name}: what may {label} be?") };
            let beyond = [least.wrapping_sub(1), most + 1, i64::MAX as u64].map(|n| n.to_string());
            let beyond = beyond.iter().map(String::as_bytes);
            let text = format!("ERR invalid {label}: must be between {least} and {most}");
            for number in NOT_NUMBERS.into_iter().chain(beyond) {
                for (key, owner) in
                    [(key_of(command), "alice"), (key_of(command), "secret"), ("free", "secret")]
                {
                    let words = words(command, key, owner.as_bytes(), Some((argument, number)));
                    refusing.refuses(&words, &text);
                }
            }
            for number in [*least, *most].map(|n| n.to_string()) {
                let words = words(
                    command,
                    &format!("{name} {label} {number}"),
                    b"bob",
                    Some((argument, number.as_bytes())),
                );
                let reply = refusing.connections[0].call(&words);
                assert!(!reply.to_string().contains("ERR"), "{name} {label} {number}: {reply}");
            }
        }
    }
}

/// Each argument of these names refuses what is wrong and takes what is right, and any bytes.
fn texts(names: &[&str], wrong: &[Vec<u8>], why: &str, right: &[&[u8]]) {
    let mut refusing = Refusing::start();
    let mut seen = 0;
    for command in &refusing.commands.clone() {
        for argument in those(command, |it| names.contains(&it.name.as_str())) {
            seen += 1;
            for text in wrong {
                for (key, owner) in [(key_of(command), "alice"), ("free", "secret")] {
                    let words = words(command, key, owner.as_bytes(), Some((argument, text)));
                    refusing.refuses(&words, &why.replace('$', &argument.name));
                }
            }
            for (number, text) in right.iter().copied().chain(NAMES).enumerate() {
                let key = format!("{} {number}", command.name);
                let words = words(command, &key, b"bob", Some((argument, text)));
                let reply = refusing.connections[0].call(&words);
                assert!(!reply.to_string().contains("ERR"), "{command}, {text:?}: {reply}");
            }
        }
    }
    assert!(seen >= 3, "{names:?}: {seen}");
}

#[test]
fn who_asks_has_a_name_of_a_certain_length_that_is_not_reserved() {
    let reserved = ["fencing-token", "lock-mode", "lock-value"].map(|it| it.as_bytes().to_vec());
    let lengths = [Vec::new(), vec![b'o'; 1025], vec![b'\xff'; 1 << 20]];
    texts(
        &["owner", "waiter", "participant"],
        &[&reserved[..], &lengths].concat(),
        "ERR invalid $",
        &[&[b'o'; 1024], b"Fencing-Token", b"fencing-token ", b"lock"],
    );
}

#[test]
fn what_a_holder_says_is_any_bytes_up_to_a_kilobyte() {
    let why = "ERR invalid VALUE: must be at most 1024 bytes";
    texts(&["value"], &[vec![b's'; 1025]], why, &[&[b's'; 1024], b""]);
}

#[test]
fn options_that_are_unknown_twice_or_at_odds_are_syntax_errors() {
    let mut refusing = Refusing::start();
    for command in &refusing.commands.clone() {
        let mut head = words(command, key_of(command), b"alice", None);
        // What may follow without a word before it.
        let bare = those(command, |it| it.optional && it.token.is_none());
        head.extend(bare.iter().map(|it| value(it, "", b"alice")));
        if command.arguments.iter().all(|argument| !argument.optional) {
            continue;
        }
        for tail in wrong_options(command) {
            refusing.refuses(&[head.clone(), tail].concat(), "ERR syntax error");
        }
    }
    for line in ["del free", "lock.acquire free bob 1000 holds 1", "lock.release free bob all"] {
        assert!(!refusing.connections[0].run(line).is_error(), "{line}");
    }
}

/// Words that cannot follow.
fn wrong_options(command: &Command) -> Vec<Vec<Vec<u8>>> {
    let mut tails = Vec::from(["secret", "secret 1", "HOLDS\\x00 1", "\"\""].map(words_of));
    for one in options(command) {
        let plain = option(one, value(one, "", b""));
        tails.push([&plain[..], &plain].concat());
        tails.push([&plain[..], &words_of("secret")].concat());
        if one.kind == "pure-token" {
            continue;
        }
        tails.push(plain[..1].to_vec());
        for other in options(command) {
            let other = option(other, b"1".to_vec());
            tails.push([&other[..], &plain[..1]].concat());
            if one.kind == "integer" && other.len() == 1 {
                tails.push([&plain[..1], &other, &plain[1..]].concat());
            }
        }
    }
    for argument in command.arguments.iter().filter(|it| it.optional && it.parts.len() == 2) {
        let [one, other] = [0, 1].map(|at| option(&argument.parts[at], b"1".to_vec()));
        tails.extend([[&one[..], &other].concat(), [&other[..], &one].concat()]);
    }
    tails
}

fn words_of(line: &str) -> Vec<Vec<u8>> {
    split(line).unwrap()
}

#[test]
fn too_few_or_too_many_arguments_are_refused() {
    let mut refusing = Refusing::start();
    for command in &refusing.commands.clone() {
        let mut words = words(command, key_of(command), b"secret", None);
        for count in 1..words.len() {
            refusing.refuses(&words[..count], "ERR wrong number of arguments");
        }
        if command.arguments.iter().all(|argument| !argument.optional) {
            words.push(b"secret".to_vec());
            refusing.refuses(&words, "ERR wrong number of arguments");
        }
    }
}

#[test]
fn a_hundred_thousand_arguments_are_a_syntax_error() {
    let mut refusing = Refusing::start();
    for command in refusing.commands.clone() {
        let mut words = words(&command, key_of(&command), b"alice", None);
        if command.arguments.iter().any(|argument| argument.optional) {
            words.resize(100_000, b"secret".to_vec());
            refusing.refuses(&words, "ERR syntax error");
        }
    }
    refusing.server.assert_alive();
}

#[test]
fn a_key_may_be_empty_or_a_megabyte() {
    let Refusing { server: _server, connections: [mut a, mut b], .. } = Refusing::start();
    for key in [String::new(), "x".repeat(1 << 20)] {
        token(&acquire(&mut a, &key, "alice"));
        assert_eq!(acquire(&mut b, &key, "bob"), Value::Nil);
        assert_eq!(a.call(cmd!["LOCK.RELEASE", key, "alice"]), Value::Integer(0));
    }
}
