//! The commands in a server's append-only files, in a form that can be compared. The base file is left out.

use crate::resp::{Value, parse};
use crate::server::Server;
use std::fs;

/// The commands in the files: a line for each command, and a line in braces for each transaction. A number of
/// thirteen or more digits (a time or a token) is shown as `#`, also at the end of a value with a space, and
/// after the `t` of a stored token. `SELECT` is left out. A transaction with one command in the files has no
/// braces.
pub fn trail(server: &Server) -> Vec<String> {
    let mut lines = Vec::new();
    let mut transaction: Option<Vec<String>> = None;
    for words in commands(server) {
        let line: Vec<_> = words.iter().map(|word| masked(word)).collect();
        match (words[0].to_uppercase().as_str(), &mut transaction) {
            ("SELECT", _) => {}
            ("MULTI", None) => transaction = Some(Vec::new()),
            ("EXEC", Some(_)) => {
                let parts = transaction.take().unwrap_or_default();
                lines.push(match &parts[..] {
                    [part] => part.clone(),
                    parts => format!("{{{}}}", parts.join("; ")),
                });
            }
            ("MULTI", Some(_)) | ("EXEC", None) => panic!("a nested transaction in the file"),
            (_, Some(parts)) => parts.push(line.join(" ")),
            (_, None) => lines.push(line.join(" ")),
        }
    }
    assert!(transaction.is_none(), "the file ends in a transaction");
    lines
}

/// The words of each command in the files, in order.
fn commands(server: &Server) -> Vec<Vec<String>> {
    let folder = server.dir().join("appendonlydir");
    let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest")).expect("a manifest");
    let files = manifest.lines().filter(|line| line.contains(" type i"));
    let mut bytes = Vec::new();
    for line in files {
        let name = line.split(' ').nth(1).expect("a file name");
        bytes.extend(fs::read(folder.join(name)).expect("a file of the manifest"));
    }
    let mut commands = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (command, length) = parse(rest, 2).expect("RESP").expect("a whole command");
        commands.push(command.elements().iter().flat_map(words).collect());
        rest = &rest[length..];
    }
    commands
}

/// The text of a command's word. A hash in the format of `DUMP` gives the texts of all its fields and values.
fn words(word: &Value) -> Vec<String> {
    let [4, fields, dump @ ..] = word.bytes() else { return vec![word.text()] };
    let mut rest = dump;
    let texts = (0..2 * fields).map(|_| {
        let (length, text) = match rest {
            [high, low, text @ ..] if high >> 6 == 1 => {
                (usize::from(high & 63) << 8 | usize::from(*low), text)
            }
            [length, text @ ..] => (usize::from(*length), text),
            [] => panic!("half a hash: {word}"),
        };
        let (text, others) = text.split_at(length);
        rest = others;
        String::from_utf8_lossy(text).into_owned()
    });
    let texts = texts.collect();
    assert_eq!((rest.len(), rest[..2] == [9, 0]), (10, true), "version and checksum");
    texts
}

fn masked(word: &str) -> String {
    if let Some((count, until)) = word.rsplit_once(' ') {
        return format!("{count} {}", masked(until));
    }
    if let Some(token) = word.strip_prefix('t').filter(|token| token.len() >= 13) {
        return format!("t{}", masked(token));
    }
    let long = word.len() >= 13 && word.bytes().all(|byte| byte.is_ascii_digit());
    if long { "#".to_owned() } else { word.to_owned() }
}
