//! The state of a world, and its possible actions.

use crate::client::{Asks, Call, Client, LINES, Stage};
use crate::failover::Node;
use crate::server::{Careful, Reply, Server, Stored};
use crate::table::SESSIONS;
use crate::world::{Plan, Rule, TTL, World};

/// The complete state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) now: u8,
    pub(crate) clients: Vec<Client>,
    pub(crate) nodes: Vec<Node>,
    /// The primary: the latest one, if several servers act as primary.
    pub(crate) latest: usize,
    pub(crate) failovers: u8,
    pub(crate) restarts: u8,
    /// The largest token that any server has issued.
    pub(crate) issued: u64,
    /// The largest token under which a result was stored.
    pub(crate) stored: u64,
    /// The result in the last [`Reply::Stored`] that a client received.
    pub(crate) kept: Option<Stored>,
    /// The largest token whose write has reached the resource.
    pub(crate) landed: u64,
    /// The client that last believed that it holds the lock.
    pub(crate) believed: Option<usize>,
    /// Name of the property that the last action has shown or violated.
    pub(crate) noted: &'static str,
}

/// An action. A number is a client, unless noted otherwise. The second number of `Arrive`, `Hear` and `Leave` is 0
/// for the client's request about the lock, and 1 for its request about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time advances by one tick.
    Tick,
    /// A client sends a request.
    Ask(usize, Asks),
    /// A client's request reaches the server.
    Arrive(usize, usize),
    /// The reply reaches a client, with all necessary confirmations.
    Hear(usize, usize),
    /// A client gives up its request. With `None`, the request or its reply is lost. Otherwise the request
    /// may still arrive, and the client continues on another connection (`true`) or on the same one (`false`).
    Leave(usize, usize, Option<bool>),
    /// A client's abandoned request with the given index arrives.
    Late(usize, usize),
    /// A client reconnects to the latest primary.
    Reconnect(usize),
    /// A client that still believes in the lock sends a write.
    Write(usize),
    /// A client's write reaches the resource.
    Land(usize),
    /// The replica with the given number receives the next copy.
    Copy(usize),
    /// The replica with the given number becomes the primary.
    Promote(usize),
    /// The latest primary dies.
    Crash,
    /// The latest primary restarts, with all written data.
    Restart,
    /// The latest primary notices that the reader of the given session has disconnected.
    LoseReader(u8),
    /// The latest primary does due work.
    Work,
}

impl State {
    pub(crate) fn begin(world: &World) -> Self {
        let ttl = if world.keeps(Rule::Ttl) { TTL } else { TTL - 1 };
        let client = |plan: &Plan| Client { left: *plan, ..Client::default() };
        let results = world.has_results().then(|| Careful {
            unless: world.keeps(Rule::Unless),
            fenced: world.keeps(Rule::StoreFenced),
        });
        let server = Server { ttl, results, ..Server::default() };
        let node = Node { server, alive: true, ..Node::default() };
        let mut nodes = vec![node; world.servers];
        nodes[0].primary = true;
        Self {
            now: 1,
            clients: world.clients.iter().map(client).collect(),
            nodes,
            failovers: world.failovers,
            restarts: world.restarts,
            ..Self::default()
        }
    }

    /// The clients that believe that they hold the lock.
    pub(crate) fn believers(&self) -> impl Iterator<Item = usize> {
        (0..self.clients.len()).filter(|at| self.clients[*at].believes(self.now))
    }

    /// Returns whether a client believes that it holds the lock although the result `kept` has not expired.
    pub(crate) fn works_beside_result(&self) -> bool {
        let kept = self.kept.is_some_and(|kept| kept.until >= self.now);
        kept && self.believers().next().is_some()
    }

    /// Returns whether the latest primary has the lock for each client that believes in it, and for at least as long.
    pub(crate) fn believed_is_held(&self) -> bool {
        let lock = self.nodes[self.latest].server.lock;
        self.believers().all(|at| {
            lock.zip(self.clients[at].guard.as_ref()).is_some_and(|(lock, guard)| {
                lock.owner == at && lock.token == guard.token && lock.until + 1 >= guard.until
            })
        })
    }

    /// Returns whether a server still has a lock whose session has ended, and no binding by which to release it.
    pub(crate) fn outlives_its_session(&self) -> bool {
        self.nodes.iter().any(|node| node.server.outlives_its_session(self.now))
    }

