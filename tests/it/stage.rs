//! The scene of most of these tests: a server with the module, a replica without it, and somebody
//! who is never blocked and sees everything.
//!
//! It counts the grants that the test expects and compares them with the server's own count, and
//! it compares the data of the replica, which knows nothing but what the server told it: a write
//! in the wrong order, or one that was never sent, shows there.

pub(crate) use harness::agree::{expect_same_data, expect_unharmed, hash};
use harness::{Connection, Kind, Options, Server, Value, cmd, observe, wait};
use std::collections::BTreeMap;

pub(crate) use crate::asking::{LONG, SOON};

/// A server, its replica, and an operator.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) replica: Server,
    /// A connection to the server that nothing blocks.
    pub(crate) eye: Connection,
    grants: i64,
}

/// A client in line.
pub(crate) struct Waiter {
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) id: i64,
    pub(crate) connection: Connection,
}

impl Stage {
    pub(crate) fn new(kind: &Kind) -> Self {
        Self::with(kind, |options| options)
    }

    /// With a server that is started with more options than usual.
    pub(crate) fn with(kind: &Kind, more: impl FnOnce(Options) -> Options) -> Self {
        let plain = plain(kind);
        Self::start(more(plain.clone()), plain.without_module())
    }

    /// With a replica of another kind.
    pub(crate) fn of_versions(kind: &Kind, replica: &Kind) -> Self {
        Self::start(plain(kind), plain(replica).without_module())
    }

    /// With more options than usual for both.
    pub(crate) fn with_both(kind: &Kind, more: impl Fn(Options) -> Options) -> Self {
        Self::start(more(plain(kind)), more(plain(kind)).without_module())
    }

    fn start(server: Options, replica: Options) -> Self {
        let server = server.start();
        let replica = replica.replica_of(&server).start();
        let mut eye = server.connect();
        observe::wait_for_replica(&mut eye, &mut replica.connect());
        // The child that fed the replica has ended.
        observe::wait_for_info(&mut eye, "rdb_bgsave_in_progress", 0);
        Self { server, replica, eye, grants: 0 }
    }

    /// Asks the operator's connection, with a line as one types it in redis-cli.
    pub(crate) fn run(&mut self, line: &str) -> Value {
        self.eye.run(line)
    }

    /// Takes a lock that is free, and returns its token.
    pub(crate) fn hold(&mut self, key: &str, owner: &str, lease_ms: u64) -> i64 {
        let reply = self.eye.call(cmd!["LOCK.ACQUIRE", key, owner, lease_ms]);
        self.grants += 1;
        token_of(&reply)
    }

    /// Sends that on a connection of its own, and returns when it is blocked.
    pub(crate) fn blocked(&mut self, command: Vec<Vec<u8>>) -> Connection {
        let mut connection = self.server.connect();
        let id = connection.client_id();
        connection.send(command);
        observe::wait_until_blocked(&mut self.eye, id);
        connection
    }

    /// Puts a client in line, without limit; returns when it is the last there.
    pub(crate) fn wait(&mut self, key: &str, owner: &str) -> Waiter {
        self.wait_with(key, owner, LONG, 0)
    }

    pub(crate) fn wait_with(
        &mut self,
        key: &str,
        owner: &str,
        lease_ms: u64,
        timeout_ms: u64,
    ) -> Waiter {
        self.wait_on(self.server.connect(), key, owner, lease_ms, timeout_ms)
    }

    /// Shares a lock with those who do, and returns its token.
    pub(crate) fn share(&mut self, key: &str, owner: &str, lease_ms: u64) -> i64 {
        let reply = self.eye.call(cmd!["LOCK.ACQUIRE", key, owner, lease_ms, "SHARED"]);
        self.grants += 1;
        token_of(&reply)
    }

    /// The same on a connection that the test has prepared.
    pub(crate) fn wait_on(
        &mut self,
        mut connection: Connection,
        key: &str,
        owner: &str,
        lease_ms: u64,
        timeout_ms: u64,
    ) -> Waiter {
        let id = connection.client_id();
        connection.send(cmd!["LOCK.WAIT", key, owner, lease_ms, timeout_ms]);
        observe::wait_until_blocked(&mut self.eye, id);
        Waiter { key: key.to_owned(), owner: owner.to_owned(), id, connection }
    }

    /// Receives the waiter's grant, sees that the key says the same and that it has exactly one
    /// reply, and returns the token.
    pub(crate) fn granted(&mut self, waiter: &mut Waiter) -> i64 {
        let token = self.granted_elsewhere(waiter);
        self.expect_holder(&waiter.key, &waiter.owner, 1, Some(token));
        token
    }

