//! A second opinion on histories: a re-entrant, fenced mutex with leases, for a checker of
//! linearizability that knows nothing of ours (`harness::checker`), nor ours of it.
//!
//! It looks for one order of all calls that explains every answer. What nobody was told of may
//! have happened at any time after it was sent, or at the very end, which is the same as never.
//! That a lease ends is a call of its own, which nobody makes: it may come when the lease can have
//! ended at the earliest, or later, and does nothing if the hold is another one by then.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "only calls that hold a lock alone are judged here"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use harness::history::{Call, Outcome, Request};
use porcupine_rs::{CheckResult, Model, Operation, check_operations_timeout};

/// How much earlier than the calls say a lease may end: the server counts whole milliseconds.
const SLACK: Duration = Duration::from_millis(2);

/// The lock, as the answers show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lock {
    holder: Option<Holder>,
    largest: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    owner: u32,
    /// None if nobody was told.
    token: Option<u64>,
    holds: u64,
    /// The earliest moment at which the lease can end by itself.
    end: i64,
}

/// One call, or the end of a lease.
#[derive(Clone, Debug)]
pub enum Op {
    /// Granted: by whom, with which token and count, and when the lease can end at the earliest.
    Granted(u32, u64, u64, i64),
    /// Renewed.
    Renewed(u32, i64),
    /// Released, with so many holds left.
    Released(u32, u64),
    /// A renewal or release was told that this owner does not hold the lock.
    NotHeld(u32),
    /// A try of this owner was told that somebody else has it.
    NotFree(u32),
    /// Somebody may have taken it from whoever had it.
    Broken,
    /// The lease that ends then may have ended.
    Ended(i64),
    /// An acquire of which nobody knows.
    MayHold(u32, i64),
    /// A renewal of which nobody knows.
    MayRenew(u32, i64),
    /// A release of which nobody knows.
    MayRelease(u32),
}

/// A re-entrant, fenced mutex with leases.
#[derive(Clone, Debug)]
pub struct Mutex;

impl Model for Mutex {
    type State = Lock;
    type Op = Op;
    type Metadata = ();

    fn init() -> Lock {
        Lock::default()
    }

    fn step(lock: &Lock, op: &Op) -> (bool, Lock) {
        let mut next = lock.clone();
        let legal = next.take(op);
        (legal, next)
    }
}

impl Lock {
    fn take(&mut self, op: &Op) -> bool {
        match *op {
            Op::Granted(owner, token, holds, end) => return self.grant(owner, token, holds, end),
            Op::Renewed(owner, end) => match self.held_by(owner) {
                Some(holder) => holder.end = end,
                None => return false,
            },
            Op::Released(owner, left) => match self.held_by(owner) {
                Some(holder) if left > 0 => holder.holds = left,
                Some(_) => self.holder = None,
                None => return false,
            },
            Op::NotHeld(owner) => return self.held_by(owner).is_none(),
            // What is handed on is never free in between.
            Op::NotFree(owner) => {
                return self.holder.as_ref().is_some_and(|holder| holder.owner != owner);
            }
            Op::Broken => self.holder = None,
            Op::Ended(end) => {
                if self.holder.as_ref().is_some_and(|holder| holder.end <= end) {
                    self.holder = None;
                }
            }
            Op::MayHold(owner, end) => match &mut self.holder {
                None => self.holder = Some(Holder { owner, token: None, holds: 1, end }),
                Some(holder) if holder.owner == owner => holder.end = holder.end.max(end),
                Some(_) => {}
            },
            Op::MayRenew(owner, end) => {
                if let Some(holder) = self.held_by(owner) {
                    holder.end = end;
                }
            }
            Op::MayRelease(owner) => {
                if self.held_by(owner).is_some() {
                    self.holder = None;
                }
            }
        }
        true
    }

    fn held_by(&mut self, owner: u32) -> Option<&mut Holder> {
        self.holder.as_mut().filter(|holder| holder.owner == owner)
    }

    fn grant(&mut self, owner: u32, token: u64, holds: u64, end: i64) -> bool {
        let largest = self.largest;
        self.largest = largest.max(token);
        match &mut self.holder {
            None => {
                self.holder = Some(Holder { owner, token: Some(token), holds, end });
                holds == 1 && token > largest
            }
            Some(holder) if holder.owner == owner => {
                let same = holder.token.map_or(token > largest, |had| had == token);
                let counts = holds == holder.holds || holds == holder.holds + 1;
                *holder = Holder { owner, token: Some(token), holds, end: holder.end.max(end) };
                same && counts
            }
            Some(_) => false,
        }
    }
}

