//! A simulated server: runs the unchanged module, and does what a real server does around it.

mod commands;
mod ledger;
mod life;
mod replication;
mod watch;

use crate::clock::{MS, Rate, ServerClock};
use crate::judge::Rule;
use crate::module::Module;
use crate::net::End;
use crate::redis::{self, Ctx, Handle, Host, KeyEvent, Keyspace, ServerEvent, here};
use crate::server;
use crate::sim::Sim;
use crate::wire::{CallId, ConnId, Owner, Place, Request, ServerId, key_name};
use kvlock_core::{KeyRef, Now};
use ledger::Ledger;
pub(crate) use life::Memory;
use replication::{Follower, Unconfirmed};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A call without a client.
const NOBODY: (Option<ConnId>, &[Place]) = (None, &[]);

/// State of a connection, with its requests that are not executed yet.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<(CallId, Request)>,
    /// `true` if no request is executed now: a `WAIT` is not answered yet, the client is blocked, or writes are
    /// paused.
    held_up: bool,
    /// The request that blocks the client, until it is answered.
    parked: Option<(CallId, Request)>,
    /// Replication offset after the last executed request that did not block.
    offset: u64,
    /// `true` if the owner that last renewed a lock over this connection had renewed that lock before.
    renews_again: bool,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: ServerId,
    pub(crate) clock: ServerClock,
    pub(crate) up: bool,
    pub(crate) primary: bool,
    /// Number of this server's last promotion or restart. All servers share one count.
    pub(crate) generation: u64,
    host: Host,
    module: server::Server,
    /// The keys on its disk.
    on_disk: Keyspace,
    /// End of a pause of writes in true time; `None` if writes are not paused.
    pub(crate) paused: Option<u64>,
    ledger: Ledger,
    lines: BTreeMap<ConnId, Line>,
    /// Locks that were renewed, with their owners.
    renewed: BTreeSet<Place>,
    /// Connections with requests that wait for the end of the pause.
    postponed: Vec<ConnId>,
    /// Time at which the module's timer fires, by the wall clock.
    wound: Option<u64>,
    /// Number of the timer's latest setting. Earlier settings have no effect.
    timers: u64,
    rounds: u64,
    /// The replicas of this server, if it is a primary.
    followers: BTreeMap<ServerId, Follower>,
    /// Replication offset: the number of calls that changed keys.
    offset: u64,
    unconfirmed: BTreeMap<u64, Unconfirmed>,
    last_unconfirmed: u64,
    /// Number of replicas that have acknowledged recently, when last counted.
    good: usize,
    /// If this server is a replica: its primary, and the number of the link to it.
    pub(crate) follows: Option<(ServerId, u64)>,
    /// `true` if this server has completed a full synchronisation as a replica since it last started.
    pub(crate) synced: bool,
    /// The primary's offset up to which this replica has all changes.
    copied: u64,
}

