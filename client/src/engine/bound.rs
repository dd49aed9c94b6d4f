//! Locks that are bound to a session: free as soon as this client is gone, kept by one heartbeat.
//!
//! ```text
//!   LOCK.ACQUIRE … HOLDS n SESSION id BOUND HELD ──► what the owner holds is bound, and nothing is granted
//!   SESSION.NEXT id 0, a tenth of the ttl, again and again: the heartbeat
//!        └─ answered: all that is bound may be believed until ttl after it was sent
//! ```
//!
//! - **B1** A bound lease is believed no longer than its session, from before the server may bind it,
//!   and no longer than the one before until the server has.
//! - **B2** A server that does not know the session, before that could be over, has forgotten what is
//!   bound to it: the leases count alone, until another session has taken them over.
//! - **B3** When the session is over otherwise, all that is bound to it is lost.
//! - **B4** As long as the server may know it, it is not left for another one there: what was asked of it and
//!   arrives late would bind to it again.
//! - **B5** A lock whose slot has moved is bound again at its new node, while the session at the old one goes
//!   on with the others.

use crate::engine::belief::Belief;
use crate::engine::context::Context;
use crate::engine::lease::Lease;
use crate::engine::limit::{Limit, Trouble, pause_after};
use crate::engine::open::{Open, PerNode, Use};
use crate::net::link::runtime_is_gone;
use crate::net::live::Live;
use crate::net::node::Node;
use crate::net::router::Route;
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::outcome;
use crate::wire::reply;
use crate::wire::request::{self, Mode};
use futures_util::stream::{self, StreamExt};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// How many leases are bound anew at the same time.
const AT_ONCE: usize = 256;

/// The heartbeat goes to the server this many times in the time of a session. How old the last one is that
/// was answered is time that a silence takes away from all that is bound.
const BEATS: u32 = 10;

/// The sessions of a client to which locks are bound.
#[derive(Debug, Default)]
pub(crate) struct BoundSessions(PerNode<Bound>);

type BoundSession = Open<Bound>;

/// What is bound to a session.
#[derive(Debug)]
pub(crate) struct Bound {
    belief: Arc<Belief>,
    leases: Vec<Weak<Lease>>,
    /// At this length those that are gone are removed.
    full: usize,
}

impl Default for Bound {
    fn default() -> Self {
        Self { belief: Arc::new(Belief::none()), leases: Vec::new(), full: 0 }
    }
}

impl Use for Bound {
    /// A lease that was bound elsewhere since may be bound here still, if its slot comes back.
    fn is_unused(&self) -> bool {
        !self.leases.iter().any(is_alive)
    }
}

impl BoundSessions {
    /// The one at that server; a new one, if there is none.
    fn at(&self, inner: &Arc<Context>, node: &Arc<Node>) -> Result<Arc<BoundSession>, Error> {
        let inner = Arc::downgrade(inner);
        self.0.at(node, |session| {
            let belief = session.used().belief.clone();
            Heartbeat { session, belief, inner }.run()
        })
    }

    /// Closes those to which nothing is bound.
    pub(crate) async fn close(&self, patience: Duration) {
        self.0.close(patience).await;
    }
}

impl Open<Bound> {
    /// From now on the lease is believed no longer than this session. (B1)
    fn keep(&self, lease: &Arc<Lease>) -> Result<Arc<Belief>, Error> {
        self.enter(|bound| {
            if bound.leases.len() >= bound.full {
                bound.leases.retain(is_alive);
                bound.full = 2 * bound.leases.len() + 16;
            }
            bound.leases.push(Arc::downgrade(lease));
            lease.bind(&bound.belief);
            bound.belief.clone()
        })
    }
}

fn is_alive(lease: &Weak<Lease>) -> bool {
    lease.upgrade().is_some_and(|lease| lease.is_alive())
}

