//! What may happen, and what becomes of it.

use super::World;
use super::client::{Asks, Beat, Call, Client, Late};
use super::server::{Reply, Server, Step};

/// How many sessions a client may open.
const SESSIONS: u8 = 4;

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u8,
    clients: Vec<Client>,
    server: Server,
    restarts: u8,
    /// A lock was freed with its session, before its lease was over.
    pub(crate) was_freed_early: bool,
    /// A lock was left to its lease when its session was gone.
    pub(crate) was_kept: bool,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time goes by.
    Tick,
    /// A client asks for the lock and hears at once, so that it believes for as long as it may.
    Ask(usize),
    /// It opens a session.
    Open(usize),
    /// It reads the session that it keeps.
    Beat(usize),
    /// It has the lock bound to the session that it keeps.
    Bind(usize),
    /// It goes on sharing the lock.
    Downgrade(usize),
    /// Its request reaches the server.
    Arrive(usize),
    /// The answer reaches the client.
    Hear(usize),
    /// It waits no longer for its binding, which may be on its way still.
    GiveUp(usize),
    /// The same with a heartbeat.
    ArriveBeat(usize),
    /// The same with a heartbeat.
    HearBeat(usize),
    /// The same with a heartbeat.
    GiveUpBeat(usize),
    /// That one of those for which it does not wait any more arrives.
    Late(usize, usize),
    /// The server notices that the reader of a session is gone.
    Gone(u8),
    /// It does what is due.
    Work,
    /// It starts anew, with all that was written.
    Restart,
}

impl State {
    pub(super) fn begin(world: &World) -> Self {
        let clients = world.clients.iter().enumerate();
        Self {
            now: 1,
            clients: clients.map(|(at, limits)| Client::new(*limits, at)).collect(),
            server: Server::default(),
            restarts: world.restarts,
            was_freed_early: false,
            was_kept: false,
        }
    }

    /// How many clients believe to have the lock.
    pub(super) fn believers(&self) -> usize {
        self.clients.iter().filter(|client| client.believes(self.now)).count()
    }

    pub(super) fn may_happen(&self, world: &World, actions: &mut Vec<Action>) {
        if self.now < world.ticks {
            actions.push(Action::Tick);
        }
        for (at, client) in self.clients.iter().enumerate() {
            self.may_call(at, client, actions);
            self.may_beat(at, client, actions);
            actions.extend((0..client.late.len()).map(|place| Action::Late(at, place)));
        }
        let readers = self.server.sessions.iter().filter(|session| session.reader.is_some());
        actions.extend(readers.map(|session| Action::Gone(session.number)));
        if self.server.has_work(self.now) {
            actions.push(Action::Work);
        }
        if self.restarts > 0 {
            actions.push(Action::Restart);
        }
    }

    fn may_call(&self, at: usize, client: &Client, actions: &mut Vec<Action>) {
        match client.call {
            Call::None => {
                let may_ask = client.guard.is_none() && client.left.asks > 0;
                if may_ask && self.server.seen(self.now).is_none() {
                    actions.push(Action::Ask(at));
                }
                if client.may_bind(self.now) {
                    actions.push(Action::Bind(at));
                }
                let shared = client.guard.as_ref().is_some_and(|guard| guard.shared);
                if client.left.downgrades > 0 && client.believes(self.now) && !shared {
                    actions.push(Action::Downgrade(at));
                }
            }
            Call::Sent(asks, _) => {
                actions.push(Action::Arrive(at));
                if matches!(asks, Asks::Binding(_)) && client.left.gives_up > 0 {
                    actions.push(Action::GiveUp(at));
                }
            }
            Call::Answered(asks, ..) => {
                actions.push(Action::Hear(at));
                if matches!(asks, Asks::Binding(_)) && client.left.gives_up > 0 {
                    actions.push(Action::GiveUp(at));
                }
            }
        }
    }

    fn may_beat(&self, at: usize, client: &Client, actions: &mut Vec<Action>) {
        match client.beat {
            Beat::None => match client.heart() {
                Some(_) if client.left.beats > 0 => actions.push(Action::Beat(at)),
                None if client.left.opens > 0 => actions.push(Action::Open(at)),
                Some(_) | None => {}
            },
            Beat::Sent(..) => actions.push(Action::ArriveBeat(at)),
            Beat::Parked(..) => {}
            Beat::Answered(..) => actions.push(Action::HearBeat(at)),
        }
        let opens = matches!(client.beat, Beat::Sent(number, _) if self.opens(at, number));
        if client.beat != Beat::None && !opens && client.left.gives_up > 0 {
            actions.push(Action::GiveUpBeat(at));
        }
    }

    /// Whether a call with that number is one that opens a session.
    fn opens(&self, at: usize, number: u8) -> bool {
        self.clients[at].hearts.iter().all(|heart| heart.number != number)
    }

