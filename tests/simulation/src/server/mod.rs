//! A server: the core's own table, and around it what `module/src` does with a real one. Each part
//! names the file that it is modelled on.

mod commands;
mod floor;
mod life;
mod operate;
mod replication;
mod turns;
mod wake;

use crate::clock::{MS, Rate, ServerClock};
use crate::judge::Rule;
use crate::keyspace::Keyspace;
use crate::net::End;
use crate::settings::Plan;
use crate::sim::{Event, Sim};
use crate::wire::{CallId, ConnId, Key, Owner, Reply, Request, ServerId};
use floor::Floors;
use kvlock_core::{GrantId, KeyRef, Limits, LockKey, Millis, Now, Table, Token, WaiterId};
pub(crate) use life::Memory;
use replication::{Follower, Unconfirmed};
use std::collections::{BTreeMap, VecDeque};

const LIMITS: Limits = Limits { waiters: 1_000, waiters_per_key: 1_000, ..Limits::UNLIMITED };

const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// What the lock table calls a lock.
pub(crate) fn named(key: Key) -> KeyRef<'static> {
    KeyRef::lock(0, NAMES[key])
}

fn new_table(plan: &Plan) -> Table<Parked> {
    let mut table = Table::new(LIMITS);
    table.set_redisson_turn(Millis(plan.turn_ms));
    table
}

fn key_of(named: &LockKey) -> Key {
    NAMES.iter().position(|name| **name == *named.name).unwrap_or_default()
}

/// A client that is blocked, and by which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    conn: ConnId,
    call: CallId,
    key: Key,
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
    /// A `WAIT` is not answered yet.
    held_up: bool,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) id: ServerId,
    pub(crate) clock: ServerClock,
    pub(crate) up: bool,
    pub(crate) primary: bool,
    /// Which primary of its line it became last.
    pub(crate) generation: u64,
    pub(crate) table: Table<Parked>,
    pub(crate) data: Keyspace,
    /// What of it is on the disk.
    pub(crate) on_disk: Keyspace,
    /// Until when writes are paused, by the true clock; none if they are not.
    pub(crate) paused: Option<u64>,
    parked: BTreeMap<ConnId, WaiterId>,
    lost: Vec<Lost>,
    floors: Floors,
    /// In which order those who wait came: what the table must agree with.
    order: Vec<VecDeque<CallId>>,
    lines: BTreeMap<ConnId, Line>,
    /// Came while writes were paused.
    postponed: VecDeque<(ConnId, CallId, Request)>,
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
            table: new_table(plan),
            data: Keyspace::new(plan.keys),
            on_disk: Keyspace::new(plan.keys),
            paused: None,
            parked: BTreeMap::new(),
            lost: Vec::new(),
            floors: Floors::default(),
            order: vec![VecDeque::new(); plan.keys],
            lines: BTreeMap::new(),
            postponed: VecDeque::new(),
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

    fn is_paused(&self, sim: &Sim) -> bool {
        self.paused.is_some_and(|until| sim.now() < until)
    }

    /// What stands in the tables must fit together, after everything that happens.
    fn check(&self, sim: &Sim) {
        let waiting: usize = self.order.iter().map(VecDeque::len).sum();
        let mut judge = sim.judge.borrow_mut();
        if waiting != self.table.waiters() || waiting != self.parked.len() {
            let (table, parked) = (self.table.waiters(), self.parked.len());
            let text = format!("server {}: {waiting} wait, {table} in line, {parked}", self.id);
            judge.fail(Rule::Waiters, text);
        }
        if let Err(text) = self.table.check() {
            judge.fail(Rule::Table, text);
        }
    }

    /// Answers a waiter that has left the table. `module/src/server.rs`.
    fn answer(&mut self, sim: &Sim, parked: Parked, reply: Reply) {
        self.parked.remove(&parked.conn);
        self.leaves(sim, parked);
        sim.answer(parked.conn, parked.call, reply);
    }

    fn leaves(&mut self, sim: &Sim, parked: Parked) {
        self.order[parked.key].retain(|call| *call != parked.call);
        sim.judge.borrow_mut().leaves_line(parked.call);
    }

    /// Sets the timer for what is due next. It runs by the wall clock.
    fn plan(&mut self, sim: &Sim, now: Now) {
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
        sim.at(at, Event::Timer { server: self.id, number: self.timers });
    }

    /// Somebody sets the date.
    pub(crate) fn set_date(&mut self, sim: &Sim, by_us: i64) {
        self.clock.ahead_us += by_us;
        self.wind(sim);
    }

    /// The regular round: `cron` in `module/src/module.rs`.
    fn round(&mut self, sim: &Sim) {
        let now = self.at(sim);
        let set_back = now.unix_us < self.round_unix_us;
        self.round_unix_us = now.unix_us;
        if set_back {
            self.table.look_at_all_soon(None, now);
        }
        if self.table.waiters() > 0 {
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
        self.postponed.retain(|(other, ..)| *other != conn);
        self.unconfirmed.retain(|_, waiting| waiting.conn != conn);
        if let Some(waiter) = self.parked.remove(&conn)
            && let Some(parked) = self.table.disconnected(waiter)
        {
            self.leaves(sim, parked);
        }
        let now = self.at(sim);
        self.plan(sim, now);
    }

    fn is_known_to_be_gone(sim: &Sim, conn: ConnId) -> bool {
        !sim.net.borrow().is_open(conn, End::Server)
    }
}

impl Sim {
    pub(crate) fn server_is_up(&self, server: ServerId) -> bool {
        self.servers.borrow()[server].up
    }

    /// Lets something happen at the server that it is for.
    pub(crate) fn happen_at_server(&self, event: Event) {
        let mut servers = self.servers.borrow_mut();
        match event {
            Event::Arrive { conn, call, request } => {
                let server = &mut servers[self.net.borrow().server_of(conn)];
                if server.up && self.net.borrow().lets_in(conn, self.now()) {
                    server.arrives(self, conn, call, request);
                    server.check(self);
                }
            }
            Event::Gone { conn } => {
                let server = &mut servers[self.net.borrow().server_of(conn)];
                if server.up && self.net.borrow().is_open(conn, End::Server) {
                    server.gone(self, conn);
                    server.check(self);
                }
            }
            Event::Timer { server, number } => {
                let server = &mut servers[server];
                if server.up && server.timers == number {
                    server.timer = None;
                    server.run_due(self);
                    server.check(self);
                }
            }
            Event::Round { server, number } => {
                let server = &mut servers[server];
                if server.up && server.rounds == number {
                    server.round(self);
                    self.next_round(server);
                }
            }
            Event::Script { server, key } => servers[server].script(self, key),
            Event::Overdue { server, number } => servers[server].overdue(self, number),
            Event::Copy { from, to, link, offset, effect } => {
                servers[to].copy(self, (from, link), offset, effect);
            }
            Event::Sync { from, to, link, offset, data } => {
                servers[to].sync(self, (from, link), offset, *data);
            }
            Event::Ack { from, to, link, offset } => {
                servers[to].acknowledged(self, from, link, offset);
            }
            Event::Unpause { server } => servers[server].unpause(self),
            Event::Answer { .. }
            | Event::Broken { .. }
            | Event::Alarm { .. }
            | Event::Landing { .. }
            | Event::Life { .. }
            | Event::Fault
            | Event::Later(_) => {}
        }
    }

    /// The rounds of a real server come ten times a second; what is looked at here changes less.
    pub(crate) fn next_round(&self, server: &Server) {
        let event = Event::Round { server: server.id, number: server.rounds };
        self.at(self.now() + 1_000 * MS, event);
    }
}
