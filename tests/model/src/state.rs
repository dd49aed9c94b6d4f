//! The state of a world, what may happen in it, and what becomes of it.

use crate::World;
use crate::client::{Asks, Call, Client, Late};
use crate::server::{Outcome, Server};

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u8,
    clients: Vec<Client>,
    servers: Vec<Server>,
    failovers: u8,
    /// The largest token that any server has issued.
    issued: u64,
    /// The largest token whose write has landed.
    landed: u64,
    /// The latest primary has issued a token that is not larger than each before.
    pub(crate) token_went_back: bool,
    /// A write has landed after one with a larger token.
    pub(crate) stale_write: bool,
    /// A second client has come to believe that it holds the lock.
    pub(crate) was_handed_on: bool,
    believed: Option<usize>,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time goes by.
    Tick,
    /// A client asks for the lock, for a renewal, or gives it back.
    Ask(usize),
    /// It renews, for a lease.
    Renew(usize),
    /// It renews, for one tick.
    Shorten(usize),
    /// It gives the lock back.
    Release(usize),
    /// Its request reaches the server.
    Arrive(usize),
    /// The answer reaches the client, with all the confirmations it needs.
    Hear(usize),
    /// The answer, or the connection, is lost.
    Lose(usize),
    /// It waits no longer for the answer to a renewal, which is still on its way.
    GiveUp(usize),
    /// It goes on over another connection.
    Redial(usize),
    /// That one of its late renewals arrives.
    Late(usize, usize),
    /// It turns to the latest primary.
    Reconnect(usize),
    /// It writes, having looked that it still holds the lock.
    Write(usize),
    /// The write lands.
    Land(usize),
    /// A replica gets the next copy.
    Copy(usize),
    /// The latest primary dies.
    Crash,
    /// A replica becomes the primary.
    Promote(usize),
}

impl State {
    pub(crate) fn begin(world: &World) -> Self {
        Self {
            now: 1,
            clients: vec![Client::new(world.times); world.clients],
            servers: (0..world.servers).map(|server| Server::new(server == 0)).collect(),
            failovers: world.failovers,
            issued: 0,
            landed: 0,
            token_went_back: false,
            stale_write: false,
            was_handed_on: false,
            believed: None,
        }
    }

    /// How many clients believe to hold the lock.
    pub(crate) fn believers(&self) -> usize {
        self.clients.iter().filter(|client| client.belief.is_some()).count()
    }

    /// Whether the latest primary has the lock for whoever believes to hold it, and for as long.
    pub(crate) fn believed_is_held(&self) -> bool {
        let lock = self.servers[self.latest()].lock;
        self.clients.iter().enumerate().all(|(at, client)| {
            client.belief.is_none_or(|(token, end)| {
                lock.is_some_and(|lock| {
                    lock.owner == at && lock.token == token && lock.until + 1 >= end
                })
            })
        })
    }

    /// The primary, or the latest of those who take themselves for it.
    fn latest(&self) -> usize {
        let primaries = self.servers.iter().enumerate().filter(|(_, server)| server.primary);
        // Only replicas of the one before are promoted: the others have the smaller floor or are
        // dead.
        let latest = primaries.max_by_key(|(_, server)| (server.cut_at.is_none(), server.alive));
        latest.map_or(0, |(at, _)| at)
    }

