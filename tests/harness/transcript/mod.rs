//! Conversations of several clients with a server, in text files that are the expectation.
//!
//! ```text
//! # Two waiters are served in order; the second token is larger.
//! a> LOCK.ACQUIRE k alice 10000 -> [{t1}, 1]
//! b> LOCK.WAIT k bob 10000 5000 -> (blocked)
//! a> LOCK.RELEASE k alice -> 0
//! b< [{t2 > t1}, 1]
//! ```
//!
//! | line | means |
//! |---|---|
//! | `# …`, empty | nothing |
//! | `== …` | a scene begins, with servers and clients of its own; what stands before the first is for all |
//! | `!> proto 2`, `3` | the only protocol in which it is played; else it is both |
//! | `!> config name value` | a line of configuration of the server |
//! | `!> module name value` | an argument of the module |
//! | `!> provoke` | the module is the build that panics on request |
//! | `!> replica`, `!> twin` | a replica without the module, or with it, whose clients are called `replica…`; at the end both have the same data. And when a wait is granted, the key says the same |
//! | `!> twins` | two replicas with the module, whose clients are called `replica…` and `second…`; their data may differ |
//! | `!> cluster` | three nodes: that of slot 0, and another, whose clients are called `away…` |
//! | `!> redisson` | there is Redisson, whose threads are the clients that are called `thread…`: see `tests/redisson/Driver.java` |
//! | `!> caller` | there is another module, which calls commands: see `caller.c` |
//! | `!> clock -1000` | the servers' clock is that many milliseconds ahead of the machine's |
//! | `!> logged text` | the server has logged that |
//! | `!> written A \| B` | it has written that to its append-only file since the last such line, or `nothing`: see `trail.rs` |
//! | `!> pass 150` | the server lives for that many milliseconds |
//! | `!> settle` | all that was due on the server is done |
//! | `!> agree` | the nodes of the cluster have heard of each other's latest epoch: of a slot that moves before that, the node that gets it may lose it again |
//! | `!> restart` | the server is killed, with it go its clients, and starts with what it has on its disk |
//! | `!> stop replica`, `!> continue replica` | that server stands still, until it goes on |
//! | `!> line k alice bob` | client `a` gets the lock `k` for alice, with the token `{k1}`, and `b` waits for it for bob: clients are called by the first letter of owners |
//! | `!> served k bob carol` | bob has it, with the token `{k2}`, and nobody else; it is released, and carol has it, and so on |
//! | `!> let X = text` | `$X` in the lines below stands for that, which may have such names in it, too |
//! | `!> for X in a \| b` | `$X` in the lines up to `!> end` stands for one after the other; `1..9` are numbers |
//! | `!> for X ; Y` | the same for several names; each turn is a line `!> \| a ; b` |
//! | `!> story a long wait` | `!> a long wait` stands for the lines up to `!> end` |
//! | `!> finally line` | each scene ends with that line |
//! | `a> COMMAND …` | client `a` sends it, quoted as in redis-cli; `a` connects when it is first named |
//! | `a> COMMAND … -> reply` | and its reply |
//! | `a>> COMMAND …` | `a` sends it in one write with its next command |
//! | `a> (sent) COMMAND …` | `a` sends it, and the reply arrives later |
//! | `a> (until) COMMAND …` | the same again and again, until the reply is the expected one |
//! | `a> (field waiters) COMMAND …` | of the reply only that field is expected |
//! | `a> (counted granted) -> 2` | a counter of the module, since the scene or the turn of the loop began |
//! | `a> (close)`, `a> (reset)` | `a` closes its connection, or breaks it off, and the server has noticed |
//! | any other line | the expected reply, or more of it |
//! | `(blocked)` as a reply | the server shows the client as blocked |
//! | `b< …` | what now arrives at `b`, which was blocked or has subscribed |
//! | `b< (closed)` | the server closes `b`'s connection |
//! | `b< (waits)`, `b< (nothing)` | after all that was due is done `b` was told nothing, and is blocked, or is not |
//! | `b< (sent away)` | `b` is told that the server is no primary any more, or its connection ends |
//!
//! A reply is written in one line: `nil`, `5`, `"text"`, `OK`, `(error) …`, or an array or a map in brackets,
//! `["state", "held"]`, the same in RESP2 and RESP3; or as redis-cli prints it, for readers of the documents. If it
//! goes on in the next line, that is indented. `_` is any reply but an error, `x || y` one of two, and ` (no more)`
//! behind a grant says that it is over already.
//!
//! In it `{t}` is a whole number that gets the name `t`, or that it must have when it has one; `{u > t}` is compared
//! too (`<`, `>=`, `<=`, with a name or a number); `{_}` is any number, `{900..1000}` one between, `{...}` anything,
//! `{hex s}` the name of a session, a node or a thread of Redisson's and `{hex8 s}` its first digits, `{id a}` the server's number for client
//! `a`. Braces in the middle of a word stay as they are. In a command these names are put in, and `{port}`, `{replica}`,
//! `{away}`, the servers' ports, and `{module}` and `{provoke}`, the files of the module and of the build that can be told
//! to panic; `{1000 x}` is a word of so many letters, and `{1000 words}` are so many words.
//!
//! At the end the server must be alive and unharmed, nobody blocked, and nothing unread on any connection.

