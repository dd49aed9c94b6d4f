//! How a server begins, ends, and takes over: `module/src/module.rs`.

use super::Server;
use crate::keyspace::Keyspace;
use crate::settings::Safeguard;
use crate::sim::Sim;
use kvlock_core::{Millis, Table};

/// What a server knows when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Everything,
    /// What was on the disk.
    Disk,
    Nothing,
}

impl Server {
    /// It begins to serve as the primary. Whether it may have forgotten something is known.
    pub(crate) fn begins(&mut self, sim: &Sim, doubtful: bool) {
        let now = self.at(sim);
        self.table.set_quarantine(Millis(sim.plan.quarantine_ms), now);
        if doubtful {
            self.table.begin_quarantine(now);
        }
        self.rounds += 1;
        self.round_unix_us = now.unix_us;
        sim.next_round(self);
    }

    /// It is killed. Its clients may hear of it, or not.
    pub(crate) fn dies(&mut self, sim: &Sim) {
        sim.log(|| format!("server {} dies", self.id));
        self.up = false;
        self.timer = None;
        self.timers += 1;
        self.rounds += 1;
        self.ledger = super::Ledger::default();
        self.readers.clear();
        self.freed.clear();
        self.table = Table::new(super::LIMITS);
        self.lost.clear();
        self.lines.clear();
        self.postponed.clear();
        self.unconfirmed.clear();
        self.paused = None;
        self.forgets_followers();
        let conns = sim.net.borrow().open_ones(None, Some(self.id));
        for conn in conns {
            sim.net.borrow_mut().server_closes(conn);
            if sim.percent(70) {
                sim.break_connection(conn);
            } else {
                // Nothing says so to those who only listen, until they ask whether it is alive.
                sim.break_silently(conn);
            }
        }
    }

    /// It runs again, with what it remembers.
    pub(crate) fn comes_back(&mut self, sim: &Sim, memory: Memory) {
        sim.log(|| format!("server {} is back with {memory:?}", self.id));
        let keys = sim.plan.keys;
        self.data = match memory {
            Memory::Everything => std::mem::replace(&mut self.data, Keyspace::new(keys)),
            Memory::Disk => self.on_disk.clone(),
            Memory::Nothing => Keyspace::new(keys),
        };
        self.on_disk = self.data.clone();
        self.forgets_tokens(sim);
        self.floors = super::Floors::new(self.at(sim));
        self.up = true;
        self.good = 0;
        self.synced = false;
        self.follows = None;
        let doubtful = self.primary && sim.plan.forgets;
        // Whoever begins later gives the larger tokens: also a primary that was replaced meanwhile,
        // and does not know it yet.
        self.generation = sim.next_generation();
        self.begins(sim, doubtful);
    }

    /// Who takes over, or starts again, is up to a minute ahead of its clock. If that is lost with
    /// everything else, the clock alone is not enough: that much is not promised.
    fn forgets_tokens(&self, sim: &Sim) {
        let mut judge = sim.judge.borrow_mut();
        let ahead = judge.largest_token() >= self.at(sim).unix_us;
        let took_over = sim.generations.get() > 0;
        if self.data.floor == 0 && (ahead || took_over) && sim.has(Safeguard::DataOutlivesTokens) {
            judge.promises_tokens = false;
        }
    }

    /// It takes over.
    pub(crate) fn promoted(&mut self, sim: &Sim) {
        sim.log(|| format!("server {} is the primary now", self.id));
        let now = self.at(sim);
        self.primary = true;
        self.follows = None;
        self.floors.forget();
        self.floors.promoted(now);
        self.good = 0;
        self.generation = sim.next_generation();
        sim.latest.set(self.id);
        sim.judge.borrow_mut().counts.promotions += 1;
        self.table.begin_quarantine(now);
        self.plan(sim, now);
    }

    /// It is the primary no more.
    pub(crate) fn deposed(&mut self, sim: &Sim) {
        if !self.primary {
            return;
        }
        sim.log(|| format!("server {} is deposed", self.id));
        let now = self.at(sim);
        self.primary = false;
        self.floors.forget();
        self.table.lift_quarantine();
        for lost in std::mem::take(&mut self.lost) {
            self.table.delivered(super::named(lost.key), lost.id, lost.owner.bytes(), lost.token);
        }
        // What is bound is left to its lease, and the sessions end.
        self.table.forget_all_bound();
        if sim.has(Safeguard::DismissDeposed) {
            self.table.end_all_sessions();
            self.settle_places();
            self.ledger.end_all();
        }
        self.forgets_followers();
        self.dismiss_unconfirmed(sim);
        self.plan(sim, now);
        self.check(sim);
    }
}

impl Sim {
    pub(crate) fn next_generation(&self) -> u64 {
        self.generations.set(self.generations.get() + 1);
        self.generations.get()
    }
}
