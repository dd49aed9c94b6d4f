//! Results that one client computes for all. Each value that a client finds must come from successful work, and
//! no client may wait too long without a fault.

use super::{Tasks, Turn, Work};
use crate::round_log::{Records, Shown};
use harness::coverage::Span;
use harness::history::{Outcome, Request};
use kvlock::{Error, Guard};
use std::time::Duration;
use tokio::time::sleep;

/// Longest time that a client waits. The work takes much less.
const WITHIN: Duration = Duration::from_secs(5);

/// Longest effect of a fault after its end: clients may have to connect again.
const EFFECT: Duration = Duration::from_secs(3);

pub(crate) const RESULTS: Work =
    Work { name: "results", tasks: Tasks::Turns(|turn| Box::pin(turn.want_result())) };

/// Error of a turn: the work failed on purpose, or the client failed.
#[derive(Debug)]
enum Failed {
    Work,
    Client(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl Turn<'_> {
    /// Finds a result, or computes it if no other client does. The value is the name of the owner that computes
    /// it.
    async fn want_result(self) {
        let Self { round, route, owner, random, .. } = self;
        let (recorder, log) = (&round.recorder, &round.log);
        let key = format!("{}-result", random.pick(&round.keys));
        let lease = Duration::from_millis(*random.pick(&round.leases_ms));
        let (ttl, time) = (20 + random.below(1000), random.below(40));
        let (takes, fails) = (Duration::from_millis(time), random.percent(20));
        let once = route.client().once(&key).lease(lease).acquire_within(WITHIN);
        let once = once.ttl(Duration::from_millis(ttl));
        let lock = String::from_utf8_lossy(once.lock_name()).into_owned();
        let request = Request::Acquire { lease, timeout: Some(WITHIN) };
        let (sent, call) = (recorder.now(), recorder.sent(&lock, &owner, request));
        let mut release = None;
        let made = once
            .try_get_or(async |guard: &Guard| {
                let token = guard.token().value();
                recorder.answered(call, Outcome::Granted { token, holds: 1 });
                round.granted(&owner);
                let end = recorder.now() + takes;
                while recorder.now() < end && !guard.is_lost() {
                    recorder.believed(call, recorder.now() + guard.lease_left());
                    sleep(Duration::from_millis(2)).await;
                }
                // Recorded before the value is stored, because other tasks may read it at once.
                log.show(&key, &owner, if fails { Shown::Failed } else { Shown::Made });
                release = Some(recorder.sent(&lock, &owner, Request::Release));
                if fails { Err(Failed::Work) } else { Ok(owner.clone()) }
            })
            .await;
        let span = Span { from: sent, to: recorder.now() };
        let mut released = Outcome::Unknown;
        match made {
            Ok(made) if !made.computed() => {
                recorder.answered(call, Outcome::Refused);
                log.add("results found", 1);
                let value = String::from_utf8_lossy(&made.value);
                log.show(&key, &value, Shown::Found);
            }
            Ok(made) => match made.not_stored() {
                None => {
                    log.add("results stored", 1);
                    released = Outcome::Released { left: 0 };
                }
                Some(trouble) => log.trouble("store", trouble),
            },
            Err(Failed::Work) => log.add("work that failed", 1),
            Err(Failed::Client(Error::NotInTime)) => {
                recorder.answered(call, Outcome::Refused);
                log.keep("results not there in time", |records| records.late_results.push(span));
            }
            Err(Failed::Client(trouble)) => {
                recorder.answered(call, Outcome::Unknown);
                log.trouble("get a result", &trouble);
                sleep(Duration::from_millis(5)).await;
            }
        }
        if let Some(release) = release {
            recorder.answered(release, released);
        }
    }
}

/// Values that were found but not made by successful work, and calls that waited too long without a fault.
pub(crate) fn wrong_results(records: &Records) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((key, value), shown) in &records.results {
        if shown.contains(&Shown::Found) && !shown.contains(&Shown::Made) {
            wrong
                .push(format!("Result: {value:?} was found at {key}, and was not made: {shown:?}"));
        }
    }
    for late in &records.late_results {
        let is_near = |fault: &Span| {
            fault.meets(Span { from: late.from.saturating_sub(EFFECT), to: late.to })
        };
        let mut faults = records.faults.iter().map(|(_, span)| span).chain(&records.splits);
        if !faults.any(is_near) {
            wrong
                .push(format!("Result: neither it nor its lock was there in {WITHIN:?}: {late:?}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(from: u64, to: u64) -> Span {
        Span { from: Duration::from_secs(from), to: Duration::from_secs(to) }
    }

    #[test]
    fn a_value_without_successful_work_is_a_violation() {
        let mut records = Records::default();
        let name = |value: &str| ("k".to_owned(), value.to_owned());
        records.results.insert(name("a"), vec![Shown::Made, Shown::Found]);
        records.results.insert(name("b"), vec![Shown::Failed]);
        assert!(wrong_results(&records).is_empty());
        records.results.insert(name("b"), vec![Shown::Failed, Shown::Found]);
        records.results.insert(name("c"), vec![Shown::Found]);
        assert_eq!(wrong_results(&records).len(), 2);
    }

    #[test]
    fn a_client_that_waits_too_long_is_a_violation_without_a_fault() {
        let mut records = Records { late_results: vec![at(10, 15)], ..Records::default() };
        assert_eq!(wrong_results(&records).len(), 1);
        records.faults.push(("kill", at(2, 6)));
        assert_eq!(wrong_results(&records).len(), 1);
        records.faults.push(("kill", at(2, 7)));
        assert!(wrong_results(&records).is_empty());
    }
}
