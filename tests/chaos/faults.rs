//! What happens to the servers, one thing at a time.

mod keys;

use crate::Round;
use crate::pair::{GUEST, TURN_MS, ask, guest};
use crate::readers::{AWAY, CLOSED, LATE, REPLACED};
use crate::sessions::client_of;
use harness::history::Request;
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd, observe, wait};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a failover may take.
const FAILOVER: Duration = Duration::from_secs(30);

/// How long a child of the server may take to write a few keys to the disk.
const FORK: Duration = Duration::from_secs(30);

/// How long writes are paused at most while somebody looks at the replica.
const LOOK: Duration = Duration::from_secs(2);

/// A waiter breaks its connection off.
pub(crate) const RESET_BY_WAITER: &str = "connection reset by a waiter";

/// Who gets a lock is killed before it can hear of that.
pub(crate) const KILL_IN_HAND_OFF: &str = "CLIENT KILL in the turn of a hand-off";

type Fault = fn(&mut Injector<'_>) -> Result<(), ReceiveError>;

/// All of them, with how often they come.
const FAULTS: [(&str, u64, Fault); 27] = [
    ("DEL by a stranger", 8, |it| it.on_key(|key| cmd!["DEL", key])),
    ("UNLINK by a stranger", 4, |it| it.on_key(|key| cmd!["UNLINK", key])),
    ("PEXPIRE by a stranger", 8, |it| it.let_expire()),
    ("SET by a stranger", 3, |it| it.on_key(|key| cmd!["SET", key, "x", "PX", 20])),
    ("HDEL by a stranger", 6, |it| it.delete_owner()),
    ("RENAME and COPY by a stranger", 2, |it| it.replace()),
    ("HPEXPIRE by a stranger", 1, |it| it.let_a_field_end()),
    ("FORCERELEASE", 4, |it| it.force_release()),
    ("CLIENT KILL of one", 8, |it| it.kill_one()),
    ("CLIENT KILL in the turn of a grant", 12, |it| {
        it.strike_while_granted(|id| vec![cmd!["CLIENT", "KILL", "ID", id]])
    }),
    ("ACL DELUSER in the turn of a grant", 3, |it| {
        it.strike_while_granted(|_| vec![cmd!["ACL", "DELUSER", GUEST], guest()])
    }),
    ("CLIENT KILL of all", 3, |it| it.say(cmd!["CLIENT", "KILL", "TYPE", "normal"])),
    ("CLIENT PAUSE WRITE", 4, |it| it.pause("WRITE")),
    ("CLIENT PAUSE WRITE, and a look at the replica", 3, |it| it.compare()),
    ("CLIENT PAUSE ALL", 2, |it| it.pause("ALL")),
    ("FLUSHDB", 2, |it| it.on_wild_keys(&[cmd!["FLUSHDB"]])),
    ("FLUSHDB ASYNC", 2, |it| it.on_wild_keys(&[cmd!["FLUSHDB", "ASYNC"]])),
    ("FLUSHALL", 2, |it| it.on_all_keys(&[cmd!["FLUSHALL"]])),
    ("SWAPDB", 2, |it| it.swap()),
    ("DEBUG SLEEP", 2, |it| it.say(cmd!["DEBUG", "SLEEP", "0.15"])),
    ("DEBUG RELOAD, and a full synchronisation", 2, |it| it.reload()),
    ("BGSAVE", 3, |it| it.fork(cmd!["BGSAVE"])),
    ("BGREWRITEAOF", 3, |it| it.fork(cmd!["BGREWRITEAOF"])),
    ("eviction of keys", 3, |it| it.evict_keys()),
    ("eviction of clients", 6, |it| it.evict_clients()),
    ("CONFIG SET", 8, |it| it.configure()),
    ("FAILOVER", 1, |it| it.fail_over()),
];

/// Options, what they are set to for a moment, and what they are otherwise.
const OPTIONS: [(&str, &str, &str); 14] = [
    ("kvlock.drain", "yes", "no"),
    ("kvlock.max-waiters-per-key", "3", "10000"),
    ("kvlock.max-waiters", "2", "10000"),
    ("kvlock.max-blocked", "2", "10000"),
    ("kvlock.redisson-turn-ms", "0", TURN_MS),
    ("kvlock.max-sessions", "1", "10000"),
    ("kvlock.redisson-channel", "both", "auto"),
    ("min-replicas-to-write", "5", "0"),
    ("maxmemory", "1", "0"),
    ("maxmemory-policy", "allkeys-lru", "noeviction"),
    ("maxmemory-clients", "10gb", "0"),
    ("notify-keyspace-events", "KEA", ""),
    ("hz", "100", "10"),
    ("lazyfree-lazy-expire", "yes", "no"),
];

/// The names of all faults, also of those that the clients do themselves.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let of_clients = [RESET_BY_WAITER, KILL_IN_HAND_OFF, AWAY, LATE, REPLACED, CLOSED];
    FAULTS.iter().map(|(name, ..)| *name).chain(of_clients)
}

