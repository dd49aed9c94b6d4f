//! Requests of clients and their outcomes.
//!
//! All clients that use one [`Recorder`] run in one process and share one monotonic clock, so the order of
//! events in real time is exact. A call records when it was sent, when its reply arrived, and the
//! outcome. A call without a reply stays open, or is closed as [`Outcome::Unknown`] when the client gives up.

use crate::cmd;
use crate::resp::{Connection, ReceiveError, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longest wait of [`Recorder::call`] for a reply.
const ANSWER: Duration = Duration::from_secs(60);

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `LOCK.ACQUIRE`, or `LOCK.WAIT` when there is a timeout (0: without limit).
    Acquire {
        /// The lease that was asked for.
        lease: Duration,
        /// Time to wait; `None` does not wait.
        timeout: Option<Duration>,
    },
    /// `LOCK.RELEASE`.
    Release,
    /// `LOCK.ACQUIRE` or `LOCK.WAIT` with `SHARED`.
    Share {
        /// The lease that was asked for.
        lease: Duration,
        /// Time to wait; `None` does not wait.
        timeout: Option<Duration>,
    },
    /// `LOCK.RELEASE` with `SHARED`.
    ReleaseShare,
    /// `LOCK.RENEW`, or `SEM.RENEW`.
    Renew {
        /// The lease that was asked for.
        lease: Duration,
    },
    /// `SEM.ACQUIRE`, or `SEM.WAIT` when there is a timeout.
    Permits {
        /// Number of permits of the semaphore.
        of: u64,
        /// The lease that was asked for.
        lease: Duration,
        /// Time to wait; `None` does not wait.
        timeout: Option<Duration>,
    },
    /// `SEM.RELEASE`.
    ReleasePermits,
    /// `LATCH.SET`, without `REPLACE`.
    SetLatch {
        /// Number of countdowns that open the latch.
        count: u64,
    },
    /// `LATCH.COUNTDOWN` by the owner as a participant.
    CountDown,
    /// `LATCH.WAIT`.
    AwaitLatch {
        /// Time to wait.
        timeout: Duration,
    },
    /// An acquire by a script that does not use the queue, as in Redisson. The script takes the lock if it is
    /// free.
    Foreign {
        /// The lease that was asked for.
        lease: Duration,
    },
    /// Anything that may end the hold of any owner, such as `LOCK.FORCERELEASE`, `DEL`, a flush, or a kill of
    /// the server.
    Break,
}

impl Request {
    /// The lease that the request asks for.
    pub fn lease(&self) -> Option<Duration> {
        match self {
            Self::Acquire { lease, .. }
            | Self::Share { lease, .. }
            | Self::Permits { lease, .. }
            | Self::Foreign { lease }
            | Self::Renew { lease } => Some(*lease),
            _ => None,
        }
    }

    /// Longest time that the request waits; `None` if it does not wait. Zero is without limit.
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Acquire { timeout, .. }
            | Self::Share { timeout, .. }
            | Self::Permits { timeout, .. } => *timeout,
            Self::AwaitLatch { timeout } => Some(*timeout),
            _ => None,
        }
    }

    /// Returns whether the request asks for a lock, exclusive or shared, or for permits.
    pub fn asks(&self) -> bool {
        self.lease().is_some() && !matches!(self, Self::Renew { .. })
    }

    /// The command for this request. Panics unless the request acquires, renews or releases an exclusive lock.
    pub fn command(&self, key: &str, owner: &str) -> Vec<Vec<u8>> {
        let ms = |time: &Duration| u64::try_from(time.as_millis()).expect("not for centuries");
        match self {
            Self::Acquire { lease, timeout: None } => cmd!["LOCK.ACQUIRE", key, owner, ms(lease)],
            Self::Acquire { lease, timeout: Some(timeout) } => {
                cmd!["LOCK.WAIT", key, owner, ms(lease), ms(timeout)]
            }
            Self::Renew { lease } => cmd!["LOCK.RENEW", key, owner, ms(lease)],
            Self::Release => cmd!["LOCK.RELEASE", key, owner],
            other => panic!("{other:?} is no request to a lock that is held alone"),
        }
    }
}

