//! Lower bounds: the server's own commands, used like a lock.

use crate::Connect;
use crate::native::owner;
use crate::wire::{Reply, Wire, request};
use driver::{Args, Session};

pub(crate) const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// Loads a script and returns its digest for `EVALSHA`.
pub(crate) async fn load(wire: &mut Wire, script: &str) -> String {
    let reply = wire.call(&[b"SCRIPT", b"LOAD", script.as_bytes()]).await;
    let Reply::Text(sha) = reply else { panic!("{reply:?}") };
    String::from_utf8(sha).unwrap()
}

/// A client that never waits: `set-cad`, `set-del` or `ping`.
pub(crate) struct Simple {
    wire: Wire,
    task: usize,
    lease_ms: String,
    release: Release,
}

enum Release {
    Script(String),
    Delete,
    Ping,
}

impl Connect for Simple {
    async fn connect(args: &Args, task: usize) -> Self {
        let mut wire = Wire::connect(args.text("url")).await;
        let release = match args.text("proto") {
            "set-cad" => Release::Script(load(&mut wire, COMPARE_AND_DELETE).await),
            "set-del" => Release::Delete,
            _ => Release::Ping,
        };
        Self { wire, task, lease_ms: args.text("lease_ms").to_owned(), release }
    }
}

impl Session for Simple {
    type Held = [String; 2];

    async fn acquire(&mut self, key: &str) -> Self::Held {
        let owner = owner(self.task, 1);
        let set = ["SET", key, &owner, "NX", "PX", &self.lease_ms].map(str::as_bytes);
        let reply = match &self.release {
            Release::Ping => self.wire.call(&[b"PING"]).await,
            Release::Script(_) | Release::Delete => self.wire.call(&set).await,
        };
        assert!(matches!(reply, Reply::Text(_)), "{reply:?}");
        [key.to_owned(), owner]
    }

    async fn release(&mut self, [key, owner]: Self::Held) {
        let reply = match &self.release {
            Release::Script(sha) => {
                let eval = ["EVALSHA", sha, "1", &key, &owner].map(str::as_bytes);
                self.wire.call(&eval).await
            }
            Release::Delete => self.wire.call(&[b"DEL", key.as_bytes()]).await,
            Release::Ping => self.wire.call(&[b"PING"]).await,
        };
        assert!(matches!(reply, Reply::Integer(1) | Reply::Text(_)), "{reply:?}");
    }

    fn abandon(&mut self, _: Self::Held) {}
}

/// A client that uses a list with one element as a lock. The client that pops the element is the holder. The
/// element is lost when a holder dies.
pub(crate) struct List {
    wire: Wire,
}

impl Connect for List {
    async fn connect(args: &Args, task: usize) -> Self {
        let mut wire = Wire::connect(args.text("url")).await;
        let (key, keys) = (args.text("key"), args.number::<usize>("keys"));
        let mut lists = vec![format!("{key}:warm:{}:{task}", args.text("process"))];
        if task < keys {
            lists.push(format!("{key}:{task}"));
        }
        for list in lists {
            wire.call(&[b"LPUSH", list.as_bytes(), b"1"]).await;
        }
        Self { wire }
    }
}

impl Session for List {
    type Held = String;

    async fn acquire(&mut self, key: &str) -> String {
        let reply = self.wire.call(&[b"BLPOP", key.as_bytes(), b"0"]).await;
        assert!(matches!(reply, Reply::Array(_)), "{reply:?}");
        key.to_owned()
    }

    async fn release(&mut self, key: String) {
        self.wire.call(&[b"LPUSH", key.as_bytes(), b"1"]).await;
    }

    fn abandon(&mut self, _: String) {}
}

/// A client that uses no locks.
pub(crate) struct Plain {
    wire: Wire,
}

impl Connect for Plain {
    async fn connect(args: &Args, _task: usize) -> Self {
        Self { wire: Wire::connect(args.text("url")).await }
    }
}

/// The encoded commands of clients without locks.
pub(crate) fn plain(key: &str) -> [Vec<u8>; 4] {
    let (key, hash) = (format!("others:{key}"), format!("others:{key}:hash"));
    [
        request(&["SET", &key, "a value of some length"]),
        request(&["GET", &key]),
        request(&["HSET", &hash, "field", "a value of some length"]),
        request(&["DEL", &hash]),
    ]
}

impl Session for Plain {
    type Held = String;

    async fn acquire(&mut self, key: &str) -> String {
        let [set, get, ..] = plain(key);
        self.wire.exchange(&set).await;
        self.wire.exchange(&get).await;
        key.to_owned()
    }

    async fn release(&mut self, key: String) {
        let [_, _, hset, del] = plain(&key);
        self.wire.exchange(&hset).await;
        self.wire.exchange(&del).await;
    }

    fn abandon(&mut self, _: String) {}
}
