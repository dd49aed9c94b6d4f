//! A world: its clients and servers, its limits, and its broken rules.

/// Time to live of a session without a reader, in ticks.
pub(crate) const TTL: u8 = 2;

/// Properties of a client, and limits of its actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Length of the client's leases, in ticks.
    pub lease: u8,
    /// `true` if the client binds its lock to a session, and believes in the lock only after that.
    pub bound: bool,
    /// Number of requests for the lock.
    pub asks: u8,
    /// Number of renewals.
    pub renews: u8,
    /// `true` if renewals may be for one tick only, and may arrive after the client has given them up.
    pub shortens: bool,
    /// Number of writes to the resource.
    pub writes: u8,
    /// Number of downgrades to a shared hold.
    pub downgrades: u8,
    /// Number of sessions that the client opens.
    pub opens: u8,
    /// Number of reads of sessions: heartbeats.
    pub reads: u8,
    /// Number of bindings or heartbeats whose reply the client does not await.
    pub gives_up: u8,
    /// Lifetime of a result in ticks. The client wants the lock only while there is no result, and may store
    /// one when it releases the lock. If this is 0, the client wants no result.
    pub keeps: u8,
}

impl Plan {
    /// A client that requests the lock once.
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
    /// A client that may also renew the lock.
    pub const RENEWS: Self = Self { renews: 1, ..Self::ASKS };
    /// A client that binds the lock to a session.
    pub const BOUND: Self =
        Self { lease: 5, bound: true, opens: 1, reads: 1, gives_up: 1, ..Self::ASKS };
}

/// Rules that clients and servers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A client counts a lease from before it sends the command that sets the lease. A lease counted from a
    /// late reply would outlive the server's lease.
    LeaseFromSending,
    /// A waiter is granted a short lease, and confirms it with a renewal, because its request may be old.
    Offer,
    /// A client relies only on the shortest renewal that may still arrive, because that one may arrive last.
    CountsLate,
    /// Renewals count only when replicas confirm them, because a primary that is cut off still renews.
    RenewalsConfirmed,
    /// Tokens are reserved ahead, and a new primary starts above the reserved ones. Otherwise the new primary
    /// could issue a token that is not larger than all earlier tokens.
    Floor,
    /// The resource refuses tokens that are too small, because a late write may arrive after a write of the
    /// next holder.
    Fencing,
    /// A client counts a session's time to live from the sending of the answered call, not from the reply.
    SessionFromSending,
    /// The server keeps a session for its whole time to live.
    Ttl,
    /// A heartbeat extends only the session that was read, not an earlier session with bound locks.
    OwnBeats,
    /// Once a client has sent a binding, its belief in the lock also ends with the session. The server may
    /// have bound the lock already, and would release it with the session.
    BindsBefore,
    /// Until the reply to a new binding, the belief also ends with the previous session. The lock may still
    /// be bound to that session.
    KeepsTheOneBefore,
    /// A client gives up a session only when the server no longer knows it. Otherwise a late request could
    /// bind the lock to the abandoned session, whose end would release the lock.
    ReadsOn,
    /// After a downgrade, the shared hold is bound again before the client believes in it. Otherwise the hold
    /// could be released while its owner believes in the lease.
    BindsAnew,
    /// A bound lock is released when its session ends.
    Releases,
    /// The end of a session does not release locks that are bound to another session.
    OnlyItsOwn,
    /// A client that wants a result is not granted the lock while the result exists.
    Unless,
    /// Only a holder stores a result, and only while its lease runs.
    StoreFenced,
    /// A stored result counts only when the required replicas have it.
    StoresConfirmed,
}

/// The limits of a world, and its safeguards.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The clients.
    pub clients: &'static [Plan],
    /// Number of servers. The first is the primary.
    pub servers: usize,
    /// The last tick. The first is 1.
    pub ticks: u8,
    /// Number of failovers.
    pub failovers: u8,
    /// Number of restarts of the primary, with its keyspace.
    pub restarts: u8,
    /// `true` if a primary is replaced only when it is dead. Otherwise a primary that is cut off is replaced too.
    pub only_when_dead: bool,
    /// Number of replicas that must confirm a grant before it counts. Unconfirmed grants may be lost with the
    /// primary.
    pub confirmed: usize,
    /// `true` if only the replica that has received the most copies is promoted. Otherwise a replica that has not
    /// confirmed grants may be promoted.
    pub freshest: bool,
    /// `true` if a promoted replica grants nothing for longer than the longest lease, because it may lack grants.
    pub quarantine: bool,
    /// `true` if a primary that was replaced refuses writes from the second tick after that, because it has lost its
    /// replicas. Otherwise a primary that is cut off continues to grant.
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

    /// Returns whether clients want a result.
    pub(crate) fn has_results(&self) -> bool {
        self.clients.iter().any(|plan| plan.keeps > 0)
    }

    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        !self.breaks.contains(&rule)
    }

    /// Returns whether clients use sessions. Such worlds are kept small. A request for the lock is answered at once,
    /// which gives the longest belief. No client releases the lock. Clients give up only bindings and heartbeats.
    pub(crate) fn has_sessions(&self) -> bool {
        self.clients.iter().any(|plan| plan.opens > 0)
    }
}
