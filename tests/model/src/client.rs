//! A client: its requests and its beliefs. In the crate: `client/src/engine/lease.rs`, `lease/belief.rs` and
//! `bound.rs`.

use crate::server::Reply;
use crate::world::{Plan, Rule, TTL, World};

/// `Heart::until` of a session that the server no longer has. Such a session does not limit the belief in a
/// lock.
const NEVER: u8 = u8::MAX;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asks {
    /// To acquire the lock, with a wait.
    Lock,
    /// To renew the grant with this token, with a lease of this length.
    Renewal(u64, u8),
    /// To release the lock.
    Release,
    /// To release the lock and store the result: the grant's token, and the lifetime of the result.
    Store(u64, u8),
    /// To bind the lock to the given session. `true` if the client holds it shared.
    Binding(u8, bool),
    /// To downgrade to a shared hold.
    Downgrade,
    /// To open a session with this number.
    Session(u8),
    /// To read the session with this number.
    Reading(u8),
}

/// Largest number of requests whose replies a client awaits: one for the lock, and one for a session.
pub(crate) const LINES: usize = 2;

impl Asks {
    pub(crate) fn line(self) -> usize {
        usize::from(matches!(self, Self::Session(_) | Self::Reading(_)))
    }
}

/// A request whose reply the client awaits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) asks: Asks,
    /// The tick at which it was sent.
    pub(crate) sent: u8,
    /// `true` if the request had to wait at the server.
    pub(crate) waited: bool,
    pub(crate) stage: Stage,
}

/// State of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// In flight to the server.
    Sent,
    /// Queued at the server, or blocked in a read.
    Waits,
    /// The reply is in flight. The list contains, for each server, the number of copies that the server must
    /// still receive before it has the state that the reply reports. `None` if the server cannot confirm this
    /// state.
    Answered(Reply, Vec<Option<u8>>),
}

/// A request that the client has given up and that may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Late {
    /// The connection of a renewal. Renewals on one connection arrive in order. `None` for any other request,
    /// which may arrive at any time.
    pub(crate) connection: Option<u8>,
    pub(crate) server: usize,
    pub(crate) asks: Asks,
}

/// A client's view of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Heart {
    number: u8,
    /// The first tick at which the client no longer believes in locks bound to the session, or [`NEVER`].
    until: u8,
    over: bool,
}

/// A client's hold of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Guard {
    pub(crate) token: u64,
    /// The first tick after the lease, as the client counts it.
    pub(crate) until: u8,
    pub(crate) shared: bool,
    /// The sessions to which the lock is or may be bound.
    to: Vec<u8>,
    /// `true` if the server has confirmed the binding to the last of these sessions.
    settled: bool,
    /// `true` if the program has the guard.
    shown: bool,
}

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// The server that the client is connected to.
    pub(crate) server: usize,
    pub(crate) calls: [Option<Call>; LINES],
    /// Abandoned requests that may still arrive.
    pub(crate) late: Vec<Late>,
    pub(crate) guard: Option<Guard>,
    pub(crate) hearts: Vec<Heart>,
    /// The token of a write in flight to the resource.
    pub(crate) write: Option<u64>,
    /// The number of the client's connection. A request arrives after earlier renewals on the same connection.
    pub(crate) connection: u8,
    /// A connection, and the length of the shortest renewal sent over it since the last reply to a renewal.
    pub(crate) unanswered: Option<(u8, u8)>,
    /// The length of the shortest renewal that stayed unanswered on an earlier connection.
    pub(crate) lasting: Option<u8>,
    /// The client's properties, and the actions that it may still take.
    pub(crate) left: Plan,
}

impl Client {
    /// The session that the client keeps alive.
    pub(crate) fn heart(&self) -> Option<u8> {
        self.hearts.last().filter(|heart| !heart.over).map(|heart| heart.number)
    }

    /// Returns whether the client has the lock as far as it knows: until the lease ends, or until one of the sessions
    /// ends to which the lock is or may be bound.
    pub(crate) fn has_it(&self, now: u8) -> bool {
        self.guard.as_ref().is_some_and(|guard| {
            let mut bounds = self.hearts.iter().filter(|heart| guard.to.contains(&heart.number));
            guard.until > now && bounds.all(|heart| heart.until > now)
        })
    }

