//! A table with a keyspace, and the comparison with the model. All due work is done after each step,
//! except in a late world: see `late.rs`.

use std::collections::BTreeMap;

use kvlock_core::{
    Acquire, AcquireReply, Caller, Cause, Change, GrantId, HandOff, Join, KeyRef, Limits, Member,
    Millis, Now, Reading, Release, ReleaseReply, Results, ServedSet, SessionId, Situation, Table,
    Token, UnsentGrant, Via, WaitReply, WaiterId, Want, Work,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::naive::{Answer, Held, Naive, Wait};
use super::ops::{ALL, KEYS, Key, Op, Owner, Set};
use crate::sim::{Asked, Clock, Foreign, Holders, Keyspace, Name, key_ref};

/// A client to answer. Each has its own number and cannot be copied.
#[derive(Debug, PartialEq, Eq)]
pub struct Client(u64);

/// A grant to a client, to be taken back or delivered.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    client: u64,
    pub(super) id: GrantId,
    pub(super) owner: String,
    pub(super) token: Token,
    pub(super) key: Name,
}

#[derive(Debug)]
pub struct World {
    pub table: Table<Client>,
    /// `true` if work is done late and the results are not compared with the model.
    pub is_late: bool,
    pub(super) space: Keyspace,
    pub(super) clock: Clock,
    pub(super) names: Vec<Name>,
    pub(super) model: Naive,
    clients: u64,
    /// The place of each client that was blocked in a wait.
    pub(super) places: BTreeMap<u64, WaiterId>,
    pub(super) session: SessionId,
    pub(super) reading: Reading,
    pub(super) told: Vec<(u64, bool)>,
    pub(super) granted: Vec<Grant>,
    last_token: u64,
}

impl World {
    pub fn new() -> Self {
        let limits = Limits { waiters: 1_000, waiters_per_key: 1_000, ..Limits::UNLIMITED };
        let (clock, mut table) = (Clock::new(), Table::new(limits));
        let now = clock.now();
        let (session, reading) = opened(&mut table, now);
        Self {
            table,
            is_late: false,
            space: Keyspace::default(),
            names: KEYS.map(|key| (0, key.to_owned())).to_vec(),
            model: Naive::new(now.unix().0),
            clock,
            clients: 0,
            places: BTreeMap::new(),
            session,
            reading,
            told: Vec::new(),
            granted: Vec::new(),
            last_token: 0,
        }
    }

    /// Opens a new session with the same name.
    pub(super) fn open_session(&mut self) {
        (self.session, self.reading) = opened(&mut self.table, self.clock.now());
    }

    pub fn step(&mut self, op: &Op) -> TestCaseResult {
        let granted = std::mem::take(&mut self.granted);
        let model_granted = std::mem::take(&mut self.model.granted);
        match op {
            Op::Acquire(owner, set, lease) => {
                let answer = self.acquire(owner, set, *lease)?;
                prop_assert_eq!(answer, self.model.acquire(owner, set, *lease));
            }
            Op::Wait(owner, set, lease, timeout, through) => {
                let client = self.clients;
                let answer = self.ask(owner, set, *lease, *timeout, *through)?;
                let end = timeout.map(|timeout| self.model.now + timeout);
                let (set, lease, through) = (set.clone(), *lease, *through);
                let wait = Wait { owner, set, lease, end, client, through };
                prop_assert_eq!(answer, self.model.wait(wait));
            }
            Op::Release(owner, set) => {
                let answer = self.release(owner, set)?;
                prop_assert_eq!(answer, self.model.release(owner, set));
            }
            Op::Cancel(owner, key) => {
                let out = self.table.cancel(key_ref(&self.names[*key]), owner.as_bytes());
                let answer = if out.is_some() { Answer::Yes } else { Answer::No };
                self.told.extend(out.flatten().map(|client| (client.0, false)));
                let removed = self.model.remove(|wait| {
                    wait.owner == *owner && wait.set.keys.iter().any(|(it, _)| it == key)
                });
                prop_assert_eq!(answer, if removed { Answer::Yes } else { Answer::No });
            }
            Op::Disconnect(nth) => self.disconnect(*nth)?,
            Op::Force(key) => {
                let (reply, change) = self.with(*key, "", |table, at| table.force_release(at));
                self.apply(*key, "", change)?;
                let held = self.model.locks[*key].held != Held::Free;
                prop_assert_eq!(reply, Some(held));
                self.model.locks[*key].held = Held::Free;
            }
            Op::Delete(key) => {
                let now = self.clock.now();
                self.space.befall(&self.names[*key], &Foreign::Del, now, &mut self.table);
                self.model.locks[*key].held = Held::Free;
            }
            Op::Pass(ms) => {
                self.clock.pass(*ms, ms.cast_signed(), &mut self.table);
                self.space.expire(self.clock.now());
                self.model.now = self.clock.now().unix().0;
            }
            Op::TakeBack(nth) => self.take_back(&granted, &model_granted, *nth),
            Op::Delivered(nth) => {
                if let Some(grant) = nth.checked_rem(granted.len()).map(|at| &granted[at]) {
                    let (key, owner) = (key_ref(&grant.key), grant.owner.as_bytes());
                    self.table.delivered(key, grant.id, owner, grant.token);
                }
            }
            Op::Away(away) => self.go(*away),
            Op::Close | Op::Work(_) => {}
        }
        self.work()?;
        self.model.settle();
        self.compare()
    }