/// Binds a lease to the session at the server that has its key, for the longest that a guard of it wants.
/// Tries until it is known to be bound or lost, or for that long.
pub(crate) async fn bind(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    patience: Duration,
) -> Result<(), Error> {
    let mut trouble = Trouble::new(Limit::Never);
    let mut route = inner.router.route(&lease.held_lock.key).await?;
    loop {
        match try_bind(inner, lease, &route).await {
            Ok(()) => return Ok(()),
            Err(lost @ Error::Lost(_)) => return Err(lost),
            Err(error) if inner.router.goes_on(&mut route, &error) => {}
            Err(error) => {
                let unknown = error.code() == Some("NOSESSION");
                let error = if unknown { Error::Timeout } else { error };
                trouble.bear(error, patience, inner.router.switched()).await?;
                route = inner.router.route(&lease.held_lock.key).await?;
            }
        }
    }
}

async fn try_bind(inner: &Arc<Context>, lease: &Arc<Lease>, to: &Route) -> Result<(), Error> {
    let session = inner.bound_sessions.at(inner, &to.node)?;
    let id = session.id().await?;
    let turn = lease.turn().await;
    if lease.is_lost() || !lease.is_alive() {
        return Err(lease.lost_error());
    }
    let belief = session.keep(lease)?;
    let held_lock = &lease.held_lock;
    let sent = inner.now();
    let length = lease.longest(sent).unwrap_or_default();
    let holds = match held_lock.mode {
        Mode::Alone | Mode::Shared => u32::try_from(lease.holds()).ok(),
        Mode::Permits(_) | Mode::AllPermits | Mode::Latch => Some(held_lock.mode.once()),
    };
    let mut request = held_lock.acquire(length, holds)?;
    request.arg("SESSION").arg(&*id).arg("BOUND").arg("HELD");
    let live = to.node.commands().live_by(inner.router.overdue()).await?;
    let answer = session.ask(&live, &request, to.asking, inner.settings.reply_timeout).await;
    let grant = match answer {
        Ok(value) => reply::granted(held_lock.mode, value)?,
        // It has other holds than ours, which will be given back all the same.
        Err(error) if error.code() == Some("MISMATCH") => {
            lease.lose(false, Loss::Forgotten);
            return Err(lease.lost_error());
        }
        Err(error) => return Err(error),
    };
    match grant {
        Some(grant) if grant.token == lease.token() => {
            lease.bound_to(&turn, &belief);
            let counts = inner.settings.replicas.is_none();
            lease.prolonged(&turn, sent, length, counts, inner.now());
            inner.watchdog.watch(lease);
            Ok(())
        }
        // Not held, or by another grant of which nothing is known here.
        Some(_) | None => {
            lease.gone();
            Err(lease.lost_error())
        }
    }
}

/// Binds a lease again until that is done or it is lost.
async fn bind_again(inner: &Arc<Context>, lease: &Arc<Lease>) {
    let begun = Instant::now();
    while !lease.is_lost() && lease.is_alive() {
        // Its loss is noticed when its time is over.
        match timeout(lease.left(), bind(inner, lease, Duration::ZERO)).await {
            Ok(Ok(())) => return,
            Ok(Err(_)) => sleep(pause_after(begun.elapsed()).min(lease.left())).await,
            Err(_) => {}
        }
    }
}

/// The task that keeps a session.
struct Heartbeat {
    session: Arc<BoundSession>,
    belief: Arc<Belief>,
    inner: Weak<Context>,
}

impl Heartbeat {
    async fn run(self) {
        let why = self.session.drive(self.beat()).await;
        let Some(inner) = self.inner.upgrade() else { return };
        if is_forgotten(&why) && !self.belief.until().left_at(inner.now()).is_zero() {
            self.belief.forgotten();
        }
        // (B2) And in a cluster another server may have them.
        let bind_anew = stream::iter(self.leases()).for_each_concurrent(AT_ONCE, |lease| {
            let inner = &inner;
            async move { bind_again(inner, &lease).await }
        });
        bind_anew.await;
    }

    fn inner(&self) -> Result<Arc<Context>, Error> {
        self.inner.upgrade().ok_or_else(runtime_is_gone)
    }

    /// All that is bound to it still.
    fn leases(&self) -> Vec<Arc<Lease>> {
        let alive = self.session.used().leases.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        alive.into_iter().filter(|lease| lease.is_bound_to(&self.belief)).collect()
    }