impl Node {
    pub(crate) fn new(id: ServerId, rate: Rate, ahead_us: i64) -> Self {
        let nobody = Ctx::of(None);
        // The module needs some state; `change_places` replaces it for each call.
        Module::load(&nobody);
        Self {
            id,
            clock: ServerClock { rate, ahead_us },
            up: true,
            primary: false,
            generation: 0,
            // Session names consist of these digits. Each server has its own range.
            host: Host { digits: id as u64 * 1_000_000_000, ..Host::default() },
            module: server::Server::new(&nobody),
            on_disk: Keyspace::new(),
            paused: None,
            ledger: Ledger::default(),
            lines: BTreeMap::new(),
            renewed: BTreeSet::new(),
            postponed: Vec::new(),
            wound: None,
            timers: 0,
            rounds: 0,
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

    pub(crate) fn waiting(&self) -> usize {
        self.module.table.waiters()
    }

    /// Returns whether the server has sent all outcomes that it owes to sessions.
    pub(crate) fn owes_nothing(&self, sim: &Sim) -> bool {
        self.ledger.owed(self.at(sim)) == 0
    }

    fn is_paused(&self, sim: &Sim) -> bool {
        self.paused.is_some_and(|until| sim.now() < until)
    }

    /// Calls the module for a client or without one, checks the changed keys, and replicates them. `of` are
    /// the locks, with the owner, that the client's request names.
    fn call<R>(
        &mut self,
        sim: &Sim,
        (client, of): (Option<ConnId>, &[Place]),
        work: impl FnOnce(&Ctx<'_>) -> R,
    ) -> R {
        self.host.now = self.at(sim);
        self.host.primary = self.primary;
        self.host.paused = self.is_paused(sim);
        self.host.lacks_replicas = self.lacks_replicas(sim);
        let before = self.host.keys.clone();
        self.change_places();
        let result = work(&Ctx::of(client.map(|client| client as u64)));
        self.change_places();
        let changed = redis::changed(&before, &self.host.keys);
        changed.iter().for_each(|changed| self.watch(sim, changed, of));
        self.look_at_results(sim, &changed, &before, of);
        self.replicate(sim, &changed);
        self.settle_places();
        self.look_at_sets(sim);
        result
    }

    /// Swaps the state of this server into the module, or out of it.
    fn change_places(&mut self) {
        here(|host| std::mem::swap(host, &mut self.host));
        server::with(|state| std::mem::swap(state, &mut self.module));
    }

    /// Sends a server event to the module.
    fn tell(&mut self, sim: &Sim, event: ServerEvent) {
        self.hears(sim, |ctx| Module::server_event(ctx, event));
    }

    /// Runs an event handler of the module, which must not write.
    fn hears(&mut self, sim: &Sim, event: impl FnOnce(&Ctx<'_>)) {
        let before = self.host.keys.clone();
        self.call(sim, NOBODY, event);
        if self.host.keys != before {
            let text = format!("server {} wrote from inside an event", self.id);
            sim.judge.borrow_mut().fail(Rule::Forbidden, text);
        }
    }

    /// One turn of the event loop: an event, then the replies that it causes.
    pub(crate) fn turn(&mut self, sim: &Sim, happens: impl FnOnce(&mut Self)) {
        happens(self);
        while let Some((Handle(client), answer)) = self.host.answers.pop_front() {
            self.answers_parked(sim, client as ConnId, answer);
        }
        self.wind(sim);
        self.check(sim);
    }

    /// Checks that the module's tables are consistent, and agree with the ledger.
    fn check(&self, sim: &Sim) {
        let mut judge = sim.judge.borrow_mut();
        let (waiting, table) = (self.ledger.waiting(), self.waiting());
        if waiting != table {
            let text = format!("server {}: {waiting} wait, {table} in line", self.id);
            judge.fail(Rule::Waiters, text);
        }
        for grant in self.module.table.unsent() {
            let owner = Owner::read(&grant.owner);
            if owner.is_some_and(|owner| self.ledger.has_heard(owner, grant.token.value())) {
                judge.fail(
                    Rule::Sessions,
                    format!("{owner:?} was told of {grant:?}, which is to be taken back"),
                );
            }
        }
        if !sim.plan.outside
            && let Err(text) = self.module.table.check()
        {
            judge.fail(Rule::Table, text);
        }
    }

    /// Removes from the ledger the waiters that have left the module's queues.
    fn settle_places(&mut self) {
        let module = &self.module;
        self.ledger.left(|place| waits(module, place));
    }

    /// Schedules the timer by the wall clock at its current rate.
    fn wind(&mut self, sim: &Sim) {
        if self.host.timer == self.wound {
            return;
        }
        self.wound = self.host.timer;
        self.timers += 1;
        if let Some(due) = self.wound {
            let left = due.saturating_sub(self.at(sim).unix_us);
            let at = sim.now().saturating_add(self.clock.rate.takes(left));
            let number = self.timers;
            sim.at_server(at, self.id, move |node, sim| node.fires(sim, number));
        }
    }

    fn fires(&mut self, sim: &Sim, number: u64) {
        if self.timers == number {
            self.wound = None;
            self.call(sim, NOBODY, Module::timer);
        }
    }

    /// Moves the wall clock by `by_us` microseconds.
    pub(crate) fn set_date(&mut self, sim: &Sim, by_us: i64) {
        // A lock whose lease has ended is no longer bound, even if its lease runs again after a step back.
        self.look_at_bonds(sim);
        self.clock.ahead_us += by_us;
        self.wound = None;
        self.wind(sim);
    }

    fn look_at_bonds(&mut self, sim: &Sim) {
        let now = self.at(sim);
        let may_write = self.primary && !self.is_paused(sim) && !self.lacks_replicas(sim);
        let keys = &self.host.keys;
        self.ledger.look_at_bonds(
            sim,
            |place, token| watch::holds(keys, place, token, now),
            may_write,
            now,
        );
    }

    /// The server's cron: deletes expired keys, runs the module's cron, and saves the data. Counts the
    /// replicas that have acknowledged recently; a replica acknowledges to its primary.
    fn round(&mut self, sim: &Sim) {
        let now = self.at(sim);
        if self.primary && !self.is_paused(sim) {
            let is_over = |until: Option<u64>| until.is_some_and(|until| until < now.unix().0);
            let all = self.host.keys.iter().filter(|(_, entry)| is_over(entry.until));
            let over: Vec<_> = all.map(|(name, _)| name.clone()).collect();
            for name in over {
                self.call(sim, NOBODY, |_| here(|host| host.keys.remove(&name)));
                self.key_event(sim, &name, true);
            }
        }
        self.look_at_bonds(sim);
        self.tell(sim, ServerEvent::Cron);
        self.on_disk = self.host.keys.clone();
        self.count_good(now);
        if let Some((from, link)) = self.follows.filter(|_| self.synced) {
            self.acknowledge(sim, from, link);
        }
    }

    /// Schedules the next cron. A real server runs it ten times per second; here one run per second is
    /// enough.
    fn next_round(&self, sim: &Sim) {
        let number = self.rounds;
        sim.at_server(sim.now() + 1_000 * MS, self.id, move |node, sim| {
            if node.rounds == number {
                node.round(sim);
                node.next_round(sim);
            }
        });
    }

    fn key_event(&mut self, sim: &Sim, key: &[u8], expired: bool) {
        self.hears(sim, |ctx| {
            Module::key_event(ctx, KeyEvent { db: 0, key, expired });
        });
    }

    /// Handles the notice that a connection is closed.
    pub(crate) fn is_gone(&mut self, sim: &Sim, conn: ConnId) {
        if sim.net.borrow().is_open(conn, End::Server) {
            self.gone(sim, conn);
        }
    }

    fn gone(&mut self, sim: &Sim, conn: ConnId) {
        sim.net.borrow_mut().server_closes(conn);
        let line = self.lines.remove(&conn).unwrap_or_default();
        self.unconfirmed.retain(|_, waiting| waiting.conn != conn);
        self.call(sim, NOBODY, |ctx| {
            if line.parked.is_some() {
                Module::client_gone(ctx, Handle(conn as u64));
            }
            Module::server_event(ctx, ServerEvent::ClientClosed(conn as u64));
        });
        self.ledger.gone(conn, self.at(sim));
    }
}

/// Returns whether the owner is queued in the module's table.
fn waits(module: &server::Server, (key, owner): Place) -> bool {
    module.table.waits_for(KeyRef::lock(0, key_name(key).as_bytes()), &owner.text())
}

impl Sim {
    pub(crate) fn server_is_up(&self, server: ServerId) -> bool {
        self.servers.borrow()[server].up
    }
}
