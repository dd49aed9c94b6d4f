//! The session of a client at one server: all its waits, observations and bound locks there use it.
//!
//! ```text
//!   at(node) ──► Opening ──► Open(id) ──► Over(why)
//!                   └─────────────────────►┘
//!
//!   task ── LOCK.WAIT … SESSION id ──► server: "queued"       over the connection for commands
//!    ▲                                   │ granted, open, timeout, …
//!    └── by owner ── reader ◄── SESSION.NEXT id ack           over a connection of its own
//! ```
//!
//! One task, the [`reader`], opens the session, reads it, and is its heartbeat. When that task ends,
//! also with its runtime, the session is over.
//!
//! - **S1** A session ends once, with a reason. Its waits and observations then end with that reason. They
//!   may start again through another session. If the server still has the owner in its queue, the place is
//!   kept.
//! - **S2** An outcome for an owner that no longer waits is dropped: the [`Claim`] of that wait cancels the wait
//!   and releases the lock. It repeats both until they are answered, and does not give up while the session
//!   lasts, since the session keeps the owner's place in the queue.
//! - **S3** A wait fails at the latest when the server has not answered for the session's ttl, or for the
//!   client's patience if that is shorter. The time since the last answer counts against the patience.
//! - **S4** A session with bound locks is not replaced by another one at the same node while the server may
//!   know the session. Otherwise a late request could bind a lock to the old session again.
//! - **S5** Bound locks count as held no longer than `ttl`, less the safety margin, after the last answered
//!   request to open or read the session was sent. If the server does not know the session before that time
//!   is over, it has forgotten the bindings, and the leases alone count.
//!
//! [`Claim`]: crate::engine::acquire::claim::Claim

pub(crate) mod observed;
mod reader;
pub(crate) mod sessions;

use crate::engine::clock::Moment;
use crate::engine::lease::alive::Leases;
use crate::engine::lease::belief::Belief;
use crate::engine::lease::{Lease, LeasePolicy};
use crate::net::link::runtime_is_gone;
use crate::net::live::Live;
use crate::net::node::Node;
use crate::net::router::Router;
use crate::net::runtimes::Single;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::wire::error::Error;
use crate::wire::observed::ObservedState;
use crate::wire::outcome::WaitEnd;
use crate::wire::request;
use redis::{Cmd, ErrorKind, RedisError, Value};
// Ordered, so that waits end in the same order in each run of a simulation.
#[cfg(feature = "simulation")]
use std::collections::BTreeMap as HashMap;
#[cfg(not(feature = "simulation"))]
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// State that all sessions of a client share.
#[derive(Debug)]
struct Shared {
    router: Arc<Router>,
    policy: LeasePolicy,
    reply_timeout: Duration,
    ttl: Duration,
    idle: Duration,
    /// Time without an answer of the server after which waits fail.
    silence: Duration,
}

/// A session at one server.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) node: Arc<Node>,
    /// Moment until which locks bound to this session count as held.
    pub(crate) belief: Arc<Belief>,
    phase: watch::Sender<Phase>,
    uses: Mutex<Uses>,
    /// The task that binds the leases again when their slots move or the session ends.
    pub(crate) keeper: Single,
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
enum Phase {
    Opening,
    Open(Arc<str>),
    Over(Error),
}

/// What depends on a session (its waits, observed locks and bound leases), and when its server last answered.
#[derive(Debug)]
struct Uses {
    /// When the server last answered a `SESSION.NEXT`; before the first answer, when the session began.
    heard: Instant,
    /// Waits, by owner.
    waits: HashMap<Arc<str>, oneshot::Sender<WaitEnd>>,
    /// The last state of each observed lock, by its name.
    observed: HashMap<Arc<[u8]>, watch::Sender<Last>>,
    bound: Leases,
}

/// The last state that an observer was sent; `None` before the first. An error ends the observation.
type Last = Option<Result<ObservedState, Error>>;

impl Session {
    fn new(node: Arc<Node>, shared: Arc<Shared>) -> Self {
        let uses = Uses {
            heard: Instant::now(),
            waits: HashMap::new(),
            observed: HashMap::new(),
            bound: Leases::default(),
        };
        let (phase, belief) = (watch::Sender::new(Phase::Opening), Arc::new(Belief::none()));
        Self { node, belief, phase, uses: Mutex::new(uses), keeper: Single::default(), shared }
    }

    /// Waits until the session is open, and returns its id.
    pub(crate) async fn id(&self) -> Result<Arc<str>, Error> {
        let mut phase = self.phase.subscribe();
        let phase = phase.wait_for(|phase| !matches!(phase, Phase::Opening)).await;
        match phase.as_deref() {
            Ok(Phase::Open(id)) => Ok(id.clone()),
            Ok(Phase::Over(why)) => Err(why.clone()),
            Ok(Phase::Opening) | Err(_) => Err(runtime_is_gone()),
        }
    }

    fn why_over(&self) -> Option<Error> {
        match &*self.phase.borrow() {
            Phase::Over(why) => Some(why.clone()),
            Phase::Opening | Phase::Open(_) => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Over(_))
    }

    /// Waits until the session ends.
    pub(crate) async fn over(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives as long as this session.
        let _over = phase.wait_for(|phase| matches!(phase, Phase::Over(_))).await;
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        lock(&self.uses)
    }

    /// Adds a use, unless the session is over.
    fn enter<T>(&self, entry: impl FnOnce(&mut Uses) -> T) -> Result<T, Error> {
        let mut uses = self.uses();
        self.why_over().map_or_else(|| Ok(entry(&mut uses)), Err)
    }

