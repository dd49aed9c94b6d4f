//! A client: what it has asked, and what it believes. In the crate: `client/src/engine/lease.rs`,
//! `bound.rs` and `belief.rs`.

use crate::server::Reply;
use crate::world::{Plan, Rule, TTL, World};

/// What a session ends that the server has forgotten.
const NEVER: u8 = u8::MAX;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asks {
    /// The lock, ready to wait for it.
    Lock,
    /// A new lease for the grant of that token, of that length.
    Renewal(u64, u8),
    /// To give it back.
    Release,
    /// To give it back and store the result of the work: the grant of that token, and the lifetime.
    Store(u64, u8),
    /// To have it bound to that session, shared or not.
    Binding(u8, bool),
    /// To go on sharing it.
    Downgrade,
    /// A session, which it calls by that number.
    Session(u8),
    /// To read that session.
    Reading(u8),
}

/// How many requests of a client may be under way: one about the lock, and one about a session.
pub(crate) const LINES: usize = 2;

impl Asks {
    pub(crate) fn line(self) -> usize {
        usize::from(matches!(self, Self::Session(_) | Self::Reading(_)))
    }
}

/// A request that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) asks: Asks,
    /// The tick at which it was sent.
    pub(crate) sent: u8,
    /// Whether it had to wait at the server.
    pub(crate) waited: bool,
    pub(crate) stage: Stage,
}

/// Where a request is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// On its way to the server.
    Sent,
    /// In line there, or reading.
    Waits,
    /// The answer is on its way; and how many copies each server still has to get before it has what
    /// is answered, none if it never will.
    Answered(Reply, Vec<Option<u8>>),
}

/// A request that nobody waits for any more, and that may yet arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Late {
    /// The connection over which a renewal comes, behind those before it.
    pub(crate) connection: Option<u8>,
    pub(crate) server: usize,
    pub(crate) asks: Asks,
}

/// A session as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Heart {
    number: u8,
    /// The first tick at which what is bound to it is not believed any more.
    until: u8,
    over: bool,
}

/// What a client has of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Guard {
    pub(crate) token: u64,
    /// The first tick at which it is not believed any more, bound or not.
    pub(crate) until: u8,
    pub(crate) shared: bool,
    /// The sessions that bound it.
    to: Vec<u8>,
    /// Whether the server has bound it to the last of them.
    settled: bool,
    /// Whether it was handed out.
    shown: bool,
}

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// The server that it talks to.
    pub(crate) server: usize,
    pub(crate) calls: [Option<Call>; LINES],
    /// What may yet arrive.
    pub(crate) late: Vec<Late>,
    pub(crate) guard: Option<Guard>,
    pub(crate) hearts: Vec<Heart>,
    /// A write on its way to the resource, with this token.
    pub(crate) write: Option<u64>,
    /// The number of its connection: what is sent over one arrives in order.
    pub(crate) connection: u8,
    /// The shortest renewal over that connection since one was answered there.
    pub(crate) unanswered: Option<(u8, u8)>,
    /// The shortest over connections of which it has no more answers to hope for.
    pub(crate) lasting: Option<u8>,
    /// What it may yet do.
    pub(crate) left: Plan,
}

impl Client {
    /// The session that it keeps.
    pub(crate) fn heart(&self) -> Option<u8> {
        self.hearts.last().filter(|heart| !heart.over).map(|heart| heart.number)
    }

    /// Whether it has the lock for all that it knows, and may go on with it: until the earlier end of
    /// the lease and of the sessions that bound it.
    pub(crate) fn has_it(&self, now: u8) -> bool {
        self.guard.as_ref().is_some_and(|guard| {
            let mut bounds = self.hearts.iter().filter(|heart| guard.to.contains(&heart.number));
            guard.until > now && bounds.all(|heart| heart.until > now)
        })
    }

    /// Whether somebody acts on it.
    pub(crate) fn believes(&self, now: u8) -> bool {
        self.has_it(now) && self.guard.as_ref().is_some_and(|guard| guard.shown)
    }

    /// The session to which it may have its guard bound: the one that it keeps.
    pub(crate) fn may_bind(&self, now: u8) -> Option<u8> {
        let (guard, number) = (self.guard.as_ref()?, self.heart()?);
        let is_bound = guard.settled && guard.to.last() == Some(&number);
        (self.has_it(now) && !is_bound).then_some(number)
    }

    /// Which of the late ones may arrive next: of renewals the first over each connection.
    pub(crate) fn next_late(&self) -> impl Iterator<Item = usize> {
        let first = |place: &usize| {
            let Late { connection, .. } = self.late[*place];
            let mut before = self.late[..*place].iter();
            connection.is_none() || before.all(|before| before.connection != connection)
        };
        (0..self.late.len()).filter(first)
    }

