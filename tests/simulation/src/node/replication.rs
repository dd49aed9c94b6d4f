//! Replication from a primary to its replicas, and their acknowledgements.
//!
//! As in Redis: `min-replicas-to-write` counts the replicas whose last acknowledgement is recent enough. It
//! compares whole seconds of the clock. It counts once per second, and when a replica comes online or is
//! removed (`refreshGoodSlavesCount` in `replication.c`).

use super::Node;
use crate::redis::{Changed, Keyspace, Reply, ServerEvent};
use crate::sim::Sim;
use crate::wire::{CallId, ConnId, ServerId};
use kvlock_core::Now;

/// A primary's view of a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follower {
    link: u64,
    /// Arrival time of the last sent message.
    next: u64,
    /// `true` if the replica has completed its synchronisation.
    online: bool,
    /// Offset that the replica has acknowledged.
    has: u64,
    /// Time of its last acknowledgement, in seconds.
    said_at_s: u64,
    /// `true` if the link is cut.
    cut: bool,
}

/// A `WAIT` command that is not answered yet: too few replicas have the writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unconfirmed {
    pub(super) conn: ConnId,
    pub(super) call: CallId,
    pub(super) offset: u64,
    pub(super) wanted: usize,
}

impl Node {
    /// Sends the changes of one call to the replicas, as one unit.
    pub(super) fn replicate(&mut self, sim: &Sim, changed: &[Changed]) {
        if changed.is_empty() {
            return;
        }
        self.offset += 1;
        for (to, follower) in &mut self.followers {
            if follower.cut {
                continue;
            }
            follower.next = (sim.now() + sim.delay()).max(follower.next + 1);
            let (from, to, link, offset) = (self.id, *to, follower.link, self.offset);
            let changed = changed.to_vec();
            sim.at_server(follower.next, to, move |node, sim| {
                node.copy(sim, (from, link), offset, changed);
            });
        }
    }

    /// Adds a replica. It first receives all data.
    pub(crate) fn takes_on(&mut self, sim: &Sim, replica: &mut Self) {
        let link = sim.now() * 8 + replica.id as u64;
        let next = sim.now() + sim.delay();
        let said_at_s = self.at(sim).unix_us / 1_000_000;
        let follower = Follower { link, next, online: false, has: 0, said_at_s, cut: false };
        self.followers.insert(replica.id, follower);
        replica.follows = Some((self.id, link));
        let (from, to, offset) = (self.id, replica.id, self.offset);
        let keys = self.host.keys.clone();
        sim.at_server(next, to, move |node, sim| node.sync(sim, (from, link), offset, keys));
    }

    /// Cuts the link to a replica. With `keeps_sent`, messages in flight to the replica still arrive.
    pub(crate) fn cut_link(&mut self, sim: &Sim, replica: &mut Self, keeps_sent: bool) {
        if let Some(follower) = self.followers.get_mut(&replica.id) {
            follower.cut = true;
            sim.log(|| format!("link from {} to {} is cut", self.id, replica.id));
            if !keeps_sent {
                // The replica ignores all further messages on the old link.
                replica.follows = Some((self.id, 0));
            }
        }
    }

    /// Removes a replica that has disconnected.
    pub(crate) fn loses(&mut self, sim: &Sim, replica: ServerId) {
        self.followers.remove(&replica);
        let now = self.at(sim);
        self.count_good(now);
    }

    pub(super) fn copy(
        &mut self,
        sim: &Sim,
        over: (ServerId, u64),
        offset: u64,
        changed: Vec<Changed>,
    ) {
        if self.follows == Some(over) && self.synced {
            for Changed { name, after, .. } in &changed {
                match after {
                    Some(entry) => drop(self.host.keys.insert(name.clone(), entry.clone())),
                    None => drop(self.host.keys.remove(name)),
                }
            }
            changed.iter().for_each(|changed| self.key_event(sim, &changed.name, false));
            self.copied = offset;
            self.acknowledge(sim, over.0, over.1);
        }
    }

