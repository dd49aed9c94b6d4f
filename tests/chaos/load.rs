//! What the clients do: take a lock in every way there is, use it, and give it back in every way.

use crate::client::{Client, Ending};
use crate::{Lock, Round, WILD};
use harness::history::{CallId, Outcome, Request};
use harness::random::Random;
use harness::{Value, cmd};
use std::time::Duration;

/// Leases that end soon, so that many do.
const LEASES_MS: [u64; 4] = [30, 60, 120, 300];

/// A lease that outlasts the patience of the checker: whoever holds it must be told or go.
const LONG_MS: u64 = 6_000;

const TIMEOUTS_MS: [u64; 6] = [20, 60, 150, 400, 15_000, 0];

/// How long the server may take to queue a command of a transaction.
const SOON: Duration = Duration::from_secs(10);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One client's work until the round is over.
pub(crate) fn work(round: &Round, number: u64, random: Random) {
    let mut worker = Worker {
        client: Client::new(round),
        side: Client::new(round),
        random,
        key: String::new(),
        owner: String::new(),
    };
    let mut turn = 0_u64;
    while !round.is_over() {
        turn += 1;
        worker.go_to(worker.random.clone().pick(&round.locks));
        worker.random.below(u64::MAX);
        // A new owner each time: what is unknown of an old one does not blur the next.
        worker.owner = format!("{number}:{turn}");
        worker.turn();
    }
}

struct Worker<'a> {
    client: Client<'a>,
    /// For what is done while the other connection is blocked.
    side: Client<'a>,
    random: Random,
    key: String,
    owner: String,
}

