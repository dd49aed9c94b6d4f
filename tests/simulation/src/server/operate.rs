//! How the table is asked about a lock, and what it decides is carried out: `module/src/operate.rs`.
//! With it what the judge wants to know of each change.

use super::{Reader, Server, named};
use crate::judge::Rule;
use crate::keyspace::{Asked, Effect};
use crate::settings::Scene;
use crate::sim::Sim;
use crate::wire::{Key, Owner};
use kvlock_core::{Cause, Change, HandOff, Now, Situation, Table};

impl Server {
    /// Does one operation on a lock for that owner. If the lock can be had although somebody
    /// waits, the first waiter gets it before anything else happens.
    pub(super) fn on_lock<R>(
        &mut self,
        sim: &Sim,
        key: Key,
        owner: Owner,
        living: bool,
        operate: impl FnOnce(&mut Table<Reader>, &Situation<'_>) -> (R, Change<Reader>),
    ) -> R {
        let now = self.at(sim);
        self.expire(sim, key, now);
        let floor = self.floor(sim, now);
        let asked = Asked { owner, living: false };
        let seen = self.data.observe(key, &asked, now.unix());
        let at = Situation { key: named(key), seen, now, floor };
        if self.table.owes_a_grant(&at) {
            let cause = self.table.cause_of_freedom(named(key));
            self.look_at(sim, key, cause, now);
        }
        let living = living && !self.table.is_in_line(named(key));
        let asked = Asked { owner, living };
        let seen = self.data.observe(key, &asked, now.unix());
        let at = Situation { key: named(key), seen, now, floor };
        let (outcome, change) = operate(&mut self.table, &at);
        self.carry_out(sim, key, owner, change, now);
        outcome
    }

    /// Looks at a lock that somebody waits for.
    pub(super) fn look_at(&mut self, sim: &Sim, key: Key, cause: Cause, now: Now) {
        self.table.pass_over(named(key));
        self.expire(sim, key, now);
        let floor = self.floor(sim, now);
        let nobody = Owner::new(0);
        let mut asked = Asked { owner: nobody, living: false };
        let seen = self.data.observe(key, &asked, now.unix());
        let at = Situation { key: named(key), seen, now, floor };
        let living = self.table.must_find_the_living(&at);
        asked.living = living;
        let seen = self.data.observe(key, &asked, now.unix());
        let at = Situation { key: named(key), seen, now, floor };
        let change = self.table.look(&at, cause);
        self.carry_out(sim, key, nobody, change, now);
    }

    pub(super) fn expire(&mut self, sim: &Sim, key: Key, now: Now) {
        if self.data.expire(key, now.unix()) {
            self.replicate(sim, Effect::Lock(key, None));
        }
    }

    pub(super) fn carry_out(
        &mut self,
        sim: &Sim,
        key: Key,
        caller: Owner,
        change: Change<Reader>,
        now: Now,
    ) {
        if matches!(change, Change::None) {
            return self.plan(sim, now);
        }
        self.note_grants(sim, key, caller, &change, now);
        let issued = change.issued();
        let left = matches!(change, Change::Leave);
        if let Some(effect) = self.data.write(key, caller, &change) {
            self.replicate(sim, effect);
        } else {
            let text = format!("{change:?} does not fit {:?}", self.data.lock(key));
            sim.judge.borrow_mut().fail(Rule::Table, text);
        }
        sim.log(|| format!("server {}: {key} is {:?}", self.id, self.data.lock(key)));
        if let Some(token) = issued {
            let line = if sim.plan.scene == Scene::Quorum { self.id } else { 0 };
            sim.judge.borrow_mut().issued(line, self.generation, key, token.value());
            self.reserve(sim, token, now);
        }
        match change {
            Change::HandOff(hand_off) => self.tell(sim, key, &hand_off),
            Change::Share(sharers) => {
                sharers.joined.iter().for_each(|hand_off| self.tell(sim, key, hand_off));
            }
            Change::None
            | Change::Take { .. }
            | Change::Update { .. }
            | Change::Free
            | Change::GiveWay
            | Change::Leave
            | Change::Beside { .. } => {}
        }
        if left && self.table.waiters_of(named(key)) > 0 {
            self.look_at(sim, key, Cause::Release, now);
        }
        self.plan(sim, now);
    }

    /// Takes note of a grant to somebody who waited, whose session is told.
    fn tell(&mut self, sim: &Sim, key: Key, hand_off: &HandOff<Reader>) {
        let place = (key, Owner::read(&hand_off.owner));
        sim.judge.borrow_mut().counts.handed_off += 1;
        if self.ledger.is_away(place) {
            let text = format!("{place:?} was granted although its session is away");
            sim.judge.borrow_mut().fail(Rule::Sessions, text);
        }
        if let Some(before) = self.ledger.is_before(place, self.at(sim)) {
            let text = format!("{place:?} before {before:?}");
            sim.judge.borrow_mut().fail(Rule::Order, text);
        }
        self.ledger.leaves(place);
    }

    /// Takes note of who is granted something by that.
    fn note_grants(&self, sim: &Sim, key: Key, caller: Owner, change: &Change<Reader>, now: Now) {
        let owner_of = |hand_off: &HandOff<Reader>| Owner::read(&hand_off.owner);
        let joins: Vec<Owner> = match change {
            Change::Take { .. } => vec![caller],
            Change::HandOff(hand_off) => vec![owner_of(hand_off)],
            Change::Share(sharers) => {
                let holders = self.data.lock(key).map(|lock| lock.holders(now.unix()));
                let shares = holders.is_some_and(|holders| holders.contains(&caller));
                let own = sharers.own.filter(|_| !shares).map(|_| caller);
                sharers.joined.iter().map(owner_of).chain(own).collect()
            }
            Change::None
            | Change::Update { .. }
            | Change::Free
            | Change::GiveWay
            | Change::Leave
            | Change::Beside { .. } => Vec::new(),
        };
        let token = change.issued().map_or(0, |token| token.value());
        for owner in joins {
            sim.judge.borrow_mut().granted(self.generation, owner, token);
        }
    }
}