    pub(crate) fn may_happen(&self, world: &World, actions: &mut Vec<Action>) {
        if self.now < world.ticks {
            actions.push(Action::Tick);
        }
        let latest = self.latest();
        for (at, client) in self.clients.iter().enumerate() {
            let idle = client.call == Call::None;
            let here = self.servers[client.server].alive;
            if idle && here {
                match client.belief {
                    None if client.may(0) => actions.push(Action::Ask(at)),
                    None => {}
                    Some(_) => {
                        if client.may(1) {
                            actions.push(Action::Renew(at));
                        }
                        if client.may(1) && world.late {
                            actions.push(Action::Shorten(at));
                        }
                        actions.push(Action::Release(at));
                    }
                }
            }
            if idle && client.server != latest && self.servers[latest].alive {
                actions.push(Action::Reconnect(at));
            }
            let behind = client.late.iter().any(|late| late.connection == client.connection);
            if idle && behind {
                actions.push(Action::Redial(at));
            }
            actions.extend(client.next_late().map(|place| Action::Late(at, place)));
            if matches!(client.call, Call::Sent(Asks::Renewal(..), _)) && world.late {
                actions.push(Action::GiveUp(at));
            }
            match &client.call {
                Call::Sent(..) if here && behind => actions.push(Action::Lose(at)),
                Call::Sent(..) if here => actions.extend([Action::Arrive(at), Action::Lose(at)]),
                Call::Granted { asked, behind, .. } => {
                    if self.is_confirmed(world, *asked, behind) {
                        actions.push(Action::Hear(at));
                    }
                    actions.push(Action::Lose(at));
                }
                Call::Sent(..) | Call::Queued(_) => actions.push(Action::Lose(at)),
                Call::None => {}
            }
            if client.belief.is_some() && client.write.is_none() && client.may(2) {
                actions.push(Action::Write(at));
            }
            if client.write.is_some() {
                actions.push(Action::Land(at));
            }
        }
        for (at, server) in self.servers.iter().enumerate() {
            if !server.pending.is_empty() {
                actions.push(Action::Copy(at));
            }
            let replaces = !self.servers[latest].alive || !world.only_when_dead;
            let lag = |of: &Server| of.missed + of.pending.len();
            let mut others = self.servers.iter().filter(|of| !of.primary);
            let fresh = !world.freshest || others.all(|of| lag(server) <= lag(of));
            if !server.primary && self.failovers > 0 && replaces && fresh {
                actions.push(Action::Promote(at));
            }
        }
        if self.failovers > 0 && self.servers[latest].alive {
            actions.push(Action::Crash);
        }
    }

    fn is_confirmed(&self, world: &World, asked: Asks, behind: &[Option<u8>]) -> bool {
        let needed = match asked {
            Asks::Renewal(..) if !world.renewals_confirmed => 0,
            Asks::Lock | Asks::Renewal(..) | Asks::Release => world.confirmed,
        };
        behind.iter().filter(|left| **left == Some(0)).count() >= needed
    }

    pub(crate) fn happen(&mut self, world: &World, action: Action) {
        match action {
            Action::Tick => self.tick(world),
            Action::Ask(at) => {
                let client = &mut self.clients[at];
                client.uses(0);
                // It is an owner that nobody ever was before.
                (client.unanswered, client.lasting) = (None, None);
                client.late.clear();
                self.clients[at].call = Call::Sent(Asks::Lock, self.now);
            }
            Action::Renew(at) => {
                self.clients[at].uses(1);
                self.renew(world, at, world.lease);
            }
            Action::Shorten(at) => {
                self.clients[at].uses(1);
                self.renew(world, at, 1);
            }
            Action::GiveUp(at) => self.give_up(at),
            Action::Redial(at) => self.clients[at].connection += 1,
            Action::Late(at, place) => self.arrive_late(at, place),
            Action::Release(at) => {
                self.clients[at].belief = None;
                self.clients[at].call = Call::Sent(Asks::Release, self.now);
            }
            Action::Arrive(at) => self.arrive(world, at),
            Action::Hear(at) => self.hear(world, at),
            Action::Lose(at) => {
                let server = &mut self.servers[self.clients[at].server];
                server.queue.retain(|waiter| waiter.client != at);
                self.clients[at].call = Call::None;
            }
            Action::Reconnect(at) => self.clients[at].server = self.latest(),
            Action::Write(at) => {
                self.clients[at].uses(2);
                self.clients[at].write = self.clients[at].belief.map(|(token, _)| token);
            }
            Action::Land(at) => {
                let token = self.clients[at].write.take().unwrap_or_default();
                if token >= self.landed {
                    self.landed = token;
                } else if !world.fencing {
                    self.stale_write = true;
                }
            }
            Action::Copy(at) => self.copy(at),
            Action::Crash => self.crash(),
            Action::Promote(at) => self.promote(world, at),
        }
    }

