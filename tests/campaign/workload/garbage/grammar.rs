//! The commands of a server, from its own documentation, and words that fit their arguments.

use super::words;
use harness::Connection;
use harness::docs::{self, Argument, Command, is_ours};
use harness::random::Random;

/// Commands that are not drawn, because they would end the server, connect to other machines, lock all
/// clients out, wait for long or disturb the test. The sequences in `command_source.rs` contain some of them.
/// `CLIENT PAUSE` is never sent in a transaction: after such a transaction, Redis 7.0 and 8 crash, even without
/// modules, on any write to an expired key.
const NEVER: &str = "\
    acl|deluser acl|load acl|save acl|setuser auth client|kill client|no-touch client|pause \
    client|reply client|unblock command command|docs command|info config|resetstat config|rewrite \
    config|set debug failover hello migrate module|load module|loadex module|unload monitor multi \
    pfdebug pfselftest psync replconf replicaof reset script|debug shutdown slaveof sync quit";

/// Commands that matter most for keys of locks. They are drawn more often than others.
const HOT: &str = "\
    copy del del del dump exists expire getdel hdel hdel hexpire hgetall hgetdel hincrby hmset \
    hpexpire hset hsetnx move object|encoding object|freq persist pexpire pexpire pexpireat pttl \
    rename renamenx select set swapdb touch unlink unlink watch";

/// The commands of the server from which random ones are drawn.
#[derive(Debug)]
pub(super) struct Grammar {
    ours: Vec<Command>,
    others: Vec<Command>,
    /// Indices in `others` of the commands in [`HOT`], some more than once.
    hot: Vec<usize>,
}

impl Grammar {
    /// Reads the commands from the server.
    pub(super) fn of(connection: &mut Connection) -> Self {
        let mut all = docs::commands(connection);
        all.retain(|command| !NEVER.split(' ').any(|name| name == command.name));
        let (ours, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|command| is_ours(command.name.as_bytes()));
        assert!(ours.len() >= 20 && others.len() > 200, "{} and {}", ours.len(), others.len());
        let place = |name: &str| others.iter().position(|command| command.name == name);
        let hot = HOT.split(' ').filter_map(place).collect();
        Self { ours, others, hot }
    }

    /// A command of the module.
    pub(super) fn one_of_ours(&self, random: &mut Random) -> Vec<Vec<u8>> {
        draw(random.pick(&self.ours), random)
    }

    /// A command that is not one of the module's.
    pub(super) fn other(&self, random: &mut Random) -> Vec<Vec<u8>> {
        if random.percent(70) {
            return draw(&self.others[*random.pick(&self.hot)], random);
        }
        draw(random.pick(&self.others), random)
    }
}

/// The command with random arguments. Most arguments are valid.
fn draw(command: &Command, random: &mut Random) -> Vec<Vec<u8>> {
    let mut words: Vec<_> =
        command.name.split('|').map(|word| word.to_uppercase().into_bytes()).collect();
    command.arguments.iter().for_each(|argument| put(argument, random, &mut words));
    if random.percent(4) {
        spoil(&mut words, random);
    }
    words
}

fn put(argument: &Argument, random: &mut Random, words: &mut Vec<Vec<u8>>) {
    if argument.optional && random.percent(65) {
        return;
    }
    let times = if argument.multiple { 1 + random.below(3) } else { 1 };
    for _ in 0..times {
        if let Some(token) = &argument.token {
            words.push(token.clone().into_bytes());
        }
        match argument.kind.as_str() {
            "pure-token" => {}
            "oneof" if !argument.parts.is_empty() => {
                put(random.pick(&argument.parts), random, words);
            }
            "block" => argument.parts.iter().for_each(|part| put(part, random, words)),
            "key" if is_ours(&words[0]) && random.percent(85) => {
                let key = words::key_of(&words[0], random);
                words.push(key);
            }
            kind => words.push(words::draw(kind, &argument.name, random)),
        }
    }
}

/// Removes, adds or replaces one word, or appends `HOLDS` up to 39 times.
fn spoil(words: &mut Vec<Vec<u8>>, random: &mut Random) {
    let at = random.below(words.len() as u64 + 1) as usize;
    match random.below(4) {
        0 => words.insert(at, words::anything(random)),
        1 if at < words.len() && words.len() > 1 => drop(words.remove(at)),
        _ if at < words.len() && at > 0 => words[at] = words::anything(random),
        _ => words.extend((0..random.below(40)).map(|_| b"HOLDS".to_vec())),
    }
}
