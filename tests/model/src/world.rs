//! A world: its clients and servers, how far it goes, and the rules that are broken in it.

/// How long a session is kept that nobody reads, in ticks.
pub(crate) const TTL: u8 = 2;

/// What a client is like, and how often it may do what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    /// How long its leases are, in ticks.
    pub lease: u8,
    /// Whether it has its lock bound to a session, and believes in it only then.
    pub bound: bool,
    /// How often it asks for the lock.
    pub asks: u8,
    /// How often it renews it.
    pub renews: u8,
    /// Whether renewals may be for one tick only, and may arrive when nobody waits for them any more.
    pub shortens: bool,
    /// How often it writes to the resource.
    pub writes: u8,
    /// How often it goes on sharing what it has.
    pub downgrades: u8,
    /// How many sessions it opens.
    pub opens: u8,
    /// How often it reads one.
    pub reads: u8,
    /// How often it does not wait for the answer to a binding or a heartbeat.
    pub gives_up: u8,
    /// Lifetime of a result in ticks. The client wants the lock only while there is no result, and stores one
    /// when it releases the lock. 0: it wants no result.
    pub keeps: u8,
}

impl Plan {
    /// One that asks for the lock once.
    pub const ASKS: Self = Self {
        lease: 1,
        bound: false,
        asks: 1,
        renews: 0,
        shortens: false,
        writes: 0,
        downgrades: 0,
        opens: 0,
        reads: 0,
        gives_up: 0,
        keeps: 0,
    };
    /// One that may renew it.
    pub const RENEWS: Self = Self { renews: 1, ..Self::ASKS };
    /// One that has it bound.
    pub const BOUND: Self =
        Self { lease: 5, bound: true, opens: 1, reads: 1, gives_up: 1, ..Self::ASKS };
}

/// What clients and servers keep to, always, and what happens otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A client counts a lease from before it sent the command that set it (R1): one that is counted
    /// from a late answer outlives the server's.
    LeaseFromSending,
    /// A waiter is granted a short lease, and confirms it with a renewal (R2): it asked long ago.
    Offer,
    /// A client counts on no more than the shortest renewal that may yet arrive: that may be after a
    /// longer one.
    CountsLate,
    /// Renewals, too, count only when they are confirmed: a primary that is cut off goes on renewing.
    RenewalsConfirmed,
    /// Tokens are reserved ahead, and who takes over begins above what is reserved: else it issues
    /// some that are not larger.
    Floor,
    /// The resource refuses tokens that are too small: a late write lands after that of the next
    /// holder.
    Fencing,
    /// A client counts a session from before it sent what was answered: as with leases.
    SessionFromSending,
    /// The server keeps a session as long as it said.
    Ttl,
    /// A heartbeat keeps the session alone that was read, and not what is bound to the one before.
    OwnBeats,
    /// A lock is believed no longer than a session from before the server may bind it to that: what it
    /// has bound, and the client does not know yet, is freed.
    BindsBefore,
    /// And no longer than the one before until the server has: what is bound anew is freed with that.
    KeepsTheOneBefore,
    /// A session is left when the server does not know it any more, and not before: what a late request
    /// binds to it is freed.
    ReadsOn,
    /// What is shared from now on is bound anew before anybody believes in it: it is freed, and its
    /// reader believes its lease.
    BindsAnew,
    /// What is bound is released when its session is gone, and does not stay.
    Releases,
    /// And nothing that is bound to another is.
    OnlyItsOwn,
    /// A client that wants a result is not granted the lock while the result exists.
    Unless,
    /// Only a holder stores a result, and only while its lease runs.
    StoreFenced,
    /// A stored result counts when replicas have it.
    StoresConfirmed,
}

/// The limits of a world, and its safeguards.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The clients.
    pub clients: &'static [Plan],
    /// How many servers there are; the first is the primary.
    pub servers: usize,
    /// How many ticks there are.
    pub ticks: u8,
    /// How often the primary may change.
    pub failovers: u8,
    /// How often it starts anew, with its keyspace.
    pub restarts: u8,
    /// Whether a primary is replaced only when it is dead; else it may only be cut off.
    pub only_when_dead: bool,
    /// How many replicas must have a grant before it counts: a primary that dies takes others with it.
    pub confirmed: usize,
    /// Only a replica is promoted that no other one is ahead of: else one that has not confirmed is.
    pub freshest: bool,
    /// A promoted replica grants nothing for a lease: it has not heard of all grants.
    pub quarantine: bool,
    /// A primary without replicas refuses to write, one tick after it lost them: one that is cut off
    /// goes on granting.
    pub min_replicas: bool,
    /// The rules that are broken.
    pub breaks: &'static [Rule],
}

impl World {
    /// Two clients and one server, with every rule observed.
    pub const CALM: Self = Self {
        clients: &[Plan::RENEWS; 2],
        servers: 1,
        ticks: 5,
        failovers: 0,
        restarts: 0,
        only_when_dead: true,
        confirmed: 0,
        freshest: false,
        quarantine: false,
        min_replicas: false,
        breaks: &[],
    };

    /// Whether clients want a result.
    pub(crate) fn has_results(&self) -> bool {
        self.clients.iter().any(|plan| plan.keeps > 0)
    }

    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        !self.breaks.contains(&rule)
    }

    /// Those with sessions are kept small: whoever asks for the lock hears at once, so that it believes
    /// for as long as it may, nobody gives it back, and nothing is lost but what clients give up.
    pub(crate) fn has_sessions(&self) -> bool {
        self.clients.iter().any(|plan| plan.opens > 0)
    }
}
