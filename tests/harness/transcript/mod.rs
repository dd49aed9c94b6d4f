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
//! | `!> proto 2`, `3`, `both` | the protocol of all clients; `both`, the default, plays it twice |
//! | `!> config name value` | a line of configuration of the server |
//! | `a> COMMAND …` | client `a` sends it, quoted as in redis-cli; `a` connects when it is first named |
//! | `a> (until) COMMAND …` | the same again and again, until the reply is the expected one |
//! | `a> (close)`, `a> (reset)` | `a` closes its connection, or breaks it off, and the server has noticed |
//! | `a> (wait-closed)` | the server has closed `a`'s connection |
//! | any other line | the expected reply, as redis-cli prints it |
//! | `(blocked)` as a reply | the server shows the client as blocked |
//! | `b< …` | what now arrives at `b`, which was blocked or has subscribed |
//! | `[resp3]` | the lines below are the reply in RESP3, those above that in RESP2 |
//!
//! In an expected reply `{t}` is a whole number that gets the name `t`, or that it must have when it
//! has one; `{u > t}` is compared too (`<`, `>=`, `<=`, with a name or a number); `{_}` is any number,
//! `{900..1000}` one between, `{hex s}` the name of a session and `{hex8 s}` its first digits, `{id a}` the server's number for client `a`. In quotes, that counts only
//! for a whole string: `"{t}"`. In a command `{t}` and `{id a}` are put in when they are known.
//!
//! With `KVLOCK_REWRITE=1` a wrong expectation is replaced in the file by what was seen. At the end
//! the server must be alive, nobody blocked, and nothing unread on any connection.

mod parse;
mod pattern;
mod play;
mod rewrite;

pub use parse::Transcript;
pub use play::{Mismatch, play};

use crate::server::Server;
use std::fs;
use std::path::Path;

/// Plays the file on servers with the module, in the protocols that it names, and panics with the
/// place and the difference when something else is seen.
pub fn run_file(path: &Path) {
    let rewriting = std::env::var_os("KVLOCK_REWRITE").is_some_and(|value| value == "1");
    let read = || {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Transcript::parse(&path.display().to_string(), &text).unwrap_or_else(|e| panic!("{e}"))
    };
    for &protocol in &read().protocols {
        // The first protocol may have rewritten the file.
        let transcript = read();
        let server = server_for(&transcript);
        let mismatches = play(&server, &transcript, protocol, rewriting);
        if rewriting {
            fs::write(path, rewrite::rewritten(&transcript, protocol, &mismatches))
                .expect("rewrite the transcript");
        } else if let Some(mismatch) = mismatches.first() {
            panic!("{mismatch}");
        }
    }
}

/// A server with the module and the configuration that the transcript asks for.
pub fn server_for(transcript: &Transcript) -> Server {
    let options = transcript
        .config
        .iter()
        .fold(Server::options(), |options, (name, value)| options.config(name, value));
    options.start()
}
