//! Users of a client: they acquire locks, work while they hold them, and release them.

use crate::judge::{Belief, Believer, Rule};
use crate::settings::{Safeguard, Scene};
use crate::sim::{Sim, Who};
use crate::wire::{ClientId, Key, Owner, Place, key_name};
use kvlock::{Client, Guard, Lock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A guard, as the judge sees it. Without a guard there is no belief.
pub(super) struct Held<G> {
    guard: RefCell<Option<G>>,
    is_lost: fn(&G) -> bool,
    /// `true` if the user checks the guard. Otherwise the user believes in the lock until it is notified of a loss.
    looks: bool,
    /// `true` if the user has been notified of a loss.
    told: Cell<bool>,
}

impl<G> Held<G> {
    pub(super) fn new(sim: &Sim, guard: G, is_lost: fn(&G) -> bool) -> Rc<Self> {
        let looks = sim.has(Safeguard::LooksAtClock);
        Rc::new(Self { guard: RefCell::new(Some(guard)), is_lost, looks, told: Cell::default() })
    }

    /// Notifies the user of a loss, if there is one.
    pub(super) fn hears(&self) {
        self.told.set(self.guard.borrow().as_ref().is_none_or(self.is_lost));
    }

    /// Ends a user's hold. In most cases returns the guard to release.
    pub(super) fn leaves(&self, sim: &Sim, client: ClientId, (key, owner): Place) -> Option<G> {
        let believes = self.believes();
        let guard = self.guard.take();
        sim.judge.borrow_mut().gives_up(owner, believes);
        sim.log(|| format!("client {client} as {owner:?} leaves {key}"));
        guard.filter(|_| sim.percent(70))
    }
}

impl<G> Believer for Held<G> {
    fn believes(&self) -> bool {
        let lost = |guard: &G| if self.looks { (self.is_lost)(guard) } else { self.told.get() };
        self.guard.borrow().as_ref().is_some_and(|guard| !lost(guard))
    }
}

/// A granted lock.
#[derive(Clone, Copy)]
struct Grant {
    key: Key,
    owner: Owner,
    token: u64,
    shared: bool,
}

/// A user of a client.
struct Me {
    sim: Rc<Sim>,
    id: ClientId,
    client: Client,
}

impl Sim {
    pub(super) fn begin_life_of_locks(self: &Rc<Self>, id: ClientId) {
        let Some(client) = self.crate_of(id, None) else { return };
        let of_sets = self.plan.scene == Scene::Sets;
        for _ in 0..if of_sets { 1 } else { 2 } {
            let me = Me { sim: Rc::clone(self), id, client: client.clone() };
            self.spawn_user(id, me.live());
        }
        if of_sets {
            self.begin_life_of_sets(id);
        }
    }

    /// Sleeps up to `most` microseconds.
    pub(super) async fn rest(&self, most: u64) {
        sleep(Duration::from_micros(self.below(most))).await;
    }

    /// Sends a write to the guarded resource. It arrives after a random time.
    pub(super) fn write(&self, key: Key, owner: Owner, token: u64) {
        let late = if self.percent(10) { self.below(3_000_000) } else { self.delay() };
        self.at(self.now() + late, Who::Nobody, move |sim| {
            let taken = sim.judge.borrow_mut().lands(key, owner, token);
            sim.log(|| format!("write to {key} by {owner:?} with {token}: {taken}"));
        });
    }
}

impl Me {
    async fn live(self) {
        while !self.sim.calm.get() {
            self.sim.rest(300_000).await;
            self.visit().await;
        }
    }

    async fn visit(&self) {
        let Self { sim, id, client } = self;
        let key = sim.below(sim.plan.keys as u64) as Key;
        let shared = sim.plan.shared && sim.percent(50);
        let half = sim.plan.lease_ms / 2;
        // With failovers all leases have the full length, which outlasts a failover.
        let part = if sim.plan.scene.is_replicated() { half } else { sim.below(half) };
        let shorter = if sim.plan.has_short_leases() { 6 } else { 1 };
        let lease = Duration::from_millis(half + part);
        let mut lock = client.lock(key_name(key));
        if shared {
            lock = lock.shared();
        }
        if sim.percent(60) {
            lock = lock.bound();
        }
        // Sometimes acquire again. Then the first lease may be short.
        let again = (!shared && sim.percent(30)).then(|| {
            let lock = lock.clone().owner(&client.owner());
            (lock.clone().lease(lease), lock.lease(lease / shorter))
        });
        let fixed = !sim.plan.promises_leases && sim.percent(15);
        let lock = match &again {
            Some((_, first)) => first.clone(),
            None if fixed => lock.fixed_lease(lease),
            None => lock.lease(lease),
        };
        let patience = Duration::from_millis(sim.below(1_000));
        let guard = if sim.percent(15) {
            // The future may be dropped before it completes.
            timeout(patience, self.acquire(&lock)).await.ok().flatten()
        } else {
            self.acquire(&lock).await
        };
        let Some(guard) = guard else { return };
        let owner = sim.names.borrow_mut().owner(guard.owner().as_bytes());
        let grant = Grant { key, owner, token: guard.token().value(), shared };
        let held = Held::new(sim, guard, |guard: &Guard| guard.is_lost());
        let holder: Rc<dyn Believer> = Rc::<Held<_>>::clone(&held);
        sim.log(|| format!("client {id} as {owner:?} has {key} with {}", grant.token));
        let belief = Belief { client: *id, key, owner, shared, token: grant.token, holder };
        sim.judge.borrow_mut().add_belief(belief);
        self.work(&held, grant).await;
        if let Some((lock, _)) = again {
            self.enter_again(&lock, lease, &held, grant).await;
        }
        if let Some(guard) = held.leaves(sim, *id, (key, owner)) {
            drop(guard.release().await);
        }
    }

    async fn acquire(&self, lock: &Lock) -> Option<Guard> {
        let sim = &self.sim;
        let acquired = match sim.below(10) {
            0 | 1 => lock.try_acquire().await,
            2..=5 => lock.acquire_within(Duration::from_millis(sim.below(6_000) + 1)).await,
            _ => lock.acquire().await.map(Some),
        };
        acquired.ok().flatten()
    }

    /// Acquires the lock again, and then sets other leases.
    async fn enter_again(&self, lock: &Lock, lease: Duration, held: &Held<Guard>, grant: Grant) {
        let sim = &self.sim;
        let Ok(Some(mut second)) = lock.try_acquire().await else { return };
        let token = second.token().value();
        if token != grant.token && held.believes() {
            let text =
                format!("{:?} has {} with {token}, and with another", grant.owner, grant.key);
            sim.judge.borrow_mut().fail(Rule::Holds, text);
        }
        sim.judge.borrow_mut().counts.reentered += 1;
        for _ in 0..2 {
            self.work(held, grant).await;
            let tenths = if sim.plan.has_short_leases() { sim.below(10) as u32 + 1 } else { 10 };
            let part = lease * tenths / 10;
            if !sim.plan.promises_leases && sim.percent(20) {
                // The worst case for a shorter renewal is that it arrives late.
                sim.all_fall_behind(self.id);
            }
            drop(second.extend(part).await);
        }
        self.work(held, grant).await;
        if sim.percent(70) {
            drop(second.release().await);
        }
    }

    /// Works for a random time, or until the user no longer believes that it holds the lock. An exclusive
    /// holder writes to the guarded resource from time to time.
    async fn work(&self, held: &Held<Guard>, grant: Grant) {
        let Grant { key, owner, token, shared } = grant;
        let sim = &self.sim;
        let longest = if sim.calm.get() { 500 } else { 2 * sim.plan.lease_ms };
        let longest = if sim.percent(60) { longest / 10 } else { longest };
        let mut left = sim.below(longest * 1_000);
        while left > 0 && held.believes() {
            if !shared {
                sim.write(key, owner, token);
            }
            let pause = sim.below(1_000_000).min(left);
            sleep(Duration::from_micros(pause)).await;
            left -= pause;
            held.hears();
        }
    }
}
