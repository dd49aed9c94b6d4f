//! A table with sessions, the model, and the comparison of both.

use kvlock_core::{
    Acquire, AcquireReply, Change, Ending, GrantId, Join, KeyRef, Limits, Millis, Observed,
    Outcome, Reading, SessionId, SessionName, Situation, Table, UnsentGrant, Via, WaitReply,
    WaiterId, Want,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::BTreeMap;

use super::naive::{Delivered, Naive, What};
use super::ops::{KEYS, OWNERS, SESSIONS};
use crate::sim::{Asked, Clock, Keyspace, Name, key_ref};

/// A lease that never ends in a walk.
const LEASE: Millis = Millis(1_000_000_000);

/// A client to answer. It cannot be copied, so it is answered at most once.
#[derive(Debug)]
pub struct Client(pub u64);

#[derive(Debug)]
pub struct World {
    pub table: Table<Client>,
    space: Keyspace,
    pub clock: Clock,
    names: Vec<Name>,
    pub model: Naive,
    pub clients: u64,
    /// The waiter of each blocked client.
    pub blocked: BTreeMap<u64, WaiterId>,
    /// The call of each blocked reader.
    pub reading: BTreeMap<u64, Reading>,
    /// Counts of rare cases, in order: a user reads a session that it does not have, a refused
    /// acknowledgement, a session read again after it was away, outcomes left unread, a lost reply,
    /// a closed connection.
    pub seen: [u64; 6],
}

impl World {
    pub fn new() -> Self {
        let clock = Clock::new();
        let model = Naive { now: clock.now().mono.0, ..Naive::default() };
        Self {
            table: Table::new(Limits::UNLIMITED),
            space: Keyspace::default(),
            clock,
            names: (0..KEYS).map(|key| (0, format!("k{key}"))).collect(),
            model,
            clients: 0,
            blocked: BTreeMap::new(),
            reading: BTreeMap::new(),
            seen: [0; 6],
        }
    }

    pub fn next_client(&mut self) -> u64 {
        self.clients += 1;
        self.clients
    }

    pub fn key(&self, key: usize) -> KeyRef<'_> {
        key_ref(&self.names[key])
    }

    pub fn with<T>(
        &mut self,
        key: usize,
        owner: &str,
        ask: impl FnOnce(&mut Table<Client>, &Situation<'_>) -> T,
    ) -> T {
        let asked = Asked { owner: owner.as_bytes(), living_at: None };
        let at = self.space.situation(&self.names[key], asked, self.clock.now(), Some(0));
        ask(&mut self.table, &at)
    }

    /// Acquires a lock in the table. Returns whether it was granted.
    pub fn acquire(&mut self, key: usize, owner: &'static str) -> Result<bool, TestCaseError> {
        let (reply, change) =
            self.with(key, owner, |table, at| table.acquire(at, &request_of(owner)));
        self.apply(key, owner, change)?;
        Ok(matches!(reply, AcquireReply::Granted { .. }))
    }

    /// Starts a wait in the table. Returns whether it was answered at once.
    pub fn wait(
        &mut self,
        key: usize,
        owner: &'static str,
        through: Option<SessionId>,
        timeout: Option<u64>,
        client: u64,
    ) -> Result<bool, TestCaseError> {
        let request = request_of(owner);
        let want = request.want;
        let (reply, change) = self.with(key, owner, |table, at| table.wait(at, &request, through));
        match reply {
            WaitReply::Now(_) => {
                self.apply(key, owner, change)?;
                return Ok(true);
            }
            WaitReply::Block => {}
            WaitReply::QueueFull(_) | WaitReply::Draining | WaitReply::Deadlock(_) => {
                prop_assert!(false, "{reply:?}");
            }
        }
        let join =
            Join { owner: owner.as_bytes(), want, lease: LEASE, timeout: timeout.map(Millis) };
        let via = through.map_or_else(|| Via::Client(Client(client)), Via::Session);
        let (id, replaced) = self.with(key, owner, |table, at| table.enqueue(at, &join, via));
        if through.is_none() {
            self.blocked.insert(client, id);
        }
        self.tell(replaced, What::Replaced)?;
        Ok(false)
    }

    /// Records that a client was answered. The model must have expected it.
    pub fn tell(&mut self, client: Option<Client>, what: What) -> TestCaseResult {
        if let Some(Client(client)) = client {
            self.blocked.remove(&client);
            let place = self.model.told.iter().position(|told| *told == (client, what));
            prop_assert!(
                place.is_some(),
                "client {client} is told {what:?}: {:?}",
                self.model.told
            );
            self.model.told.swap_remove(place.unwrap());
        }
        Ok(())
    }

    pub fn apply(
        &mut self,
        key: usize,
        caller: &'static str,
        change: Change<Client>,
    ) -> TestCaseResult {
        self.space.apply(&self.names[key], caller, self.clock.now(), &change);
        if let Change::HandOff(hand_off) = change
            && let Some(client) = hand_off.client
        {
            let owner = String::from_utf8_lossy(&hand_off.owner).into_owned();
            self.deliver(key, hand_off.id, &owner);
            return self.tell(Some(client), What::Granted);
        }
        Ok(())
    }

    /// Records that the reply to a blocked client was written, which happens at once here.
    fn deliver(&mut self, key: usize, id: GrantId, owner: &str) {
        let at = self.space.observe(&self.names[key], Asked::NOBODY);
        if let Observed::Held(holding) = at
            && let Some(token) = holding.token
        {
            self.table.delivered(key_ref(&self.names[key]), id, owner.as_bytes(), token);
        }
    }

    /// Takes all looks that are due, as the timer does.
    pub fn look(&mut self) -> TestCaseResult {
        while let Some((lock, cause)) = self.table.next_look(self.clock.now()) {
            let key = self.names.iter().position(|name| name.1.as_bytes() == &*lock.name).unwrap();
            self.table.pass_over(lock.borrow());
            let change = self.with(key, "", |table, at| table.look(at, cause));
            self.apply(key, "", change)?;
        }
        Ok(())
    }

    pub fn take_back(&mut self, unsent: &UnsentGrant) -> TestCaseResult {
        let owner = OWNERS.into_iter().find(|owner| owner.as_bytes() == &*unsent.owner).unwrap();
        let key = self.names.iter().position(|it| it.1.as_bytes() == &*unsent.key.name).unwrap();
        let (id, token) = (unsent.id, unsent.token);
        let change =
            self.with(key, owner, |table, at| table.take_back(at, id, owner.as_bytes(), token));
        self.apply(key, owner, change)
    }

    /// Converts an outcome of the table to the model's form.
    pub fn told(&self, outcome: &Outcome) -> Delivered {
        let key = self.names.iter().position(|it| it.1.as_bytes() == &*outcome.key.name).unwrap();
        let owner = OWNERS.iter().position(|it| it.as_bytes() == &*outcome.owner).unwrap();
        let what = match outcome.ending {
            Ending::Granted(_) => What::Granted,
            Ending::TimedOut => What::TimedOut,
            Ending::Cancelled => What::Cancelled,
            Ending::Replaced => What::Replaced,
            Ending::Open | Ending::Ready | Ending::Dismissed(_) | Ending::Changed(_) => {
                unreachable!("nobody does that")
            }
        };
        Delivered(key, owner, what)
    }

    /// Compares everything that can be seen from outside.
    pub fn compare(&mut self) -> TestCaseResult {
        prop_assert_eq!(self.table.check(), Ok(()));
        prop_assert!(self.model.told.is_empty(), "{:?} were not told", self.model.told);
        for key in 0..KEYS {
            let seen = self.space.observe(&self.names[key], Asked::NOBODY);
            let holder = match &seen {
                Observed::Held(holding) => Some(holding.owner.to_vec()),
                Observed::Free { .. } | Observed::Shared(_) | Observed::NotALock { .. } => None,
            };
            let expected = self.model.holders[key].map(|owner| OWNERS[owner].as_bytes().to_vec());
            prop_assert_eq!(holder, expected, "holder of {}", key);
            prop_assert_eq!(self.table.waiters_of(self.key(key)), self.model.queues[key].len());
        }
        for number in 0..SESSIONS {
            let Some(session) = &self.model.sessions[number] else { continue };
            let users = [b"zed", b"zoe"].map(|user| self.table.session(&name(number), user));
            let other = users[1 - session.user];
            prop_assert_eq!(other, None, "another user's session");
            let view = users[session.user].and_then(|id| self.table.view_session(id));
            prop_assert!(view.is_some(), "session {} is there", number);
            let view = view.unwrap();
            prop_assert_eq!(view.away, session.away);
            prop_assert_eq!(view.reader.map(|client| client.0), session.reader.map(|it| it.0));
            prop_assert_eq!(view.outcomes, session.posted.len() - session.acked);
        }
        Ok(())
    }
}

/// Returns a request for one exclusive hold.
fn request_of(owner: &str) -> Acquire<'_> {
    let (owner, want) = (owner.as_bytes(), Want::Exclusive);
    Acquire { owner, want, lease: LEASE, holds: Some(1) }
}

pub fn name(number: usize) -> SessionName {
    let mut name = [b'0'; 32];
    name[31] += u8::try_from(number).unwrap();
    name
}

pub fn user(number: usize) -> &'static [u8] {
    [b"zed", b"zoe"][number]
}
