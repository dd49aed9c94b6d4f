//! One server that dies under load again and again.

use super::load::{Load, TIMEOUT};
use super::seen::{AFTERWARDS, Seen};
use super::{Death, Durability, LONG};
use crate::report::Report;
use harness::disk::Disk;
use harness::history::{Call, Outcome, Recorder, Request};
use harness::random::Random;
use harness::{Connection, Server, Value, cmd};
use std::collections::BTreeSet;
use std::time::Duration;

/// A server that keeps grants in one way, and how it dies.
pub(super) struct Trial {
    durability: Durability,
    server: Server,
    disk: Disk,
    /// Whether the disk was slow already when the server was started.
    slow: bool,
    random: Random,
}

impl Trial {
    pub(super) fn new(durability: Durability, random: Random) -> Self {
        let disk = Disk::new();
        let server = durability.options(&disk).start();
        Self { durability, server, disk, slow: false, random }
    }

    /// That many times: a load, a crash in the middle of it after about as many grants, and a start.
    /// Ends at the first violation.
    pub(super) fn run(mut self, times: u64, grants: u64, report: &Report) -> Seen {
        let mut seen = Seen::default();
        for life in 0..times {
            let calls = self.live_and_die(life, grants, &mut seen);
            if !self.durability.violations(&seen).is_empty() {
                let lines: Vec<String> = calls.iter().map(ToString::to_string).collect();
                report.keep(&self.durability.name(), &lines);
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
        let synced = self.durability.death == Death::Power && !self.slow;
        if synced {
            let owns = Request::Acquire { lease: LONG, timeout: None };
            Recorder::new().call(&mut self.server.connect(), &safe, "alice", &owns);
            self.disk.wait_until_synced(&self.server);
        }
        self.disk.delay_syncs(self.durability.slow_sync());
        let (history, lease) = (Recorder::new(), self.durability.lease());
        let load = Load {
            server: &self.server,
            history: &history,
            life: &format!("{life}:"),
            lease,
            grants: grants * 3 / 4 + self.random.below(grants / 2 + 1),
            random: self.random.part(life),
        };
        load.run(|| match self.durability.death {
            Death::Kill => self.server.kill9(),
            Death::Power => self.disk.cut_power(&self.server),
        });
        // A disk that is slow from the start on lets the next life sync even less.
        self.slow = self.random.percent(50);
        let delay = if self.slow { self.durability.slow_sync() } else { Duration::ZERO };
        self.disk.delay_syncs(delay);
        self.server.restart();
        seen.crashes += 1;

        let mut admin = self.server.connect();
        if synced && admin.call(cmd!["LOCK.RELEASE", safe, "alice"]) != Value::Integer(0) {
            seen.violations.push(format!("Lost: {safe} was synced"));
        }
        count_lost(&mut admin, &history, seen);
        // Another client wants it all: at once and, where leases end soon, until it has it.
        want_all(&mut admin, &history, AFTERWARDS, lease, None);
        if self.durability.quarantine
            && !want_all(&mut admin, &history, "patient", lease, Some(TIMEOUT))
        {
            seen.violations.push("Stuck: a lock is not free though all leases are over".to_owned());
        }
        let calls = history.calls();
        seen.judge(&calls);
        calls
    }
}

/// Counts what the server that is back has forgotten.
fn count_lost(admin: &mut Connection, history: &Recorder, seen: &mut Seen) {
    let calls = history.calls();
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
        let fields = admin.call(cmd!["HMGET", grant.key, grant.owner, "fencing-token"]);
        let known = [Value::bulk("1"), Value::bulk(format!("t{token}"))];
        let Request::Acquire { lease, .. } = grant.request else { continue };
        // Its lease began later, and so is not over yet.
        if history.now() < grant.sent + lease {
            seen.standing += 1;
            seen.lost += u64::from(fields.elements() != known);
        }
    }
}

/// Somebody else asks for each of these locks, one after another; whether each was granted.
fn want_all(
    connection: &mut Connection,
    history: &Recorder,
    owner: &str,
    lease: Duration,
    timeout: Option<Duration>,
) -> bool {
    let keys: BTreeSet<String> = history.calls().into_iter().map(|call| call.key).collect();
    let ask = |key: &String| {
        let request = Request::Acquire { lease, timeout };
        history.call(connection, key, owner, &request)
    };
    let outcomes: Vec<Outcome> = keys.iter().map(ask).collect();
    outcomes.iter().all(|outcome| matches!(outcome, Outcome::Granted { .. }))
}
