//! Tasks that acquire, wait, hold, renew, cancel, release, and let leases end. The holder of an exclusive
//! lock writes to a store while it believes that it holds the lock. Sometimes it also writes after it has
//! released or lost the lock.

use super::{ClientRoute, Held, HoldKind, Term};
use crate::round::Round;
use crate::store::{Writer, Written};
use crate::suites::Promises;
use harness::history::{Call, CallId, Outcome, Request};
use harness::random::Random;
use kvlock::Error;
use std::time::Duration;
use tokio::time::sleep;

/// Assumed time until the client has cancelled an abandoned wait in the background.
const DROPPED: Duration = Duration::from_millis(10);

/// The end of a lease must move by more than this to count as a renewal.
const RENEWED: Duration = Duration::from_millis(5);

/// Longest hold of a lock, unless the task waits until the lease ends.
const LONG: Duration = ms(1500);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs one turn of the named owner. `sort` draws the kind of hold.
pub(super) async fn take_turn(
    round: &Round,
    route: &ClientRoute,
    owner: String,
    random: &mut Random,
    kind: fn(&mut Random) -> HoldKind,
) {
    let task = Task { round, owner, kind: kind(random) };
    task.take_turn(route, random).await;
}

struct Task<'a> {
    round: &'a Round,
    owner: String,
    kind: HoldKind,
}

/// A task's knowledge of the lock that it holds.
struct Tenure<'a> {
    key: &'a str,
    call: CallId,
    writer: Writer,
    lease: Duration,
    /// Time at which the lock was requested, or the last renewal was noticed.
    set: Duration,
    /// Latest end of the hold that the client has reported to the task.
    until: Duration,
    /// Time of the last check at which the lock was not lost.
    seen: Duration,
}

