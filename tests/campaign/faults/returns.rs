//! Two failovers in a row, there and back. The first primary must not use what it knew before it became a
//! replica: a grant that is valid at the second failover must not end early.

use super::{Fault, fails_over, fault, is_a};
use crate::round::{Moment, Round};
use crate::topology::{PairWithStrangers, Topology, cast};
use crate::workload::CALM;
use harness::history::{Outcome, Request};
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd, observe};
use std::time::Duration;

pub(super) const FAULTS: &[Fault] = &[
    fault("failover there and back", 2, fails_over, |at, moment, random| {
        at.fail_over(moment, random);
        at.recover();
        at.fail_over(moment, random);
    })
    .replaces(2),
    fault(
        "failover there and back, grants unread",
        3,
        is_a::<PairWithStrangers>,
        |at, moment, random| {
            let _broken = return_to_grants(at, moment, random);
        },
    ),
];

/// Number of locks that are granted before the first failover.
const LOCKS: u64 = 16;

/// Longer than both failovers together.
const LEASE: Duration = Duration::from_secs(60);

/// Number of times that another owner tries to acquire each lock after the second failover, with a pause
/// after each. In the pauses the server's timer could wrongly revoke a grant.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(20);

/// Locks are granted through a session that is never read. After a failover, the same owners acquire them
/// again from the other server, and must keep them over the failover back.
fn return_to_grants(
    at: &dyn Topology,
    moment: &mut Moment<'_>,
    random: &mut Random,
) -> Result<(), ReceiveError> {
    let Some(pair) = cast::<PairWithStrangers>(at) else { return Ok(()) };
    let (round, series) = (moment.round, random.below(1 << 40));
    let locks: Vec<String> =
        (0..LOCKS).map(|number| format!("returns-{series}-{number}")).collect();
    let connect = || {
        let mut connection = pair.connect().ok_or(ReceiveError::Closed)?;
        connection.ask(cmd!["SELECT", CALM]).map(|_| Owners { round, connection })
    };
    let mut first = connect()?;
    let Value::Array(opened) = first.connection.ask(cmd!["SESSION.OPEN", 60_000])? else {
        return Ok(());
    };
    for lock in &locks {
        first.hand_over(lock, &opened[0].text())?;
    }
    at.fail_over(moment, random);
    let mut there = connect()?;
    let wants = Request::Acquire { lease: LEASE, timeout: None };
    let mut held = Vec::new();
    for lock in &locks {
        let outcome = there.call(lock, "next", &wants, cmd!["HOLDS", 1])?;
        held.extend(matches!(outcome, Outcome::Granted { .. }).then_some(lock));
    }
    round.log.add("grants kept over two failovers", held.len() as u64);
    at.fail_over(moment, random);
    let mut back = connect()?;
    let short = Request::Acquire { lease: Duration::from_secs(1), timeout: None };
    for _ in 0..TRIES {
        for lock in &held {
            back.call(lock, "another", &short, Vec::new())?;
        }
        observe::let_pass(&mut back.connection, PAUSE);
    }
    for lock in held {
        back.call(lock, "next", &Request::Renew { lease: LEASE }, Vec::new())?;
        back.call(lock, "next", &Request::Release, Vec::new())?;
    }
    Ok(())
}

/// The owners of the locks of this fault, which share one connection.
struct Owners<'a> {
    round: &'a Round,
    connection: Connection,
}

impl Owners<'_> {
    /// Grants the lock to an owner, whose release hands it to a waiter of a session that is not read.
    fn hand_over(&mut self, lock: &str, session: &str) -> Result<(), ReceiveError> {
        let wants = Request::Acquire { lease: LEASE, timeout: None };
        self.call(lock, "first", &wants, Vec::new())?;
        let waits = Request::Acquire { lease: LEASE, timeout: Some(Duration::ZERO) };
        let wait = self.round.recorder.sent(lock, "next", waits.clone());
        let command = [waits.command(lock, "next"), cmd!["SESSION", session]].concat();
        let reply = self.connection.ask(command);
        // No client will read the outcome of this wait.
        self.round.recorder.answered(wait, Outcome::Unknown);
        reply?;
        self.call(lock, "first", &Request::Release, Vec::new()).map(drop)
    }

    /// Sends a request with further arguments, and records the call.
    fn call(
        &mut self,
        lock: &str,
        owner: &str,
        request: &Request,
        words: Vec<Vec<u8>>,
    ) -> Result<Outcome, ReceiveError> {
        let call = self.round.recorder.sent(lock, owner, request.clone());
        let reply = self.connection.ask([request.command(lock, owner), words].concat());
        let outcome = reply.as_ref().map_or(Outcome::Unknown, |it| Outcome::of(request, it));
        self.round.recorder.answered(call, outcome);
        reply.map(|_| outcome)
    }
}