    /// Registers a wait. The ticket receives its outcome.
    pub(crate) fn expect(self: &Arc<Self>, owner: &Arc<str>) -> Result<Ticket, Error> {
        let (sender, told) = oneshot::channel();
        self.enter(|uses| uses.waits.insert(owner.clone(), sender))?;
        Ok(Ticket { session: self.clone(), owner: owner.clone(), told })
    }

    /// Registers the observation of a lock. A lock must have at most one at a time.
    pub(crate) fn observe(self: &Arc<Self>, key: &Arc<[u8]>) -> Result<Changes, Error> {
        let (sender, last) = watch::channel(None);
        self.enter(|uses| uses.observed.insert(key.clone(), sender))?;
        Ok(Changes { session: self.clone(), key: key.clone(), last })
    }

    /// Registers a bound lease, which from then on counts as held no longer than this session lasts. (S5)
    pub(crate) fn bind(&self, lease: &Arc<Lease>) -> Result<(), Error> {
        self.enter(|uses| {
            // A repeated request to bind the lease is for the same entry.
            if !lease.is_bound_to(&self.belief) {
                uses.bound.add(lease);
            }
            lease.bind(&self.belief);
        })
    }

    /// Returns the leases that are bound to this session.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        let all: Vec<_> = self.uses().bound.iter().collect();
        all.into_iter().filter(|lease| lease.is_bound_to(&self.belief)).collect()
    }

    pub(crate) fn heard(&self) -> Instant {
        self.uses().heard
    }

    /// Sends a request that names this session. Ends the session if the server does not know the session.
    pub(crate) async fn ask(
        &self,
        live: &Live,
        request: &Cmd,
        asking: bool,
    ) -> Result<Value, Error> {
        let answer = live.ask(request, asking, self.shared.reply_timeout).await;
        if let Err(trouble) = &answer
            && trouble.code() == Some("NOSESSION")
        {
            self.end(trouble.clone());
        }
        answer
    }

    pub(super) fn end(&self, why: Error) {
        self.end_if(why, |_| true);
    }

    /// Ends the session if `so` allows it, and returns whether it does. The first reason is kept.
    fn end_if(&self, why: Error, so: impl FnOnce(&mut Uses) -> bool) -> bool {
        let mut uses = self.uses();
        if !so(&mut uses) {
            return false;
        }
        if !self.is_over() {
            let now = Moment::of(&*self.shared.policy.clock);
            // (S5)
            if is_forgotten(&why) && !self.belief.until().left_at(now).is_zero() {
                self.belief.forgotten();
            }
            self.phase.send_replace(Phase::Over(why));
        }
        uses.end_waits();
        true
    }

    /// Closes the session if `so` allows it, when it has opened. Waits for the server's answer, up to the reply
    /// timeout.
    async fn close_if(self: Arc<Self>, so: fn(&mut Uses) -> bool) {
        let Ok(id) = self.id().await else { return };
        if self.end_if(closed(), so) {
            let close = request::close_session(&id);
            // If the request does not arrive, the server ends the session after its ttl.
            let _closed = self.node.commands().call(&close, self.shared.reply_timeout).await;
        }
    }

    /// Returns why a wait or an observation ended without an outcome.
    fn why_silent(&self) -> Error {
        self.why_over().unwrap_or(Error::Timeout)
    }
}

impl Uses {
    /// Returns whether there are no waits and no bound leases. A lease that has since been bound at another
    /// node counts too: its slot may come back.
    fn may_end(&mut self) -> bool {
        self.waits.is_empty() && !self.bound.any()
    }

    fn is_unused(&mut self) -> bool {
        self.may_end() && self.observed.is_empty()
    }

    /// Returns whether to send the next request before the last one is answered, so that outcomes follow each
    /// other without a pause. Returns `false` with bound locks: an answer counts for them only from the moment
    /// at which its request was sent.
    fn reads_ahead(&mut self) -> bool {
        let is_awaited = !self.waits.is_empty() || !self.observed.is_empty();
        is_awaited && !self.bound.any()
    }

    /// Ends waits and observations. Their tasks read the reason, and start again or fail.
    fn end_waits(&mut self) {
        self.waits.clear();
        self.observed.clear();
    }
}

/// Returns whether the error means that the server does not know the session. A module that is drained
/// answers `TRYAGAIN`: it has closed the session, and has forgotten the bindings.
fn is_forgotten(why: &Error) -> bool {
    matches!(why.code(), Some("NOSESSION" | "TRYAGAIN"))
}

fn closed() -> Error {
    Error::Connection(RedisError::from((ErrorKind::Io, "the session is closed")))
}

/// A registered wait. After it is dropped, no task awaits the outcome of the wait.
#[derive(Debug)]
pub(crate) struct Ticket {
    session: Arc<Session>,
    owner: Arc<str>,
    told: oneshot::Receiver<WaitEnd>,
}

impl Ticket {
    /// Returns the outcome of the wait; an error if the session ended the wait without an outcome.
    pub(crate) async fn outcome(&mut self) -> Result<WaitEnd, Error> {
        if let Ok(told) = (&mut self.told).await {
            return Ok(told);
        }
        Err(self.session.why_silent())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.session.uses().waits.remove(&self.owner);
    }
}

/// Receiver of the changes of an observed lock. After it is dropped, no task awaits them.
#[derive(Debug)]
pub(crate) struct Changes {
    session: Arc<Session>,
    key: Arc<[u8]>,
    last: watch::Receiver<Last>,
}

impl Changes {
    /// Returns the next state; an error if the session is over, or if the observation must start again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<ObservedState, Error> {
        match self.last.changed().await {
            Ok(()) => self.last.borrow_and_update().clone().unwrap_or(Err(Error::Timeout)),
            Err(_) => Err(self.session.why_silent()),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.session.uses().observed.remove(&self.key);
    }
}
