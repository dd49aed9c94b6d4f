//! A server: the core's own table, and around it what `module/src` does with a real one. Each part
//! names the file that it is modelled on.

mod commands;
mod floor;
mod ledger;
mod life;
mod operate;
mod replication;
mod sessions;
mod wake;

use crate::clock::{MS, Rate, ServerClock};
use crate::judge::Rule;
use crate::keyspace::Keyspace;
use crate::net::End;
use crate::settings::{Plan, Safeguard};
use crate::sim::{AtServer, Event, Sim};
use crate::wire::{CallId, ConnId, Key, Owner, Request, ServerId};
use floor::Floors;
use kvlock_core::{
    GrantId, KeyRef, Limits, LockKey, Millis, Now, Reading, SessionName, Table, Token,
};
use ledger::Ledger;
pub(crate) use life::Memory;
use replication::{Follower, Unconfirmed};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const LIMITS: Limits = Limits { waiters: 1_000, waiters_per_key: 1_000, ..Limits::UNLIMITED };

const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// What the lock table calls a lock.
pub(crate) fn named(key: Key) -> KeyRef<'static> {
    KeyRef::lock(0, NAMES[key])
}

fn key_of(named: &LockKey) -> Key {
    NAMES.iter().position(|name| **name == *named.name).unwrap_or_default()
}

/// A client that is blocked in `SESSION.NEXT`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    conn: ConnId,
    call: CallId,
    name: SessionName,
    most: usize,
}

/// A grant to a waiter whose reply could not be written.
#[derive(Clone, Copy, Debug)]
struct Lost {
    id: GrantId,
    key: Key,
    owner: Owner,
    token: Token,
}

/// What came over a connection and is not carried out yet.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<(CallId, Request)>,
    /// A `WAIT` or `SESSION.NEXT` is not answered yet, or writes are paused.
    held_up: bool,
    /// What was written when something was carried out for it last.
    offset: u64,
    /// The last renewal was not the first of its grant.
    renews_again: bool,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) id: ServerId,
    pub(crate) clock: ServerClock,
    pub(crate) up: bool,
    pub(crate) primary: bool,
    /// Which primary of its line it became last.
    pub(crate) generation: u64,
    pub(crate) table: Table<Reader>,
    pub(crate) data: Keyspace,
    /// What of it is on the disk.
    pub(crate) on_disk: Keyspace,
    /// Until when writes are paused, by the true clock; none if they are not.
    pub(crate) paused: Option<u64>,
    /// Those that are blocked.
    readers: BTreeMap<ConnId, Reading>,
    ledger: Ledger,
    /// Connections that are not held up any more, and have their turn after all else.
    freed: Vec<ConnId>,
    /// It is in the middle of something of which the ledger does not know yet.
    records: bool,
    lost: Vec<Lost>,
    floors: Floors,
    lines: BTreeMap<ConnId, Line>,
    /// Grants that were renewed.
    renewed: BTreeSet<(Key, Owner)>,
    /// Held up since writes are paused.
    postponed: Vec<ConnId>,
    /// The wall clock's time for which the timer is armed, and which arming that is.
    timer: Option<u64>,
    timers: u64,
    rounds: u64,
    round_unix_us: u64,
    /// As a primary.
    followers: BTreeMap<ServerId, Follower>,
    offset: u64,
    unconfirmed: BTreeMap<u64, Unconfirmed>,
    last_unconfirmed: u64,
    good: usize,
    /// As a replica: whom it follows over which link, and whether it has got everything once.
    pub(crate) follows: Option<(ServerId, u64)>,
    pub(crate) synced: bool,
    pub(crate) copied: u64,
}

impl Server {
    pub(crate) fn new(plan: &Plan, id: ServerId, rate: Rate, ahead_us: i64) -> Self {
        Self {
            id,
            clock: ServerClock { rate, ahead_us },
            up: true,
            primary: false,
            generation: 0,
            table: Table::new(LIMITS),
            data: Keyspace::new(plan.keys),
            on_disk: Keyspace::new(plan.keys),
            paused: None,
            readers: BTreeMap::new(),
            ledger: Ledger::default(),
            freed: Vec::new(),
            records: false,
            lost: Vec::new(),
            floors: Floors::default(),
            lines: BTreeMap::new(),
            renewed: BTreeSet::new(),
            postponed: Vec::new(),
            timer: None,
            timers: 0,
            rounds: 0,
            round_unix_us: 0,
            followers: BTreeMap::new(),
            offset: 0,
            unconfirmed: BTreeMap::new(),
            last_unconfirmed: 0,
            good: 0,
            follows: None,
            synced: false,
            copied: 0,
        }
    }

    pub(crate) fn at(&self, sim: &Sim) -> Now {
        self.clock.at(sim.now())
    }

    /// Whether sessions were told all that they are to be told.
    pub(crate) fn owes_nothing(&self, sim: &Sim) -> bool {
        self.ledger.owed(self.at(sim)) == 0
    }

    fn is_paused(&self, sim: &Sim) -> bool {
        self.paused.is_some_and(|until| sim.now() < until)
    }

    /// What stands in the tables must fit together, after everything that happens.
    fn check(&mut self, sim: &Sim) {
        while !self.freed.is_empty() {
            for conn in std::mem::take(&mut self.freed) {
                self.goes_on(sim, conn);
            }
        }
        self.settle_places();
        let mut judge = sim.judge.borrow_mut();
        let (waiting, table) = (self.ledger.waiting(), self.table.waiters());
        if waiting != table {
            let text = format!("server {}: {waiting} wait, {table} in line", self.id);
            judge.fail(Rule::Waiters, text);
        }
        // What is planted in the core must be seen from outside.
        let looks = sim.plan.off.and_then(Safeguard::planted).is_none();
        if looks && let Err(text) = self.table.check() {
            judge.fail(Rule::Table, text);
        }
    }

