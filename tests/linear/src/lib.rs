//! A second check of histories: a model of a re-entrant, fenced mutex with leases, for a checker of
//! linearizability that is independent of `harness::checker`.
//!
//! The model explains a history by one order of all calls on a lock. Time does not decrease along an order: a
//! call happens after its sending, after all earlier calls, and, if a lease prevents it, after the earliest
//! end of that lease. A call without a reply may have happened at any time after its sending, or at the end
//! of the history, which means never.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::history::{Call, Outcome, Request};
use porcupine_rs::{CheckResult, Model, Operation, check_operations_timeout};

/// Time by which a lease may end earlier than the calls show: the server counts whole milliseconds.
const SLACK: Duration = Duration::from_millis(2);

/// The state of the lock after some calls of an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lock {
    holder: Option<Holder>,
    /// The largest token.
    largest: u64,
    /// The earliest moment at which the latest call can have happened.
    now: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    owner: u32,
    /// `None` if no reply contained it.
    token: Option<u64>,
    holds: u64,
    /// The earliest moment at which the lease can end by itself.
    end: Duration,
}

/// A call: an owner's request and its reply, with their times.
#[derive(Clone, Debug)]
pub struct Op {
    owner: u32,
    request: Request,
    outcome: Outcome,
    sent: Duration,
    back: Duration,
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
        next.now = next.now.max(op.sent);
        let legal = next.take(op) && next.now <= op.back;
        (legal, next)
    }
}

impl Lock {
    /// Applies a call. Returns false if its reply is impossible in this state.
    fn take(&mut self, op: &Op) -> bool {
        let end = |lease: Duration| (self.now + lease).saturating_sub(SLACK);
        let own = self.holder.as_mut().filter(|holder| holder.owner == op.owner);
        match (&op.request, op.outcome, own) {
            (Request::Acquire { lease, .. }, Outcome::Granted { token, holds }, Some(own))
                if holds == own.holds + 1 && own.token.is_none_or(|had| had == token) =>
            {
                (own.holds, own.end) = (holds, own.end.max(end(*lease)));
                return own.token.replace(token).is_some() || self.raises(token);
            }
            (Request::Acquire { lease, .. }, Outcome::Granted { token, holds: 1 }, _) => {
                self.ends();
                self.holds(op.owner, Some(token), *lease);
                return self.raises(token);
            }
            // A refusal requires another holder, because a hand-off never leaves the lock free.
            (Request::Acquire { .. }, Outcome::Refused, own) => {
                return own.is_none() && self.holder.is_some();
            }
            (Request::Acquire { .. }, Outcome::Unknown, Some(own)) => own.holds += 1,
            // The server may revoke a grant to a disconnected client at any time.
            (Request::Acquire { .. }, Outcome::Unknown, None) => {
                self.ends();
                self.holds(op.owner, None, Duration::ZERO);
            }
            (Request::Renew { lease }, Outcome::Done | Outcome::Unknown, Some(own)) => {
                own.end = end(*lease);
            }
            (Request::Release, Outcome::Released { .. } | Outcome::Unknown, Some(own)) => {
                own.holds -= 1;
                let left = own.holds;
                self.holder.take_if(|_| left == 0);
                return [Outcome::Unknown, Outcome::Released { left }].contains(&op.outcome);
            }
            (Request::Renew { .. } | Request::Release, Outcome::Refused, Some(_)) => self.ends(),
            (
                Request::Renew { .. } | Request::Release,
                Outcome::Refused | Outcome::Unknown,
                None,
            ) => {}
            (Request::Break, ..) => self.holder = None,
            _ => return false,
        }
        true
    }

    /// Removes the holder, if there is one, at the earliest possible end of its lease.
    fn ends(&mut self) {
        let end = self.holder.take().map(|holder| holder.end);
        self.now = self.now.max(end.unwrap_or_default());
    }

    fn holds(&mut self, owner: u32, token: Option<u64>, lease: Duration) {
        let end = (self.now + lease).saturating_sub(SLACK);
        self.holder = Some(Holder { owner, token, holds: 1, end });
    }

    /// Records a token. Returns whether it is larger than all earlier ones.
    fn raises(&mut self, token: u64) -> bool {
        let raises = token > self.largest;
        self.largest = self.largest.max(token);
        raises
    }
}

/// Runs the checker on the calls on an exclusive lock. The result is unknown if it takes longer than
/// `patience`.
pub fn check(calls: &[Call], patience: Duration) -> CheckResult {
    let mut owners: BTreeMap<&str, u32> = BTreeMap::new();
    let mut operations: Vec<Operation<Mutex>> = Vec::new();
    for call in calls {
        let (at, outcome) = call.answer.unwrap_or((Duration::MAX, Outcome::Unknown));
        let waits = matches!(call.request, Request::Acquire { timeout: Some(_), .. });
        // The wait was cancelled or has timed out, or the server rejected the call. None of these can
        // contradict other calls.
        if matches!(outcome, Outcome::Withdrawn | Outcome::Failed)
            || waits && outcome == Outcome::Refused
        {
            continue;
        }
        let count = u32::try_from(owners.len()).unwrap_or(u32::MAX);
        let owner = *owners.entry(&call.owner).or_insert(count);
        let back = if outcome == Outcome::Unknown { Duration::MAX } else { at };
        operations.push(Operation {
            client_id: Some(owner),
            call_time: nanos(call.sent),
            return_time: nanos(back),
            op: Op { owner, request: call.request.clone(), outcome, sent: call.sent, back },
            metadata: None,
        });
    }
    check_operations_timeout(&operations, patience)
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
