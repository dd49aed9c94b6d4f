//! Counts, for each kind of fault, how many of these faults happened while each kind of operation was in flight.

use crate::history::{Call, Outcome, Request};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

/// Longest delay with which a server notices that a lease has ended, if the lock has a waiter.
const NOTICES: Duration = Duration::from_millis(20);

/// Operations that may be in flight when a fault happens: an acquire without a wait; a wait; a hand-off, from the
/// command that frees a lock to the reply to the next waiter; a renewal; a release or a countdown; a cancel; the
/// expiry of a lease.
const OPERATIONS: [&str; 7] =
    ["Acquire", "Wait", "HandOff", "Renew", "Release", "Cancel", "Expiry"];

/// A stretch of time, ends included.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Its beginning.
    pub from: Duration,
    /// Its end.
    pub to: Duration,
}

impl Span {
    /// Returns whether the two spans have a moment in common.
    pub fn meets(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// Number of times that each fault happened while each operation was in flight.
#[derive(Debug, Default)]
pub struct Coverage(BTreeMap<&'static str, [u64; OPERATIONS.len()]>);

impl Coverage {
    /// A table of these faults with all counts at zero.
    pub fn of(faults: impl Iterator<Item = &'static str>) -> Self {
        Self(faults.map(|name| (name, [0; OPERATIONS.len()])).collect())
    }

    /// Adds the kinds of operations that were in flight during each fault. Each kind counts at most once for each
    /// fault.
    pub fn add(&mut self, faults: &[(&'static str, Span)], calls: &[Call], cancels: &[Span]) {
        let spans = spans(calls, cancels);
        for (name, fault) in faults {
            let met = self.0.entry(name).or_default();
            for (spans, count) in spans.iter().zip(met) {
                *count += u64::from(spans.iter().any(|span| span.meets(*fault)));
            }
        }
    }

    /// The smallest of the fault's counts.
    pub fn least_of(&self, fault: &str) -> u64 {
        self.0.get(fault).and_then(|met| met.iter().copied().min()).unwrap_or(0)
    }

    /// The smallest count of all.
    pub fn least(&self) -> u64 {
        self.0.values().flatten().copied().min().unwrap_or(0)
    }
}

impl fmt::Display for Coverage {
    /// The table, as lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "how often a fault met an operation that was under way:")?;
        let names = OPERATIONS.map(|operation| format!("{operation:>9}")).concat();
        writeln!(f, "{:48}{names}", "")?;
        for (fault, met) in &self.0 {
            let met = met.map(|count| format!("{count:>9}")).concat();
            writeln!(f, "{fault:48}{met}")?;
        }
        writeln!(f, "{:48}{:>9}", "least of all", self.least())
    }
}

/// The times in which each of [`OPERATIONS`] was in flight.
fn spans(calls: &[Call], cancels: &[Span]) -> [Vec<Span>; OPERATIONS.len()] {
    let of = |is: &dyn Fn(&Request) -> bool| {
        let answered = calls.iter().filter(|call| is(&call.request));
        let span = |call: &Call| Some(Span { from: call.sent, to: call.answer?.0 });
        answered.filter_map(span).collect()
    };
    let mut by_key: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        by_key.entry(&call.key).or_default().push(call);
    }
    by_key.values_mut().for_each(|calls| calls.sort_by_key(|call| call.sent));
    [
        of(&|it| it.asks() && it.timeout().is_none()),
        of(&waits),
        by_key.values().flat_map(|calls| hand_offs(calls)).collect(),
        of(&renews),
        of(&gives_back),
        cancels.to_vec(),
        by_key.values().flat_map(|calls| expiries(calls)).collect(),
    ]
}

fn waits(request: &Request) -> bool {
    request.timeout().is_some()
}

fn renews(request: &Request) -> bool {
    matches!(request, Request::Renew { .. })
}

fn gives_back(request: &Request) -> bool {
    use Request::{CountDown, Release, ReleasePermits, ReleaseShare};
    matches!(request, Release | ReleaseShare | ReleasePermits | CountDown)
}

/// Hand-offs among the calls on one key, which are in the order of sending.
fn hand_offs(calls: &[&Call]) -> Vec<Span> {
    let freeing: Vec<_> = calls.iter().filter(|call| frees(call)).map(|call| call.sent).collect();
    let hand_off = |wait: &&Call| {
        let to = granted_at(wait)?;
        let from = *freeing[..freeing.partition_point(|sent| *sent <= to)].last()?;
        // A freeing call that was sent before the wait does not count as a hand-off to it.
        (from > wait.sent).then_some(Span { from, to })
    };
    let waits = calls.iter().filter(|call| waits(&call.request));
    waits.copied().filter_map(|wait| hand_off(&wait)).collect()
}

/// Leases on one key that expired.
fn expiries(calls: &[&Call]) -> Vec<Span> {
    let mut later: HashMap<&str, Vec<&Call>> = HashMap::new();
    for call in calls {
        later.entry(&call.owner).or_default().push(call);
    }
    let expiry = |call: &Call| {
        let (granted, lease) = (granted_at(call)?, call.request.lease()?);
        let to = granted + lease;
        let prevents = |other: &&Call| {
            (granted..to).contains(&other.sent) && (frees(other) || renews(&other.request))
        };
        let prevented = later.get(&*call.owner)?.iter().any(prevents);
        // The server granted the lock after the sending, and shortly before the reply.
        let from = call.sent.max(granted.saturating_sub(NOTICES)) + lease;
        (!prevented).then_some(Span { from, to: to + NOTICES })
    };
    calls.iter().filter_map(|call| expiry(call)).collect()
}

/// Returns whether this call may end the wait of another client: a release, a countdown or a break.
fn frees(call: &Call) -> bool {
    call.request == Request::Break || gives_back(&call.request)
}

fn granted_at(call: &Call) -> Option<Duration> {
    let (at, outcome) = call.answer?;
    match outcome {
        Outcome::Granted { .. } | Outcome::Holds { .. } => Some(at),
        Outcome::Done if matches!(call.request, Request::AwaitLatch { .. }) => Some(at),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn call(owner: &str, request: Request, sent: u64, answered: u64, outcome: Outcome) -> Call {
        Call::new(("k", owner), request, ms(sent), (ms(answered), outcome))
    }

    fn met(calls: &[Call], cancels: &[Span], from: u64, to: u64) -> [u64; OPERATIONS.len()] {
        let mut coverage = Coverage::of(["fault"].into_iter());
        coverage.add(&[("fault", Span { from: ms(from), to: ms(to) })], calls, cancels);
        coverage.0["fault"]
    }

    #[test]
    fn a_fault_meets_only_operations_in_flight() {
        let granted = |token| Outcome::Granted { token, holds: 1 };
        let acquire = |timeout| Request::Acquire { lease: ms(100), timeout };
        let calls = [
            call("a", acquire(None), 10, 12, granted(1)),
            call("b", acquire(Some(ms(500))), 20, 53, granted(2)),
            call("a", Request::Release, 50, 52, Outcome::Released { left: 0 }),
        ];
        let cancel = Span { from: ms(300), to: ms(301) };
        assert_eq!(met(&calls, &[cancel], 0, 9), [0; 7]);
        assert_eq!(met(&calls, &[cancel], 11, 11), [1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(met(&calls, &[cancel], 30, 31), [0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(met(&calls, &[cancel], 51, 60), [0, 1, 1, 0, 1, 0, 0]);
        // The lease of b expires. The lease of a does not, because a released the lock.
        assert_eq!(met(&calls, &[cancel], 110, 112), [0; 7]);
        assert_eq!(met(&calls, &[cancel], 153, 154), [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(met(&calls, &[cancel], 290, 400), [0, 0, 0, 0, 0, 1, 0]);
    }
}
