//! One attempt to acquire a lock at all servers of a quorum.
//!
//! ```text
//!   ask all, for a short lease ──► granted by a majority ──► token := the largest of theirs
//!        │                                                        │
//!        │ no majority is possible                                ▼
//!        ▼                                      renew with that token, full lease
//!   release everywhere                                            │ done by a majority
//!                                                                 ▼
//!                                       held; servers that answer later join in the background
//! ```
//!
//! The token is larger than the token of every earlier majority: two majorities have a server in common, and
//! after the earlier token was written there, this server issues only larger ones. So that this holds for
//! delayed answers too, **a server counts for the majority only if its own token is not larger than the
//! quorum's token**. A server that issues a larger token after the token was decided may have granted the
//! lock to another client in between. Such a server can join later. Or, if there is no majority without it, the
//! largest token of all becomes the quorum's, and is confirmed everywhere again.
//!
//! Each server has a limited time to answer. A failed attempt releases its grants before the next attempt
//! begins. Late grants, and releases that are not answered in time, are handled in the background.

use crate::Servers;
use crate::held::Held;
use crate::member::{Confirmed, Term, confirm};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use kvlock::{Error, Guard, Token};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Shortest first lease, unless the lock's lease is shorter. If the client dies before it sets the full
/// lease, other clients wait until the first lease ends.
const OFFER: Duration = Duration::from_secs(2);

/// Outcome of an attempt.
pub(crate) enum Outcome {
    Held(Arc<Held>),
    /// Too few servers granted the lock, but the servers that have not failed are a majority.
    Refused,
    /// Too many servers failed: the others are no majority.
    Trouble(Error),
}

type Asking = FuturesUnordered<BoxFuture<'static, (usize, Result<Option<Guard>, Error>)>>;
type Confirming = FuturesUnordered<BoxFuture<'static, (usize, Token, Confirmed)>>;

/// An attempt in progress.
pub(crate) struct Attempt {
    servers: Arc<Servers>,
    key: Arc<[u8]>,
    term: Term,
    patience: Duration,
    asking: Asking,
    /// Grants that wait for a token: it is not decided yet, or the server refused it.
    granted: Vec<(usize, Guard)>,
    token: Option<Token>,
    /// Grants that came after the token was decided, with a larger token.
    late: Vec<(usize, Guard)>,
    confirming: Confirming,
    /// Confirmed guards: the index of the server, the token that the server issued, and the guard.
    guards: Vec<(usize, Token, Guard)>,
    /// Number of servers that failed or were left out.
    failed: usize,
    /// The error to report.
    trouble: Option<Error>,
}

impl Attempt {
    /// Starts an attempt at all servers. Each has `patience` to answer a request.
    pub(crate) fn new(
        servers: &Arc<Servers>,
        key: &Arc<[u8]>,
        term: Term,
        patience: Duration,
    ) -> Self {
        let all = 0..servers.members.len();
        let mut attempt = Self::at(servers, key, term, patience, None, all);
        attempt.guards.reserve(servers.members.len());
        attempt
    }

    /// Starts an attempt at these servers. If `token` is set, other servers have granted the lock already,
    /// with this token.
    pub(crate) fn at(
        servers: &Arc<Servers>,
        key: &Arc<[u8]>,
        term: Term,
        patience: Duration,
        token: Option<Token>,
        which: impl IntoIterator<Item = usize>,
    ) -> Self {
        // Unless the lock's lease is shorter, long enough for the request and for the renewal that follows.
        // Each may take `patience`.
        let offer = Term { length: term.length.min(OFFER.max(patience * 4)), ..term };
        let asking = which.into_iter().filter_map(|server| {
            let member = servers.members.get(server)?.clone();
            let answer = member.ask(key.clone(), offer, patience);
            Some(answer.map(move |answer| (server, answer)).boxed())
        });
        Self {
            asking: asking.collect(),
            servers: servers.clone(),
            key: key.clone(),
            term,
            patience,
            granted: Vec::new(),
            token,
            late: Vec::new(),
            confirming: FuturesUnordered::new(),
            guards: Vec::new(),
            failed: 0,
            trouble: None,
        }
    }

    /// Runs until a majority has granted the lock, or until no majority is possible.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped at any point, all grants are released in the background.
    pub(crate) async fn run(mut self) -> Outcome {
        let wanted = self.servers.majority();
        loop {
            if self.counted() >= wanted
                && let Some(token) = self.token
                && let Some(held) = self.hold(token)
            {
                let held = Arc::new(held);
                let all_said = self.asking.is_empty() && self.confirming.is_empty();
                if !(all_said && self.late.is_empty()) {
                    let tasks = self.servers.tasks.clone();
                    tasks.spawn(self.join(Arc::downgrade(&held)));
                }
                return Outcome::Held(held);
            }
            if self.token.is_none() && self.granted.len() >= wanted {
                self.decide();
            }
            let at_most = self.counted() + self.confirming.len() + self.asking.len();
            let at_most = at_most + if self.token.is_none() { self.granted.len() } else { 0 };
            if at_most < wanted && !self.do_without_the_largest() {
                if at_most + self.late.len() < wanted {
                    return self.fail().await;
                }
                // A confirmation in flight still sets the smaller token.
                if self.confirming.is_empty() {
                    self.raise();
                }
            }
            self.step(false).await;
        }
    }

    /// Returns the number of confirmed servers that count for the majority.
    fn counted(&self) -> usize {
        self.guards.iter().filter(|(_, own, _)| Some(*own) <= self.token).count()
    }

