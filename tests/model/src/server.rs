//! A server: what its keyspace says of the lock, and who waits. What a request does is decided by
//! the core.

use kvlock_core::{
    Acquire, AcquireReply, Cause, Change, Holding, Join, KeyRef, Limits, Millis, MonoMillis, Now,
    Observed, Release, ReleaseReply, RenewReply, Situation, Table, Token, UnixMillis, WaitReply,
    Want,
};

pub(crate) const KEY: KeyRef<'static> = KeyRef::lock(0, b"k");
pub(crate) const OWNERS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
const LIMITS: Limits = Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED };

/// How far ahead tokens are reserved.
const RESERVED: u64 = 60_000;

/// Both clocks at that tick.
pub(crate) fn at(tick: u8) -> Now {
    Now { unix_us: u64::from(tick) * 1000, mono: MonoMillis(tick.into()) }
}

/// Held alone, and once.
pub(crate) fn holding(owner: usize, token: u64, until: u8) -> Holding<'static> {
    Holding {
        owner: OWNERS[owner],
        holds: 1,
        shared: 0,
        token: Token::from_stored(token),
        until: Some(UnixMillis(until.into())),
    }
}

/// What a key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    /// Who holds it.
    pub(crate) owner: usize,
    /// The token of the grant.
    pub(crate) token: u64,
    /// The last tick of the lease.
    pub(crate) until: u8,
}

/// Somebody in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiter {
    /// Who.
    pub(crate) client: usize,
    /// The lease it asks for.
    pub(crate) lease: u8,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// Whether it runs.
    pub(crate) alive: bool,
    /// Whether it takes itself for the primary.
    pub(crate) primary: bool,
    /// What its keyspace says.
    pub(crate) lock: Option<Lock>,
    /// Who waits.
    pub(crate) queue: Vec<Waiter>,
    /// Copies on their way to it.
    pub(crate) pending: Vec<Option<Lock>>,
    /// How many copies it never got.
    pub(crate) missed: usize,
    /// The last tick at which it grants nothing.
    pub(crate) quarantine_until: u8,
    /// When it lost its replicas.
    pub(crate) cut_at: Option<u8>,
    /// Tokens up to this one may have been issued.
    pub(crate) floor: u64,
}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// The client has the lock, or has it still.
    Granted(u64),
    /// It is in line.
    Queued,
    /// It has not.
    Refused,
}

impl Server {
    pub(crate) fn new(primary: bool) -> Self {
        Self {
            alive: true,
            primary,
            lock: None,
            queue: Vec::new(),
            pending: Vec::new(),
            missed: 0,
            quarantine_until: 0,
            cut_at: None,
            floor: 0,
        }
    }

    /// It becomes the primary.
    pub(crate) fn promote(&mut self, reserved: bool) {
        (self.primary, self.pending, self.missed) = (true, Vec::new(), 0);
        self.floor = self.lock.map_or(0, |lock| lock.token);
        if reserved {
            self.floor += RESERVED;
        }
    }

    /// Whether it grants what is free.
    pub(crate) fn grants(&self, now: u8) -> bool {
        self.quarantine_until == 0 || now > self.quarantine_until
    }

    /// Somebody asks for the lock, ready to wait.
    pub(crate) fn wait(&mut self, now: u8, client: usize, lease: [u8; 2]) -> Outcome {
        let [lease, offered] = lease.map(|lease| Millis(lease.into()));
        let request = Acquire { owner: OWNERS[client], want: Want::Exclusive, lease, holds: None };
        let free = self.seen(now).is_none();
        let waits = Waiter { client, lease: offered.0 as u8 };
        if free && !self.grants(now) {
            self.queue.push(waits);
            return Outcome::Queued;
        }
        let (reply, change) = self.ask(now, |table, at| table.wait(at, &request, None));
        match reply {
            WaitReply::Now(AcquireReply::Granted { token, .. }) => {
                self.write(client, change);
                Outcome::Granted(token.value())
            }
            WaitReply::Block => {
                self.queue.push(waits);
                Outcome::Queued
            }
            WaitReply::Now(_) | WaitReply::QueueFull | WaitReply::Draining => Outcome::Refused,
        }
    }