    /// Who waited through a session and left the line is not answered: its session is told.
    fn settle_places(&mut self) {
        let table = &self.table;
        let stays = |(key, owner): (Key, Owner)| table.waits_for(named(key), owner.bytes());
        self.ledger.left(stays);
    }

    /// Sets the timer for what is due next. It runs by the wall clock.
    fn plan(&mut self, sim: &Sim, now: Now) {
        if !self.readers.is_empty() && !self.records {
            self.settle_places();
            self.tell_readers(sim, now);
        }
        if let Some(delay) = self.table.next_due(now) {
            self.arm(sim, now, delay);
        }
    }

    fn arm(&mut self, sim: &Sim, now: Now, delay: Millis) {
        // Nobody waits for decades.
        let due = now.unix_us.saturating_add(delay.0.min(1 << 40).saturating_mul(MS));
        if self.timer.is_none_or(|armed| due < armed || armed < now.unix_us) {
            self.timer = Some(due);
            self.wind(sim);
        }
    }

    /// Has the timer fire when the wall clock is there, as it runs now.
    fn wind(&mut self, sim: &Sim) {
        let Some(due) = self.timer else { return };
        self.timers += 1;
        let left = due.saturating_sub(self.at(sim).unix_us);
        let at = sim.now().saturating_add(self.clock.rate.takes(left));
        sim.at(at, Event::At(self.id, AtServer::Timer(self.timers)));
    }

    /// Somebody sets the date.
    pub(crate) fn set_date(&mut self, sim: &Sim, by_us: i64) {
        // A lease that was over and runs again, because the date goes back, is bound no more.
        self.look_at_bonds(sim);
        self.clock.ahead_us += by_us;
        self.wind(sim);
    }

    fn look_at_bonds(&mut self, sim: &Sim) {
        let now = self.at(sim);
        let may_write = self.primary && !self.is_paused(sim) && !self.lacks_replicas(sim);
        let data = &self.data;
        let holds = |(key, owner): (Key, Owner), token| {
            let lock = data.lock(key).filter(|lock| lock.token().value() == token);
            lock.is_some_and(|lock| lock.holders(now.unix()).contains(&owner))
        };
        self.ledger.look_at_bonds(sim, holds, may_write, now);
    }

    /// The regular round: `cron` in `module/src/module.rs`.
    fn round(&mut self, sim: &Sim) {
        let now = self.at(sim);
        let set_back = now.unix_us < self.round_unix_us;
        self.round_unix_us = now.unix_us;
        if set_back {
            self.table.look_at_all_soon(None, now);
        }
        self.look_at_bonds(sim);
        if self.table.waiters() > 0 || self.table.session_count().0 > 0 {
            self.plan(sim, now);
        } else if self.lost.is_empty() {
            self.timer = None;
            self.timers += 1;
        } else {
            self.arm(sim, now, Millis(0));
        }
        self.on_disk = self.data.clone();
        self.count_good(now);
        if let Some((from, link)) = self.follows.filter(|_| self.synced) {
            self.acknowledge(sim, from, link);
        }
    }

    /// A client's connection is gone: `client_gone` in `module/src/module.rs`.
    fn gone(&mut self, sim: &Sim, conn: ConnId) {
        sim.net.borrow_mut().server_closes(conn);
        self.lines.remove(&conn);
        self.unconfirmed.retain(|_, waiting| waiting.conn != conn);
        let now = self.at(sim);
        self.reader_gone(conn, now);
        self.plan(sim, now);
    }
}

impl Sim {
    pub(crate) fn server_is_up(&self, server: ServerId) -> bool {
        self.servers.borrow()[server].up
    }

    /// Lets something happen at a server.
    pub(crate) fn happen_at_server(&self, server: ServerId, event: AtServer) {
        let server = &mut self.servers.borrow_mut()[server];
        match event {
            AtServer::Arrive { conn, call, request } => {
                if server.up && self.net.borrow().lets_in(conn, self.now()) {
                    server.arrives(self, conn, call, request);
                    server.check(self);
                }
            }
            AtServer::Gone(conn) => {
                if server.up && self.net.borrow().is_open(conn, End::Server) {
                    server.gone(self, conn);
                    server.check(self);
                }
            }
            AtServer::Timer(number) if server.up && server.timers == number => {
                server.timer = None;
                server.run_due(self);
                server.check(self);
            }
            AtServer::Round(number) if server.up && server.rounds == number => {
                server.round(self);
                server.check(self);
                self.next_round(server);
            }
            AtServer::Timer(_) | AtServer::Round(_) => {}
            AtServer::Overdue(number) => server.overdue(self, number),
            AtServer::Copy { from, link, offset, effect } => {
                server.copy(self, (from, link), offset, effect);
            }
            AtServer::Sync { from, link, offset, data } => {
                server.sync(self, (from, link), offset, *data);
            }
            AtServer::Ack { from, link, offset } => server.acknowledged(self, from, link, offset),
            AtServer::Unpause => server.unpause(self),
        }
    }

    /// The rounds of a real server come ten times a second; what is looked at here changes less.
    pub(crate) fn next_round(&self, server: &Server) {
        let event = AtServer::Round(server.rounds);
        self.at(self.now() + 1_000 * MS, Event::At(server.id, event));
    }
}