    pub(super) fn happen(&mut self, world: &World, action: Action) {
        let (now, when) = (self.now, (world.server_ttl, self.now));
        match action {
            Action::Tick => self.tick(),
            Action::Ask(at) => {
                let client = &mut self.clients[at];
                client.left.asks -= 1;
                let step = Step::Acquire(client.owner, (client.left.lease, false), None);
                if let (Some(Reply::Has(token)), _) = self.server.step(step, when) {
                    client.has_got_it(token, now);
                }
            }
            Action::Open(at) => {
                let client = &mut self.clients[at];
                client.left.opens -= 1;
                client.beat = Beat::Sent(at as u8 * SESSIONS + client.left.opens, now);
            }
            Action::Beat(at) => {
                let client = &mut self.clients[at];
                client.left.beats -= 1;
                client.beat = client.heart().map_or(Beat::None, |number| Beat::Sent(number, now));
            }
            Action::Bind(at) => self.clients[at].binds(world, now),
            Action::Downgrade(at) => {
                let client = &mut self.clients[at];
                client.left.downgrades -= 1;
                client.call = Call::Sent(Asks::Downgrade, now);
                if let Some(guard) = &mut client.guard {
                    guard.shown = false;
                }
            }
            Action::Arrive(at) => self.arrive(at, when),
            Action::Hear(at) => self.clients[at].hears(world, now),
            Action::GiveUp(at) => {
                self.clients[at].left.gives_up -= 1;
                self.clients[at].gives_up();
            }
            Action::ArriveBeat(at) => self.arrive_beat(at, when),
            Action::HearBeat(at) => self.clients[at].hears_beat(world, now),
            Action::GiveUpBeat(at) => {
                self.clients[at].left.gives_up -= 1;
                if let Some(number) = self.clients[at].gives_up_beat() {
                    self.server.set_reader(number, false);
                }
            }
            Action::Late(at, place) => self.arrive_late(at, place, when),
            Action::Gone(number) => {
                self.server.step(Step::LoseReader(number), when);
                self.clients[usize::from(number / SESSIONS)].loses_reader(number);
            }
            Action::Work => self.work(world, when),
            Action::Restart => {
                self.restarts -= 1;
                self.was_kept |= self.server.has_bound();
                for session in std::mem::take(&mut self.server.sessions) {
                    let of = usize::from(session.number / SESSIONS);
                    self.clients[of].loses_reader(session.number);
                }
                self.server.restart();
            }
        }
    }

    fn tick(&mut self) {
        self.now += 1;
        for client in &mut self.clients {
            if client.guard.as_ref().is_some_and(|guard| guard.until <= self.now) {
                client.guard = None;
            }
        }
    }

    fn arrive(&mut self, at: usize, when: (u8, u8)) {
        let client = &mut self.clients[at];
        let Call::Sent(asks, sent) = client.call else { return };
        let shared = client.guard.as_ref().is_some_and(|guard| guard.shared);
        let how = (client.left.lease, shared);
        let step = match asks {
            Asks::Binding(to) => Step::Acquire(client.owner, how, Some(to)),
            Asks::Downgrade => Step::Downgrade(client.owner),
        };
        let (reply, _) = self.server.step(step, when);
        client.call = reply.map_or(Call::None, |reply| Call::Answered(asks, sent, reply));
    }

    fn arrive_late(&mut self, at: usize, place: usize, when: (u8, u8)) {
        let client = &mut self.clients[at];
        match client.late.remove(place) {
            Late::Binding { owner, shared, to } => {
                let how = (client.left.lease, shared);
                self.server.step(Step::Acquire(owner, how, Some(to)), when);
            }
            Late::Reading(number) => {
                let (_, replaced) = self.server.step(Step::Read(number), when);
                self.server.set_reader(number, false);
                replaced.into_iter().for_each(|number| client.is_replaced(number));
            }
        }
    }

    fn arrive_beat(&mut self, at: usize, when: (u8, u8)) {
        let Beat::Sent(number, sent) = self.clients[at].beat else { return };
        if self.opens(at, number) {
            let (ttl, now) = when;
            self.server.open(number, ttl, now);
            self.clients[at].beat = Beat::Answered(number, sent, Reply::Lives);
            return;
        }
        let (reply, _) = self.server.step(Step::Read(number), when);
        self.clients[at].beat = match reply {
            Some(reply @ Reply::NoSession) => Beat::Answered(number, sent, reply),
            _ => Beat::Parked(number, sent),
        };
    }

    fn work(&mut self, world: &World, when: (u8, u8)) {
        let before = self.server.clone();
        let (_, told) = self.server.step(Step::Work(world.releases), when);
        for number in told {
            let client = &mut self.clients[usize::from(number / SESSIONS)];
            if let Beat::Parked(of, sent) = client.beat
                && of == number
            {
                client.beat = Beat::Answered(number, sent, Reply::Lives);
            }
        }
        if !world.only_its_own && self.server.sessions.len() < before.sessions.len() {
            self.server.lock = None;
        }
        let gone = before.seen(self.now).filter(|_| self.server.lock.is_none());
        self.was_freed_early |= gone.is_some_and(|lock| lock.until > self.now);
    }

    /// Whether a lock has stayed that was bound to a session that is gone.
    pub(super) fn outlives_its_session(&self) -> bool {
        self.server.outlives_its_session(self.now)
    }
}
