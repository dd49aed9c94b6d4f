//! A client that has its locks bound: the sessions that it keeps, and what it believes on their account.
//! In the crate: `client/src/engine/bound.rs`, `belief.rs` and `lease.rs`.

use super::server::Reply;
use super::{Client as Limits, World};

/// What a session ends that the server has forgotten.
const NEVER: u8 = u8::MAX;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asks {
    /// To have it bound to that session.
    Binding(u8),
    /// To go on sharing it.
    Downgrade,
}

/// A request that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    /// There is none.
    None,
    /// On its way to the server, sent at that tick.
    Sent(Asks, u8),
    /// The answer is on its way.
    Answered(Asks, u8, Reply),
}

/// A call that opens or reads a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Beat {
    /// There is none.
    None,
    /// On its way, sent at that tick.
    Sent(u8, u8),
    /// The server has it.
    Parked(u8, u8),
    /// The answer is on its way.
    Answered(u8, u8, Reply),
}

/// A request that nobody waits for any more, and that may yet arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Late {
    /// To have what that owner has bound to that session.
    Binding { owner: usize, shared: bool, to: u8 },
    /// To read that session.
    Reading(u8),
}

/// A session as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Heart {
    pub(super) number: u8,
    /// The first tick at which what is bound to it is not believed any more.
    pub(super) until: u8,
    pub(super) over: bool,
}

/// What a client has of the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Guard {
    pub(super) token: u64,
    /// The first tick at which it is not believed any more, bound or not.
    pub(super) until: u8,
    pub(super) shared: bool,
    /// The sessions that bound it.
    pub(super) to: Vec<u8>,
    /// Whether the server has bound it to the last of them.
    pub(super) settled: bool,
    /// Whether it was handed out.
    pub(super) shown: bool,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) call: Call,
    pub(super) beat: Beat,
    pub(super) late: Vec<Late>,
    pub(super) hearts: Vec<Heart>,
    pub(super) guard: Option<Guard>,
    /// What it may yet do.
    pub(super) left: Limits,
    /// As whom it asks: somebody else each time.
    pub(super) owner: usize,
}

impl Client {
    pub(super) fn new(left: Limits, at: usize) -> Self {
        let (call, beat) = (Call::None, Beat::None);
        let (late, hearts) = (Vec::new(), Vec::new());
        Self { call, beat, late, hearts, guard: None, left, owner: at }
    }

    /// The session that it keeps.
    pub(super) fn heart(&self) -> Option<u8> {
        self.hearts.last().filter(|heart| !heart.over).map(|heart| heart.number)
    }

    /// The tick from which on it does not believe any more.
    fn until(&self) -> u8 {
        let Some(guard) = &self.guard else { return 0 };
        let bounds = self.hearts.iter().filter(|heart| guard.to.contains(&heart.number));
        bounds.map(|heart| heart.until).chain([guard.until]).min().unwrap_or_default()
    }

    /// Whether it has the lock for all that it knows, and may go on with it.
    pub(super) fn has_it(&self, now: u8) -> bool {
        self.until() > now
    }

    /// Whether somebody acts on it.
    pub(super) fn believes(&self, now: u8) -> bool {
        self.has_it(now) && self.guard.as_ref().is_some_and(|guard| guard.shown)
    }

    /// Whether it may have its guard bound to the session that it keeps.
    pub(super) fn may_bind(&self, now: u8) -> bool {
        let (Some(guard), Some(number)) = (&self.guard, self.heart()) else { return false };
        let is_bound = guard.settled && guard.to.last() == Some(&number);
        self.has_it(now) && !is_bound
    }

    /// It asks for its guard to be bound to the session that it keeps.
    pub(super) fn binds(&mut self, world: &World, now: u8) {
        let Some(number) = self.heart() else { return };
        let forgotten = |number: &u8| {
            let heart = self.hearts.iter().find(|heart| heart.number == *number);
            heart.is_some_and(|heart| heart.until == NEVER)
        };
        if let Some(guard) = &mut self.guard {
            guard.settled = false;
            if !world.binds_before {
                // It counts when it is answered.
            } else if world.keeps_the_one_before {
                guard.to.retain(|other| *other != number && !forgotten(other));
                guard.to.push(number);
            } else {
                guard.to = vec![number];
            }
        }
        self.call = Call::Sent(Asks::Binding(number), now);
    }