impl Worker<'_> {
    fn go_to(&mut self, lock: &Lock) {
        self.key.clone_from(&lock.key);
        (self.client.db, self.side.db) = (lock.db, lock.db);
    }

    fn turn(&mut self) {
        match self.random.below(100) {
            0..=3 => self.meddle(),
            4..=5 if self.client.db == WILD => self.force_release(),
            6..=8 if self.client.db == WILD => self.delete_and_acquire(),
            _ => {
                let long = self.random.percent(if self.client.db == WILD { 10 } else { 20 });
                let lease = if long { LONG_MS } else { *self.random.pick(&LEASES_MS) };
                let ending = self.get(lease);
                match ending {
                    Ending::Done(_) => self.use_it(lease),
                    // It may have been granted: nobody must have to wait for the end of that.
                    Ending::Unknown if lease == LONG_MS => self.clean_up(),
                    Ending::Failed => self.client.reconnect(),
                    Ending::Refused | Ending::Unknown => {}
                }
            }
        }
    }

    fn get(&mut self, lease: u64) -> Ending {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let holds = if self.random.percent(30) { cmd!["HOLDS", 1] } else { Vec::new() };
        if self.random.percent(35) {
            let request = Request::Acquire { lease: ms(lease), timeout: None };
            let command = [cmd!["LOCK.ACQUIRE", key, owner, lease], holds].concat();
            return self.client.call(&key, &owner, &request, &command);
        }
        let timeout = *self.random.pick(&TIMEOUTS_MS);
        let request = Request::Acquire { lease: ms(lease), timeout: Some(ms(timeout)) };
        let command = [cmd!["LOCK.WAIT", key, owner, lease, timeout], holds].concat();
        let call = self.client.begin(&key, &owner, request.clone(), &command);
        let in_line = self.random.percent(60) && self.look_for_place(call);
        // What nobody knows of excuses much: not where the lease is long.
        let short = lease != LONG_MS;
        match self.random.below(100) {
            0..=9 => self.cancel(call, &request),
            10..=16 if short => {
                self.client.reset();
                self.client.round.tally.fault("connection reset by a waiter");
                self.client.round.recorder.answered(call, Outcome::Unknown);
                Ending::Unknown
            }
            17..=24 if short && in_line => self.take_place_over(call, &request, &command),
            // A waiter whose connection the server closes without a word has nothing.
            _ => self.client.finish(call, &request, Outcome::Failed),
        }
    }

    /// Notes that a waiter is in line, if the server says so.
    fn look_for_place(&mut self, call: CallId) -> bool {
        let info = self.side.ask(cmd!["LOCK.INFO", self.key, "WAITERS", 1000]);
        let Value::Array(_) = info else { return false };
        let mut queue = info.field("queue").elements().iter();
        let in_line = queue.any(|waiter| waiter[0].text() == self.owner);
        if in_line {
            self.client.round.recorder.queued(call);
        }
        in_line
    }

    fn cancel(&mut self, call: CallId, request: &Request) -> Ending {
        let cancelled = self.side.ask(cmd!["LOCK.CANCEL", self.key, self.owner]);
        let ending = self.client.finish(call, request, Outcome::Failed);
        // Without an answer to the cancel nobody knows which of the two it was.
        if ending == Ending::Refused && cancelled != Value::Integer(0) {
            self.client.round.recorder.answered(call, Outcome::Withdrawn);
        }
        ending
    }

    /// The same owner waits again elsewhere, as after a reconnect.
    fn take_place_over(&mut self, first: CallId, request: &Request, command: &[Vec<u8>]) -> Ending {
        let second = self.side.begin(&self.key, &self.owner, request.clone(), command);
        self.client.round.recorder.took_over(second, first);
        // What the first was given without hearing of it, the second may find.
        let before = self.client.finish(first, request, Outcome::Unknown);
        let after = self.side.finish(second, request, Outcome::Failed);
        if let Ending::Done(_) = before { before } else { after }
    }

    /// Renews, re-enters, gives a part back, and repeats some of it; then gives it back or not.
    fn use_it(&mut self, lease: u64) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let mut holds = 1_u64;
        for _ in 0..self.random.below(4) {
            let other = *self.random.pick(&LEASES_MS);
            let again = Request::Acquire { lease: ms(other), timeout: None };
            let step = self.random.below(3);
            let (request, command, then) = match step {
                0 => (
                    Request::Renew { lease: ms(lease) },
                    cmd!["LOCK.RENEW", key, owner, lease],
                    holds,
                ),
                1 if holds > 1 => (
                    Request::Release,
                    cmd!["LOCK.RELEASE", key, owner, "HOLDS", holds - 1],
                    holds - 1,
                ),
                _ => {
                    (again, cmd!["LOCK.ACQUIRE", key, owner, other, "HOLDS", holds + 1], holds + 1)
                }
            };
            // What is sent again, because the answer was lost say, changes nothing.
            for _ in 0..=u64::from(self.random.percent(30)) {
                match self.client.call(&key, &owner, &request, &command) {
                    Ending::Done(_) => holds = then,
                    Ending::Refused => return,
                    Ending::Failed | Ending::Unknown => return self.clean_up(),
                }
            }
        }
        if lease == LONG_MS || self.random.percent(85) {
            let command = cmd!["LOCK.RELEASE", key, owner, "ALL"];
            let ending = if self.random.percent(15) {
                self.release_to_the_dead(&command)
            } else {
                self.client.call(&key, &owner, &Request::Release, &command)
            };
            if matches!(ending, Ending::Failed | Ending::Unknown) {
                self.clean_up();
            }
        }
    }

    /// Hands the lock to the first waiter and kills that one before it can hear of it.
    fn release_to_the_dead(&mut self, release: &[Vec<u8>]) -> Ending {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let info = self.side.ask(cmd!["LOCK.INFO", key, "WAITERS", 1]);
        let head = matches!(info, Value::Array(_)).then(|| info.field("queue").elements().first());
        let Some(id) = head.flatten().map(|head| head[2].integer()) else {
            return self.client.call(&key, &owner, &Request::Release, release);
        };
        // A transaction: both are done in one turn of the server, whatever the network does.
        let call = self.client.begin(&key, &owner, Request::Release, &[b"MULTI".to_vec()]);
        self.client.connection().send(release);
        self.client.connection().send(cmd!["CLIENT", "KILL", "ID", id]);
        self.client.connection().send(cmd!["EXEC"]);
        for _ in 0..3 {
            if self.client.connection().receive(SOON).is_err() {
                self.client.reconnect();
                self.client.round.recorder.answered(call, Outcome::Unknown);
                return Ending::Unknown;
            }
        }
        self.client.round.tally.fault("CLIENT KILL in the turn of a hand-off");
        self.client.finish_as(call, &Request::Release, Outcome::Unknown, |replies| match replies {
            Value::Array(replies) => replies[0].clone(),
            // The transaction was refused as a whole.
            other => other,
        })
    }

    /// Releases what it may still hold, until the server says that it is done.
    fn clean_up(&mut self) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        loop {
            self.client.reconnect();
            let command = cmd!["LOCK.RELEASE", key, owner, "ALL"];
            match self.client.call(&key, &owner, &Request::Release, &command) {
                Ending::Done(_) | Ending::Refused => return,
                Ending::Failed | Ending::Unknown => std::thread::yield_now(),
            }
        }
    }

    /// Touches a lock that it has nothing to do with.
    fn meddle(&mut self) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let renew = Request::Renew { lease: ms(30) };
        let command = cmd!["LOCK.RENEW", key, owner, 30];
        self.client.call(&key, &owner, &renew, &command);
        let command = cmd!["LOCK.RELEASE", key, owner];
        self.client.call(&key, &owner, &Request::Release, &command);
    }

    fn force_release(&mut self) {
        let command = cmd!["LOCK.FORCERELEASE", self.key];
        self.client.call(&self.key, &self.owner, &Request::Break, &command);
    }

    /// Deletes the lock and tries to get it before those who wait: both in one turn of the server.
    fn delete_and_acquire(&mut self) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let lease = *self.random.pick(&LEASES_MS);
        let request = Request::Acquire { lease: ms(lease), timeout: None };
        let (deletion, command) = (cmd!["DEL", key], cmd!["LOCK.ACQUIRE", key, owner, lease]);
        let breaking = self.client.begin(&key, "stranger", Request::Break, &deletion);
        let acquiring = self.client.begin(&key, &owner, request.clone(), &command);
        let broken = self.client.finish(breaking, &Request::Break, Outcome::Unknown);
        if broken == Ending::Unknown {
            self.client.round.recorder.answered(acquiring, Outcome::Unknown);
            return;
        }
        if let Ending::Done(_) = self.client.finish(acquiring, &request, Outcome::Unknown) {
            self.use_it(lease);
        }
    }
}
