//! One server that dies under load again and again.

use crate::keeping::{Death, Keeping, LONG};
use crate::load::{Load, TIMEOUT, call};
use crate::seen::{AFTERWARDS, Seen};
use harness::disk::Disk;
use harness::history::{Call, Outcome, Recorder, Request};
use harness::random::Random;
use harness::{Connection, Server, Value, cmd};
use std::collections::BTreeSet;
use std::time::Duration;

/// A server that keeps grants in one way, and how it dies.
pub(crate) struct Trial {
    keeping: Keeping,
    server: Server,
    disk: Disk,
    /// Whether the disk was slow already when the server was started.
    slow: bool,
    random: Random,
}

impl Trial {
    pub(crate) fn new(keeping: Keeping, random: Random) -> Self {
        let disk = Disk::new();
        let server = keeping.options(&disk).start();
        Self { keeping, server, disk, slow: false, random }
    }

    /// So many times: a load, in the middle of it a death, and a start. The clients know of about
    /// so many grants then. Ends at the first time at which a promise is broken.
    pub(crate) fn run(mut self, times: u64, grants: u64) -> Seen {
        let mut seen = Seen::default();
        for life in 0..times {
            let calls = self.live_and_die(life, grants, &mut seen);
            if (life + 1).is_multiple_of(10) {
                eprintln!("{}: {} of {times}", self.keeping.name(), life + 1);
            }
            if self.keeping.is_broken(&seen) {
                seen.wrongs.push(keep(&self.keeping.name(), &calls));
                break;
            }
        }
        seen
    }

    fn live_and_die(&mut self, life: u64, grants: u64, seen: &mut Seen) -> Vec<Call> {
        // A start is a quarantine; the load need not wait for its end.
        let done = self.server.connect().run("CONFIG SET kvlock.quarantine-ms 0");
        assert_eq!(done, Value::Status("OK".into()));
        let safe = format!("safe:{life}");
        let synced = self.keeping.death == Death::Power && !self.slow;
        if synced {
            let owns = Request::Acquire { lease: LONG, timeout: None };
            call(&mut self.server.connect(), &Recorder::new(), &safe, "alice", owns);
            self.disk.wait_until_synced(&self.server);
        }
        self.disk.delay_syncs(self.keeping.slow_sync());
        let (book, lease) = (Recorder::new(), self.keeping.lease());
        let load = Load {
            server: &self.server,
            book: &book,
            life: &format!("{life}:"),
            lease,
            grants: grants * 3 / 4 + self.random.below(grants / 2 + 1),
            random: self.random.part(life),
        };
        load.run(|| match self.keeping.death {
            Death::Kill => self.server.kill9(),
            Death::Power => self.disk.cut_power(&self.server),
        });
        // A disk that is slow from the start on lets the next life sync even less.
        self.slow = self.random.percent(50);
        let delay = if self.slow { self.keeping.slow_sync() } else { Duration::ZERO };
        self.disk.delay_syncs(delay);
        self.server.restart();
        seen.crashes += 1;

        let mut eye = self.server.connect();
        if synced && eye.call(cmd!["LOCK.RELEASE", safe, "alice"]) != Value::Integer(0) {
            seen.wrongs.push(format!("{safe} was synced, and is lost"));
        }
        count_lost(&mut eye, &book, seen);
        // Somebody else wants it all, at once and, where leases end soon, until he has it.
        want_all(&mut eye, &book, AFTERWARDS, lease, None);
        if self.keeping.quarantine && !want_all(&mut eye, &book, "patient", lease, Some(TIMEOUT)) {
            seen.wrongs.push("a lock is not free though all leases are over".to_owned());
        }
        let calls = book.calls();
        seen.judge(&calls);
        calls
    }
}

/// Counts what the server that is back has forgotten.
fn count_lost(eye: &mut Connection, book: &Recorder, seen: &mut Seen) {
    let calls = book.calls();
    let released: BTreeSet<(&str, &str)> = calls
        .iter()
        .filter(|call| call.request == Request::Release)
        .map(|call| (call.key.as_str(), call.owner.as_str()))
        .collect();
    for grant in &calls {
        let Some((_, Outcome::Granted { token, .. })) = grant.answer else { continue };
        seen.grants += 1;
        if released.contains(&(grant.key.as_str(), grant.owner.as_str())) {
            continue;
        }
        let fields = eye.call(cmd!["HMGET", grant.key, grant.owner, "fencing-token"]);
        let known = [Value::bulk("1"), Value::bulk(format!("t{token}"))];
        let Request::Acquire { lease, .. } = grant.request else { continue };
        // Its lease began later, and so is not over yet.
        if book.now() < grant.sent + lease {
            seen.standing += 1;
            seen.lost += u64::from(fields.elements() != known);
        }
    }
}

/// Somebody else asks for each of these locks, one after another; whether each was granted.
fn want_all(
    connection: &mut Connection,
    book: &Recorder,
    owner: &str,
    lease: Duration,
    timeout: Option<Duration>,
) -> bool {
    let keys: BTreeSet<String> = book.calls().into_iter().map(|call| call.key).collect();
    let ask = |key: &String| {
        let request = Request::Acquire { lease, timeout };
        call(connection, book, key, owner, request).expect("the server answers")
    };
    let outcomes: Vec<Outcome> = keys.iter().map(ask).collect();
    outcomes.iter().all(|outcome| matches!(outcome, Outcome::Granted { .. }))
}

/// Leaves the calls where somebody can read them, and says where.
fn keep(name: &str, calls: &[Call]) -> String {
    let name = name.replace('/', "-");
    let file = format!("kvlock-crashes-{}-{name}.txt", std::process::id());
    let path = std::env::temp_dir().join(file);
    let lines: Vec<String> = calls.iter().map(ToString::to_string).collect();
    match std::fs::write(&path, lines.join("\n")) {
        Ok(()) => format!("what clients were told around that crash is in {}", path.display()),
        Err(why) => format!("what clients were told around that crash is lost: {why}"),
    }
}
