//! Faults, drawn from the seed.

use crate::clock::{MS, SECOND};
use crate::node::Memory;
use crate::settings::{Keeping, Safeguard, Scene};
use crate::sim::{Sim, Who};
use crate::wire::{ClientId, ServerId};
use std::rc::Rc;

/// A kind of fault: its weight, its name and its action.
type Kind = (u64, &'static str, fn(&Sim));

impl Sim {
    /// Schedules the end of a fault, its next part, or the next fault.
    fn later(&self, after: u64, what: impl FnOnce(&Rc<Self>) + 'static) {
        self.at(self.now() + after, Who::Nobody, what);
    }

    pub(crate) fn next_fault(self: &Rc<Self>) {
        if self.calm.get() {
            return;
        }
        self.judge.borrow_mut().counts.faults += 1;
        let (_, name, act) = self.draw();
        self.log(|| format!("fault: {name}"));
        act(self);
        let pause = match self.plan.scene {
            // A run covers less time here, because a request to a majority takes many steps.
            Scene::Quorum => 20 * MS + self.below(300 * MS),
            // Long pauses, so that at most one fault happens during an offer to a waiter.
            Scene::Stalls => 3 * SECOND + self.below(SECOND),
            Scene::Single | Scene::Crashes | Scene::Dates | Scene::Failovers | Scene::Sets => {
                20 * MS + self.below(1_200 * MS)
            }
        };
        self.later(pause, Self::next_fault);
    }

    fn draw(&self) -> Kind {
        if self.plan.scene == Scene::Stalls {
            return (1, "stall", Self::stall);
        }
        let mut kinds: Vec<Kind> = vec![
            (25, "break", Self::break_one),
            (15, "stop a client", |sim| sim.stop_for_a_while(Who::Client(sim.one_client()))),
            (6, "kill a client", Self::kill_one),
            (8, "cut", Self::cut_one),
        ];
        let stop = |often| -> Kind {
            (often, "stop a server", |sim| sim.stop_for_a_while(Who::Server(sim.one_server())))
        };
        let pause = |often| -> Kind { (often, "pause", Self::pause_writes) };
        let crash = |often| -> Kind { (often, "crash", Self::crash_one) };
        match self.plan.scene {
            Scene::Single => kinds.extend([stop(8), pause(10), crash(3)]),
            Scene::Crashes => kinds.extend([stop(8), pause(8), crash(20)]),
            Scene::Dates => kinds.extend([pause(8), (25, "date", Self::set_a_date)]),
            Scene::Failovers | Scene::Sets => {
                // With a quarantine, nothing is promised for a primary that stops and resumes.
                kinds.extend((self.plan.keeping != Keeping::Quarantine).then(|| stop(5)));
                kinds.push((35, "failover", Self::fail_over));
            }
            Scene::Quorum => kinds.extend([stop(15), crash(20)]),
            Scene::Stalls => {}
        }
        let mut left = self.below(kinds.iter().map(|(often, ..)| often).sum());
        let drawn = kinds.into_iter().find(|(often, ..)| {
            let is_it = left < *often;
            left = left.saturating_sub(*often);
            is_it
        });
        drawn.expect("what is drawn is below the sum")
    }

    fn one_client(&self) -> ClientId {
        self.below(self.plan.clients as u64) as usize
    }

    fn one_server(&self) -> ServerId {
        self.below(self.plan.servers as u64) as usize
    }

    /// All servers except the given one.
    fn others(&self, server: ServerId) -> impl Iterator<Item = ServerId> + use<> {
        let servers = self.plan.servers;
        (1..servers).map(move |step| (server + step) % servers)
    }

    fn break_one(&self) {
        let open = self.net.borrow().open_ones(None, None);
        if !open.is_empty() {
            let conn = open[self.below(open.len() as u64) as usize];
            self.break_connection(conn);
        }
    }

    fn stop_for_a_while(&self, who: Who) {
        if !self.is_stopped(who) {
            self.stop(who);
            let most = if self.percent(70) { 400 * MS } else { 3_000 * MS };
            // A stopped client may be killed instead of resumed.
            let lost = matches!(who, Who::Client(_)) && self.percent(20);
            self.later(self.below(most), move |sim| match who {
                Who::Client(client) if lost => sim.lose(client),
                Who::Client(_) | Who::Server(_) | Who::Nobody => sim.go_on(who),
            });
        }
    }

    /// Stops the server for a while. Its connections stay open, and requests are executed when it resumes.
    fn stall(&self) {
        let time = 450 * MS + self.below(250 * MS);
        self.judge.borrow_mut().counts.stalls += 1;
        self.stop(Who::Server(0));
        self.later(time, |sim| sim.go_on(Who::Server(0)));
    }

    fn kill_one(&self) {
        self.lose(self.one_client());
    }

    /// Draws whether a client dies just before a reply reaches it. If so, kills it.
    pub(crate) fn dies_unnoticed(&self, client: ClientId) -> bool {
        let dies = self.plan.dies_unnoticed && !self.calm.get() && self.percent(8);
        if dies {
            self.at(self.now(), Who::Nobody, move |sim| sim.lose(client));
        }
        dies
    }

    fn lose(&self, client: ClientId) {
        self.kill(client);
        self.later(self.below(2_000 * MS), move |sim| sim.begin_life(client));
    }

    fn cut_one(&self) {
        let (client, server) = (self.one_client(), self.one_server());
        self.cut(client, server);
        self.later(self.below(3_000 * MS), move |sim| sim.heal(client, server));
    }

    fn pause_writes(&self) {
        self.pause(self.latest.get(), 10 * MS + self.below(1_500 * MS));
    }

    fn pause(&self, server: ServerId, time: u64) {
        let until = self.now() + time;
        self.servers.borrow_mut()[server].paused = Some(until);
        self.at_server(until, server, |node, sim| node.unpause(sim));
    }

    fn set_a_date(&self) {
        let most = match self.below(4) {
            0 => 100 * MS,
            1 => SECOND,
            2 => 60 * SECOND,
            _ => 3_600 * SECOND,
        };
        let by = self.below(most).cast_signed();
        let by = if self.percent(50) { by } else { -by };
        self.log(|| format!("the date is set by {by} us"));
        self.servers.borrow_mut()[0].set_date(self, by);
    }

    fn crash_one(&self) {
        let server = self.one_server();
        if !self.server_is_up(server) || self.is_stopped(Who::Server(server)) {
            return;
        }
        self.crash(server);
        let memory = self.memory();
        self.later(self.below(2_000 * MS), move |sim| sim.comes_back(server, memory));
    }

    fn crash(&self, server: ServerId) {
        self.servers.borrow_mut()[server].dies(self);
        self.judge.borrow_mut().counts.crashes += 1;
    }

    fn comes_back(self: &Rc<Self>, server: ServerId, memory: Memory) {
        self.begins(move |sim| sim.bring_back(server, memory));
    }

    fn memory(&self) -> Memory {
        match self.below(3) {
            _ if !self.plan.forgets => Memory::Everything,
            0 => Memory::Everything,
            1 => Memory::Disk,
            _ => Memory::Nothing,
        }
    }

    /// Replaces or restarts the primary, or cuts its links, in a random way. At most two of these faults
    /// overlap.
    fn fail_over(&self) {
        if self.changing.get() > 1 || self.changing.get() == 1 && !self.percent(30) {
            return;
        }
        if self.changing.get() == 1 {
            self.judge.borrow_mut().counts.overlapping += 1;
        }
        self.changing.set(self.changing.get() + 1);
        let old = self.latest.get();
        let until = self.below(1_500 * MS);
        match self.below(6) {
            0 => self.lose_and_replace(old, until),
            1 => self.part_and_replace(old, until),
            2 if self.plan.keeping != Keeping::Quarantine => {
                self.stop(Who::Server(old));
                self.later(until, move |sim| sim.takes_over(old));
                let back = until + self.below(4_000 * MS);
                self.later(back, move |sim| sim.go_on(Who::Server(old)));
                self.later(back + 1 + self.below(2_000 * MS), move |sim| sim.follow(old));
                self.later(back + 2_500 * MS, |sim| sim.settles());
            }
            3 => {
                self.cut_links(old);
                self.later(until, move |sim| sim.others(old).for_each(|other| sim.follow(other)));
                self.later(until + 500 * MS, |sim| sim.settles());
            }
            4 => {
                // The server restarts as the primary. In half of the cases it does so soon, often before its
                // clients notice.
                self.crash(old);
                let until = if until.is_multiple_of(2) { until / 20 } else { until };
                let whole = self.has(Safeguard::ComesBackWhole);
                let memory = if whole { self.memory() } else { Memory::Nothing };
                self.later(until, move |sim| sim.comes_back(old, memory));
                self.later(until + 1_000 * MS, |sim| sim.settles());
            }
            _ => {
                self.pause(old, 2_000 * MS);
                let next = (old + 1 + self.below(2) as usize) % self.plan.servers;
                self.later(self.below(300 * MS), move |sim| {
                    sim.begins(move |sim| sim.swap(old, next));
                });
                self.later(2_500 * MS, |sim| sim.settles());
            }
        }
    }

    /// Kills and replaces the primary. In some cases its links to the replicas are cut before.
    fn lose_and_replace(&self, old: ServerId, until: u64) {
        if self.percent(60) {
            self.cut_links(old);
        }
        let dies = self.below(300 * MS);
        self.later(dies, move |sim| sim.crash(old));
        self.later(dies + until, move |sim| sim.takes_over(old));
        let back = dies + until + self.below(3_000 * MS);
        let memory = self.memory();
        self.later(back, move |sim| sim.comes_back(old, memory));
        self.later(back + 1, move |sim| sim.follow(old));
        self.later(back + 500 * MS, |sim| sim.settles());
    }

    /// Cuts the primary off, together with some of the clients, and replaces it. The old primary
    /// still acts as a primary for a while.
    fn part_and_replace(&self, old: ServerId, until: u64) {
        self.cut_links(old);
        let back = until + self.below(self.longest_part());
        for client in 0..self.plan.clients {
            let with_it = self.percent(40);
            for server in 0..self.plan.servers {
                if with_it != (server == old) {
                    self.cut(client, server);
                    self.later(back, move |sim| sim.heal(client, server));
                }
            }
        }
        self.later(until, move |sim| sim.takes_over(old));
        self.later(back + 1 + self.below(1_000 * MS), move |sim| sim.follow(old));
        self.later(back + 1_500 * MS, |sim| sim.settles());
    }

    /// Returns whether a primary that is cut off must be without a replica.
    fn none_goes_along(&self) -> bool {
        self.plan.keeping == Keeping::Quarantine && self.has(Safeguard::NoReplicaAlong)
    }

    /// Cuts the links to one replica or both.
    fn cut_links(&self, primary: ServerId) {
        let both = self.percent(60) || self.none_goes_along();
        let mut servers = self.servers.borrow_mut();
        for replica in self.others(primary).take(if both { 2 } else { 1 }) {
            let keeps_sent = self.percent(50);
            if let Ok([primary, replica]) = servers.get_disjoint_mut([primary, replica]) {
                primary.cut_link(self, replica, keeps_sent);
            }
        }
    }

    /// Starts or promotes a server, at the earliest one second after the previous start or promotion. Does not
    /// wait if the faults have ended. A server's first token depends on its clock, and must be larger than the
    /// tokens of the previous server.
    fn begins(self: &Rc<Self>, begin: impl FnOnce(&Rc<Self>) + 'static) {
        let left = (self.began.get() + SECOND).saturating_sub(self.now());
        if left > 0 && !self.calm.get() {
            return self.later(left, move |sim| sim.begins(begin));
        }
        self.began.set(self.now());
        begin(self);
    }

    fn settles(&self) {
        self.changing.set(self.changing.get().saturating_sub(1));
        if self.changing.get() == 0 {
            self.relink();
        }
    }

    fn bring_back(&self, server: ServerId, memory: Memory) {
        if self.server_is_up(server) {
            return;
        }
        self.servers.borrow_mut()[server].comes_back(self, memory);
        if self.plan.scene.is_replicated() && self.latest.get() == server {
            // Its replicas reconnect.
            for other in self.others(server) {
                self.later(self.below(500 * MS), move |sim| sim.follow(other));
            }
        }
    }

    fn takes_over(self: &Rc<Self>, old: ServerId) {
        self.begins(move |sim| sim.take_over(old));
    }

    fn take_over(&self, old: ServerId) {
        let mut servers = self.servers.borrow_mut();
        let fit: Vec<ServerId> = servers
            .iter()
            .filter(|it| it.up && !it.primary && it.synced && it.id != old)
            .map(|it| it.id)
            .collect();
        if fit.is_empty() || self.latest.get() != old {
            return;
        }
        let next = fit[self.below(fit.len() as u64) as usize];
        servers[next].promoted(self);
        // An old primary that its successor can reach drops the successor from its replicas.
        if let Ok([old, next]) = servers.get_disjoint_mut([old, next])
            && old.up
            && !old.is_cut_off(next.id)
        {
            old.loses(self, next.id);
        }
        let other = 3 - old - next;
        if self.none_goes_along()
            && let Ok([old, other]) = servers.get_disjoint_mut([old, other])
        {
            old.cut_link(self, other, true);
        }
        drop(servers);
        // Until then, the other replica may still follow the old primary.
        let alone = self.has(Safeguard::NoReplicaAlong);
        let longest = if alone { 1_000 * MS } else { self.longest_part() };
        self.later(self.below(longest), move |sim| sim.follow(other));
        // The fault demotes the replaced primary, unless the promotion came later than planned.
        self.later(self.longest_part() + 3 * SECOND, move |sim| {
            if sim.servers.borrow()[old].primary {
                sim.follow(old);
            }
        });
    }

    /// Longest time for which a replaced primary is cut off. If it still has a replica, it grants locks in
    /// that time. These grants do harm only after the quarantine of the successor, so the time is longer while
    /// the safeguard is off.
    fn longest_part(&self) -> u64 {
        if self.has(Safeguard::NoReplicaAlong) { 6_000 * MS } else { 24_000 * MS }
    }

    /// Makes a server follow the latest primary. If it is an earlier primary, demotes it.
    fn follow(&self, server: ServerId) {
        let latest = self.latest.get();
        let mut servers = self.servers.borrow_mut();
        let Ok([primary, replica]) = servers.get_disjoint_mut([latest, server]) else { return };
        if !replica.up {
            return;
        }
        replica.deposed(self);
        if primary.up && primary.primary {
            primary.takes_on(self, replica);
        }
    }

    /// Makes each server that has no link to the latest primary follow it.
    fn relink(&self) {
        let latest = self.latest.get();
        for server in self.others(latest) {
            let linked = {
                let servers = self.servers.borrow();
                let follows = servers[server].follows.is_some_and(|(whom, _)| whom == latest);
                follows && servers[latest].is_linked_to(server)
            };
            if !linked {
                self.follow(server);
            }
        }
    }

    fn swap(&self, old: ServerId, next: ServerId) {
        let mut servers = self.servers.borrow_mut();
        let Ok([primary, replica]) = servers.get_disjoint_mut([old, next]) else { return };
        let fits = primary.up && primary.primary && self.latest.get() == old && replica.up;
        if fits && primary.is_followed_up_to_date(next) {
            primary.deposed(self);
            replica.promoted(self);
        }
        drop(servers);
        self.pause(old, 0);
        for server in [old, 3 - old - next] {
            self.later(self.below(300 * MS), move |sim| sim.follow(server));
        }
    }

    /// Ends and repairs all faults.
    pub(crate) fn calm_down(self: &Rc<Self>) {
        self.calm.set(true);
        self.all_go_on();
        self.heal_everything();
        for server in 0..self.plan.servers {
            self.bring_back(server, Memory::Everything);
        }
        if self.plan.scene.is_replicated() {
            self.others(self.latest.get()).for_each(|server| self.follow(server));
        }
        if self.plan.scene == Scene::Dates {
            // Leases that were set while the wall clock was ahead end too.
            self.servers.borrow_mut()[0].set_date(self, 24 * 3_600 * SECOND.cast_signed());
        }
    }
}
