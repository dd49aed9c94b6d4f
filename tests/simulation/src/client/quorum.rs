//! Users of locks at a majority of several servers: the crate `kvlock-quorum`.

use super::life::Held;
use crate::judge::{Belief, Believer};
use crate::sim::Sim;
use crate::wire::{ClientId, Key, key_name};
use kvlock_quorum::{Client, Error, Quorum, QuorumGuard, QuorumLock};
use std::rc::Rc;
use std::time::Duration;

/// Longest wait for one server.
const SERVER_TIMEOUT: Duration = Duration::from_millis(60);

/// A user of a client.
struct Me {
    sim: Rc<Sim>,
    id: ClientId,
    clients: Vec<Client>,
}

impl Sim {
    pub(super) fn begin_life_of_quorums(self: &Rc<Self>, id: ClientId) {
        let clients = (0..self.plan.servers).map(|server| self.crate_of(id, Some(server)));
        let Some(clients) = clients.collect::<Option<Vec<_>>>() else { return };
        for _ in 0..2 {
            let me = Me { sim: Rc::clone(self), id, clients: clients.clone() };
            self.spawn_user(id, me.live());
        }
    }
}

impl Me {
    async fn live(self) {
        let Some(quorum) = self.quorum().await else { return };
        while !self.sim.calm.get() {
            self.sim.rest(200_000).await;
            self.visit(&quorum).await;
        }
    }

    /// Connects to a majority of the servers. Retries after retryable errors until the faults have ended.
    async fn quorum(&self) -> Option<Quorum> {
        while !self.sim.calm.get() {
            match Quorum::of(self.clients.clone()).await {
                Ok(quorum) => return Some(quorum.server_timeout(SERVER_TIMEOUT)),
                Err(trouble) if trouble.is_retryable() => self.sim.rest(200_000).await,
                Err(trouble) => {
                    self.sim.fails(trouble.to_string());
                    return None;
                }
            }
        }
        None
    }

    async fn visit(&self, quorum: &Quorum) {
        let Self { sim, id, .. } = self;
        let key = sim.below(sim.plan.keys as u64) as Key;
        let half = sim.plan.lease_ms / 2;
        let lease = Duration::from_millis(half + sim.below(half));
        let lock = quorum.lock(key_name(key));
        let lock = if sim.percent(25) { lock.fixed_lease(lease) } else { lock.lease(lease) };
        let Ok(Some(guard)) = self.acquire(&lock).await else { return };
        let token = guard.token().value();
        let held = Held::new(sim, guard, QuorumGuard::is_lost);
        if !held.believes() {
            // The lease ended before its user could use it.
            return;
        }
        let holder: Rc<dyn Believer> = Rc::<Held<_>>::clone(&held);
        let owner = {
            let mut judge = sim.judge.borrow_mut();
            let name = format!("quorum {}", judge.counts.quorums);
            let owner = sim.names.borrow_mut().owner(name.as_bytes());
            judge.held_by_quorum(key, token);
            let belief = Belief { client: *id, key, owner, shared: false, token, holder };
            judge.add_belief(belief);
            owner
        };
        sim.log(|| format!("client {id} as {owner:?} holds {key} by quorum with {token}"));
        let longest = if sim.calm.get() { lease / 4 } else { lease * 2 };
        let mut left = sim.below(longest.as_micros() as u64);
        while left > 0 && held.believes() {
            sim.write(key, owner, token);
            let pause = sim.below(lease.as_micros() as u64 / 3).min(left);
            tokio::time::sleep(Duration::from_micros(pause)).await;
            left -= pause;
            held.hears();
        }
        if let Some(guard) = held.leaves(sim, *id, (key, owner)) {
            drop(guard.release().await);
        }
    }

    async fn acquire(&self, lock: &QuorumLock) -> Result<Option<QuorumGuard>, Error> {
        match self.sim.below(10) {
            0 | 1 => lock.try_acquire().await,
            2..=5 => lock.acquire_within(Duration::from_millis(self.sim.below(3_000) + 1)).await,
            _ => lock.acquire().await.map(Some),
        }
    }
}