    /// Returns whether the program relies on the lock.
    pub(crate) fn believes(&self, now: u8) -> bool {
        self.has_it(now) && self.guard.as_ref().is_some_and(|guard| guard.shown)
    }

    /// The session to which the client may bind its guard now: the session that it keeps alive.
    pub(crate) fn may_bind(&self, now: u8) -> Option<u8> {
        let (guard, number) = (self.guard.as_ref()?, self.heart()?);
        let is_bound = guard.settled && guard.to.last() == Some(&number);
        (self.has_it(now) && !is_bound).then_some(number)
    }

    /// Indexes of the abandoned requests that may arrive next. Of renewals, only the first on each connection.
    pub(crate) fn next_late(&self) -> impl Iterator<Item = usize> {
        let first = |place: &usize| {
            let Late { connection, .. } = self.late[*place];
            let mut before = self.late[..*place].iter();
            connection.is_none() || before.all(|before| before.connection != connection)
        };
        (0..self.late.len()).filter(first)
    }

    /// Returns whether an abandoned renewal on the client's connection has not arrived yet. The client's requests
    /// arrive only after it.
    pub(crate) fn is_behind(&self) -> bool {
        self.late.iter().any(|late| late.connection == Some(self.connection))
    }

    /// Sends a request that the client's plan allows.
    pub(crate) fn asks(&mut self, world: &World, asks: Asks, now: u8) {
        let left = &mut self.left;
        match asks {
            Asks::Lock => {
                left.asks -= 1;
                // Each acquisition has a new owner in the crate: earlier requests do not affect it.
                (self.unanswered, self.lasting) = (None, None);
                self.late.clear();
            }
            Asks::Renewal(..) => left.renews -= 1,
            Asks::Release | Asks::Store(..) => self.guard = None,
            Asks::Binding(number, _) => self.binds(world, number),
            Asks::Downgrade => {
                left.downgrades -= 1;
                self.guard.iter_mut().for_each(|guard| guard.shown = false);
            }
            Asks::Session(_) => left.opens -= 1,
            Asks::Reading(_) => left.reads -= 1,
        }
        self.sends(asks, now);
    }

    fn sends(&mut self, asks: Asks, now: u8) {
        if let (Asks::Renewal(_, length), true) = (asks, self.left.shortens) {
            self.renewing(now, length);
        }
        self.calls[asks.line()] = Some(Call { asks, sent: now, waited: false, stage: Stage::Sent });
    }

    /// Updates the belief before a renewal of that length is sent, as `Lease::renewing` does.
    fn renewing(&mut self, now: u8, length: u8) {
        self.guard.iter_mut().for_each(|guard| guard.until = guard.until.min(now + length));
        let (before, here) = (self.unanswered, self.connection);
        let same = before.filter(|(connection, _)| *connection == here);
        self.unanswered = Some((here, same.map_or(length, |(_, shortest)| shortest.min(length))));
        if let (Some((_, shortest)), None) = (before, same) {
            self.lasting = Some(self.lasting.map_or(shortest, |lasting| lasting.min(shortest)));
        }
    }

    /// Handles the reply to a renewal. Returns the part of the renewal's length that counts. Earlier renewals
    /// on the same connection have arrived before this one.
    fn renewed(&mut self, length: u8) -> u8 {
        self.unanswered = None;
        self.lasting.map_or(length, |lasting| lasting.min(length))
    }

    /// Updates the guard before a request to bind it to the given session is sent.
    fn binds(&mut self, world: &World, number: u8) {
        let forgotten = |number: &u8| {
            let mut hearts = self.hearts.iter();
            hearts.any(|heart| heart.number == *number && heart.until == NEVER)
        };
        let Some(guard) = &mut self.guard else { return };
        guard.settled = false;
        if !world.keeps(Rule::BindsBefore) {
            // The binding counts only when it is answered.
        } else if world.keeps(Rule::KeepsTheOneBefore) {
            guard.to.retain(|other| *other != number && !forgotten(other));
            guard.to.push(number);
        } else {
            guard.to = vec![number];
        }
    }