    /// The same when the key says something else by now.
    pub(crate) fn granted_elsewhere(&mut self, waiter: &mut Waiter) -> i64 {
        self.grants += 1;
        let owner = &waiter.owner;
        let reply = waiter.connection.receive(SOON).unwrap_or_else(|e| panic!("{owner}: {e}"));
        let token = token_of(&reply);
        assert_eq!(waiter.connection.run("PING"), Value::Status("PONG".into()), "{owner}");
        token
    }

    /// Says that a grant was given whose reply nobody sees.
    pub(crate) fn granted_unseen(&mut self) {
        self.grants += 1;
    }

    /// Gives back the last hold of a lock.
    pub(crate) fn release(&mut self, key: &str, owner: &str) {
        assert_eq!(self.eye.call(cmd!["LOCK.RELEASE", key, owner]), Value::Integer(0));
    }

    /// Sees that the key is a lock that this owner holds, with a lease.
    pub(crate) fn expect_holder(&mut self, key: &str, owner: &str, holds: u64, token: Option<i64>) {
        let mut expected = BTreeMap::from([(owner.to_owned(), holds.to_string())]);
        expected.extend(token.map(|token| ("fencing-token".to_owned(), format!("t{token}"))));
        assert_eq!(hash(&mut self.eye, key), expected, "{key}");
        let left = self.eye.call(cmd!["PTTL", key]).integer();
        assert!(left > 0, "{key} has a TTL of {left}");
    }

    /// The token that the key says.
    pub(crate) fn token(&mut self, key: &str) -> i64 {
        let stored = self.eye.call(cmd!["HGET", key, "fencing-token"]).text();
        stored.strip_prefix('t').and_then(|token| token.parse().ok()).expect("a token")
    }

    /// Sends these lines in one write, which arrives in one read and runs in one turn of the event
    /// loop, and returns the replies.
    pub(crate) fn at_once(&mut self, lines: &[&str]) -> Vec<Value> {
        self.eye.send_raw(format!("{}\r\n", lines.join("\r\n")).as_bytes());
        let receive = |line| self.eye.receive(SOON).unwrap_or_else(|e| panic!("{line}: {e}"));
        lines.iter().map(receive).collect()
    }

    /// Waits until the server's clock is past that moment, in milliseconds since 1970.
    pub(crate) fn wait_past(&mut self, moment_ms: i64) {
        wait::until("the moment has passed", 2 * SOON, || {
            let now = self.eye.run("TIME");
            let [seconds, us] = [0, 1].map(|part| now[part].text().parse::<i64>().unwrap());
            let now_ms = seconds * 1000 + us / 1000;
            if now_ms > moment_ms { Ok(()) } else { Err(now_ms.to_string()) }
        });
    }

    /// A number of the module's section of `INFO`.
    pub(crate) fn counted(&mut self, field: &str) -> i64 {
        observe::info_number(&mut self.eye, &format!("kvlock_{field}"))
    }

    /// Sees that there were exactly the grants that the test knows of, that nothing went wrong
    /// inside, and that the replica has the same data.
    pub(crate) fn check(&mut self) {
        assert_eq!(self.counted("granted"), self.grants, "the number of grants");
        assert_eq!((self.counted("caught_panics"), self.counted("not_replicated")), (0, 0));
        expect_unharmed(&self.server);
        expect_same_data(&self.server, &self.replica);
        expect_unharmed(&self.replica);
    }
}

fn plain(kind: &Kind) -> Options {
    Server::options().kind(kind).config("repl-diskless-sync-delay", 0)
}

/// The token of a first grant; any other reply fails the test.
pub(crate) fn token_of(reply: &Value) -> i64 {
    match reply {
        Value::Array(pair) if matches!(pair[..], [Value::Integer(_), Value::Integer(1)]) => {
            pair[0].integer()
        }
        _ => panic!("not a grant: {reply}"),
    }
}

pub(crate) fn kill(waiter: &Waiter) -> String {
    format!("CLIENT KILL ID {}", waiter.id)
}

/// The server has closed its connection without a reply.
pub(crate) fn expect_closed(waiter: &mut Waiter) {
    let owner = &waiter.owner;
    let end = waiter.connection.receive(SOON);
    assert!(matches!(end, Err(harness::resp::ReceiveError::Closed)), "{owner}: {end:?}");
}