    /// Sets the token to the largest one of the majority that has granted the lock, and sends it to all of
    /// these servers.
    fn decide(&mut self) {
        self.token = self.granted.iter().map(|(_, guard)| guard.token()).max();
        self.confirm();
    }

    /// Sets the token to the largest one of all servers that have granted the lock, and sends it to all of
    /// them: without those that have granted it with a larger token than the one so far, there is no majority.
    fn raise(&mut self) {
        self.granted.append(&mut self.late);
        self.granted.extend(self.guards.drain(..).map(|(server, _, guard)| (server, guard)));
        self.decide();
    }

    fn confirm(&mut self) {
        for (server, guard) in std::mem::take(&mut self.granted) {
            self.confirm_one(server, guard);
        }
    }

    fn confirm_one(&mut self, server: usize, guard: Guard) {
        let Some(token) = self.token else { return };
        let own = guard.token();
        let confirmed = confirm(guard, token, self.term, self.patience);
        self.confirming.push(confirmed.map(move |confirmed| (server, own, confirmed)).boxed());
    }

    /// Leaves out the server with the largest token if other servers refuse that token, which is too far
    /// ahead of their clocks. Tokens already written do no harm: they only raise later tokens. Returns
    /// `false` if no server has refused the token, or if the remaining servers are no majority.
    fn do_without_the_largest(&mut self) -> bool {
        let wanted = self.servers.majority();
        let Some(largest) = self.token.filter(|_| !self.granted.is_empty()) else { return false };
        let before = self.granted.len() + self.guards.len();
        self.granted.retain(|(_, guard)| guard.token() < largest);
        self.guards.retain(|(_, own, _)| *own < largest);
        let left = self.granted.len() + self.guards.len();
        self.failed += before - left;
        if left < wanted {
            return false;
        }
        let given = self.granted.iter().map(|(_, guard)| guard.token());
        self.token = given.chain(self.guards.iter().map(|(_, own, _)| *own)).max();
        self.confirm();
        true
    }

    /// Waits for one answer, and processes it. Returns `false` if no answer is outstanding.
    async fn step(&mut self, joining: bool) -> bool {
        tokio::select! {
            Some((server, answer)) = self.asking.next(), if !self.asking.is_empty() => match answer {
                Ok(Some(guard)) if self.token.is_none() => self.granted.push((server, guard)),
                Ok(Some(guard)) if joining || Some(guard.token()) <= self.token => {
                    self.confirm_one(server, guard);
                }
                Ok(Some(guard)) => self.late.push((server, guard)),
                Ok(None) => {}
                Err(trouble) => {
                    self.failed += 1;
                    self.note(trouble);
                }
            },
            Some((server, own, confirmed)) = self.confirming.next(), if !self.confirming.is_empty() => {
                match confirmed {
                    Confirmed::Held(guard) => self.guards.push((server, own, guard)),
                    Confirmed::Gone => {}
                    Confirmed::Refused(guard, trouble) => {
                        self.note(trouble);
                        self.granted.push((server, guard));
                    }
                    Confirmed::Failed(trouble) => {
                        self.failed += 1;
                        self.note(trouble);
                    }
                }
            }
            else => return false,
        }
        true
    }

    /// Records an error, unless one that is not retryable is recorded already.
    fn note(&mut self, trouble: Error) {
        let says_more = self.trouble.as_ref().is_none_or(|known| known.is_retryable());
        if says_more {
            self.trouble = Some(trouble);
        }
    }

    /// Returns the held lock, if it is still valid.
    fn hold(&mut self, token: Token) -> Option<Held> {
        let mut guards: Vec<Option<Guard>> = Vec::new();
        guards.resize_with(self.servers.members.len(), || None);
        for (server, _, guard) in std::mem::take(&mut self.guards) {
            if let Some(part) = guards.get_mut(server) {
                *part = Some(guard);
            }
        }
        let held = Held::new(self.key.clone(), token, self.term, self.servers.majority(), guards);
        if held.left().is_zero() {
            self.failed += self.servers.members.len();
            self.note(Error::Timeout);
            return None;
        }
        Some(held)
    }

    /// Adds servers that answer later, while the lock is held. A server with a larger token can join too.
    pub(crate) async fn join(mut self, held: std::sync::Weak<Held>) {
        for (server, guard) in std::mem::take(&mut self.late) {
            self.confirm_one(server, guard);
        }
        while self.step(true).await {
            let Some(held) = held.upgrade().filter(|held| held.is_alive()) else { return };
            for (server, _, guard) in self.guards.drain(..) {
                held.join(server, guard);
            }
        }
    }

    /// Releases all grants, and returns why the attempt failed.
    async fn fail(mut self) -> Outcome {
        // Dropped requests are undone in the background.
        self.asking.clear();
        self.confirming.clear();
        let granted = self.granted.into_iter().chain(self.late).map(|(_, guard)| guard);
        let guards = granted.chain(self.guards.into_iter().map(|(_, _, guard)| guard));
        // Releases that take longer continue in the background.
        let _late = timeout(self.patience, join_all(guards.map(Guard::release))).await;
        let servers = self.servers.members.len();
        match self.trouble {
            Some(trouble) if self.failed > servers - self.servers.majority() => {
                // The request is invalid, so the number of failed servers does not matter.
                if matches!(trouble, Error::Invalid(_)) {
                    return Outcome::Trouble(trouble);
                }
                let (failed, trouble) = (self.failed, Box::new(trouble));
                Outcome::Trouble(Error::NoMajority { failed, servers, trouble })
            }
            _ => Outcome::Refused,
        }
    }
}
