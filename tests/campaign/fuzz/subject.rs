//! The server that is tried, and what must be true of it when everybody has left.

use super::hand::OPTIONS;
use harness::{Connection, Server, Value, cmd, observe};
use std::time::{Duration, Instant};

/// How long it may take until nothing is left of a round.
const SETTLE: Duration = Duration::from_secs(30);

/// How much more memory than at the beginning the server may use: what it keeps for itself, such
/// as a backlog for replicas.
const SPARE_BYTES: i64 = 3 << 20;

#[derive(Debug)]
pub(super) struct Subject {
    pub(super) server: Server,
    pid: u32,
    pub(super) options: Vec<(String, String)>,
    base: Option<i64>,
    /// The latest memory in use with nothing in it.
    pub(super) memory: i64,
}

impl Subject {
    pub(super) fn start() -> Self {
        let server = Server::options()
            .config("sanitize-dump-payload", "yes")
            .config("crash-memcheck-enabled", "no")
            .config("repl-backlog-size", "16kb")
            // A table for each command that was ever used: what is lost would not show beside it.
            .config("latency-tracking", "no")
            // A bit far away makes a string of as much as that, and then each reload takes seconds.
            .config("proto-max-bulk-len", "1mb")
            .start();
        let mut connection = server.connect();
        let options = OPTIONS
            .iter()
            .filter_map(|(name, _)| {
                let pair = connection.call(cmd!["CONFIG", "GET", *name]);
                let value = pair.elements().get(1)?.text();
                Some(((*name).to_owned(), value))
            })
            .collect();
        // Damaged payloads are to get past their checksum.
        let reply = connection.call(cmd!["DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1]);
        assert!(!reply.is_error(), "{reply}");
        let pid = server.pid();
        Self { server, pid, options, base: None, memory: 0 }
    }

    /// Values to restore: of each sort that the module has, and others.
    pub(super) fn payloads(&self) -> Vec<Vec<u8>> {
        let mut connection = self.server.connect();
        for line in [
            "LOCK.ACQUIRE p1 ann 100000",
            "LOCK.ACQUIRE p2 ann 100000 SHARED",
            "LOCK.ACQUIRE p2 bob 100000 SHARED",
            "LOCK.ACQUIRE p3 ann 100000",
            "LOCK.ACQUIRE p3 ann 100000 SHARED",
            "SEM.SET p4 5",
            "SEM.ACQUIRE p4 ann 2 100000",
            "LATCH.SET p5 3",
            "LATCH.COUNTDOWN p5 ann",
            "SET p6 x",
            "HSET p7 ann 99999999999999999999 fencing-token x lock-mode y",
        ] {
            let reply = connection.run(line);
            assert!(!reply.is_error(), "{line}: {reply}");
        }
        let payloads = (1..=7).map(|n| connection.call(cmd!["DUMP", format!("p{n}")]));
        payloads.map(|payload| payload.bytes().to_vec()).collect()
    }

    /// Puts everything back when all clients have left, and says what is not as it should be.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        if !self.server.is_alive() || self.server.pid() != self.pid {
            return Err("the server is dead or stuck".to_owned());
        }
        let mut admin = self.server.connect();
        admin.call(cmd!["CLIENT", "UNPAUSE"]);
        admin.call(cmd!["REPLICAOF", "NO", "ONE"]);
        admin.call(cmd!["DEBUG", "SET-ACTIVE-EXPIRE", 1]);
        for (name, value) in &self.options {
            let reply = admin.call(cmd!["CONFIG", "SET", name, value]);
            if reply.is_error() {
                return Err(format!("CONFIG SET {name} {value:?}: {reply}"));
            }
        }
        for field in ["blocked_clients", "kvlock_waiters", "aof_rewrite_in_progress"] {
            until(field, || match observe::info_number(&mut admin, field) {
                0 => Ok(()),
                left => Err(left.to_string()),
            })?;
        }
        for line in [
            "ACL DELUSER guest",
            "FLUSHALL",
            "FUNCTION FLUSH",
            "SCRIPT FLUSH",
            "SLOWLOG RESET",
            "ACL LOG RESET",
        ] {
            let reply = admin.run(line);
            if reply.is_error() {
                return Err(format!("{line}: {reply}"));
            }
        }
        admin.run("LATENCY RESET");
        match observe::info_number(&mut admin, "kvlock_caught_panics") {
            0 => {}
            panics => return Err(format!("{panics} panics were caught")),
        }
        self.works(&mut admin)?;
        self.comes_back(&mut admin)
    }

    /// A lock is handed from one to the other.
    fn works(&self, admin: &mut Connection) -> Result<(), String> {
        let mut other = self.server.connect();
        let got = admin.call(cmd!["LOCK.ACQUIRE", "k1", "ann", 60_000]);
        other.send(cmd!["LOCK.WAIT", "k1", "bob", 60_000, 0]);
        observe::wait_for_waiters(admin, "k1", 1);
        // What sessions have left is done at some time. Then the module is idle.
        let idle = until("idle", || {
            let before = observe::info_number(admin, "kvlock_turns");
            observe::let_pass(admin, Duration::from_millis(50));
            match observe::info_number(admin, "kvlock_turns") - before {
                0..=10 => Ok(()),
                turns => Err(format!("{turns} turns in 50 ms")),
            }
        });
        let left = admin.call(cmd!["LOCK.RELEASE", "k1", "ann"]);
        let had = other.receive(SETTLE).map_err(|e| format!("no hand-off: {e}"))?;
        let tokens = match (&got, &had) {
            (Value::Array(first), Value::Array(second)) => {
                first[0].integer() < second[0].integer() && left == Value::Integer(0)
            }
            _ => false,
        };
        admin.run("FLUSHALL");
        idle?;
        if tokens { Ok(()) } else { Err(format!("no lock works: {got}; {left}; {had}")) }
    }

    /// The memory that was taken is given back.
    fn comes_back(&mut self, admin: &mut Connection) -> Result<(), String> {
        let most = self.base.map_or(i64::MAX, |base| base + SPARE_BYTES);
        let mut used = 0;
        until("used_memory", || {
            used = observe::info_number(admin, "used_memory");
            if used <= most { Ok(()) } else { Err(format!("{used}, and may be {most}")) }
        })
        .map_err(|why| format!("{why}\n{}", admin.run("MEMORY STATS")))?;
        self.base.get_or_insert(used);
        self.memory = used;
        Ok(())
    }

    /// How often each command was called, and how often it failed, by the server's own count.
    pub(super) fn called(&self) -> Vec<(String, u64, u64)> {
        let info = self.server.connect().run("INFO commandstats").text();
        let lines = info.lines().filter_map(|line| {
            let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let number = |field: &str| {
                let of = numbers.split(',').find_map(|pair| pair.strip_prefix(field))?;
                of.parse::<u64>().ok()
            };
            Some((name.to_owned(), number("calls=")?, number("failed_calls=")?))
        });
        lines.collect()
    }
}

/// Asks until it is so.
fn until(what: &str, mut so: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let deadline = Instant::now() + SETTLE;
    loop {
        match so() {
            Ok(()) => return Ok(()),
            Err(_) if Instant::now() < deadline => std::thread::yield_now(),
            Err(seen) => return Err(format!("{what} is {seen} when everybody has left")),
        }
    }
}