    pub(super) fn go(&mut self, away: bool) {
        let now = self.clock.now();
        if away == self.model.away {
            return;
        }
        if away {
            assert_eq!(self.table.reader_gone(self.reading, now), None);
        } else {
            let begun = self.table.begin_reading(self.session, Some(1), 0, now);
            self.reading = begun.expect("nothing to ack").0.expect("it is open");
        }
        self.model.away = away;
    }

    fn disconnect(&mut self, nth: usize) -> TestCaseResult {
        let waits = self.model.waits.iter().filter(|wait| !wait.through);
        let blocked: Vec<_> = waits.map(|wait| wait.client).collect();
        let Some(at) = nth.checked_rem(blocked.len()) else { return Ok(()) };
        let out = self.table.disconnected(self.places[&blocked[at]]);
        prop_assert_eq!(&out, &Some(Client(blocked[at])));
        self.told.extend(out.map(|client| (client.0, false)));
        self.model.remove(|wait| !wait.through && wait.client == blocked[at]);
        Ok(())
    }

    fn take_back(&mut self, granted: &[Grant], by_model: &[(u64, Owner, Vec<Key>)], nth: usize) {
        let Some(at) = nth.checked_rem(granted.len()) else { return };
        let Grant { client, id, owner, token, key } = granted[at].clone();
        let key = key_ref(&key).to_lock_key();
        let owner = owner.as_bytes().into();
        self.table.queue_take_back(UnsentGrant { key, owner, id, token, permits: 0 });
        let of_model = by_model.iter().find(|(it, ..)| *it == client).expect("it knows the grant");
        of_model.2.iter().for_each(|key| self.model.take_back(of_model.1, *key));
    }

