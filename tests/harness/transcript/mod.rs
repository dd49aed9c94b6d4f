//! Conversations of several clients with a server, in text files that contain the expected replies.
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
//! | `# …`, empty | a comment; ignored |
//! | `== …` | a scene begins, with new servers and clients; lines before the first scene apply to all scenes |
//! | `!> proto 2`, `3` | the only protocol in which the file is played; the default is both |
//! | `!> config name value` | a line of configuration of the server |
//! | `!> module name value` | an argument of the module |
//! | `!> provoke` | the module has the feature `provoke`: see `module_file.rs` |
//! | `!> replica`, `!> twin` | a replica without the module, or with it, whose clients are called `replica…`. At the end both servers must have the same data. When a wait is granted, the key must show the same grant |
//! | `!> twins` | two replicas with the module, whose clients are called `replica…` and `second…`. Grants are checked as with one replica, but the data may differ at the end |
//! | `!> cluster` | three nodes: the default clients use the node of slot 0, and clients called `away…` use another |
//! | `!> redisson` | Redisson runs too, and its threads are the clients called `thread…`: see `tests/redisson/Driver.java` |
//! | `!> caller` | another module is loaded, which calls commands: see `caller.c` |
//! | `!> clock -1000` | the servers' clock is that many milliseconds ahead of the machine's |
//! | `!> logged text` | waits until the server has logged that |
//! | `!> written A \| B` | the server has written these commands to its append-only file since the last such line, or `nothing`: see `trail.rs` |
//! | `!> pass 150` | the server runs for that many milliseconds |
//! | `!> settle` | waits until everything that was due on the server is done |
//! | `!> agree` | waits until the nodes of the cluster know the latest epoch; before that, a node may lose a slot again that has moved to it |
//! | `!> restart` | the server is killed, its clients are disconnected, and it starts with its data on disk |
//! | `!> stop replica`, `!> continue replica` | that server is stopped, or resumes |
//! | `!> line k alice bob` | client `a` gets the lock `k` for owner alice, with the token `{k1}`, and client `b` waits for it for owner bob; the name of a client is the first letter of its owner |
//! | `!> served k bob carol` | only bob has the lock, with the token `{k2}`; the lock is released for bob, and then only carol has it, and so on |
//! | `!> let X = text` | `$X` in the lines below is replaced by that text, which may contain such names too |
//! | `!> for X in a \| b` | the lines up to `!> end` are repeated with each of these values for `$X`; `1..9` are numbers |
//! | `!> for X ; Y` | the same for several names; each line `!> \| a ; b` below has the values of one repetition |
//! | `!> story a long wait` | `!> a long wait` stands for the lines up to `!> end` |
//! | `!> finally line` | each scene ends with that line |
//! | `a> COMMAND …` | client `a` sends it, quoted as in redis-cli; `a` connects when it is first named |
//! | `a> COMMAND … -> reply` | the same, with the expected reply in the same line |
//! | `a>> COMMAND …` | `a` sends it in one write with its next command |
//! | `a> (sent) COMMAND …` | `a` sends it, and the reply arrives later |
//! | `a> (until) COMMAND …` | `a` repeats the command until the reply is the expected one |
//! | `a> (field waiters) COMMAND …` | of the reply only that field is expected |
//! | `a> (counted granted) -> 2` | the increase of a counter of the module since the start of the scene or of the repetition, or since the restart |
//! | `a> (close)`, `a> (reset)` | `a` closes or resets its connection, and the server has noticed |
//! | any other line | the expected reply, or its continuation |
//! | `(blocked)` as a reply | the server shows the client as blocked |
//! | `b< …` | the message that now arrives at `b`, which was blocked or has subscribed |
//! | `b< (closed)` | the server closes `b`'s connection |
//! | `b< (waits)`, `b< (nothing)` | everything that was due is done and `b` has received nothing; `b` is blocked (`waits`) or not (`nothing`) |
//! | `b< (sent away)` | `b` gets the error that the server is no longer primary, or its connection ends |
//!
//! A reply is written in one line: `nil`, `5`, `"text"`, `OK`, `(error) …`, or an array or a map in brackets,
//! `["state", "held"]`, the same in RESP2 and RESP3; or as redis-cli prints it, for readers of the documents.
//! The continuation lines of a message are indented by the width of `b< `. `_` is any reply except an error,
//! and `x || y` is one of several. ` (no more)` after a grant means that the grant has already ended.
//!
//! In a reply, `{t}` is a whole number. Its first occurrence gives it the name `t`, and later ones must be
//! equal. `{u > t}` also compares (`<`, `>=`, `<=`, with a name or a number); `{_}` is any number,
//! `{900..1000}` a number in that range, and `{...}` anything. `{hex s}` is the name of a session, a node or
//! a thread of Redisson, `{hex8 s}` its first 8 digits, and `{id a}` the server's number for client `a`. In the
//! middle of a word, braces around an unknown name are text, except after the `t` of a stored token. In a
//! command, known names are replaced by their values. So are `{port}`, `{replica}`, `{away}` and the like, the
//! servers' ports, and `{module}` and `{provoke}`, the files of the module without and with the feature
//! `provoke`. `{1000 x}` is a word of 1000 letters, and `{1000 words}` are 1000 words.
//!
//! At the end the server must be alive, no client blocked, and no data unread on any connection. Without
//! `provoke`, all servers must also be unharmed.

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

/// Plays each scene of the file, in each of its protocols, on servers of the given kind. If a reply differs,
/// panics with the place and the difference.
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

/// Redisson, as a server whose clients are its threads. `scripts/test redisson` sets `KVLOCK_REDISSON`, the
/// path of the program.
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

/// Checks that the server is alive and has reported no internal error. Checks nothing with the feature
/// `provoke`.
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