impl Task<'_> {
    async fn take_turn(&self, route: &ClientRoute, random: &mut Random) {
        let round = self.round;
        let key: &String = random.pick(&round.keys);
        let key = &self.kind.name(key);
        let lease = self.kind.lease().unwrap_or_else(|| ms(*random.pick(&round.leases_ms)));
        let watched = self.kind.is_watched() || random.percent(75);
        let term = Term { kind: self.kind, lease, watched };
        // Longest wait, and the time after which the call is dropped.
        let (timeout, gives_up) = match random.below(100) {
            0..=19 => (None, None),
            20..=59 => (Some(ms(20 + random.below(1500))), None),
            // Long enough for a failover.
            60..=74 => (Some(ms(3000 + random.below(5000))), None),
            _ => (Some(ms(5000)), Some(ms(random.below(60)))),
        };
        let request = self.kind.request(term.lease, timeout);
        let sent = round.recorder.now();
        let call = round.recorder.sent(key, &self.owner, request);
        let acquire = route.acquire(key, term, timeout);
        let answer = match gives_up {
            Some(after) => tokio::select! {
                answer = acquire => answer,
                () = sleep(after) => {
                    let now = round.recorder.now();
                    round.recorder.answered(call, Outcome::Unknown);
                    round.log.cancel(now, now + DROPPED);
                    return round.log.add("given up while waiting", 1);
                }
            },
            None => acquire.await,
        };
        match answer {
            Ok(Some(held)) => self.granted(key, call, sent, term, held, random).await,
            Ok(None) => {
                round.recorder.answered(call, Outcome::Refused);
                if timeout.is_none() {
                    sleep(ms(random.below(10))).await;
                }
            }
            Err(trouble) => {
                // If the lock was granted, the client releases it in the background.
                round.recorder.answered(call, Outcome::Unknown);
                round.log.trouble("acquire", &trouble);
                sleep(ms(5 + random.below(20))).await;
            }
        }
    }

    async fn granted(
        &self,
        key: &str,
        call: CallId,
        sent: Duration,
        term: Term,
        held: Held,
        random: &mut Random,
    ) {
        let round = self.round;
        let token = held.token();
        let mut tenure = {
            // No other task can write between the recorded grant and the first write under it.
            let mut store = round.store.open();
            let outcome = match token {
                Some(token) => Outcome::Granted { token, holds: 1 },
                None => Outcome::Holds { permits: self.kind.permits() },
            };
            round.recorder.answered(call, outcome);
            let granted = round.recorder.now();
            let token = token.unwrap_or_default();
            let writer = Writer { owner: self.owner.clone(), token, sent, granted };
            let mut tenure = Tenure {
                key,
                call,
                writer,
                lease: term.lease,
                set: sent,
                until: granted,
                seen: granted,
            };
            if self.still_holds(&held, &mut tenure) {
                let written = self.kind.is_alone().then(|| store.write(key, &tenure.writer));
                drop(store);
                self.wrote(written, &held, &tenure);
            } else {
                round.log.add("granted too late to be of use", 1);
            }
            tenure
        };
        round.granted(&self.owner);
        let time = match random.below(10) {
            0..=5 => ms(random.below(10)),
            6..=7 => ms(random.below(60)),
            _ => term.lease.mul_f64(0.5 + random.below(100) as f64 / 100.0).min(LONG),
        };
        let end = round.recorder.now() + time;
        while round.recorder.now() < end && self.still_holds(&held, &mut tenure) {
            tokio::select! {
                () = held.lost() => {}
                () = sleep(ms(1 + random.below(8))) => {}
            }
            self.write_if_held(&held, &mut tenure);
        }
        let lets_it_end = !term.watched && random.percent(40);
        if lets_it_end {
            held.lost().await;
        }
        if self.still_holds(&held, &mut tenure) {
            self.release(held, &tenure, random.percent(80)).await;
        } else {
            self.record_loss(&tenure, term.watched);
            // The server may not have ended the hold yet, and the drop releases it. The outcome of this release
            // is unknown.
            let call = round.recorder.sent(key, &self.owner, self.kind.release());
            round.recorder.answered(call, Outcome::Unknown);
            drop(held);
        }
        if random.percent(50) {
            // Write late, like a process that was suspended.
            sleep(ms(random.below(30))).await;
            self.write_too_late(&tenure);
        }
    }

    /// Returns whether the client reports that the lock is held now. Records this belief, and any renewal.
    fn still_holds(&self, held: &Held, tenure: &mut Tenure<'_>) -> bool {
        let now = self.round.recorder.now();
        let left = held.lease_left();
        if held.is_lost() || left.is_zero() {
            return false;
        }
        let until = now + left;
        let longer = until > tenure.until + RENEWED && tenure.until > tenure.writer.granted;
        // A bound lock is kept by heartbeats.
        if longer && self.kind != HoldKind::Bound {
            // The recorded call begins when the renewal was due or at the last check, whichever is later.
            let renewal = Request::Renew { lease: tenure.lease };
            let due = tenure.seen.max(tenure.set + tenure.lease / 3).min(now);
            self.round.log.renewed(self.call(tenure, renewal, due, now, Outcome::Done));
            tenure.set = now;
        }
        tenure.until = tenure.until.max(until);
        tenure.seen = now;
        self.round.recorder.believed(tenure.call, tenure.until);
        true
    }

    fn write_if_held(&self, held: &Held, tenure: &mut Tenure<'_>) {
        if self.still_holds(held, tenure) {
            let write = || self.round.store.open().write(tenure.key, &tenure.writer);
            self.wrote(self.kind.is_alone().then(write), held, tenure);
        }
    }

    fn wrote(&self, written: Option<Written>, held: &Held, tenure: &Tenure<'_>) {
        let log = &self.round.log;
        let Some(written) = written else { return };
        match written {
            Written::Accepted => log.add("writes", 1),
            Written::Stale(what) => self.record_stale_write(tenure, &what),
            // The lock was lost just now, and another owner has written.
            Written::Refused if held.is_lost() => {}
            Written::Refused => {
                let Tenure { key, writer, until, .. } = tenure;
                let what =
                    format!("{key}: {writer:?} may not write though it holds until {until:?}");
                log.broken("writes of believing holders refused", Promises::NoOverlap, what);
            }
        }
    }

    fn write_too_late(&self, tenure: &Tenure<'_>) {
        let log = &self.round.log;
        if !self.kind.is_alone() {
            return;
        }
        match self.round.store.open().write(tenure.key, &tenure.writer) {
            Written::Accepted => log.add("late writes before anybody else's", 1),
            Written::Refused => log.add("late writes refused", 1),
            Written::Stale(what) => self.record_stale_write(tenure, &what),
        }
    }

    /// Records a loss of the lock, at the end of its lease or before.
    fn record_loss(&self, tenure: &Tenure<'_>, watched: bool) {
        let now = self.round.recorder.now();
        let due = tenure.set + tenure.lease / 3;
        if watched && due < now && self.kind != HoldKind::Bound {
            let renewal = Request::Renew { lease: tenure.lease };
            let renewal = self.call(tenure, renewal, due, now, Outcome::Unknown);
            let what = "renewals that came to nothing";
            self.round.log.keep(what, |seen| seen.renewals.push(renewal));
        }
        self.round.log.add("leases that ended", 1);
        if now < tenure.until {
            self.round.recorder.believed(tenure.call, tenure.seen);
            self.record_early_loss(tenure, "was told", now);
        }
    }

    async fn release(&self, held: Held, tenure: &Tenure<'_>, waits: bool) {
        let recorder = &self.round.recorder;
        let call = recorder.sent(tenure.key, &self.owner, self.kind.release());
        if !waits {
            drop(held);
            recorder.answered(call, Outcome::Unknown);
            return;
        }
        match held.release().await {
            Ok(()) => recorder.answered(call, Outcome::Released { left: 0 }),
            Err(Error::Lost(_)) => {
                recorder.answered(call, Outcome::Unknown);
                let now = recorder.now();
                if now < tenure.until {
                    self.record_early_loss(tenure, "released", now);
                }
            }
            Err(trouble) => {
                // The release continues in the background.
                recorder.answered(call, Outcome::Unknown);
                self.round.log.trouble("release", &trouble);
            }
        }
    }

    fn record_stale_write(&self, tenure: &Tenure<'_>, what: &str) {
        let what = format!("Stale: a write was accepted: {}: {what}", tenure.key);
        self.round.log.broken("stale writes accepted", Promises::Tokens, what);
    }

    fn record_early_loss(&self, tenure: &Tenure<'_>, how: &str, now: Duration) {
        let Tenure { key, writer, until, .. } = tenure;
        let what = format!("Lost: {key}: {writer:?} {how} at {now:?}, held until {until:?}");
        self.round.log.broken("told of a loss before the lease was over", Promises::NoLoss, what);
    }

    fn call(
        &self,
        tenure: &Tenure<'_>,
        request: Request,
        sent: Duration,
        at: Duration,
        outcome: Outcome,
    ) -> Call {
        Call::new((tenure.key, &self.owner), request, sent, (at, outcome))
    }
}