/// The outcome of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The owner has the lock.
    Granted {
        /// The fencing token.
        token: u64,
        /// Number of holds of the owner.
        holds: u64,
    },
    /// The owner has permits.
    Holds {
        /// Number of permits.
        permits: u64,
    },
    /// The request had no effect: the reply is nil, or the error `MISMATCH`. For a wait that was not cancelled,
    /// nil means that its timeout has passed.
    Refused,
    /// The owner's wait was ended by a cancel (`LOCK.CANCEL`, or the same command of another family), or may have
    /// been. The reply is nil; through a session, the outcome is `cancelled`.
    Withdrawn,
    /// A lock or permits were released, or a latch was counted down.
    Released {
        /// Number of holds or permits that the owner still has, or of countdowns that the latch still needs.
        /// 0: the owner has nothing left, or the latch is open.
        left: u64,
    },
    /// The lease or the latch was set, the break was done, or the latch is open.
    Done,
    /// The client did not learn the outcome, for example because a connection broke. The call took effect once
    /// or not at all, at any time after its sending.
    Unknown,
    /// The request had no effect: the server replied with an error such as `UNBLOCKED` or `QUEUEFULL`, or a wait
    /// ended with its connection or session, without a grant.
    Failed,
}

impl Outcome {
    /// Outcome that the reply to a request reports.
    pub fn of(request: &Request, reply: &Value) -> Self {
        let number = |reply: &Value| reply.integer().cast_unsigned();
        match (request, reply) {
            // `HOLDS` does not fit the owner's number of holds or permits, for example after a loss.
            (_, Value::Error { code, .. }) if code == "MISMATCH" => Self::Refused,
            (_, Value::Error { .. }) => Self::Failed,
            (_, Value::Nil) => Self::Refused,
            (Request::Acquire { .. } | Request::Share { .. }, _) => {
                Self::Granted { token: number(&reply[0]), holds: number(&reply[1]) }
            }
            (Request::Permits { .. }, _) => Self::Holds { permits: number(reply) },
            (
                Request::Release
                | Request::ReleaseShare
                | Request::ReleasePermits
                | Request::CountDown,
                _,
            ) => Self::Released { left: number(reply) },
            (_, Value::Integer(_)) => Self::Done,
            (_, _) => panic!("{request:?} is answered with {reply}"),
        }
    }
}

/// One request and its reply. Times count from the beginning of the history.
#[derive(Clone, Debug)]
pub struct Call {
    /// Key of the lock.
    pub key: String,
    /// The owner that the client used.
    pub owner: String,
    /// The request of the client.
    pub request: Request,
    /// Time of sending.
    pub sent: Duration,
    /// Time at which the client knew that the call was queued; `None` if it never knew.
    pub queued: Option<Duration>,
    /// Time of the last inspection that showed the call in the queue, if there was one.
    pub in_line_at: Option<Duration>,
    /// Times in which the session of the call may have been away (without a reader), so that other waiters may
    /// have been granted the lock first.
    pub away: Vec<(Duration, Duration)>,
    /// Time of the reply, and the outcome.
    pub answer: Option<(Duration, Outcome)>,
    /// End of the time in which the client believed that it held the lock, by its own clock. Set in grants
    /// and renewals; the latest end in a hold counts.
    pub valid_until: Option<Duration>,
}

impl Call {
    /// Makes a call of the given owner on the given lock, with its request, the time of sending and the reply.
    pub fn new(
        (key, owner): (&str, &str),
        request: Request,
        sent: Duration,
        answer: (Duration, Outcome),
    ) -> Self {
        Self {
            key: key.to_owned(),
            owner: owner.to_owned(),
            request,
            sent,
            queued: None,
            in_line_at: None,
            away: Vec::new(),
            answer: Some(answer),
            valid_until: None,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} of {} sent at {:?}", self.owner, self.request, self.key, self.sent)?;
        match &self.answer {
            Some((at, outcome)) => write!(f, ", {outcome:?} at {at:?}"),
            None => f.write_str(", never answered"),
        }
    }
}

/// The number of a call in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(usize);

/// Records the calls of all threads in the order of sending.
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    calls: Mutex<Vec<Call>>,
    latest: Mutex<Latest>,
}

/// Last call of each owner on each lock, and whether an entry of that owner in the queue certainly belongs to
/// that call. It may belong to the previous call, if that call was broken off.
type Latest = BTreeMap<(String, String), (CallId, bool)>;

impl Default for Recorder {
    fn default() -> Self {
        Self { start: Instant::now(), calls: Mutex::default(), latest: Mutex::default() }
    }
}

impl Recorder {
    /// Starts a history now.
    pub fn new() -> Self {
        Self::default()
    }

