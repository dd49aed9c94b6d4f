//! Conversations of several clients with a server, in text files that are the expectation.
//!
//! ```text
//! # Two waiters are served in order; the second token is larger.
//! !> proto both
//! a> LOCK.ACQUIRE k alice 10000
//! 1) (integer) {t1}
//! 2) (integer) 1
//! b> LOCK.WAIT k bob 10000 5000
//! (blocked)
//! a> LOCK.RELEASE k alice
//! (integer) 0
//! b< 1) (integer) {t2 > t1}
//!    2) (integer) 1
//! ```
//!
//! | line | means |
//! |---|---|
//! | `# …`, empty | nothing |
//! | `== …` | a scene begins, with servers and clients of its own; what stands before the first is for all |
//! | `!> proto 2`, `3`, `both` | the protocol of all clients; `both`, the default, plays it twice |
//! | `!> config name value` | a line of configuration of the server |
//! | `!> module name value` | an argument of the module |
//! | `!> planted` | the module is the build that can be told to panic |
//! | `!> replica`, `!> twin` | a replica without the module, or with it, whose clients are called `replica…`; at the end both have the same data. And when a wait is granted, the key says the same |
//! | `!> caller` | there is another module, which calls commands: see `caller.c` |
//! | `!> clock -1000` | the servers' clock is that many milliseconds ahead of the machine's |
//! | `!> logged text` | the server has logged that |
//! | `!> pass 150` | the server lives for that many milliseconds |
//! | `!> settle` | all that was due on the server is done |
//! | `!> let X = text` | `$X` in the lines below stands for that |
//! | `!> for X in a \| b` | `$X` in the lines up to `!> end` stands for one after the other; `1..9` are numbers |
//! | `!> for X ; Y` | the same for several names; each turn is a line `!> \| a ; b` |
//! | `a> COMMAND …` | client `a` sends it, quoted as in redis-cli; `a` connects when it is first named |
//! | `a> COMMAND … -> reply` | and its reply, in one line |
//! | `a>> COMMAND …` | `a` sends it in one write with its next command |
//! | `a> (sent) COMMAND …` | `a` sends it, and the reply arrives later |
//! | `a> (until) COMMAND …` | the same again and again, until the reply is the expected one |
//! | `a> (field waiters) COMMAND …` | of the reply only that field is expected |
//! | `a> (counted granted) -> 2` | a counter of the module, since the scene or the turn of the loop began |
//! | `a> (close)`, `a> (reset)` | `a` closes its connection, or breaks it off, and the server has noticed |
//! | `a> (wait-closed)` | the server has closed `a`'s connection |
//! | `a> (blocked)` | the server shows `a` as blocked |
//! | any other line | the expected reply, as redis-cli prints it; more of a reply in one line is indented |
//! | `(blocked)` as a reply | the server shows the client as blocked |
//! | `b< …` | what now arrives at `b`, which was blocked or has subscribed |
//! | `b< (closed)` | the server closes `b`'s connection |
//! | `b< (waits)` | `b` is blocked and was told nothing, after all that was due is done |
//! | `b< (sent away)` | `b` is told that the server is no primary any more, or its connection ends |
//!
//! In an expected reply `{t}` is a whole number that gets the name `t`, or that it must have when it
//! has one; `{u > t}` is compared too (`<`, `>=`, `<=`, with a name or a number); `{_}` is any number,
//! `{900..1000}` one between, `{...}` anything, `{hex s}` the name of a session and `{hex8 s}` its first
//! digits, `{id a}` the server's number for client `a`. In quotes, that counts only for a whole string:
//! `"{t}"`. In a command `{t}`, `{id a}`, and `{port}` and `{replica}`, the servers' ports, are put in; `$MODULE` and
//! `$PLANTED` are the files of the module and of the build that can be told to panic.
//!
//! In one line a reply is `nil`, `5`, `"text"`, `OK`, `(error) …`, or an array or a map in brackets,
//! `["state", "held"]`: the same in RESP2 and RESP3. `_` is any reply but an error, `x || y` one of two, and
//! ` (no more)` behind a grant says that it is over already.
//!
//! At the end the server must be alive and unharmed, nobody blocked, and nothing unread on any connection.

mod parse;
mod pattern;
mod play;
mod stage;

pub use parse::Transcript;
pub use play::{Mismatch, play};

use crate::agree::{expect_same_data, expect_unharmed};
use crate::clock::Clock;
use crate::kind::Kind;
use crate::observe;
use crate::options::Options;
use crate::server::Server;
use parse::Replica;
use std::fs;
use std::path::Path;

/// Plays the file on servers with the module, in the protocols that it names, and panics with the
/// place and the difference when something else is seen.
pub fn run_file(path: &Path) {
    run_file_on(path, &Kind::chosen());
}

/// The same on servers of that kind.
pub fn run_file_on(path: &Path, kind: &Kind) {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for scene in 0..Transcript::count(&text) {
        let transcript = Transcript::scene(&path.display().to_string(), &text, scene);
        let transcript = transcript.unwrap_or_else(|e| panic!("{e}"));
        for protocol in transcript.protocols.iter().copied() {
            let clock = transcript.clock.then(Clock::new);
            let (server, replica) = servers_for(&transcript, kind, clock.as_ref());
            let played =
                play::play_with(&server, replica.as_ref(), clock.as_ref(), &transcript, protocol);
            played.unwrap_or_else(|mismatch| panic!("{kind}: {mismatch}"));
            check_the_end(&transcript, &server, replica.as_ref());
        }
    }
}

/// A server with the module and the configuration that the transcript asks for.
pub fn server_for(transcript: &Transcript) -> Server {
    servers_for(transcript, &Kind::chosen(), None).0
}

fn servers_for(
    transcript: &Transcript,
    kind: &Kind,
    clock: Option<&Clock>,
) -> (Server, Option<Server>) {
    let plain = Server::options().kind(kind);
    let plain = clock.into_iter().fold(plain, Options::clock);
    let with =
        |options: Options, more: &[(String, String)], add: fn(Options, &str, &str) -> Options| {
            more.iter().fold(options, |options, (name, value)| add(options, name, value))
        };
    let options = with(plain.clone(), &transcript.config, |it, name, value| it.config(name, value));
    let options =
        with(options, &transcript.module, |it, name, value| it.module_config(name, value));
    let options = if transcript.caller { options.caller("") } else { options };
    let server = if transcript.planted { options.planted() } else { options }.start();
    let replica = match transcript.replica {
        Replica::None => return (server, None),
        Replica::Plain => plain.without_module(),
        Replica::Twin => plain.config("repl-diskless-load", "swapdb"),
    };
    let replica = replica.replica_of(&server).start();
    let mut control = server.connect();
    observe::wait_for_replica(&mut control, &mut replica.connect());
    observe::wait_for_info(&mut control, "rdb_bgsave_in_progress", 0);
    (server, Some(replica))
}

/// Nothing went wrong inside, and the replica has the same data.
fn check_the_end(transcript: &Transcript, server: &Server, replica: Option<&Server>) {
    if transcript.planted {
        return;
    }
    let mut control = server.connect();
    for field in ["kvlock_caught_panics", "kvlock_not_replicated"] {
        let seen = observe::info_field(&mut control, field);
        assert!(seen.as_deref().is_none_or(|seen| seen == "0"), "{field} is {seen:?}");
    }
    expect_unharmed(server);
    if let Some(replica) = replica {
        expect_same_data(server, replica);
        expect_unharmed(replica);
    }
}
