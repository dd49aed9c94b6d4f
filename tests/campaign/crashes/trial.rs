//! One server that dies under load repeatedly.

use super::load::{Load, TIMEOUT};
use super::{CRASHES, Durability, GRANTED, LONG, LOST, STANDING, TOKENS_BACK, TWICE};
use crate::report::Report;
use harness::checker::{Limits, Rule, check, never};
use harness::disk::Disk;
use harness::history::{Call, Outcome, Recorder, Request};
use harness::random::Random;
use harness::{Connection, Server, Value, cmd};
use std::collections::BTreeSet;
use std::time::Duration;

/// Limits for a server with a slow disk, which answers late.
const LIMITS: Limits =
    Limits { slack: Duration::from_millis(2), prompt: Duration::from_secs(5), left_free: never };

/// The owner that requests all locks after a restart, without waiting.
const AFTERWARDS: &str = "impatient";

/// A server that dies repeatedly, and the record of its clients.
pub(super) struct Trial<'a> {
    durability: Durability,
    server: Server,
    disk: Disk,
    /// `true` if the disk was already slow when the server last started.
    slow: bool,
    random: Random,
    /// The history of all lives.
    history: Recorder,
    report: &'a Report,
}

impl<'a> Trial<'a> {
    pub(super) fn new(durability: Durability, random: Random, report: &'a Report) -> Self {
        let disk = Disk::new();
        let server = durability.options(&disk).start();
        Self { durability, server, disk, slow: false, random, history: Recorder::new(), report }
    }

    /// Repeats `times` times: a load, a crash after about `grants` grants, and a start. Ends after
    /// the first repetition with a violation.
    pub(super) fn run(mut self, times: u64, grants: u64) {
        for life in 0..times {
            let before = self.history.calls().len();
            self.live_and_die(life, grants);
            self.want_all(life);
            let calls = self.history.calls();
            self.judge(&calls[before..]);
            self.judge_tokens(&calls);
            if !self.report.is_right() {
                let lines: Vec<String> = calls[before..].iter().map(ToString::to_string).collect();
                return self.report.keep(&self.durability.name(), &lines);
            }
        }
    }

    fn live_and_die(&mut self, life: u64, grants: u64) {
        // A start may begin a quarantine. End it, so that the load does not have to wait.
        let done = self.server.connect().run("CONFIG SET kvlock.quarantine-ms 0");
        assert_eq!(done, Value::Status("OK".into()));
        let Durability { power, .. } = self.durability;
        let safe = format!("safe:{life}");
        let synced = power && !self.slow;
        if synced {
            let owns = Request::Acquire { lease: LONG, timeout: None };
            Recorder::new().call(&mut self.server.connect(), &safe, "alice", &owns);
            self.disk.wait_until_synced(&self.server);
        }
        self.disk.delay_syncs(self.durability.slow_sync());
        let grants = grants * 3 / 4 + self.random.below(grants / 2 + 1);
        let load = Load {
            server: &self.server,
            history: &self.history,
            life,
            lease: self.durability.lease(),
            random: self.random.part(life),
        };
        load.run(grants, || match power {
            false => self.server.kill9(),
            true => self.disk.cut_power(&self.server),
        });
        // If the disk is slow from the start, less of the next life may be synced.
        self.slow = self.random.percent(50);
        let delay = if self.slow { self.durability.slow_sync() } else { Duration::ZERO };
        self.disk.delay_syncs(delay);
        self.server.restart();
        self.report.add(CRASHES, 1);
        let mut admin = self.server.connect();
        if synced && admin.call(cmd!["LOCK.RELEASE", safe, "alice"]) != Value::Integer(0) {
            self.report.violation(format!("Lost: {safe} was synced"));
        }
    }

    /// Counts the grants of the given life that the restarted server has lost. Then another owner tries to
    /// acquire each lock of this life. With a quarantine, leases end soon, so one more owner then waits for
    /// each lock.
    fn want_all(&self, life: u64) {
        let begin = format!("{life}:");
        let calls = self.history.calls().into_iter().filter(|call| call.key.starts_with(&begin));
        let calls: Vec<Call> = calls.collect();
        let mut admin = self.server.connect();
        self.count_lost(&mut admin, &calls);
        let keys: BTreeSet<&str> = calls.iter().map(|call| call.key.as_str()).collect();
        let mut want = |owner, timeout| {
            let request = Request::Acquire { lease: self.durability.lease(), timeout };
            let ask = |key| self.history.call(&mut admin, key, owner, &request);
            let outcomes: Vec<Outcome> = keys.iter().copied().map(ask).collect();
            outcomes.iter().all(|outcome| matches!(outcome, Outcome::Granted { .. }))
        };
        want(AFTERWARDS, None);
        if self.durability.quarantine && !want("patient", Some(TIMEOUT)) {
            self.report.violation("Stuck: a lock is not free though all leases are over");
        }
    }

    fn count_lost(&self, admin: &mut Connection, calls: &[Call]) {
        let released: BTreeSet<(&str, &str)> = calls
            .iter()
            .filter(|call| call.request == Request::Release)
            .map(|call| (call.key.as_str(), call.owner.as_str()))
            .collect();
        for grant in calls {
            let Some((_, Outcome::Granted { token, .. })) = grant.answer else { continue };
            self.report.add(GRANTED, 1);
            // The lease began after the request was sent, so it does not end before this time.
            let stands = self.history.now() < grant.sent + self.durability.lease();
            if !stands || released.contains(&(&grant.key, &grant.owner)) {
                continue;
            }
            self.report.add(STANDING, 1);
            let fields = admin.call(cmd!["HMGET", grant.key, grant.owner, "fencing-token"]);
            if fields.elements() != [Value::bulk("1"), Value::bulk(format!("t{token}"))] {
                self.report.add(LOST, 1);
                if self.durability.is_safe() {
                    self.report.violation(format!("Lost: {grant}"));
                }
            }
        }
    }

    /// Judges all replies in one life of the server and just after the restart.
    fn judge(&self, calls: &[Call]) {
        for violation in check(calls, &LIMITS) {
            let is_right = match violation.rule {
                Rule::Exclusion => {
                    self.report.add(TWICE, 1);
                    !self.durability.grants_once()
                }
                // A quarantine refused the request, or the release was lost with the server.
                Rule::Refusal => violation.text.contains(AFTERWARDS),
                _ => false,
            };
            if !is_right {
                self.report.violation(violation.to_string());
            }
        }
    }

    /// Tokens grow over all lives and all locks, so all grants are judged as grants of one lock.
    fn judge_tokens(&self, calls: &[Call]) {
        let grants: Vec<Call> = calls
            .iter()
            .filter(|call| matches!(call.answer, Some((_, Outcome::Granted { .. }))))
            .map(|call| {
                let owner = format!("{} of {}", call.owner, call.key);
                Call { key: "all".to_owned(), owner, ..call.clone() }
            })
            .collect();
        for violation in check(&grants, &LIMITS) {
            if violation.rule == Rule::TokenOrder {
                self.report.add(TOKENS_BACK, 1);
                self.report.violation(violation.to_string());
            }
        }
    }
}
