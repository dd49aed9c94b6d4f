//! A server that starts with a cut append-only file loads the state after the last command that is complete
//! in the file.

use crate::asking::{LONG, acquire, arrival, token, wait_in_queue};
use harness::agree::data;
use harness::disk::append_only_file;
use harness::{Connection, Options, Server, Value, cmd};
use std::fs;
use std::path::Path;
use std::thread;
use tempfile::TempDir;

/// The file is cut after each of its last `EACH` bytes, and before those after every `STRIDE` bytes.
const EACH: usize = 256;
const STRIDE: usize = 61;
const THREADS: usize = 3;

/// Number of exclusive locks, and number of shared locks.
const LOCKS: usize = 4;

/// The state after a command, and the length of the file after it.
struct Moment {
    end: usize,
    data: Vec<String>,
}

/// A server that executes various commands, with the state after each change.
struct Past {
    server: Server,
    connection: Connection,
    moments: Vec<Moment>,
    /// The largest token that was granted.
    last: i64,
}

impl Past {
    fn new() -> Self {
        let server = options().append_only("always").start();
        let connection = server.connect();
        let moments = vec![Moment { end: 0, data: data(&server) }];
        Self { server, connection, moments, last: 0 }
    }

    fn run(&mut self, line: &str) {
        let reply = self.connection.run(line);
        assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply}");
        if let Value::Array(_) = reply {
            self.last = self.last.max(token(&reply));
        }
        self.look();
    }

    fn look(&mut self) {
        let end = fs::metadata(append_only_file(self.server.dir())).unwrap().len();
        let data = data(&self.server);
        self.moments.push(Moment { end: usize::try_from(end).unwrap(), data });
    }

    /// Acquires, renews, hands off and releases an exclusive lock, and acquires and releases a shared lock.
    fn do_a_bit_of_everything(&mut self, number: usize) {
        let (k, s) = (format!("k{number}"), format!("s{number}"));
        self.run(&format!("LOCK.ACQUIRE {k} alice {LONG}"));
        self.run(&format!("LOCK.ACQUIRE {k} alice {LONG}"));
        self.run(&format!("LOCK.RENEW {k} alice 500000"));
        self.run(&format!("LOCK.RELEASE {k} alice"));
        self.run(&format!("LOCK.ACQUIRE {s} erin {LONG} SHARED"));
        self.run(&format!("LOCK.ACQUIRE {s} fred {LONG} SHARED"));
        self.run(&format!("LOCK.RELEASE {s} erin SHARED"));
        let mut waiters: Vec<_> = (0..2).map(|_| self.server.connect()).collect();
        for (waiter, owner) in waiters.iter_mut().zip(["bob", "carol"]) {
            wait_in_queue(waiter, &mut self.connection, &k, owner);
        }
        for (waiter, owner) in waiters.iter_mut().zip(["alice", "bob"]) {
            assert_eq!(
                self.connection.run(&format!("LOCK.RELEASE {k} {owner}")),
                Value::Integer(0)
            );
            self.last = self.last.max(token(&arrival(waiter)));
            self.look();
        }
        self.run(&format!("LOCK.RELEASE {s} fred SHARED"));
        if number.is_multiple_of(2) {
            self.run(&format!("LOCK.FORCERELEASE {k}"));
        }
    }
}

fn options() -> Options {
    Server::options().config("aof-load-truncated", "yes")
}

/// A copy of the folder in which the append-only file is cut to `length` bytes.
fn cut(dir: &Path, length: usize) -> TempDir {
    let copy = TempDir::with_prefix("kvlock-torn-").unwrap();
    fs::create_dir(copy.path().join("appendonlydir")).unwrap();
    let torn = append_only_file(dir);
    for file in fs::read_dir(dir.join("appendonlydir")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if path == torn {
            bytes.truncate(length);
        }
        fs::write(copy.path().join("appendonlydir").join(path.file_name().unwrap()), bytes)
            .unwrap();
    }
    copy
}

/// Starts a server on the cut file, and compares its state.
fn check_cut(past: &Past, length: usize) {
    let dir = cut(past.server.dir(), length);
    let server = options().append_only("no").dir(dir.path()).start();
    let mut eye = server.connect();
    let complete = past.moments.iter().rev().find(|moment| moment.end <= length);
    let found = data(&server);
    assert_eq!(found, complete.expect("the first is at 0").data, "cut at {length}");
    for key in (0..LOCKS).flat_map(|number| [format!("k{number}"), format!("s{number}")]) {
        let beginning = format!("0 {key} until ");
        let held = found.iter().find_map(|line| line.strip_prefix(&beginning));
        assert_ne!(held, Some("-1"), "{key} has no lease, cut at {length}");
        let reply = acquire(&mut eye, &key, "stranger");
        let stranger = eye.call(cmd!["LOCK.RELEASE", key, "stranger"]);
        if held.is_some() {
            assert_eq!((reply, stranger), (Value::Nil, Value::Nil), "{key}, cut at {length}");
        } else {
            assert!(token(&reply) > past.last, "{key}: {reply}, cut at {length}");
        }
    }
    server.assert_alive();
}

#[test]
fn a_cut_file_loads_the_state_after_a_complete_command() {
    let mut past = Past::new();
    for number in 0..LOCKS {
        past.do_a_bit_of_everything(number);
    }
    past.server.kill9();
    let file = fs::read(append_only_file(past.server.dir())).unwrap();
    assert_eq!(file.len(), past.moments.last().unwrap().end);
    let far = file.len() - EACH;
    let cuts: Vec<usize> = (0..far).step_by(STRIDE).chain(far..=file.len()).collect();
    let torn = |length: &&usize| {
        let count =
            |word: &[u8]| file[..**length].windows(word.len()).filter(|w| *w == word).count();
        count(b"MULTI") > count(b"EXEC")
    };
    let transactions = cuts.iter().filter(torn).count();
    assert!(transactions > 0, "no transaction is torn");
    thread::scope(|scope| {
        for first in 0..THREADS {
            let (past, cuts) = (&past, &cuts);
            scope.spawn(move || {
                cuts.iter()
                    .skip(first)
                    .step_by(THREADS)
                    .for_each(|length| check_cut(past, *length));
            });
        }
    });
    let (starts, commands) = (cuts.len(), past.moments.len() - 1);
    println!("{commands} commands, {starts} cuts, {transactions} in a transaction: all loaded");
}
