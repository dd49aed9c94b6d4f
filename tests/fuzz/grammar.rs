//! The commands of a server, as it documents them itself, and words that fit their arguments.

use crate::words;
use harness::random::Random;
use harness::{Connection, Value, cmd};

/// Commands that would end the server, leave this machine, lock everybody out or wait for long.
/// Some of them are given by hand, see `hand.rs`: never `CLIENT PAUSE` in a transaction, after which
/// Redis 7.0 and 8 crash, with no module at all, on any write of a key whose time is over.
const NEVER: &[&str] = &[
    "acl|deluser",
    "acl|load",
    "acl|save",
    "acl|setuser",
    "auth",
    "client|kill",
    "client|no-touch",
    "client|pause",
    "client|reply",
    "client|unblock",
    "command",
    "command|docs",
    "command|info",
    "config|resetstat",
    "config|rewrite",
    "config|set",
    "debug",
    "failover",
    "hello",
    "migrate",
    "module|load",
    "module|loadex",
    "module|unload",
    "monitor",
    "multi",
    "pfdebug",
    "pfselftest",
    "psync",
    "replconf",
    "replicaof",
    "reset",
    "script|debug",
    "shutdown",
    "slaveof",
    "sync",
    "quit",
];

/// What is done most to the keys of others, and so comes most often here.
const HOT: &[&str] = &[
    "copy",
    "del",
    "del",
    "del",
    "dump",
    "exists",
    "expire",
    "getdel",
    "hdel",
    "hdel",
    "hexpire",
    "hgetall",
    "hgetdel",
    "hincrby",
    "hmset",
    "hpexpire",
    "hset",
    "hsetnx",
    "move",
    "object|encoding",
    "object|freq",
    "persist",
    "pexpire",
    "pexpire",
    "pexpireat",
    "pttl",
    "rename",
    "renamenx",
    "select",
    "set",
    "swapdb",
    "touch",
    "unlink",
    "unlink",
    "watch",
];

/// One command.
#[derive(Debug)]
pub(crate) struct Command {
    /// Its words: `CONFIG GET` has two.
    words: Vec<Vec<u8>>,
    arguments: Vec<Argument>,
}

#[derive(Debug)]
struct Argument {
    name: String,
    kind: String,
    token: Option<Vec<u8>>,
    optional: bool,
    multiple: bool,
    parts: Vec<Self>,
}

/// All commands that may be sent.
#[derive(Debug)]
pub(crate) struct Grammar {
    ours: Vec<Command>,
    others: Vec<Command>,
    /// Some of these, some of them more than once.
    hot: Vec<usize>,
}

impl Grammar {
    /// Asks the server.
    pub(crate) fn of(connection: &mut Connection) -> Self {
        let mut all = Vec::new();
        for (name, command) in pairs(&connection.call(cmd!["COMMAND", "DOCS"])) {
            read(&name, &command, &mut all);
        }
        let (ours, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|command| is_ours(&command.words[0]));
        assert!(ours.len() >= 20 && others.len() > 200, "{} and {}", ours.len(), others.len());
        let place = |name: &&str| others.iter().position(|command| command.name() == *name);
        let hot = HOT.iter().filter_map(place).collect();
        Self { ours, others, hot }
    }

    /// A command of the module.
    pub(crate) fn one_of_ours(&self, random: &mut Random) -> Vec<Vec<u8>> {
        random.pick(&self.ours).draw(random)
    }

    /// Any other command.
    pub(crate) fn other(&self, random: &mut Random) -> Vec<Vec<u8>> {
        if random.percent(70) {
            return self.others[*random.pick(&self.hot)].draw(random);
        }
        random.pick(&self.others).draw(random)
    }
}

impl Command {
    fn name(&self) -> String {
        String::from_utf8_lossy(&self.words.join(&b'|')).to_lowercase()
    }

    /// It, with arguments that fit, or nearly so.
    fn draw(&self, random: &mut Random) -> Vec<Vec<u8>> {
        let mut words = self.words.clone();
        self.arguments.iter().for_each(|argument| argument.draw(random, &mut words));
        if random.percent(4) {
            spoil(&mut words, random);
        }
        words
    }
}

impl Argument {
    fn draw(&self, random: &mut Random, words: &mut Vec<Vec<u8>>) {
        if self.optional && random.percent(65) {
            return;
        }
        let times = if self.multiple { 1 + random.below(3) } else { 1 };
        for _ in 0..times {
            if let Some(token) = &self.token {
                words.push(token.clone());
            }
            match self.kind.as_str() {
                "pure-token" => {}
                "oneof" if !self.parts.is_empty() => random.pick(&self.parts).draw(random, words),
                "block" => self.parts.iter().for_each(|part| part.draw(random, words)),
                "key" if is_ours(&words[0]) && random.percent(85) => {
                    let key = words::key_of(&words[0], random);
                    words.push(key);
                }
                kind => words.push(words::draw(kind, &self.name, random)),
            }
        }
    }
}

/// Whether a command of that name is the module's.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    let name = name.to_ascii_uppercase();
    [&b"LOCK."[..], b"SEM.", b"LATCH.", b"SESSION."].iter().any(|family| name.starts_with(family))
}

/// Leaves one argument out, adds one, or puts something else in its place.
fn spoil(words: &mut Vec<Vec<u8>>, random: &mut Random) {
    let at = random.below(words.len() as u64 + 1) as usize;
    match random.below(4) {
        0 => words.insert(at, words::anything(random)),
        1 if at < words.len() && words.len() > 1 => drop(words.remove(at)),
        _ if at < words.len() && at > 0 => words[at] = words::anything(random),
        _ => words.extend((0..random.below(40)).map(|_| b"HOLDS".to_vec())),
    }
}

fn read(name: &str, command: &Value, all: &mut Vec<Command>) {
    let field = |name: &str| pairs(command).into_iter().find(|(field, _)| field == name);
    if let Some((_, parts)) = field("subcommands") {
        pairs(&parts).iter().for_each(|(name, command)| read(name, command, all));
        return;
    }
    if NEVER.contains(&name) {
        return;
    }
    let words = name.split('|').map(|word| word.to_uppercase().into_bytes()).collect();
    let arguments = field("arguments").map(|(_, all)| arguments(&all)).unwrap_or_default();
    all.push(Command { words, arguments });
}

fn arguments(all: &Value) -> Vec<Argument> {
    all.elements().iter().map(argument).collect()
}

fn argument(of: &Value) -> Argument {
    let mut argument = Argument {
        name: String::new(),
        kind: String::new(),
        token: None,
        optional: false,
        multiple: false,
        parts: Vec::new(),
    };
    for (name, value) in pairs(of) {
        match name.as_str() {
            "name" => argument.name = value.text(),
            "type" => argument.kind = value.text(),
            "token" => argument.token = Some(value.bytes().to_vec()),
            "arguments" => argument.parts = arguments(&value),
            "flags" => {
                let flags = value.elements();
                argument.optional = flags.iter().any(|flag| flag.text() == "optional");
                argument.multiple = flags.iter().any(|flag| flag.text().starts_with("multiple"));
            }
            _ => {}
        }
    }
    argument
}

/// The names and values of a map in RESP2.
fn pairs(flat: &Value) -> Vec<(String, Value)> {
    flat.elements().chunks(2).map(|pair| (pair[0].text(), pair[1].clone())).collect()
}
