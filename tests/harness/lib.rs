//! Runs kvlock on real servers and watches what it does.
//!
//! A test starts a [`Server`] and uses it over [`Connection`]s that see the bytes of the protocol. With
//! [`wait::until`] it waits for an effect that the server shows. Dropping the handles ends the processes. The
//! harness does not know how the module works. It uses the commands, their replies and the server's own
//! introspection.
//!
//! ```no_run
//! use harness::{Server, Value, cmd, observe};
//! use std::time::Duration;
//!
//! let server = Server::start();
//! let (mut a, mut b) = (server.connect(), server.connect());
//! let token = a.call(cmd!["LOCK.ACQUIRE", "k", "alice", 10_000])[0].integer();
//! b.send(cmd!["LOCK.WAIT", "k", "bob", 10_000, 5_000]);
//! observe::wait_for_waiters(&mut a, "k", 1);
//! assert_eq!(a.call(cmd!["LOCK.RELEASE", "k", "alice"]), Value::Integer(0));
//! assert!(b.receive(Duration::from_secs(5)).unwrap()[0].integer() > token);
//! ```
//!
//! | what | where |
//! |---|---|
//! | the servers that tests run on | [`kind`] |
//! | a server process | [`server`], [`options`] |
//! | any other process, which ends with the test | [`launch`] |
//! | several servers as a cluster | [`cluster`] |
//! | a port that is free | [`port`] |
//! | a primary, its replicas and their Sentinels, each server behind a proxy | [`site`] |
//! | a proxy that cuts a server off | [`proxy`] |
//! | a wall clock that a test sets | [`clock`] |
//! | a disk that a test slows down, and a loss of power | [`disk`] |
//! | a connection that sees every byte | [`resp`] |
//! | the state that a server reports | [`observe`] |
//! | the commands that a server documents | [`docs`] |
//! | checks that servers have the same data and no internal error | [`agree`] |
//! | waiting for an effect that a server shows | [`wait`] |
//! | random numbers from a seed, and the option `--seed` | [`random`] |
//! | conversations in text files | [`transcript`] |
//! | calls of clients, and whether a correct lock allows them | [`history`], [`checker`] |
//! | the queues while clients work | [`lines`] |
//! | the commit, server and seed of a figure | [`random::Seed::origin`] |
//! | the operations in flight during each fault | [`coverage`] |
//! | published results, and the tables that are rendered from them | [`evidence`], [`mutants`] |
//! | the file of the module under test | [`module_file`] |
//! | the commands in a server's append-only files | [`trail`] |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::missing_panics_doc,
    clippy::wildcard_enum_match_arm,
    reason = "in a test harness a panic is how a test fails, and any other reply is such a failure"
)]

pub mod agree;
pub mod checker;
pub mod clock;
pub mod cluster;
pub mod commit;
pub mod coverage;
pub mod disk;
pub mod docs;
pub mod evidence;
pub mod history;
pub mod kind;
pub mod launch;
pub mod lines;
pub mod module_file;
pub mod mutants;
pub mod observe;
pub mod options;
pub mod port;
pub mod proxy;
pub mod random;
pub mod resp;
pub mod server;
mod shim;
pub mod site;
pub mod trail;
pub mod transcript;
pub mod wait;

pub use kind::Kind;
pub use options::Options;
pub use resp::{Connection, Value};
pub use server::Server;