    fn renew(&mut self, world: &World, at: usize, length: u8) {
        let token = self.clients[at].belief.map_or(0, |(token, _)| token);
        self.sends(world, at, Asks::Renewal(token, length));
    }

    fn sends(&mut self, world: &World, at: usize, asks: Asks) {
        if let (Asks::Renewal(_, length), true) = (asks, world.late) {
            self.clients[at].renewing(self.now, length);
        }
        self.clients[at].call = Call::Sent(asks, self.now);
    }

    fn give_up(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let call = std::mem::replace(&mut client.call, Call::None);
        if let Call::Sent(Asks::Renewal(token, length), _) = call {
            let (connection, server) = (client.connection, client.server);
            client.late.push(Late { connection, server, token, length });
        }
    }

    fn arrive_late(&mut self, at: usize, place: usize) {
        let Late { server: here, token, length, .. } = self.clients[at].late.remove(place);
        let server = &mut self.servers[here];
        let held = server.seen(self.now).is_some_and(|lock| lock.token == token);
        if server.alive && server.primary && held {
            server.renew(self.now, at, length);
            self.replicate(here);
        }
    }

    fn tick(&mut self, world: &World) {
        self.now += 1;
        for client in &mut self.clients {
            client.belief = client.belief.filter(|(_, end)| *end > self.now);
        }
        for at in 0..self.servers.len() {
            if self.servers[at].alive && self.servers[at].primary && !self.is_cut_off(world, at) {
                let before = self.servers[at].lock;
                if let Some((client, token)) = self.servers[at].look(self.now) {
                    self.replicate(at);
                    self.grant(at, client, token);
                } else if self.servers[at].lock != before {
                    self.replicate(at);
                }
            }
        }
    }

    /// Whether a server refuses to write, because it has lost its replicas.
    fn is_cut_off(&self, world: &World, at: usize) -> bool {
        let lost = self.servers[at].cut_at.is_some_and(|cut| self.now > cut + 1);
        world.min_replicas && lost
    }

    fn arrive(&mut self, world: &World, at: usize) {
        let here = self.clients[at].server;
        let Call::Sent(asks, sent) = self.clients[at].call else { return };
        self.clients[at].call = Call::None;
        let server = &mut self.servers[here];
        let now = self.now;
        if !server.primary || self.is_cut_off(world, here) {
            return;
        }
        let server = &mut self.servers[here];
        let before = server.lock;
        let outcome = match asks {
            Asks::Lock => {
                let offered = if world.offer { 1 } else { world.lease };
                server.wait(now, at, [world.lease, offered])
            }
            Asks::Renewal(_, length) => server.renew(now, at, length),
            Asks::Release => {
                let next = server.release(now, at);
                if server.lock != before {
                    self.replicate(here);
                }
                if let Some((client, token)) = next {
                    self.grant(here, client, token);
                }
                return;
            }
        };
        if server.lock != before {
            self.replicate(here);
        }
        match outcome {
            Outcome::Granted(token) => {
                if asks == Asks::Lock {
                    self.issue(here, token);
                }
                let behind = self.behind(here);
                self.clients[at].call =
                    Call::Granted { asked: asks, sent, token, waited: false, behind };
            }
            Outcome::Queued => self.clients[at].call = Call::Queued(sent),
            Outcome::Refused => {
                if matches!(asks, Asks::Renewal(..)) {
                    // It is told that the lock is lost.
                    self.clients[at].belief = None;
                }
            }
        }
    }

    /// A waiter was handed the lock.
    fn grant(&mut self, server: usize, client: usize, token: u64) {
        self.issue(server, token);
        let behind = self.behind(server);
        if let Call::Queued(sent) = self.clients[client].call {
            let (asked, waited) = (Asks::Lock, true);
            self.clients[client].call = Call::Granted { asked, sent, token, waited, behind };
        }
    }