    pub(super) fn with<T>(
        &mut self,
        key: Key,
        owner: &str,
        ask: impl FnOnce(&mut Table<Client>, &Situation<'_>) -> T,
    ) -> T {
        let now = self.clock.now();
        let asked = Asked { owner: owner.as_bytes(), living_at: Some(now.unix()) };
        let holders = Holders { space: &self.space, now: now.unix() };
        let at = self.space.situation(&self.names[key], asked, now, Some(0));
        ask(&mut self.table, &Situation { results: Results::among(&holders), ..at })
    }

    pub(super) fn members<T>(
        &mut self,
        keys: &[(Key, bool)],
        owner: &str,
        ask: impl FnOnce(&mut Table<Client>, &[Member<'_>]) -> T,
    ) -> T {
        let now = self.clock.now();
        let asked = Asked { owner: owner.as_bytes(), living_at: Some(now.unix()) };
        let holders = Holders { space: &self.space, now: now.unix() };
        let members = keys.iter().map(|(key, under)| {
            let at = self.space.situation(&self.names[*key], asked, now, Some(0));
            let at = Situation { results: Results::among(&holders), ..at };
            Member { at, under: *under }
        });
        let members: Vec<_> = members.collect();
        ask(&mut self.table, &members)
    }

    pub(super) fn acquire(
        &mut self,
        owner: Owner,
        set: &Set,
        lease: u64,
    ) -> Result<Answer, TestCaseError> {
        let request = request(owner, set, lease);
        if let [(key, _)] = set.keys[..] {
            let (reply, change) = self.with(key, owner, |table, at| table.acquire(at, &request));
            self.apply(key, owner, change)?;
            return Ok(answer(reply));
        }
        let (reply, changes) =
            self.members(&set.keys, owner, |table, at| table.acquire_set(at, &request, None));
        self.apply_all(&set.keys, owner, changes)?;
        Ok(answer(reply))
    }

    /// Requests a wait from the table.
    pub(super) fn ask(
        &mut self,
        owner: Owner,
        set: &Set,
        lease: u64,
        timeout: Option<u64>,
        through: bool,
    ) -> Result<Answer, TestCaseError> {
        let client = self.clients;
        self.clients += 1;
        let request = request(owner, set, lease);
        let caller = if through { Caller::Session(self.session) } else { None.into() };
        let single = match set.keys[..] {
            [(key, _)] => Some(key),
            _ => None,
        };
        let (reply, changes) = match single {
            Some(key) => {
                let asked = caller.clone();
                let (reply, change) =
                    self.with(key, owner, |table, at| table.wait(at, &request, asked));
                (reply, vec![change])
            }
            None => self
                .members(&set.keys, owner, |table, at| table.wait_set(at, &request, &caller, None)),
        };
        self.apply_all(&set.keys, owner, changes)?;
        Ok(match reply {
            WaitReply::Now(reply) => answer(reply),
            WaitReply::Block => {
                let join = Join {
                    owner: request.owner,
                    want: request.want,
                    lease: request.lease,
                    timeout: timeout.map(Millis),
                };
                let via =
                    if through { Via::Session(self.session) } else { Via::Client(Client(client)) };
                let (place, replaced) = match single {
                    Some(key) => {
                        let (place, out) =
                            self.with(key, owner, |table, at| table.enqueue(at, &join, via));
                        (place, Vec::from_iter(out))
                    }
                    None => self
                        .members(&set.keys, owner, |table, at| {
                            table.enqueue_set(at, &join, request.holds, via, &caller)
                        })
                        .expect("a set has a key"),
                };
                self.told.extend(replaced.into_iter().map(|client| (client.0, false)));
                if !through {
                    self.places.insert(client, place);
                }
                Answer::Blocked
            }
            WaitReply::Deadlock(links) => {
                prop_assert_eq!(links.last().map(|link| &*link.owner), Some(owner.as_bytes()));
                Answer::Deadlock
            }
            WaitReply::QueueFull(_) | WaitReply::Draining => panic!("there is room"),
        })
    }

    pub(super) fn release(&mut self, owner: Owner, set: &Set) -> Result<Answer, TestCaseError> {
        let want = if set.shared { Want::Shared } else { Want::Exclusive };
        let (reply, changes) = self.members(&set.keys, owner, |table, all| {
            table.release_set(all, owner.as_bytes(), want, Release::One)
        });
        self.apply_all(&set.keys, owner, changes)?;
        self.serve_sets()?;
        Ok(match reply {
            ReleaseReply::Left(left) => Answer::Left(left),
            ReleaseReply::NotHeld | ReleaseReply::Mismatch | ReleaseReply::NotALock => Answer::Nil,
        })
    }

    fn apply_all(
        &mut self,
        keys: &[(Key, bool)],
        owner: &str,
        changes: Vec<Change<Client>>,
    ) -> TestCaseResult {
        let before = self.last_token;
        for ((key, _), change) in keys.iter().zip(changes) {
            self.last_token = before;
            self.apply(*key, owner, change)?;
        }
        Ok(())
    }

    pub(super) fn apply(
        &mut self,
        key: Key,
        caller: &str,
        change: Change<Client>,
    ) -> TestCaseResult {
        let now = self.clock.now();
        self.space.apply(&self.names[key], caller, now, &change);
        if let Some(token) = change.issued() {
            prop_assert!(token.value() > self.last_token, "I6");
            self.last_token = token.value();
        }
        match change {
            Change::HandOff(hand_off) => self.note(key, hand_off),
            Change::Share(sharers) => {
                sharers.joined.into_iter().for_each(|hand_off| self.note(key, hand_off));
            }
            Change::Leave => self.look(key, Cause::Release)?,
            Change::None
            | Change::Take { .. }
            | Change::Update { .. }
            | Change::Beside { .. }
            | Change::Free => {}
            Change::GiveWay => panic!("there is no Redisson"),
        }
        Ok(())
    }

    fn note(&mut self, key: Key, hand_off: HandOff<Client>) {
        let HandOff { id, owner, token, client, .. } = hand_off;
        let Some(client) = client else { return };
        self.told.push((client.0, true));
        let owner = String::from_utf8_lossy(&owner).into_owned();
        let key = self.names[key].clone();
        self.granted.push(Grant { client: client.0, id, owner, token, key });
    }

    fn look(&mut self, key: Key, cause: Cause) -> TestCaseResult {
        self.table.pass_over(key_ref(&self.names[key]));
        let change = self.with(key, "", |table, at| table.look(at, cause));
        self.apply(key, "", change)
    }

    pub(super) fn key_of(&self, name: KeyRef<'_>) -> Key {
        self.names.iter().position(|it| key_ref(it) == name).expect("a key of ours")
    }

    /// Serves the waits for sets whose turn may have come, as the module does after a command.
    fn serve_sets(&mut self) -> TestCaseResult {
        while let Some(waiter) = self.table.next_set(Some(0)) {
            self.serve_set(waiter)?;
        }
        Ok(())
    }

    fn serve_set(&mut self, waiter: WaiterId) -> TestCaseResult {
        let Some(owner) = self.table.owner_of_set(waiter) else { return Ok(()) };
        let owner = String::from_utf8_lossy(&owner).into_owned();
        let set = self.table.set_of(waiter);
        let keys: Vec<_> =
            set.iter().map(|key| (self.key_of(key.key.borrow()), key.under)).collect();
        for (key, _) in &keys {
            self.table.pass_over(key_ref(&self.names[*key]));
        }
        let served = self.members(&keys, &owner, |table, members| table.serve_set(waiter, members));
        match served {
            ServedSet::HeldUp => {}
            ServedSet::Granted(granted) => {
                self.apply_all(&keys, &owner, granted.changes)?;
                self.note(keys[0].0, granted.hand_off);
            }
            ServedSet::Dismissed(client, _) => {
                self.told.extend(client.map(|client| (client.0, false)));
            }
        }
        Ok(())
    }

    /// Does all due work.
    fn work(&mut self) -> TestCaseResult {
        // The model ends waits first. In the module, timeouts and looks come in any order.
        while let Some(out) = self.table.time_out_one(self.clock.now()) {
            self.told.extend(out.map(|client| (client.0, false)));
        }
        prop_assert!(self.work_some(ALL)?, "work has no end");
        Ok(())
    }

    /// Does up to `most` pieces of work. Returns `true` if it found no more.
    pub(super) fn work_some(&mut self, most: usize) -> Result<bool, TestCaseError> {
        for _ in 0..most {
            let now = self.clock.now();
            let Some(work) = self.table.next_work(now, true) else {
                prop_assert!(self.table.next_due(now) != Some(Millis(0)), "work that is none");
                return Ok(true);
            };
            match work {
                Work::TimedOut(client) => self.told.push((client.0, false)),
                Work::Look(key, cause) => self.look(self.key_of(key.borrow()), cause)?,
                Work::Set(waiter) => self.serve_set(waiter)?,
                Work::TakeBack(grant) => {
                    let key = self.key_of(grant.key.borrow());
                    let owner = String::from_utf8_lossy(&grant.owner).into_owned();
                    let change = self.with(key, &owner, |table, at| {
                        table.take_back(at, grant.id, &grant.owner, grant.token)
                    });
                    self.apply(key, &owner, change)?;
                }
                Work::Done => {}
                Work::Opened(_)
                | Work::Drained(_)
                | Work::Forgotten(_)
                | Work::Read(..)
                | Work::Ring(..)
                | Work::Bound(_)
                | Work::Results(_) => panic!("nothing needs {work:?}"),
            }
        }
        Ok(false)
    }

    fn compare(&mut self) -> TestCaseResult {
        prop_assert_eq!(self.table.check(), Ok(()));
        let mut told = std::mem::take(&mut self.told);
        let mut expected = std::mem::take(&mut self.model.told);
        told.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(told, expected);
        let through = self.model.waits.iter().filter(|wait| wait.through).count();
        prop_assert_eq!(self.table.session_waits(), (through, self.model.outcomes));
        for (key, called) in KEYS.iter().enumerate() {
            let name = key_ref(&self.names[key]);
            prop_assert_eq!(&self.held(key), &self.model.locks[key].held, "{:?}", called);
            let waits = self.model.waits.iter();
            let waits = waits.filter(|wait| wait.set.keys.iter().any(|(it, _)| *it == key));
            prop_assert_eq!(self.table.waiters_of(name), waits.clone().count());
            let here = waits.filter(|wait| !(wait.through && self.model.away));
            let expected: Vec<_> = here.map(|wait| wait.owner.as_bytes().to_vec()).collect();
            let line = self.table.queue_of(name).map(|waiter| waiter.owner.to_vec());
            prop_assert_eq!(Vec::from_iter(line), expected, "I3 of {:?}", called);
        }
        Ok(())
    }

    /// Returns the unexpired holders of a lock, in the model's form.
    fn held(&self, key: Key) -> Held {
        use kvlock_core::Observed;
        let named = |name: &[u8]| {
            let all = ["ann", "bob", "carol", "dave"];
            all.into_iter().find(|it| it.as_bytes() == name).expect("an owner of ours")
        };
        let now = self.clock.now().unix();
        let asked = Asked { owner: b"", living_at: Some(now) };
        match self.space.observe(&self.names[key], asked) {
            Observed::Held(holding) => Held::Alone {
                owner: named(holding.owner),
                holds: holding.holds,
                shared: holding.shared,
            },
            Observed::Shared(_) => {
                let shares = self.space.shares(&self.names[key]).into_iter();
                let living = shares.filter(|(_, share)| share.1 >= now.0);
                Held::Shared(BTreeMap::from_iter(
                    living.map(|(owner, share)| (named(owner.as_bytes()), share)),
                ))
            }
            Observed::Free { .. } | Observed::NotALock { .. } => Held::Free,
        }
    }
}

fn opened(table: &mut Table<Client>, now: Now) -> (SessionId, Reading) {
    let opened = table.open_session([b's'; 32], b"user", Millis(1 << 40), now);
    let session = opened.expect("there is room");
    let (reading, _) = table.begin_reading(session, Some(1), 0, now).expect("nothing to ack");
    (session, reading.expect("it is open"))
}

fn request(owner: Owner, set: &Set, lease: u64) -> Acquire<'static> {
    let want = if set.shared { Want::Shared } else { Want::Exclusive };
    Acquire { owner: owner.as_bytes(), want, lease: Millis(lease), holds: None }
}

fn answer(reply: AcquireReply) -> Answer {
    match reply {
        AcquireReply::Granted { holds, .. } => Answer::Granted(holds),
        AcquireReply::Refused => Answer::Nil,
        AcquireReply::Upgrade => Answer::Upgrade,
        AcquireReply::Mismatch
        | AcquireReply::TooManyHolds
        | AcquireReply::NotALock
        | AcquireReply::TryAgain => panic!("{reply:?}"),
    }
}