    pub(crate) fn may_happen(&self, world: &World, actions: &mut Vec<Action>) {
        if self.now < world.ticks {
            actions.push(Action::Tick);
        }
        for (at, client) in self.clients.iter().enumerate() {
            let asks = |asks| actions.push(Action::Ask(at, asks));
            self.may_ask(world, at, client, asks);
            for line in 0..LINES {
                if let Some(call) = &client.calls[line] {
                    self.may_go_on(world, (at, line), client, call, actions);
                }
            }
            actions.extend(client.next_late().map(|place| Action::Late(at, place)));
            let latest = self.latest;
            let idle = client.calls[0].is_none();
            if idle && client.server != latest && self.nodes[latest].alive {
                actions.push(Action::Reconnect(at));
            }
            if client.write.is_some() {
                actions.push(Action::Land(at));
            } else if client.left.writes > 0 && client.believes(self.now) {
                actions.push(Action::Write(at));
            }
        }
        self.may_change(world, actions);
    }

    /// Adds the requests that a client may send.
    fn may_ask(&self, world: &World, at: usize, client: &Client, mut asks: impl FnMut(Asks)) {
        let (left, sessions) = (client.left, world.has_sessions());
        let node = &self.nodes[client.server];
        match &client.guard {
            _ if client.calls[0].is_some() || !node.alive => {}
            None => {
                let is_answered = !sessions || node.server.seen(self.now).is_none();
                if left.asks > 0 && is_answered {
                    asks(Asks::Lock);
                }
            }
            Some(guard) => {
                let downgrades = left.downgrades > 0 && !guard.shared;
                let may = [
                    (left.renews > 0, Asks::Renewal(guard.token, left.lease)),
                    (left.renews > 0 && left.shortens, Asks::Renewal(guard.token, 1)),
                    (!sessions, Asks::Release),
                    (left.keeps > 0, Asks::Store(guard.token, left.keeps)),
                    (downgrades && client.believes(self.now), Asks::Downgrade),
                ];
                may.into_iter().filter(|(may, _)| *may).for_each(|(_, what)| asks(what));
                if let Some(number) = client.may_bind(self.now) {
                    asks(Asks::Binding(number, guard.shared));
                }
            }
        }
        match client.heart() {
            _ if client.calls[1].is_some() => {}
            Some(number) if left.reads > 0 => asks(Asks::Reading(number)),
            None if left.opens > 0 => asks(Asks::Session(at as u8 * SESSIONS + left.opens - 1)),
            Some(_) | None => {}
        }
    }

    /// Adds the next steps of a request.
    fn may_go_on(
        &self,
        world: &World,
        (at, line): (usize, usize),
        client: &Client,
        call: &Call,
        actions: &mut Vec<Action>,
    ) {
        match &call.stage {
            Stage::Sent if self.nodes[client.server].alive && !client.is_behind() => {
                actions.push(Action::Arrive(at, line));
            }
            Stage::Answered(reply, behind) if is_confirmed(world, call.asks, *reply, behind) => {
                actions.push(Action::Hear(at, line));
            }
            Stage::Sent | Stage::Waits | Stage::Answered(..) => {}
        }
        let ways: &[_] = match (call.asks, world.has_sessions()) {
            (Asks::Renewal(..), _) if client.left.shortens && call.stage == Stage::Sent => {
                &[None, Some(true), Some(false)]
            }
            (Asks::Binding(..) | Asks::Reading(_), _) if client.left.gives_up > 0 => &[Some(false)],
            (_, true) => &[],
            (_, false) => &[None],
        };
        actions.extend(ways.iter().map(|way| Action::Leave(at, line, *way)));
    }

    /// Adds the actions of servers.
    fn may_change(&self, world: &World, actions: &mut Vec<Action>) {
        let latest = &self.nodes[self.latest];
        let replaced = !latest.alive || !world.only_when_dead;
        for (place, node) in self.nodes.iter().enumerate() {
            if !node.pending.is_empty() && latest.alive {
                actions.push(Action::Copy(place));
            }
            let mut others = self.nodes.iter().filter(|of| !of.primary);
            let fresh = !world.freshest || others.all(|of| node.pending.len() <= of.pending.len());
            if !node.primary && self.failovers > 0 && replaced && fresh {
                actions.push(Action::Promote(place));
            }
        }
        if self.failovers > 0 && latest.alive {
            actions.push(Action::Crash);
        }
        if self.restarts > 0 {
            actions.push(Action::Restart);
        }
        let read = latest.server.sessions.iter().filter(|session| session.is_read);
        actions.extend(read.map(|session| Action::LoseReader(session.number)));
        if latest.server.has_work(self.now) {
            actions.push(Action::Work);
        }
    }
}

fn is_confirmed(world: &World, asked: Asks, reply: Reply, behind: &[Option<u8>]) -> bool {
    let needed = match (asked, reply) {
        (Asks::Renewal(..), _) if !world.keeps(Rule::RenewalsConfirmed) => 0,
        (_, Reply::Stored(_)) if !world.keeps(Rule::StoresConfirmed) => 0,
        (_, Reply::Has(_) | Reply::Stored(_)) => world.confirmed,
        _ => 0,
    };
    behind.iter().filter(|left| **left == Some(0)).count() >= needed
}