    pub(super) fn sync(&mut self, sim: &Sim, over: (ServerId, u64), offset: u64, keys: Keyspace) {
        if self.follows == Some(over) {
            self.host.keys = keys;
            self.tell(sim, ServerEvent::Loaded);
            self.copied = offset;
            self.synced = true;
            self.acknowledge(sim, over.0, over.1);
        }
    }

    pub(super) fn acknowledge(&self, sim: &Sim, to: ServerId, link: u64) {
        let (from, offset) = (self.id, self.copied);
        sim.at_server(sim.now() + sim.delay(), to, move |node, sim| {
            node.acknowledged(sim, from, link, offset);
        });
    }

    pub(super) fn acknowledged(&mut self, sim: &Sim, from: ServerId, link: u64, offset: u64) {
        let now = self.at(sim);
        let Some(follower) = self.followers.get_mut(&from) else { return };
        if follower.link != link || follower.cut {
            return;
        }
        let first = !std::mem::replace(&mut follower.online, true);
        follower.has = follower.has.max(offset);
        follower.said_at_s = now.unix_us / 1_000_000;
        if first {
            self.count_good(now);
        }
        let enough =
            |(id, it): (&u64, &Unconfirmed)| (self.have(it.offset) >= it.wanted).then_some(*id);
        let confirmed: Vec<_> = self.unconfirmed.iter().filter_map(enough).collect();
        confirmed.into_iter().for_each(|id| self.overdue(sim, id));
    }

    /// Number of replicas that have everything up to an offset.
    pub(super) fn have(&self, offset: u64) -> usize {
        let all = self.followers.values();
        all.filter(|follower| follower.online && follower.has >= offset).count()
    }

    pub(super) fn hold_up(&mut self, sim: &Sim, it: Unconfirmed, timeout_ms: u64) {
        self.last_unconfirmed += 1;
        let number = self.last_unconfirmed;
        self.unconfirmed.insert(number, it);
        let end = sim.now() + timeout_ms * 1_000;
        sim.at_server(end, self.id, move |node, sim| node.overdue(sim, number));
    }

    /// Answers a `WAIT`, because enough replicas have the writes or its timeout has passed.
    pub(super) fn overdue(&mut self, sim: &Sim, number: u64) {
        if let Some(it) = self.unconfirmed.remove(&number) {
            sim.answer(it.conn, it.call, Reply::Number(self.have(it.offset) as u64));
            self.goes_on(sim, it.conn);
        }
    }

    /// Answers all pending `WAIT` calls with an error: this server has become a replica.
    pub(super) fn dismiss_unconfirmed(&mut self, sim: &Sim) {
        for it in std::mem::take(&mut self.unconfirmed).into_values() {
            sim.answer(
                it.conn,
                it.call,
                Reply::error(c"UNBLOCKED this server has become a replica"),
            );
            self.goes_on(sim, it.conn);
        }
    }

    pub(super) fn count_good(&mut self, now: Now) {
        let second = now.unix_us / 1_000_000;
        let lags = |follower: &&Follower| second.saturating_sub(follower.said_at_s) > 1;
        let all = self.followers.values().filter(|follower| follower.online);
        self.good = all.filter(|follower| !lags(follower)).count();
    }

    /// Returns whether the server refuses writes with `NOREPLICAS`.
    pub(super) fn lacks_replicas(&self, sim: &Sim) -> bool {
        self.good < sim.plan.min_replicas
    }

    /// Returns whether a replica has acknowledged all writes, over a link that works.
    pub(crate) fn is_followed_up_to_date(&self, replica: ServerId) -> bool {
        self.followers.get(&replica).is_some_and(|it| it.has == self.offset && !it.cut)
    }

    /// Returns whether the replica follows this server over a working link.
    pub(crate) fn is_linked_to(&self, replica: ServerId) -> bool {
        self.followers.get(&replica).is_some_and(|it| !it.cut)
    }

    pub(crate) fn is_cut_off(&self, replica: ServerId) -> bool {
        self.followers.get(&replica).is_some_and(|it| it.cut)
    }

    pub(crate) fn forgets_followers(&mut self) {
        self.followers.clear();
    }
}
