//! A server that receives arbitrary commands. It is checked after all clients have disconnected.

use super::Topology;
use crate::report::Report;
use crate::setting::Setting;
use crate::workload::{ClientRoute, CommandSource};
use harness::docs::is_ours;
use harness::random::Random;
use harness::{Connection, Server, Value, cmd, observe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Number of ways in which the workload reaches the server.
const ROUTES: usize = 4;

/// Memory that the server may use above its first measurement, for its own structures such as the replication
/// backlog.
const SPARE_BYTES: i64 = 3 << 20;

/// Commands that make the values to restore: values of each type that the module writes, and others.
const VALUES: [&str; 11] = [
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
];

/// Commands that delete all data, scripts and logs of the server, and the users that clients create.
const FORGET: [&str; 7] = [
    "ACL DELUSER guest reader",
    "FLUSHALL",
    "FUNCTION FLUSH",
    "SCRIPT FLUSH",
    "SLOWLOG RESET",
    "ACL LOG RESET",
    "LATENCY RESET",
];

pub(crate) struct FuzzTarget {
    server: Server,
    source: Arc<CommandSource>,
    /// Memory in use after the start.
    base: i64,
}

impl FuzzTarget {
    pub(crate) fn start(setting: Setting) -> Box<dyn Topology> {
        let server = setting
            .options(Duration::ZERO, 0)
            .config("sanitize-dump-payload", "yes")
            .config("crash-memcheck-enabled", "no")
            .config("repl-backlog-size", "16kb")
            // Off, because it allocates a table for each used command, which would hide a leak.
            .config("latency-tracking", "no")
            // Limits the strings that `SETBIT` makes. With long strings each reload takes seconds.
            .config("proto-max-bulk-len", "1mb")
            .start();
        let admin = &mut server.connect();
        // The first line lets the server accept damaged payloads despite their checksums.
        for line in ["DEBUG SET-SKIP-CHECKSUM-VALIDATION 1"].iter().chain(&VALUES) {
            let reply = admin.run(line);
            assert!(!reply.is_error(), "{line}: {reply}");
        }
        let payloads = (1..=7).map(|n| admin.call(cmd!["DUMP", format!("p{n}")]).bytes().to_vec());
        let payloads = payloads.collect();
        let source = Arc::new(CommandSource::at(admin, payloads));
        FORGET.iter().for_each(|line| drop(admin.run(line)));
        let base = observe::info_number(admin, "used_memory");
        Box::new(Self { server, source, base })
    }

    /// Restores all options and checks the server. Returns an error if a client is still connected, or if a
    /// check fails.
    fn settle(&self) -> Result<(), String> {
        let mut admin = Connection::open(self.server.port()).map_err(|e| e.to_string())?;
        let clients = admin.ask(cmd!["CLIENT", "LIST"]).map_err(|e| e.to_string())?.text();
        if clients.lines().count() > 1 {
            // A remaining client might kill this connection.
            return Err(format!("clients have not left: {clients}"));
        }
        let again = [cmd!["DEBUG", "SET-ACTIVE-EXPIRE", 1]];
        for command in self.source.put_all_back().iter().chain(&again) {
            let reply = admin.call(command);
            if reply.is_error() {
                return Err(format!("{}: {reply}", command.join(&b' ').escape_ascii()));
            }
        }
        for field in
            ["blocked_clients", "kvlock_waiters", "aof_rewrite_in_progress", "kvlock_caught_panics"]
        {
            let left = observe::info_number(&mut admin, field);
            if left != 0 {
                return Err(format!("{field} is {left}"));
            }
        }
        FORGET.iter().for_each(|line| drop(admin.run(line)));
        self.works(&mut admin)?;
        let used = observe::info_number(&mut admin, "used_memory");
        if used > self.base + SPARE_BYTES {
            let stats = admin.run("MEMORY STATS");
            return Err(format!("{used} bytes are used, {} at first: {stats}", self.base));
        }
        Ok(())
    }

    /// Checks that a lock is handed from one client to another, and that the module is idle while one waits.
    fn works(&self, admin: &mut Connection) -> Result<(), String> {
        let mut other = self.server.connect();
        let got = admin.call(cmd!["LOCK.ACQUIRE", "k1", "ann", 60_000]);
        other.send(cmd!["LOCK.WAIT", "k1", "bob", 60_000, 0]);
        observe::wait_for_waiters(admin, "k1", 1);
        let before = observe::info_number(admin, "kvlock_turns");
        observe::let_pass(admin, Duration::from_millis(50));
        let turns = observe::info_number(admin, "kvlock_turns") - before;
        let left = admin.call(cmd!["LOCK.RELEASE", "k1", "ann"]);
        let had = other.receive(observe::PATIENCE).map_err(|e| format!("no hand-off: {e}"))?;
        let hands_on = match (&got, &had) {
            (Value::Array(first), Value::Array(second)) => {
                first[0].integer() < second[0].integer() && left == Value::Integer(0)
            }
            _ => false,
        };
        admin.run("FLUSHALL");
        match turns {
            _ if !hands_on => Err(format!("no lock works: {got}; {left}; {had}")),
            // A few turns may clean up after sessions. Otherwise the module must be idle.
            0..=10 => Ok(()),
            turns => Err(format!("{turns} turns in 50 ms")),
        }
    }
}

impl Topology for FuzzTarget {
    fn servers(&self) -> Vec<&Server> {
        vec![&self.server]
    }

    fn routes(&self, _runtime: &Runtime) -> Vec<ClientRoute> {
        self.source.begin(self.server.connect().client_id());
        vec![ClientRoute::Garbage(self.source.clone(), self.server.port()); ROUTES]
    }

    /// Not used: the workload chooses its leases itself.
    fn leases_ms(&self) -> &[u64] {
        &[]
    }

    fn primary(&self, _random: &mut Random) -> &Server {
        &self.server
    }

    fn left_behind(&self, _keys: &[String]) -> Vec<String> {
        self.settle().err().into_iter().collect()
    }

    /// The numbers of executed commands, and the memory in use.
    fn sum_up(&self, report: &Report) -> Option<String> {
        let info = self.server.connect().run("INFO commandstats").text();
        let (mut all, mut of_ours, mut different) = (0, 0, 0);
        for line in info.lines() {
            let Some((name, numbers)) =
                line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':'))
            else {
                continue;
            };
            let number = |field: &str| {
                let of = numbers.split(',').find_map(|pair| pair.strip_prefix(field));
                of.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
            };
            let (calls, failed) = (number("calls="), number("failed_calls="));
            (all, different) = (all + calls, different + 1);
            if is_ours(name.as_bytes()) {
                of_ours += calls;
            }
            if is_ours(name.as_bytes()) || name == "restore" {
                report.add(&format!("{name}, of which {failed} failed"), calls);
            }
        }
        report.add("values damaged", self.source.damaged.load(Ordering::SeqCst));
        Some(format!(
            "{all} commands executed, scripts included: {of_ours} of the module, {different} \
             different ones; {} bytes used before, {} after",
            self.base,
            observe::info_number(&mut self.server.connect(), "used_memory")
        ))
    }
}