    /// Whether what it sends now is behind something that has not arrived yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.late.iter().any(|late| late.connection == Some(self.connection))
    }

    /// It sends a request of its own accord.
    pub(crate) fn asks(&mut self, world: &World, asks: Asks, now: u8) {
        let left = &mut self.left;
        match asks {
            Asks::Lock => {
                left.asks -= 1;
                // It is an owner that nobody ever was before.
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

    /// It sends a renewal of that length: `Lease::renewing`.
    fn renewing(&mut self, now: u8, length: u8) {
        self.guard.iter_mut().for_each(|guard| guard.until = guard.until.min(now + length));
        let (before, here) = (self.unanswered, self.connection);
        let same = before.filter(|(connection, _)| *connection == here);
        self.unanswered = Some((here, same.map_or(length, |(_, shortest)| shortest.min(length))));
        if let (Some((_, shortest)), None) = (before, same) {
            self.lasting = Some(self.lasting.map_or(shortest, |lasting| lasting.min(shortest)));
        }
    }

    /// One was answered: how much of its length counts. What was sent before it over the same
    /// connection has arrived before it.
    fn renewed(&mut self, length: u8) -> u8 {
        self.unanswered = None;
        self.lasting.map_or(length, |lasting| lasting.min(length))
    }

    /// It asks for its guard to be bound to the session that it keeps.
    fn binds(&mut self, world: &World, number: u8) {
        let forgotten = |number: &u8| {
            let mut hearts = self.hearts.iter();
            hearts.any(|heart| heart.number == *number && heart.until == NEVER)
        };
        let Some(guard) = &mut self.guard else { return };
        guard.settled = false;
        if !world.keeps(Rule::BindsBefore) {
            // It counts when it is answered.
        } else if world.keeps(Rule::KeepsTheOneBefore) {
            guard.to.retain(|other| *other != number && !forgotten(other));
            guard.to.push(number);
        } else {
            guard.to = vec![number];
        }
    }

    /// Nobody waits for that request any more; it may be on its way still.
    pub(crate) fn leaves(&mut self, line: usize, late: bool) {
        let call = self.calls[line].take().filter(|call| late && call.stage == Stage::Sent);
        self.late.extend(call.map(|Call { asks, .. }| {
            let connection = matches!(asks, Asks::Renewal(..)).then_some(self.connection);
            Late { connection, server: self.server, asks }
        }));
    }

    /// An answer has arrived.
    pub(crate) fn hears(&mut self, world: &World, call: &Call, reply: Reply, now: u8) {
        let lease = self.left.lease;
        let from = |rule: Rule| if world.keeps(rule) { call.sent } else { now };
        match (call.asks, reply) {
            (Asks::Lock, Reply::Has(token)) if call.waited && world.keeps(Rule::Offer) => {
                // It was granted a moment only, to ask for more.
                self.sends(Asks::Renewal(token, lease), now);
            }
            (Asks::Lock, Reply::Has(token)) => {
                let from = if call.waited { now } else { from(Rule::LeaseFromSending) };
                self.has(token, from + lease, now);
            }
            (Asks::Renewal(of, length), Reply::Has(token)) if of == token => {
                let counts = self.renewed(length);
                let length = if world.keeps(Rule::CountsLate) { counts } else { length };
                self.has(token, from(Rule::LeaseFromSending) + length, now);
            }
            (Asks::Binding(number, _), Reply::Has(token)) => {
                self.is_bound(number, token, call.sent + lease, now);
            }
            (Asks::Downgrade, Reply::Has(token)) => {
                if let Some(guard) = &mut self.guard {
                    (guard.token, guard.shared) = (token, true);
                    (guard.to, guard.settled) = (Vec::new(), false);
                    guard.shown = !world.keeps(Rule::BindsAnew);
                }
            }
            (Asks::Session(number) | Asks::Reading(number), Reply::Lives) => {
                self.is_read(world, number, TTL + from(Rule::SessionFromSending));
            }
            (Asks::Binding(number, _) | Asks::Reading(number), Reply::NoSession) => {
                self.ends(number, true, now);
            }
            (Asks::Reading(number), Reply::ReadElsewhere) => {
                // It reads on, or else has another session.
                if !world.keeps(Rule::ReadsOn) {
                    self.ends(number, false, now);
                }
            }
            _ => self.guard = None,
        }
    }

    /// It has the lock until then. If it is to be bound, nobody acts on it before.
    fn has(&mut self, token: u64, until: u8, now: u8) {
        if until > now {
            let shown = !self.left.bound;
            self.guard = Some(Guard { token, until, shown, ..Guard::default() });
        }
    }

    fn is_bound(&mut self, number: u8, token: u64, until: u8, now: u8) {
        let still = self.has_it(now);
        let Some(guard) = self.guard.as_mut().filter(|guard| guard.token == token && still) else {
            self.guard = None;
            return;
        };
        (guard.settled, guard.shown) = (true, true);
        guard.to = vec![number];
        guard.until = guard.until.max(until);
    }

    /// A session lives on, or is open.
    fn is_read(&mut self, world: &World, number: u8, until: u8) {
        if self.hearts.iter().all(|heart| heart.number != number) {
            self.hearts.push(Heart { number, until: 0, over: false });
        }
        let all = !world.keeps(Rule::OwnBeats);
        for heart in self.hearts.iter_mut().filter(|heart| all || heart.number == number) {
            heart.until = heart.until.max(until);
        }
    }

    /// A session is over; or, before it could be, the server does not know it any more.
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