/// What the checker says of the calls on each lock that is held alone; unknown if it takes longer
/// than that.
pub fn check(calls: &[Call], patience: Duration) -> BTreeMap<String, CheckResult> {
    let mut keys: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        keys.entry(&call.key).or_default().push(call);
    }
    let results = keys.into_iter().map(|(key, calls)| {
        let operations = operations(&calls);
        (key.to_owned(), check_operations_timeout::<Mutex>(&operations, patience))
    });
    results.collect()
}

/// The calls on one lock, and the ends of its leases.
fn operations(calls: &[&Call]) -> Vec<Operation<Mutex>> {
    let mut owners: BTreeMap<&str, u32> = BTreeMap::new();
    let mut operations = Vec::new();
    let mut ends = Vec::new();
    let over = over_by(calls);
    // The latest token of each owner, none if it may have another one.
    let mut tokens: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for call in calls {
        let known = matches!(
            call.request,
            Request::Acquire { .. } | Request::Renew { .. } | Request::Release | Request::Break
        );
        if !known {
            continue;
        }
        let count = u32::try_from(owners.len()).unwrap_or(u32::MAX);
        let owner = *owners.entry(&call.owner).or_insert(count);
        let lease = match call.request {
            Request::Acquire { lease, .. } | Request::Renew { lease } => lease,
            _ => Duration::ZERO,
        };
        let end = nanos((call.sent + lease).saturating_sub(SLACK));
        let (back, op) = match (&call.request, call.answer) {
            (Request::Acquire { .. }, Some((at, Outcome::Granted { token, holds }))) => {
                (Some(at), Op::Granted(owner, token, holds, end))
            }
            (Request::Renew { .. }, Some((at, Outcome::Done))) => {
                (Some(at), Op::Renewed(owner, end))
            }
            (Request::Release, Some((at, Outcome::Released { left }))) => {
                (Some(at), Op::Released(owner, left))
            }
            (Request::Renew { .. } | Request::Release, Some((at, Outcome::Refused))) => {
                (Some(at), Op::NotHeld(owner))
            }
            (Request::Acquire { timeout: None, .. }, Some((at, Outcome::Refused))) => {
                (Some(at), Op::NotFree(owner))
            }
            // It was in line until then, or the server would not: nothing to be contradicted.
            (_, Some((_, Outcome::Refused | Outcome::Withdrawn | Outcome::Failed))) => continue,
            (Request::Break, Some((at, Outcome::Done))) => (Some(at), Op::Broken),
            (Request::Break, _) => (None, Op::Broken),
            (Request::Acquire { .. }, _) => (None, Op::MayHold(owner, end)),
            (Request::Renew { .. }, _) => (None, Op::MayRenew(owner, end)),
            _ => (None, Op::MayRelease(owner)),
        };
        match op {
            Op::Granted(_, token, ..) => drop(tokens.insert(owner, Some(token))),
            Op::MayHold(..) => drop(tokens.insert(owner, None)),
            _ => {}
        }
        if lease > Duration::ZERO {
            let token = tokens.get(&owner).copied().flatten();
            let next = token.and_then(|token| over.range(token + 1..).next());
            ends.push((end, next.map(|(_, at)| *at)));
        }
        operations.push(operation(Some(owner), nanos(call.sent), back.map(nanos), op));
    }
    ends.sort_unstable();
    // One that could come only when the next hold was there already says nothing.
    let ends = ends.into_iter().filter(|(end, over)| over.is_none_or(|over| *end < over));
    operations.extend(ends.map(|(end, over)| operation(None, end, over, Op::Ended(end))));
    operations
}

/// For each token, when at the latest its hold had begun, or a later one: the holds before it were
/// over by then.
fn over_by(calls: &[&Call]) -> BTreeMap<u64, i64> {
    let mut answers = BTreeMap::new();
    for call in calls {
        if let Some((at, Outcome::Granted { token, .. })) = call.answer {
            let first = answers.entry(token).or_insert(i64::MAX);
            *first = nanos(at).min(*first);
        }
    }
    let mut earliest = i64::MAX;
    for at in answers.values_mut().rev() {
        earliest = earliest.min(*at);
        *at = earliest;
    }
    answers
}

fn operation(client: Option<u32>, call: i64, back: Option<i64>, op: Op) -> Operation<Mutex> {
    let return_time = back.unwrap_or(i64::MAX);
    Operation { client_id: client, call_time: call, return_time, op, metadata: None }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