/// Injects faults for that long.
pub(crate) fn inject(round: &Round, time: Duration, random: Random) {
    let mut injector = Injector { round, random, connection: None, lasts: Duration::ZERO };
    let end = Instant::now() + time;
    while Instant::now() < end && round.pair.crashes() == 0 {
        let total = FAULTS.iter().map(|(_, weight, _)| weight).sum();
        let mut drawn = injector.random.below(total);
        let (name, _, fault) = FAULTS
            .iter()
            .find(|(_, weight, _)| {
                let hit = drawn < *weight;
                drawn = drawn.saturating_sub(*weight);
                hit
            })
            .unwrap();
        let begun = round.recorder.now();
        if fault(&mut injector).is_err() {
            injector.connection = None;
        }
        let lasts = std::mem::take(&mut injector.lasts);
        round.tally.fault(name, begun, round.recorder.now().max(begun + lasts));
        // Not to wait for anything: what a fault has set in motion goes on before the next.
        sleep(Duration::from_millis(10 + injector.random.below(40)));
    }
    injector.settle();
}

struct Injector<'a> {
    round: &'a Round,
    random: Random,
    connection: Option<Connection>,
    /// How long the fault goes on when it has been injected.
    lasts: Duration,
}

impl Injector<'_> {
    fn ask(&mut self, command: Vec<Vec<u8>>) -> Result<Value, ReceiveError> {
        if self.connection.is_none() {
            self.connection = self.round.pair.connect();
        }
        ask(self.connection.as_mut().ok_or(ReceiveError::Closed)?, command)
    }

    fn say(&mut self, command: Vec<Vec<u8>>) -> Result<(), ReceiveError> {
        let shown = String::from_utf8_lossy(&command.join(&b' ')).into_owned();
        let reply = self.ask(command)?;
        if reply.is_error() {
            self.round.tally.surprise(format!("{shown}: {reply}"));
        }
        Ok(())
    }

    /// Clients that take the most memory are disconnected, waiters among them.
    fn evict_clients(&mut self) -> Result<(), ReceiveError> {
        self.say(cmd!["CLIENT", "NO-EVICT", "ON"])?;
        let few = 1 + self.random.below(16);
        self.say(cmd!["CONFIG", "SET", "maxmemory-clients", few * 20_000])?;
        sleep(Duration::from_millis(1 + self.random.below(10)));
        self.say(cmd!["CONFIG", "SET", "maxmemory-clients", 0])
    }

    /// Has a child of the server write everything to the disk, while the load goes on.
    fn fork(&mut self, command: Vec<Vec<u8>>) -> Result<(), ReceiveError> {
        let reply = self.ask(command)?;
        // A replica that synchronises may have begun one.
        let at_work = ["in progress", "Another child process is active"];
        let said = reply.to_string();
        if reply.is_error() && !at_work.iter().any(|busy| said.contains(busy)) {
            self.round.tally.surprise(format!("cannot fork: {reply}"));
        }
        let end = Instant::now() + FORK;
        while Instant::now() < end {
            let info = self.ask(cmd!["INFO", "persistence"])?.text();
            let at_work = |what| info.contains(&format!("{what}_in_progress:1"));
            if !at_work("rdb_bgsave") && !at_work("aof_rewrite") {
                return Ok(());
            }
        }
        self.round.tally.surprise("a child of the server does not end".to_owned());
        Ok(())
    }

    fn kill_one(&mut self) -> Result<(), ReceiveError> {
        let list = self.ask(cmd!["CLIENT", "LIST", "TYPE", "normal"])?.text();
        let me = self.ask(cmd!["CLIENT", "ID"])?.to_string();
        let ids: Vec<&str> = list
            .lines()
            .filter_map(|line| line.strip_prefix("id=")?.split(' ').next())
            .filter(|id| !me.contains(*id))
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = (*self.random.pick(&ids)).to_owned();
        self.ask(cmd!["CLIENT", "KILL", "ID", id]).map(drop)
    }

    /// Frees a lock, and strikes the client that gets it before it can hear of that.
    fn strike_while_granted(
        &mut self,
        strike: fn(i64) -> Vec<Vec<Vec<u8>>>,
    ) -> Result<(), ReceiveError> {
        let key = self.lock();
        let info = self.ask(cmd!["LOCK.INFO", key, "WAITERS", 1])?;
        let Value::Array(_) = info else { return Ok(()) };
        let head = info.field("queue").elements().first();
        let Some(id) = head.and_then(|head| client_of(self.round, head)) else { return Ok(()) };
        let call = self.round.recorder.sent(&key, "stranger", Request::Break);
        let connection = self.connection.as_mut().ok_or(ReceiveError::Closed)?;
        // A transaction, so that both are done in the same turn whatever the network does.
        let mut commands = vec![cmd!["MULTI"], cmd!["LOCK.FORCERELEASE", key]];
        commands.extend(strike(id));
        commands.push(cmd!["EXEC"]);
        let count = commands.len();
        commands.into_iter().for_each(|command| connection.send(command));
        let replies: Result<Vec<Value>, _> =
            (0..count).map(|_| connection.receive(FAILOVER)).collect();
        self.broken(&[call], replies.is_ok());
        replies.map(drop)
    }

    fn pause(&mut self, which: &str) -> Result<(), ReceiveError> {
        let time = 50 + self.random.below(250);
        self.lasts = Duration::from_millis(time);
        self.say(cmd!["CLIENT", "PAUSE", time, which])
    }

    /// While nothing may be written the replica is the same as the primary.
    fn compare(&mut self) -> Result<(), ReceiveError> {
        let begun = Instant::now();
        self.say(cmd!["CLIENT", "PAUSE", LOOK.as_millis().to_string(), "WRITE"])?;
        let difference = self.round.pair.difference();
        if let Some(difference) = difference.filter(|_| begun.elapsed() < LOOK) {
            self.round.tally.surprise(difference);
        }
        self.say(cmd!["CLIENT", "UNPAUSE"])
    }

    /// A primary that loads leaves out what has expired, and does not tell its replica, for which
    /// there would be none if this were a restart. So the replica starts anew.
    fn reload(&mut self) -> Result<(), ReceiveError> {
        self.say(cmd!["DEBUG", "RELOAD"])?;
        self.say(cmd!["DEBUG", "CHANGE-REPL-ID"])?;
        self.ask(cmd!["CLIENT", "KILL", "TYPE", "replica"])?;
        let (primary, replica) = self.round.pair.roles();
        observe::wait_for_replica(&mut primary.connect(), &mut replica.connect());
        Ok(())
    }

    fn configure(&mut self) -> Result<(), ReceiveError> {
        let (name, value, usual) = *self.random.pick(&OPTIONS);
        self.say(cmd!["CONFIG", "SET", name, value])?;
        sleep(Duration::from_millis(5 + self.random.below(40)));
        self.say(cmd!["CONFIG", "SET", name, usual])
    }

    /// A coordinated one: nothing is lost.
    fn fail_over(&mut self) -> Result<(), ReceiveError> {
        let (primary, replica) = self.round.pair.roles();
        let (mut last, mut next) = (primary.connect(), replica.connect());
        wait::until("the replica may take over", FAILOVER, || match replication(&mut last) {
            info if info.contains("state=online") => Ok(()),
            info => Err(info),
        });
        self.say(cmd!["FAILOVER", "TO", "127.0.0.1", replica.port(), "TIMEOUT", 5000])?;
        wait::until("the failover is over", FAILOVER, || {
            let (was, is) = (replication(&mut last), replication(&mut next));
            let done = was.contains("master_failover_state:no-failover")
                && (is.contains("role:slave") || was.contains("master_link_status:up"));
            if done { Ok(()) } else { Err(format!("{was}{is}")) }
        });
        self.connection = None;
        Ok(())
    }

    /// Puts everything back, on both servers.
    fn settle(&mut self) {
        for server in self.round.pair.servers() {
            let Ok(mut connection) = Connection::open(server.port()) else { continue };
            for (name, _, usual) in OPTIONS {
                let _gone = ask(&mut connection, cmd!["CONFIG", "SET", name, usual]);
            }
            let _gone = ask(&mut connection, cmd!["CLIENT", "UNPAUSE"]);
        }
    }
}

fn replication(connection: &mut Connection) -> String {
    ask(connection, cmd!["INFO", "replication"]).map_or_else(|_| String::new(), |info| info.text())
}