    /// The time since the start of the history.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Records a call. Must be called *before* the request is sent.
    pub fn sent(&self, key: &str, owner: &str, request: Request) -> CallId {
        let mut latest = self.latest.lock().unwrap();
        let mut calls = self.calls.lock().unwrap();
        let name = (key.to_owned(), owner.to_owned());
        let broke_off = |call: CallId| matches!(calls[call.0].answer, Some((_, Outcome::Unknown)));
        let clear = !latest.get(&name).is_some_and(|(before, _)| broke_off(*before));
        latest.insert(name, (CallId(calls.len()), clear));
        let sent = self.now();
        let call = Call::new((key, owner), request, sent, (sent, Outcome::Unknown));
        calls.push(Call { answer: None, ..call });
        CallId(calls.len() - 1)
    }

    /// Records that the server showed the owner in the queue when asked at the given time. Does nothing if
    /// the queue entry may belong to an earlier call, or the call has ended.
    pub fn seen_in_queue(&self, key: &str, owner: &str, asked: Duration) {
        let now = self.now();
        let latest = self.latest.lock().unwrap();
        let Some((call, clear)) = latest.get(&(key.to_owned(), owner.to_owned())) else { return };
        let call = &mut self.calls.lock().unwrap()[call.0];
        if *clear && call.answer.is_none() && call.sent < asked {
            call.queued.get_or_insert(now);
            call.in_line_at = call.in_line_at.max(Some(asked));
        }
    }

    /// Records the server's reply that this call is queued.
    pub fn queued(&self, call: CallId) {
        let now = self.now();
        self.calls.lock().unwrap()[call.0].queued.get_or_insert(now);
    }

    /// Records the times in which other waiters may have overtaken this call.
    pub fn passed_over(&self, call: CallId, away: &[(Duration, Duration)]) {
        self.calls.lock().unwrap()[call.0].away.extend_from_slice(away);
    }

    /// Records that a call ends now. If it has a reply, must be called *after* the reply has been received.
    pub fn answered(&self, call: CallId, outcome: Outcome) {
        self.ended(call, outcome, self.now());
    }

    /// Records the outcome of a call, and the time by which it had ended.
    pub fn ended(&self, call: CallId, outcome: Outcome, at: Duration) {
        let call = &mut self.calls.lock().unwrap()[call.0];
        call.answer = Some((at.max(call.sent), outcome));
    }

    /// Sends a request for an exclusive lock, and records the call. The outcome is [`Outcome::Unknown`] if
    /// the connection breaks.
    pub fn call(
        &self,
        connection: &mut Connection,
        key: &str,
        owner: &str,
        request: &Request,
    ) -> Outcome {
        let call = self.sent(key, owner, request.clone());
        connection.send(request.command(key, owner));
        let outcome = match connection.receive(ANSWER) {
            Ok(reply) => Outcome::of(request, &reply),
            Err(ReceiveError::Closed) => Outcome::Unknown,
            Err(why) => panic!("{key} {owner}: {why:?}"),
        };
        self.answered(call, outcome);
        outcome
    }

    /// Records that a call, a later wait of the same owner, takes over the place of an earlier one. The later
    /// call then counts as sent at the time of the earlier one.
    pub fn took_over(&self, call: CallId, earlier: CallId) {
        let mut calls = self.calls.lock().unwrap();
        calls[call.0].sent = calls[earlier.0].sent;
    }

    /// Records that this call may not have reached the server: the queue entry may belong to an earlier call.
    pub fn may_not_have_come(&self, call: CallId) {
        let call = &mut self.calls.lock().unwrap()[call.0];
        (call.queued, call.in_line_at) = (None, None);
    }

    /// Records the end of the time in which the client believes in the hold of this call, a grant or a
    /// renewal.
    pub fn believed(&self, call: CallId, valid_until: Duration) {
        self.calls.lock().unwrap()[call.0].valid_until = Some(valid_until);
    }

    /// The calls recorded so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_entry_may_belong_to_an_earlier_interrupted_wait() {
        let recorder = Recorder::new();
        let wait = || {
            let time = Duration::from_secs(1);
            recorder.sent("k", "a", Request::Acquire { lease: time, timeout: Some(time) })
        };
        for (outcome, seen) in
            [(Outcome::Unknown, true), (Outcome::Refused, false), (Outcome::Refused, true)]
        {
            let call = wait();
            recorder.seen_in_queue("k", "a", recorder.now() + Duration::from_nanos(1));
            recorder.answered(call, outcome);
            assert_eq!(recorder.calls()[call.0].queued.is_some(), seen);
        }
    }
}
