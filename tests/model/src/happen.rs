//! The effect of each action on the state.

use crate::client::{Asks, Call, Late, Stage};
use crate::server::{Lock, Reply, Step};
use crate::state::{Action, State};
use crate::table::SESSIONS;
use crate::world::{Rule, World};

impl State {
    pub(crate) fn happen(&mut self, world: &World, action: Action) {
        self.noted = "";
        match action {
            Action::Tick => self.tick(world),
            Action::Ask(at, asks) => {
                self.clients[at].asks(world, asks, self.now);
                if asks == Asks::Lock && world.has_sessions() {
                    self.arrive(world, at, asks.line());
                    self.hear(world, at, asks.line());
                }
            }
            Action::Arrive(at, line) => self.arrive(world, at, line),
            Action::Hear(at, line) => self.hear(world, at, line),
            Action::Leave(at, line, late) => {
                let client = &mut self.clients[at];
                if late.is_some() {
                    client.left.gives_up = client.left.gives_up.saturating_sub(1);
                }
                client.leaves(line, late.is_some());
                client.connection += u8::from(late == Some(true));
                let server = &mut self.nodes[client.server].server;
                server.queue.retain(|(waiter, _)| *waiter != at);
            }
            Action::Late(at, place) => self.arrive_late(world, at, place),
            Action::Reconnect(at) => self.clients[at].server = self.latest,
            Action::Write(at) => {
                let client = &mut self.clients[at];
                client.left.writes -= 1;
                client.write = client.guard.as_ref().map(|guard| guard.token);
            }
            Action::Land(at) => {
                let token = self.clients[at].write.take().unwrap_or_default();
                if token >= self.landed {
                    self.landed = token;
                } else if !world.keeps(Rule::Fencing) {
                    self.noted = "no stale write";
                }
            }
            Action::Copy(to) => self.copy(to),
            Action::Promote(at) => self.promote(world, at),
            Action::Crash => self.nodes[self.latest].alive = false,
            Action::Restart => {
                self.restarts -= 1;
                let latest = self.latest;
                let server = &mut self.nodes[latest].server;
                if server.lock.is_some_and(|lock| lock.goes_with.is_some()) {
                    self.noted = "kept by a restart";
                }
                let sessions = std::mem::take(&mut server.sessions);
                server.forgets();
                sessions.iter().for_each(|session| self.lose_reader(session.number));
            }
            Action::LoseReader(number) => {
                self.serve(world, self.latest, Step::LoseReader(number));
                self.lose_reader(number);
            }
            Action::Work => self.work(world),
        }
        let believer = self.believers().next();
        if believer.is_some() && believer != self.believed {
            if self.believed.is_some() && self.noted.is_empty() {
                self.noted = "handed on";
            }
            self.believed = believer;
        }
    }

    /// Handles the break of the connection over which a session is read.
    fn lose_reader(&mut self, number: u8) {
        let asks = Asks::Reading(number);
        let reads = |call: &mut Call| call.asks == asks && call.stage == Stage::Waits;
        self.clients[usize::from(number / SESSIONS)].calls[asks.line()].take_if(reads);
    }

