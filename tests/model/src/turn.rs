//! One step of a server: calls the core, and writes its decisions.

use crate::client::Asks;
use crate::server::{Lock, OWNERS, PARKED, Reply, Server, Step, Stored, at, holding, millis};
use crate::table::{Parked, Tabled};
use kvlock_core::{
    Acquire, AcquireReply, Cause, Change, Holding, Observed, Release, RenewReply, Situation, Token,
    WaitReply, Want,
};

/// The server, the core's table for it, and replies to other clients.
pub(crate) struct Turn<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) made: Tabled,
    pub(crate) told: Vec<(Parked, Reply)>,
    pub(crate) now: u8,
}

impl Turn<'_> {
    pub(crate) fn step(&mut self, step: Step) -> Option<Reply> {
        match step {
            Step::Request(by, asks, leases) => return self.answer(by, asks, leases),
            Step::LoseReader(number) => self.made.lose_reader(number, self.now),
            Step::Work(releases) => self.work(releases),
        }
        None
    }

    /// Executes a request. `None` if the client has to wait, or expects no reply.
    fn answer(&mut self, by: usize, asks: Asks, [lease, offered]: [u8; 2]) -> Option<Reply> {
        let (seen, table) = (self.situation(by), &mut self.made.table);
        let (lock, owner) = (self.server.seen(self.now), OWNERS[by]);
        match asks {
            Asks::Lock => return self.wait(by, lease, offered),
            // In the crate, each grant has its own owner. Here, its token identifies it.
            Asks::Renewal(of, _) if lock.is_none_or(|lock| lock.token != of) => {
                return Some(Reply::Refused);
            }
            Asks::Renewal(_, length) => {
                let (reply, change) = table.renew(&seen, owner, millis(length), None);
                self.write(by, change);
                if !matches!(reply, RenewReply::Lease(_)) {
                    return Some(Reply::Refused);
                }
            }
            Asks::Release => {
                let (_, change) = table.release(&seen, owner, Want::Exclusive, Release::One);
                self.write(by, change);
                self.tell_ready();
                return None;
            }
            Asks::Store(token, keeps) => return Some(self.store(by, token, keeps)),
            Asks::Binding(to, shared) => return Some(self.bind(by, lease, to, shared)),
            Asks::Downgrade => {
                let held = lock.filter(|lock| lock.owner == by && !lock.shared);
                let Some(lock) = held else { return Some(Reply::Refused) };
                let beside = Observed::Held(Holding { shared: 1, ..holding(lock) });
                let seen = Situation { seen: beside, ..seen };
                let (_, change) = table.release(&seen, owner, Want::Exclusive, Release::All);
                if self.server.orphaned(by) {
                    // The owner uses the lock after the end of its session: only the lease ends the hold now.
                    self.server.lock = Some(Lock { goes_with: None, ..lock });
                }
                self.write(by, change);
            }
            Asks::Session(number) => {
                self.made.open(number, self.server.ttl, self.now);
                return Some(Reply::Lives);
            }
            Asks::Reading(number) => {
                let Some(replaced) = self.made.read(number, PARKED, self.now) else {
                    return Some(Reply::NoSession);
                };
                self.told.extend(replaced.map(|parked| (parked, Reply::ReadElsewhere)));
                return None;
            }
        }
        Some(self.server.lock.map_or(Reply::Refused, |lock| Reply::Has(lock.token)))
    }

    /// Like `LOCK.RELEASE … STORE`: the result exists before the lock is free.
    fn store(&mut self, by: usize, token: u64, keeps: u8) -> Reply {
        let (owner, fenced) = (OWNERS[by], self.server.results.is_none_or(|it| it.fenced));
        // In the crate, each grant has its own owner. Here, its token identifies it.
        let lock = self.server.seen(self.now);
        let is_its_own = lock.is_none_or(|lock| lock.owner != by || lock.token == token);
        let left = self.situation(by).left_after(owner, Want::Exclusive, Release::One);
        let holds = is_its_own && left.is_some();
        let stored = Stored { token, until: self.now + keeps };
        if holds || !fenced {
            self.server.result = Some(stored);
        }
        if holds {
            let seen = self.situation(by);
            let released = self.made.table.release(&seen, owner, Want::Exclusive, Release::One);
            self.write(by, released.1);
        }
        self.tell_ready();
        if holds || !fenced { Reply::Stored(stored) } else { Reply::Refused }
    }

    /// Checks the result of each group of waiters, and answers waiters whose result exists.
    fn tell_ready(&mut self) {
        while let Some(group) = self.made.table.next_group() {
            let exists = self.server.result(self.now).is_some();
            self.made.table.looked_at_group(&group, exists);
        }
        while let Some(parked) = self.made.table.next_ready_client() {
            self.server.queue.retain(|(waiter, _)| *waiter != parked.0);
            self.told.push((parked, Reply::Ready));
        }
    }

    fn wait(&mut self, by: usize, lease: u8, offered: u8) -> Option<Reply> {
        if self.server.results.is_some_and(|it| it.unless) && self.server.result(self.now).is_some()
        {
            return Some(Reply::Ready);
        }
        let (owner, lease) = (OWNERS[by], millis(lease));
        let request = Acquire { owner, want: Want::Exclusive, lease, holds: None };
        let (reply, change) = self.made.table.wait(&self.situation(by), &request, None);
        self.write(by, change);
        match reply {
            WaitReply::Now(AcquireReply::Granted { token, .. }) => Some(Reply::Has(token.value())),
            WaitReply::Block => {
                self.server.queue.push((by, offered));
                None
            }
            WaitReply::Now(_)
            | WaitReply::QueueFull(_)
            | WaitReply::Draining
            | WaitReply::Deadlock(_) => Some(Reply::Refused),
        }
    }

    fn bind(&mut self, by: usize, lease: u8, to: u8, shared: bool) -> Reply {
        let Some(session) = self.made.session(to) else { return Reply::NoSession };
        let want = if shared { Want::Shared } else { Want::Exclusive };
        let request = Acquire { owner: OWNERS[by], want, lease: millis(lease), holds: Some(1) };
        let (seen, table) = (self.situation(by), &mut self.made.table);
        let (reply, change) = table.acquire_held(&seen, &request);
        table.bind_granted(&seen, &request, reply, session);
        self.write(by, change);
        let AcquireReply::Granted { token, .. } = reply else { return Reply::Refused };
        self.server.lock = self.server.lock.map(|lock| Lock { goes_with: Some(to), ..lock });
        Reply::Has(token.value())
    }

    fn work(&mut self, releases: bool) {
        let now = at(self.now);
        while self.made.table.handle_due_session(now) {}
        while let Some((_, parked)) = self.made.table.next_reader(now) {
            self.told.push((parked, Reply::Lives));
        }
        while let Some(bound) = self.made.table.next_bound(now) {
            let owner = OWNERS.iter().position(|name| **name == *bound.owner).unwrap_or_default();
            let (seen, table) = (self.situation(owner), &mut self.made.table);
            if releases {
                let change = table.release_bound(&seen, &bound);
                self.write(owner, change);
            } else {
                table.not_bound(&bound);
            }
        }
        let change = self.made.table.look(&self.situation(0), Cause::Expiry);
        self.write(0, change);
        self.tell_ready();
    }

    fn situation(&self, asks: usize) -> Situation<'static> {
        self.server.situation(asks, self.now)
    }

    /// Applies a change from the core, and answers the waiter that is granted the lock.
    fn write(&mut self, by: usize, change: Change<Parked>) {
        let server = &mut *self.server;
        let (token, until) = (change.issued().map(Token::value), change.until());
        server.floor = server.floor.max(token.unwrap_or_default());
        let new = Lock { owner: by, token: 0, until: 0, shared: false, goes_with: None };
        let shares = matches!(change, Change::Share(_));
        let lock = match change {
            Change::Take { .. } => Some(new),
            Change::Update { .. } | Change::Share(_) => Some(server.seen(self.now).unwrap_or(new)),
            Change::HandOff(hand_off) => hand_off.client.map(|parked| {
                server.queue.retain(|(waiter, _)| *waiter != parked.0);
                self.told.push((parked, Reply::Has(hand_off.token.value())));
                Lock { owner: parked.0, ..new }
            }),
            Change::Free | Change::GiveWay => None,
            Change::None | Change::Leave | Change::Beside { .. } => return,
        };
        server.lock = lock.map(|lock| Lock {
            token: token.unwrap_or(lock.token),
            until: until.map_or(lock.until, |until| until.0 as u8),
            shared: lock.shared || shares,
            ..lock
        });
    }
}