    async fn beat(&self) -> Result<Infallible, Error> {
        let inner = self.inner()?;
        let (ttl, patience) = (inner.settings.session_ttl, inner.settings.reply_timeout);
        let (router, mut moved) = (inner.router.clone(), Moved::default());
        let safety = inner.policy.safety;
        let mut live = self.session.node.dial().await?;
        let sent = inner.now();
        drop(inner);
        let lasts = || self.belief.extend(safety.until(sent, ttl));
        let id = live.beside(self.session.open(&live, ttl, patience, lasts)).await?;
        loop {
            let beats = live.beside(self.beat_over(&live, &id, ttl, &mut moved));
            let trouble = match router.looking(beats).await {
                Err(over) if is_forgotten(&over) => return Err(over),
                // (B4)
                Err(trouble) => trouble,
                Ok(never) => match never {},
            };
            live.condemn();
            if !matches!(trouble, Error::Connection(_) | Error::Timeout) {
                sleep(pause_after(Duration::ZERO)).await;
            }
            live = self.dial_again(trouble).await?;
        }
    }

    /// Another connection, unless it comes too late; then all that is bound hears of it.
    async fn dial_again(&self, mut trouble: Error) -> Result<Live, Error> {
        let begun = Instant::now();
        loop {
            let inner = self.inner()?;
            let _elsewhere = inner.router.learn(&self.session.node, &trouble);
            let left = self.belief.until().left_at(inner.now());
            let leases = self.leases();
            if left.is_zero() {
                for lease in &leases {
                    let _over = lease.expire(inner.now());
                }
                return Err(trouble);
            }
            let key = leases.first().map(|lease| lease.held_lock.key.clone());
            let now_at = key.and_then(|key| inner.router.believed(&key));
            if now_at.is_some_and(|node| !Arc::ptr_eq(&node, &self.session.node)) {
                return Err(trouble);
            }
            drop((inner, leases));
            match timeout(left, self.session.node.dial()).await {
                Ok(Ok(live)) => return Ok(live),
                Ok(Err(other)) => trouble = other,
                Err(_) => trouble = Error::Timeout,
            }
            sleep(pause_after(begun.elapsed()).min(left)).await;
        }
    }

    /// Beats for as long as that connection is there.
    async fn beat_over(
        &self,
        live: &Live,
        id: &str,
        ttl: Duration,
        moved: &mut Moved,
    ) -> Result<Infallible, Error> {
        let (pause, mut busy) = (ttl / BEATS, Instant::now());
        loop {
            let inner = self.inner()?;
            moved.bind_again(&inner, &self.session.node, self.leases());
            let (sent, safety) = (inner.now(), inner.policy.safety);
            let idle = inner.settings.session_idle;
            drop(inner);
            let next = request::next(id, 0, pause)?;
            let told = timeout(pause + ttl / 3, live.call_unlimited(&next, false)).await;
            let told = told.map_err(|_| Error::Timeout)??;
            outcome::outcomes(told)?;
            self.belief.extend(safety.until(sent, ttl));
            if !self.session.used().is_unused() {
                busy = Instant::now();
            } else if busy.elapsed() >= idle {
                // That ends this.
                tokio::spawn(self.session.clone().close_if(Bound::is_unused, ttl));
            }
        }
    }
}

/// The leases of a session that are being bound at another node, by number. (B5)
#[derive(Default)]
struct Moved(HashMap<u64, JoinHandle<()>>);

impl Moved {
    /// Binds those at their new nodes whose keys are not at that node any more.
    fn bind_again(&mut self, inner: &Arc<Context>, node: &Arc<Node>, leases: Vec<Arc<Lease>>) {
        // One server has all keys.
        if inner.router.only().is_ok() {
            return;
        }
        self.0.retain(|_, task| !task.is_finished());
        for lease in leases {
            let there = inner.router.believed(&lease.held_lock.key);
            if there.is_some_and(|there| !Arc::ptr_eq(&there, node)) {
                let inner = inner.clone();
                self.0.entry(lease.id).or_insert_with(|| {
                    tokio::spawn(async move { bind_again(&inner, &lease).await })
                });
            }
        }
    }
}

/// Whether a server says so that does not know the session, or not any more.
fn is_forgotten(why: &Error) -> bool {
    matches!(why.code(), Some("NOSESSION" | "TRYAGAIN"))
}