    /// Gives up a request. With `late`, a request that is in flight to the server may still arrive.
    pub(crate) fn leaves(&mut self, line: usize, late: bool) {
        let call = self.calls[line].take().filter(|call| late && call.stage == Stage::Sent);
        self.late.extend(call.map(|Call { asks, .. }| {
            let connection = matches!(asks, Asks::Renewal(..)).then_some(self.connection);
            Late { connection, server: self.server, asks }
        }));
    }

    /// Handles a reply.
    pub(crate) fn hears(&mut self, world: &World, call: &Call, reply: Reply, now: u8) {
        let lease = self.left.lease;
        let from = |rule: Rule| if world.keeps(rule) { call.sent } else { now };
        match (call.asks, reply) {
            (Asks::Lock, Reply::Has(token)) if call.waited && world.keeps(Rule::Offer) => {
                // The grant is a short offer, which the client renews.
                self.sends(Asks::Renewal(token, lease), now);
            }
            (Asks::Lock, Reply::Has(token)) => {
                let from = if call.waited { now } else { from(Rule::LeaseFromSending) };
                self.on_granted(token, from + lease, now);
            }
            (Asks::Renewal(of, length), Reply::Has(token)) if of == token => {
                let counts = self.renewed(length);
                let length = if world.keeps(Rule::CountsLate) { counts } else { length };
                self.on_granted(token, from(Rule::LeaseFromSending) + length, now);
            }
            (Asks::Binding(number, _), Reply::Has(token)) => {
                self.on_bound(number, token, call.sent + lease, now);
            }
            (Asks::Downgrade, Reply::Has(token)) => {
                if let Some(guard) = &mut self.guard {
                    (guard.token, guard.shared) = (token, true);
                    (guard.to, guard.settled) = (Vec::new(), false);
                    guard.shown = !world.keeps(Rule::BindsAnew);
                }
            }
            (Asks::Session(number) | Asks::Reading(number), Reply::Lives) => {
                self.on_read(world, number, TTL + from(Rule::SessionFromSending));
            }
            (Asks::Binding(number, _) | Asks::Reading(number), Reply::NoSession) => {
                self.ends(number, true, now);
            }
            (Asks::Reading(number), Reply::ReadElsewhere) => {
                // With the rule, the client reads the session again. Without the rule, the client gives up
                // the session.
                if !world.keeps(Rule::ReadsOn) {
                    self.ends(number, false, now);
                }
            }
            _ => self.guard = None,
        }
    }

    /// Records that the client has the lock until the given tick, if that tick is in the future. If the lock
    /// has to be bound, the program gets the guard only after the binding.
    fn on_granted(&mut self, token: u64, until: u8, now: u8) {
        if until > now {
            let shown = !self.left.bound;
            self.guard = Some(Guard { token, until, shown, ..Guard::default() });
        }
    }

    fn on_bound(&mut self, number: u8, token: u64, until: u8, now: u8) {
        let still = self.has_it(now);
        let Some(guard) = self.guard.as_mut().filter(|guard| guard.token == token && still) else {
            self.guard = None;
            return;
        };
        (guard.settled, guard.shown) = (true, true);
        guard.to = vec![number];
        guard.until = guard.until.max(until);
    }

    /// A session was opened or read.
    fn on_read(&mut self, world: &World, number: u8, until: u8) {
        if self.hearts.iter().all(|heart| heart.number != number) {
            self.hearts.push(Heart { number, until: 0, over: false });
        }
        let all = !world.keeps(Rule::OwnBeats);
        for heart in self.hearts.iter_mut().filter(|heart| all || heart.number == number) {
            heart.until = heart.until.max(until);
        }
    }

    /// Handles the end of a session: the server does not have it (`unknown`), or the client gives it up.
    fn ends(&mut self, number: u8, unknown: bool, now: u8) {
        for heart in self.hearts.iter_mut().filter(|heart| heart.number == number) {
            heart.over = true;
            if unknown && heart.until > now {
                heart.until = NEVER;
            }
        }
        if self.calls[1].as_ref().is_some_and(|call| call.asks == Asks::Reading(number)) {
            self.leaves(1, true);
        }
    }
}
