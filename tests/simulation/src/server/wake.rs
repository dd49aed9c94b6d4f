//! What happens outside commands: `module/src/wake.rs`.

use super::{Server, key_of, named};
use crate::judge::Rule;
use crate::keyspace::Asked;
use crate::settings::Safeguard;
use crate::sim::Sim;
use crate::wire::{Key, Owner};
use kvlock_core::{Cause, Dismissal, Millis, Now, RUN_MAX, Situation};

/// How soon to try again what may not be written now.
const PAUSED: Millis = Millis(20);

impl Server {
    /// Does what is due.
    pub(super) fn run_due(&mut self, sim: &Sim) {
        let now = self.at(sim);
        self.table.end_quarantine(now);
        for _ in 0..RUN_MAX {
            if self.table.time_out_one(now).is_none() {
                break;
            }
        }
        self.work_on_sessions(sim, now);
        self.settle_places();
        let may_write = self.primary && !self.is_paused(sim);
        if !may_write && (sim.has(Safeguard::PauseGuard) || !self.primary) {
            self.tell_readers(sim, now);
            if self.table.next_due(now).is_some() || !self.lost.is_empty() {
                let goes_on = self.table.has_readers_to_tell() || self.table.sessions_have_work();
                self.arm(sim, now, if goes_on { Millis(0) } else { PAUSED });
            }
            return;
        }
        while let Some(lost) = self.lost.pop() {
            self.take_back(sim, lost, now);
        }
        self.work_on_bound(sim, now);
        let due: Vec<_> = std::iter::from_fn(|| self.table.next_look(now)).take(RUN_MAX).collect();
        for (key, cause) in due {
            self.look(sim, key_of(&key), cause, now);
        }
        self.plan(sim, now);
    }

    /// Looks at a lock that somebody waits for, if something may be granted here.
    fn look(&mut self, sim: &Sim, key: Key, cause: Cause, now: Now) {
        let floor = self.floor(sim, now);
        let asked = Asked { owner: Owner::new(0), living: false };
        let seen = self.data.observe(key, &asked, now.unix());
        let at = Situation { key: named(key), seen, now, floor };
        let owes = self.table.owes_a_grant(&at);
        if (owes || self.table.must_find_the_living(&at)) && self.lacks_replicas(sim) {
            let living = Asked { living: true, ..asked };
            let seen = self.data.observe(key, &living, now.unix());
            let at = Situation { key: named(key), seen, now, floor };
            if !owes && self.table.must_find_the_living(&at) {
                let change = self.table.look(&at, cause);
                return self.carry_out(sim, key, asked.owner, change, now);
            }
            let why = Dismissal::Moving;
            while self.table.dismiss_one_of(named(key), why.clone()).is_some() {}
            return self.plan(sim, now);
        }
        self.look_at(sim, key, cause, now);
    }

    fn take_back(&mut self, sim: &Sim, lost: super::Lost, now: Now) {
        let super::Lost { id, key, owner, token } = lost;
        let asked = Asked { owner, living: false };
        let holders = self.data.lock(key).map(|lock| lock.holders(now.unix()));
        let is_there = holders.is_some_and(|holders| holders.contains(&owner));
        if !is_there || self.lacks_replicas(sim) {
            return self.table.delivered(named(key), id, owner.bytes(), token);
        }
        let floor = self.floor(sim, now);
        let seen = self.data.observe(key, &asked, now.unix());
        let at = Situation { key: named(key), seen, now, floor };
        let change = self.table.take_back(&at, id, owner.bytes(), token);
        sim.judge.borrow_mut().counts.taken_back += 1;
        self.carry_out(sim, key, owner, change, now);
    }

    /// Whatever is written here outside commands crashes a server whose writes are paused.
    pub(super) fn is_forbidden(&self, sim: &Sim) {
        if self.is_paused(sim) {
            let text = format!("server {} wrote while writes were paused", self.id);
            sim.judge.borrow_mut().fail(Rule::Forbidden, text);
        }
    }
}