mod parse;
mod pattern;
mod play;
mod stage;

pub use parse::Transcript;
pub use play::play;

use crate::agree::{expect_same_data, expect_unharmed};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::kind::Kind;
use crate::observe;
use crate::options::Options;
use crate::server::Server;
use std::fs;
use std::path::Path;

/// Plays the file on servers of that kind with the module, in the protocols that it names, and panics
/// with the place and the difference when something else is seen.
pub fn run_file(path: &Path, kind: &Kind) {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for scene in 0..Transcript::count(&text) {
        let transcript = Transcript::scene(&path.display().to_string(), &text, scene);
        let transcript = transcript.unwrap_or_else(|e| panic!("{e}"));
        for protocol in transcript.protocols.iter().copied() {
            run(&transcript, kind, protocol);
        }
    }
}

fn run(transcript: &Transcript, kind: &Kind, protocol: u8) {
    let clock = transcript.has("clock").then(Clock::new);
    let plain = clock.iter().fold(Server::options().kind(kind), Options::clock);
    let options = options(transcript, &plain);
    let redisson = transcript.has("redisson").then(redisson);
    let play = |servers: &[(&str, &Server)]| {
        let threads = redisson.iter().map(|redisson| ("thread", redisson));
        let servers: Vec<(&str, &Server)> = servers.iter().copied().chain(threads).collect();
        let played = play::play_on(&servers, clock.as_ref(), transcript, protocol);
        played.unwrap_or_else(|mismatch| panic!("{kind}: {mismatch}"));
        servers.iter().for_each(|(_, server)| check_the_end(transcript, server));
    };
    if transcript.has("cluster") {
        let cluster = Cluster::start_with(&options, 3, 0);
        let home = cluster.node_for("{3560}");
        let away = cluster.nodes().iter().find(|node| node.port() != home.port());
        return play(&[("", home), ("away", away.expect("there are three"))]);
    }
    let server = options.start();
    let follow = |replica: Options| {
        let replica = replica.replica_of(&server).start();
        let mut control = server.connect();
        observe::wait_for_replica(&mut control, &mut replica.connect());
        observe::wait_for_info(&mut control, "rdb_bgsave_in_progress", 0);
        replica
    };
    let twin = || follow(plain.clone().config("repl-diskless-load", "swapdb"));
    if transcript.has("twins") {
        play(&[("", &server), ("replica", &twin()), ("second", &twin())]);
    } else if transcript.has("twin") || transcript.has("replica") {
        let plain = || follow(plain.clone().without_module());
        let replica = if transcript.has("twin") { twin() } else { plain() };
        play(&[("", &server), ("replica", &replica)]);
        expect_same_data(&server, &replica);
    } else {
        play(&[("", &server)]);
    }
}

/// Redisson, as a server each of whose clients is a thread of it: `scripts/test redisson` says where that is.
pub fn redisson() -> Server {
    let folder = std::env::var("KVLOCK_REDISSON").expect("scripts/test redisson brings it");
    Server::options().kind(&Kind::named(&folder)).without_module().start()
}

/// A server with the module and the configuration that the transcript asks for.
pub fn server_for(transcript: &Transcript) -> Server {
    options(transcript, &Server::options()).start()
}

fn options(transcript: &Transcript, plain: &Options) -> Options {
    let with =
        |options: Options, more: &[(String, String)], add: fn(Options, &str, &str) -> Options| {
            more.iter().fold(options, |options, (name, value)| add(options, name, value))
        };
    let options = with(plain.clone(), &transcript.config, |it, name, value| it.config(name, value));
    let options =
        with(options, &transcript.module, |it, name, value| it.module_config(name, value));
    let options = if transcript.has("caller") { options.caller("") } else { options };
    if transcript.has("provoke") { options.provoke() } else { options }
}

/// Nothing went wrong inside.
fn check_the_end(transcript: &Transcript, server: &Server) {
    if transcript.has("provoke") {
        return;
    }
    let mut control = server.connect();
    for field in ["kvlock_caught_panics", "kvlock_not_replicated"] {
        let seen = observe::info_field(&mut control, field);
        assert!(seen.as_deref().is_none_or(|seen| seen == "0"), "{field} is {seen:?}");
    }
    expect_unharmed(server);
}