    fn tick(&mut self, world: &World) {
        self.now += 1;
        for client in &mut self.clients {
            client.guard.take_if(|guard| guard.until <= self.now);
        }
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            // Waiters are served in time. Work for sessions may be late.
            let waits = !node.server.queue.is_empty();
            if node.alive && waits && !node.refuses(world, self.now) {
                self.serve(world, at, Step::Work(true));
            }
        }
    }

    /// Runs a step of a server, and sends its replies to blocked clients. If the step is a request, returns the
    /// reply to it, if there is one yet.
    fn serve(&mut self, world: &World, at: usize, step: Step) -> Option<Reply> {
        let server = &mut self.nodes[at].server;
        let before = server.lock;
        let result = server.result;
        let (reply, told) = server.step(step, self.now);
        let after = server.lock;
        let exists = server.result(self.now).is_some();
        if told.iter().any(|(_, reply)| *reply == Reply::Ready) {
            self.noted = if exists { "told" } else { "told of what is there" };
        }
        if server.result != result && server.result.is_some_and(|new| new.token < self.stored) {
            self.noted = "results grow";
        }
        self.stored = self.stored.max(server.result.map_or(0, |result| result.token));
        let is_stored = server.result != result;
        if after != before || is_stored {
            self.replicate(at);
        }
        let grant = |lock: Lock| (lock.owner, lock.token);
        if let Some(lock) = after.filter(|_| after.map(grant) != before.map(grant)) {
            if at == self.latest && lock.token <= self.issued {
                self.noted = "tokens grow";
            }
            self.issued = self.issued.max(lock.token);
        }
        for ((client, asks), reply) in told {
            let stage = Stage::Answered(reply, self.behind(world, at));
            let call = self.clients[client].calls[asks.line()].as_mut();
            if let Some(call) = call.filter(|it| it.asks == asks && it.stage == Stage::Waits) {
                call.stage = stage;
            }
        }
        reply
    }

    fn request(&mut self, world: &World, here: usize, at: usize, asks: Asks) -> Option<Reply> {
        let lease = self.clients[at].left.lease;
        let offered = if world.keeps(Rule::Offer) { 1 } else { lease };
        self.serve(world, here, Step::Request(at, asks, [lease, offered]))
    }

    fn arrive(&mut self, world: &World, at: usize, line: usize) {
        let client = &mut self.clients[at];
        let here = client.server;
        let Some(call) = client.calls[line].take() else { return };
        if self.nodes[here].refuses(world, self.now) {
            return;
        }
        let reply = self.request(world, here, at, call.asks);
        if call.asks != Asks::Release {
            let waited = reply.is_none();
            let behind = self.behind(world, here);
            let stage = reply.map_or(Stage::Waits, |reply| Stage::Answered(reply, behind));
            self.clients[at].calls[line] = Some(Call { waited, stage, ..call });
        }
    }

    fn arrive_late(&mut self, world: &World, at: usize, place: usize) {
        let Late { server: here, asks, .. } = self.clients[at].late.remove(place);
        let node = &self.nodes[here];
        if node.alive && !node.refuses(world, self.now) {
            self.request(world, here, at, asks);
        }
    }

    fn hear(&mut self, world: &World, at: usize, line: usize) {
        let client = &mut self.clients[at];
        if let Some(call) = client.calls[line].take()
            && let Stage::Answered(reply, _) = call.stage
        {
            client.hears(world, &call, reply, self.now);
            self.hear_of_result(at, reply);
        }
    }

    /// Handles a reply that the client's result is stored, or that a result exists, which the client then
    /// reads. Does nothing for other replies.
    fn hear_of_result(&mut self, at: usize, reply: Reply) {
        match reply {
            Reply::Stored(stored) => self.kept = Some(stored),
            Reply::Ready => {
                let kept = self.kept.filter(|kept| kept.until >= self.now);
                let read = self.nodes[self.latest].server.result(self.now);
                if self.clients[at].server == self.latest && kept.is_some() && read != kept {
                    self.noted = "kept is read";
                }
            }
            Reply::Has(_)
            | Reply::Refused
            | Reply::Lives
            | Reply::NoSession
            | Reply::ReadElsewhere => {}
        }
    }

    fn work(&mut self, world: &World) {
        let at = self.latest;
        let before = self.nodes[at].server.clone();
        self.serve(world, at, Step::Work(world.keeps(Rule::Releases)));
        let server = &mut self.nodes[at].server;
        if !world.keeps(Rule::OnlyItsOwn) && server.sessions.len() < before.sessions.len() {
            server.lock = None;
        }
        let gone = before.seen(self.now).filter(|_| server.lock.is_none());
        if gone.is_some_and(|lock| lock.until > self.now) {
            self.noted = "freed early";
        }
    }
}