    /// Nobody waits for the answer any more.
    pub(super) fn gives_up(&mut self) {
        let call = std::mem::replace(&mut self.call, Call::None);
        if let (Call::Sent(Asks::Binding(to), _), Some(guard)) = (call, &self.guard) {
            let (owner, shared) = (self.owner, guard.shared);
            self.late.push(Late::Binding { owner, shared, to });
            self.late.sort_unstable();
        }
    }

    /// Nobody waits for the heartbeat any more; the session at whose server a reader is left.
    pub(super) fn gives_up_beat(&mut self) -> Option<u8> {
        match std::mem::replace(&mut self.beat, Beat::None) {
            Beat::Sent(number, _) => {
                self.late.push(Late::Reading(number));
                self.late.sort_unstable();
                None
            }
            Beat::Parked(number, _) => Some(number),
            Beat::None | Beat::Answered(..) => None,
        }
    }

    /// It has got the lock, and has it bound before it acts on it.
    pub(super) fn has_got_it(&mut self, token: u64, now: u8) {
        let (until, shown) = (now + self.left.lease, !self.left.bound);
        let (shared, to, settled) = (false, Vec::new(), false);
        self.guard = Some(Guard { token, until, shared, to, settled, shown });
    }

    /// The answer has arrived.
    pub(super) fn hears(&mut self, world: &World, now: u8) {
        let call = std::mem::replace(&mut self.call, Call::None);
        let Call::Answered(asked, sent, reply) = call else { return };
        match (asked, reply) {
            (Asks::Downgrade, Reply::Has(token)) => {
                if let Some(guard) = &mut self.guard {
                    (guard.token, guard.shared) = (token, true);
                    (guard.to, guard.settled) = (Vec::new(), false);
                    guard.shown = !world.binds_anew;
                }
            }
            (Asks::Binding(number), Reply::Has(token)) => self.is_bound(number, token, sent, now),
            (Asks::Binding(number), Reply::NoSession) => self.ends(number, true, now),
            (Asks::Downgrade | Asks::Binding(_), _) => self.guard = None,
        }
    }

    fn is_bound(&mut self, number: u8, token: u64, sent: u8, now: u8) {
        let still = self.has_it(now);
        let lease = self.left.lease;
        let Some(guard) = &mut self.guard else { return };
        if guard.token != token || !still {
            self.guard = None;
            return;
        }
        (guard.settled, guard.shown) = (true, true);
        guard.to = vec![number];
        guard.until = guard.until.max(sent + lease);
    }

    /// The connection breaks over which it reads that session.
    pub(super) fn loses_reader(&mut self, number: u8) {
        if matches!(self.beat, Beat::Parked(of, _) if of == number) {
            self.beat = Beat::None;
        }
    }

    /// A later call reads that session.
    pub(super) fn is_replaced(&mut self, number: u8) {
        if let Beat::Parked(of, sent) = self.beat
            && of == number
        {
            self.beat = Beat::Answered(number, sent, Reply::ReadElsewhere);
        }
    }

    /// The answer to a heartbeat has arrived.
    pub(super) fn hears_beat(&mut self, world: &World, now: u8) {
        let beat = std::mem::replace(&mut self.beat, Beat::None);
        let Beat::Answered(number, sent, reply) = beat else { return };
        match reply {
            Reply::Lives => {
                let until = world.ttl + if world.from_sending { sent } else { now };
                if self.hearts.iter().all(|heart| heart.number != number) {
                    self.hearts.push(Heart { number, until: 0, over: false });
                }
                let all = !world.own_beats;
                for heart in self.hearts.iter_mut().filter(|heart| all || heart.number == number) {
                    heart.until = heart.until.max(until);
                }
            }
            Reply::NoSession => self.ends(number, true, now),
            // It reads on, or else has another session.
            Reply::ReadElsewhere if world.reads_on => {}
            Reply::ReadElsewhere => self.ends(number, false, now),
            Reply::Has(_) | Reply::Refused => {}
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
        if let Beat::Sent(of, _) | Beat::Parked(of, _) | Beat::Answered(of, ..) = self.beat
            && of == number
        {
            let _reader = self.gives_up_beat();
        }
    }
}
