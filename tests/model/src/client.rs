//! A client: what it has asked, what it believes, and what it writes.

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asks {
    /// The lock, ready to wait for it.
    Lock,
    /// A new lease for the grant of that token.
    Renewal(u64),
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
    /// How often it may still ask for the lock, renew it, and write.
    pub(crate) left: [u8; 3],
}

impl Client {
    pub(crate) fn new(left: [u8; 3]) -> Self {
        Self { server: 0, call: Call::None, belief: None, write: None, left }
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
