//! A client: what it has asked, what it believes, and what it writes.

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asks {
    /// The lock, ready to wait for it.
    Lock,
    /// A new lease for the grant of that token, of that length.
    Renewal(u64, u8),
    /// To give it back.
    Release,
}

/// A request, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    /// There is none.
    None,
    /// On its way to a server, sent at that tick.
    Sent(Asks, u8),
    /// In line, sent at that tick.
    Queued(u8),
    /// Granted, and the answer is on its way.
    Granted {
        /// What was asked for.
        asked: Asks,
        /// When.
        sent: u8,
        /// The token of the grant.
        token: u64,
        /// Whether it had to wait.
        waited: bool,
        /// How many copies each server still has to get before it has this grant; none if it
        /// never will.
        behind: Vec<Option<u8>>,
    },
}

/// A renewal that nobody waits for any more, and that may yet arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Late {
    /// The connection over which it comes, and the server to which.
    pub(crate) connection: u8,
    /// The server.
    pub(crate) server: usize,
    /// The grant, which is an owner of its own.
    pub(crate) token: u64,
    /// For how long.
    pub(crate) length: u8,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// The server that it talks to.
    pub(crate) server: usize,
    /// What it has asked.
    pub(crate) call: Call,
    /// The token it believes to hold the lock with, and the first tick at which it does not any more.
    pub(crate) belief: Option<(u64, u8)>,
    /// A write on its way to the resource, with this token.
    pub(crate) write: Option<u64>,
    /// The number of its connection: what is sent over one arrives in order.
    pub(crate) connection: u8,
    /// What may yet arrive.
    pub(crate) late: Vec<Late>,
    /// The shortest renewal over that connection since one was answered there.
    pub(crate) unanswered: Option<(u8, u8)>,
    /// The shortest over connections of which it has no more answers to hope for.
    pub(crate) lasting: Option<u8>,
    /// How often it may still ask for the lock, renew it, and write.
    pub(crate) left: [u8; 3],
}

impl Client {
    pub(crate) fn new(left: [u8; 3]) -> Self {
        Self {
            server: 0,
            call: Call::None,
            belief: None,
            write: None,
            connection: 0,
            late: Vec::new(),
            unanswered: None,
            lasting: None,
            left,
        }
    }

    /// Which of the late ones may arrive next: the first over each connection.
    pub(crate) fn next_late(&self) -> impl Iterator<Item = usize> {
        let first = |place: &usize| {
            let before = &self.late[..*place];
            before.iter().all(|before| before.connection != self.late[*place].connection)
        };
        (0..self.late.len()).filter(first)
    }

    /// It sends a renewal of that length: `Lease::renewing` in `client/src/engine/lease.rs`.
    pub(crate) fn renewing(&mut self, now: u8, length: u8) {
        self.belief = self.belief.map(|(token, end)| (token, end.min(now + length)));
        let (before, here) = (self.unanswered, self.connection);
        self.unanswered = match before {
            Some((connection, shortest)) if connection == here => {
                Some((here, shortest.min(length)))
            }
            _ => Some((here, length)),
        };
        if let Some((connection, shortest)) = before
            && connection != here
        {
            self.lasting = Some(self.lasting.map_or(shortest, |lasting| lasting.min(shortest)));
        }
    }

    /// One was answered: how much of its length counts. What was sent before it over the same
    /// connection has arrived before it.
    pub(crate) fn renewed(&mut self, length: u8) -> u8 {
        self.unanswered = None;
        self.lasting.map_or(length, |lasting| lasting.min(length))
    }

    /// Whether it may do one of these once more.
    pub(crate) fn may(&self, what: usize) -> bool {
        self.left.get(what).is_some_and(|left| *left > 0)
    }

    /// It does one of these.
    pub(crate) fn uses(&mut self, what: usize) {
        if let Some(left) = self.left.get_mut(what) {
            *left = left.saturating_sub(1);
        }
    }
}
