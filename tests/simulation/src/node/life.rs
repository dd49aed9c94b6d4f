//! Start, end, promotion and demotion of a server.

use super::Node;
use super::ledger::Ledger;
use crate::module::Module;
use crate::redis::{Keyspace, ServerEvent};
use crate::server;
use crate::settings::Safeguard;
use crate::sim::Sim;

/// The data of a restarted server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Everything,
    /// The data on its disk.
    Disk,
    Nothing,
}

impl Node {
    /// Starts the server: loads the module. With `doubtful`, grants may have been lost.
    pub(crate) fn begins(&mut self, sim: &Sim, doubtful: bool) {
        self.host.keeps_grants = !doubtful;
        self.host.listeners = sim.plan.listeners;
        let quarantine_ms = sim.plan.quarantine_ms.cast_signed();
        self.call(sim, super::NOBODY, |ctx| {
            Module::load(ctx);
            for spec in Module::CONFIGS {
                let is_quarantine = spec.name == c"quarantine-ms";
                let value = if is_quarantine { quarantine_ms } else { spec.default };
                server::with(|server| (spec.set)(server, value));
            }
            Module::loaded(ctx);
        });
        // The clients that were blocked before no longer exist.
        self.host.answers.clear();
        self.wind(sim);
        self.rounds += 1;
        self.next_round(sim);
    }

    /// Kills the server. Some clients get no notice.
    pub(crate) fn dies(&mut self, sim: &Sim) {
        sim.log(|| format!("server {} dies", self.id));
        self.up = false;
        (self.host.timer, self.wound) = (None, None);
        self.timers += 1;
        self.rounds += 1;
        self.ledger = Ledger::default();
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
                // A client that only reads gets no notice of this until it probes the connection.
                sim.break_silently(conn);
            }
        }
    }

    /// Restarts the server with the given data.
    pub(crate) fn comes_back(&mut self, sim: &Sim, memory: Memory) {
        sim.log(|| format!("server {} is back with {memory:?}", self.id));
        match memory {
            Memory::Everything => {}
            Memory::Disk => self.host.keys.clone_from(&self.on_disk),
            Memory::Nothing => self.host.keys = Keyspace::new(),
        }
        self.on_disk.clone_from(&self.host.keys);
        self.forgets_tokens(sim);
        self.up = true;
        self.good = 0;
        self.synced = false;
        self.follows = None;
        let doubtful = self.primary && sim.plan.forgets;
        // The tokens of each later generation must be larger, even for a replaced primary that does not know
        // its successor yet.
        self.generation = sim.next_generation();
        self.begins(sim, doubtful);
    }

    /// If the server has no token floor, its next tokens depend on its clock alone. If earlier tokens may be
    /// ahead of that clock, ends the promise that tokens grow.
    fn forgets_tokens(&self, sim: &Sim) {
        let mut judge = sim.judge.borrow_mut();
        let ahead = judge.largest_token() >= self.at(sim).unix_us;
        let took_over = sim.generations.get() > 0;
        if self.floor() == 0 && (ahead || took_over) && sim.has(Safeguard::DataOutlivesTokens) {
            judge.promises_tokens = false;
        }
    }

    /// Promotes the server to primary.
    pub(crate) fn promoted(&mut self, sim: &Sim) {
        sim.log(|| format!("server {} is the primary now", self.id));
        self.primary = true;
        self.follows = None;
        self.good = 0;
        self.generation = sim.next_generation();
        sim.latest.set(self.id);
        sim.judge.borrow_mut().counts.promotions += 1;
        self.turn(sim, |server| server.tell(sim, ServerEvent::BecamePrimary));
    }

    /// Demotes the server to a replica.
    pub(crate) fn deposed(&mut self, sim: &Sim) {
        if !self.primary {
            return;
        }
        sim.log(|| format!("server {} is deposed", self.id));
        self.primary = false;
        self.forgets_followers();
        self.turn(sim, |server| {
            if sim.has(Safeguard::DismissDeposed) {
                server.tell(sim, ServerEvent::BecameReplica);
                server.ledger.end_all();
            } else {
                server.module.primary = false;
            }
            server.dismiss_unconfirmed(sim);
        });
    }
}

impl Sim {
    pub(crate) fn next_generation(&self) -> u64 {
        self.generations.set(self.generations.get() + 1);
        self.generations.get()
    }
}