    /// A holder sets its lease anew.
    pub(crate) fn renew(&mut self, now: u8, client: usize, lease: u8) -> Outcome {
        let lease = Millis(lease.into());
        let (reply, change) =
            self.ask(now, |table, at| table.renew(at, OWNERS[client], lease, None));
        let token = self.seen(now).map_or(0, |lock| lock.token);
        match reply {
            RenewReply::Lease(_) => {
                self.write(client, change);
                Outcome::Granted(token)
            }
            RenewReply::NotHeld
            | RenewReply::NotALock
            | RenewReply::Shared
            | RenewReply::TooFarAhead(_)
            | RenewReply::TryAgain => Outcome::Refused,
        }
    }

    /// A holder gives the lock back; who has it then, if somebody waited.
    pub(crate) fn release(&mut self, now: u8, client: usize) -> Option<(usize, u64)> {
        let waiting = !self.grants(now);
        let queue = std::mem::take(&mut self.queue);
        if !waiting {
            self.queue.clone_from(&queue);
        }
        let (reply, change) = self
            .ask(now, |table, at| table.release(at, OWNERS[client], Want::Exclusive, Release::One));
        if waiting {
            self.queue = queue;
        }
        match reply {
            ReleaseReply::Left(_) => self.write(client, change),
            ReleaseReply::NotHeld | ReleaseReply::Mismatch | ReleaseReply::NotALock => None,
        }
    }

    /// Looks at the lock for whoever waits; who has it then.
    pub(crate) fn look(&mut self, now: u8) -> Option<(usize, u64)> {
        if !self.grants(now) {
            return None;
        }
        let ((), change) = self.ask(now, |table, at| ((), table.look(at, Cause::Expiry)));
        self.write(usize::MAX, change)
    }

    /// What the key says at that time.
    pub(crate) fn seen(&self, now: u8) -> Option<Lock> {
        self.lock.filter(|lock| lock.until >= now)
    }

    /// Asks the core, whose table is made of what is known here.
    fn ask<T>(&self, now: u8, ask: impl FnOnce(&mut Table<usize>, &Situation<'_>) -> T) -> T {
        let seen = self.seen(now);
        let at = Situation {
            key: KEY,
            seen: seen.map_or(Observed::Free { stored: None }, |lock| {
                Observed::Held(holding(lock.owner, lock.token, lock.until))
            }),
            now: at(now),
            floor: Some(self.floor),
        };
        let mut table = Table::new(LIMITS);
        for waiter in &self.queue {
            let (owner, lease) = (OWNERS[waiter.client], Millis(waiter.lease.into()));
            let join = Join { owner, want: Want::Exclusive, lease, timeout: None };
            table.enqueue(&at, &join, waiter.client);
        }
        ask(&mut table, &at)
    }

    /// Does what the core says; who was handed the lock by it.
    fn write(&mut self, caller: usize, change: Change<usize>) -> Option<(usize, u64)> {
        self.floor = self.floor.max(change.issued().map_or(0, Token::value));
        match change {
            Change::Take { token, until, .. } => {
                self.lock =
                    Some(Lock { owner: caller, token: token.value(), until: until.0 as u8 });
                None
            }
            Change::Update { until: Some(until), .. } => {
                if let Some(lock) = &mut self.lock {
                    lock.until = until.0 as u8;
                }
                None
            }
            Change::Free | Change::GiveWay => {
                self.lock = None;
                None
            }
            Change::HandOff(hand_off) => {
                let (owner, token) = (hand_off.client?, hand_off.token.value());
                self.lock = Some(Lock { owner, token, until: hand_off.until.0 as u8 });
                self.queue.retain(|waiter| waiter.client != owner);
                Some((owner, token))
            }
            Change::None
            | Change::Update { .. }
            | Change::Share(_)
            | Change::Leave
            | Change::Beside { .. } => None,
        }
    }
}
