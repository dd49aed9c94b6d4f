//! Redisson's turn: `unless_nobody_listens` in `module/src/operate.rs`, and a script that may come for it.

use super::{Reader, Server, named};
use crate::clock::MS;
use crate::keyspace::{Asked, Effect, Lock};
use crate::sim::{AtServer, Event, Sim};
use crate::wire::{Key, Owner};
use kvlock_core::{Cause, Change, Millis, Now, Situation, Token};

/// No client of ours is called so.
const SCRIPT: u64 = u64::MAX;

impl Server {
    pub(super) fn unless_nobody_listens(
        &mut self,
        sim: &Sim,
        key: Key,
        caller: Owner,
        change: Change<Reader>,
        now: Now,
    ) -> Change<Reader> {
        if !matches!(change, Change::GiveWay) {
            return change;
        }
        if sim.percent(70) {
            self.table.has_given_way(named(key), now);
            sim.judge.borrow_mut().counts.moments += 1;
            // In the moment, or too late for it.
            let at = sim.now() + sim.below(8 * MS);
            sim.at(at, Event::At(self.id, AtServer::Script(key)));
            return Change::GiveWay;
        }
        let floor = self.floor(sim, now);
        let asked = Asked { owner: caller, living: false };
        let seen = self.data.observe(key, &asked, now.unix());
        self.table.gives_way_to_nobody(&Situation { key: named(key), seen, now, floor })
    }

    /// A script takes the lock if it is free, for a little while, whoever waits.
    pub(super) fn script(&mut self, sim: &Sim, key: Key) {
        if !self.up || !self.primary || self.is_paused(sim) || self.lacks_replicas(sim) {
            return;
        }
        let now = self.at(sim);
        if self.data.lock(key).is_some_and(|lock| lock.until() >= now.unix()) {
            return;
        }
        let until = now.unix().plus(Millis(1 + sim.below(20)));
        let (owner, token) = (Owner::new(SCRIPT), Token::NONE);
        let effect =
            Effect::Lock(key, Some(Lock::Held { owner, holds: 1, shared: 0, token, until }));
        self.data.apply(effect.clone());
        self.replicate(sim, effect);
        sim.judge.borrow_mut().counts.scripts += 1;
        self.table.look_soon(named(key), Cause::Outside, now);
        self.plan(sim, now);
    }
}