    fn issue(&mut self, server: usize, token: u64) {
        if server == self.latest() {
            self.token_went_back |= token <= self.issued;
        }
        self.issued = self.issued.max(token);
    }

    /// How many copies each follower of a server still has to get.
    fn behind(&self, server: usize) -> Vec<Option<u8>> {
        let follows = |of: &Server| !of.primary && of.alive && server == self.latest();
        let left = |of: &Server| follows(of).then_some(of.pending.len() as u8);
        self.servers.iter().map(left).collect()
    }

    fn hear(&mut self, world: &World, at: usize) {
        let call = std::mem::replace(&mut self.clients[at].call, Call::None);
        let Call::Granted { asked, sent, token, waited, .. } = call else { return };
        if waited && world.offer {
            // It was granted a moment only, to ask for more.
            return self.sends(world, at, Asks::Renewal(token, world.lease));
        }
        let from = if world.from_sending && !waited { sent } else { self.now };
        let mut length = world.lease;
        if let Asks::Renewal(_, renewed) = asked {
            let counts = self.clients[at].renewed(renewed);
            length = if world.counts_late { counts } else { renewed };
        }
        let end = from + length;
        let lost = matches!(asked, Asks::Renewal(of, _) if of != token);
        if lost || end <= self.now {
            return;
        }
        self.clients[at].belief = Some((token, end));
        self.was_handed_on |= self.believed.is_some_and(|before| before != at);
        self.believed = Some(at);
    }

    /// What a server holds now goes to those who follow it.
    fn replicate(&mut self, from: usize) {
        if from != self.latest() {
            return;
        }
        let lock = self.servers[from].lock;
        for server in self.servers.iter_mut().filter(|server| server.alive && !server.primary) {
            server.pending.push(lock);
        }
    }

    fn copy(&mut self, at: usize) {
        if self.servers[at].pending.is_empty() {
            return;
        }
        self.servers[at].lock = self.servers[at].pending.remove(0);
        for client in &mut self.clients {
            if let Call::Granted { behind, .. } = &mut client.call {
                behind[at] = behind[at].map(|left| left.saturating_sub(1));
            }
        }
    }

    fn crash(&mut self) {
        let at = self.latest();
        self.servers[at].alive = false;
        self.servers[at].cut_at = Some(self.now);
        self.servers[at].queue.clear();
        // What was on its way is lost; an answer may still arrive.
        for server in &mut self.servers {
            server.missed = server.pending.len();
            server.pending.clear();
        }
        for client in self.clients.iter_mut().filter(|client| client.server == at) {
            match &mut client.call {
                Call::Granted { behind, .. } => forget(behind),
                Call::Sent(..) | Call::Queued(_) => client.call = Call::None,
                Call::None => {}
            }
        }
    }

    fn promote(&mut self, world: &World, at: usize) {
        self.failovers -= 1;
        let before = self.latest();
        self.servers[before].cut_at.get_or_insert(self.now);
        self.servers[at].promote(world.floor);
        if world.quarantine {
            // The window in which the one before may still grant, and a lease.
            let window = u8::from(world.min_replicas) * 2;
            self.servers[at].quarantine_until = self.now + world.lease + window;
        }
        let lock = self.servers[at].lock;
        for server in self.servers.iter_mut().filter(|server| !server.primary) {
            // It follows the new one, and begins with all that it has.
            (server.lock, server.pending, server.missed) = (lock, Vec::new(), 0);
        }
        for client in self.clients.iter_mut().filter(|client| client.server == before) {
            if let Call::Granted { behind, .. } = &mut client.call {
                forget(behind);
            }
        }
    }
}

/// A server is gone, or cut off: what was not confirmed never will be.
fn forget(behind: &mut [Option<u8>]) {
    for left in behind {
        *left = left.filter(|left| *left == 0);
    }
}
