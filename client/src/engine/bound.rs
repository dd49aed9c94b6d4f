//! Locks that are bound to a session: free as soon as this client is gone, kept by one heartbeat.
//!
//! ```text
//!   LOCK.ACQUIRE … HOLDS n SESSION id BOUND ──► whatever the owner has is bound
//!   SESSION.NEXT id 0, a third of the ttl, again and again: the heartbeat
//!        └─ answered: all that is bound may be believed until ttl after it was sent
//! ```
//!
//! - **B1** A bound lease is believed no longer than its session, from before the server may bind it,
//!   and no longer than the one before until the server has.
//! - **B2** A server that does not know the session, before that could be over, has forgotten what is
//!   bound to it: the leases count alone, until another session has taken them over.
//! - **B3** When the session is over otherwise, all that is bound to it is lost.

use crate::engine::belief::Belief;
use crate::engine::context::Context;
use crate::engine::lease::Lease;
use crate::engine::limit::{Limit, Trouble, pause_after};
use crate::engine::loss::Loss;
use crate::net::link::runtime_is_gone;
use crate::net::live::Live;
use crate::net::node::Node;
use crate::net::router::Route;
use crate::wire::error::Error;
use crate::wire::outcome;
use crate::wire::reply;
use crate::wire::request::{self, GiveBack};
use futures_util::stream::{self, StreamExt};
use redis::{ErrorKind, RedisError};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// How many leases are bound anew at the same time.
const AT_ONCE: usize = 256;

/// The sessions to which locks are bound, one at each server at most.
#[derive(Debug, Default)]
pub(crate) struct Hearts(Mutex<Vec<Arc<Heart>>>);

#[derive(Debug)]
struct Heart {
    node: Arc<Node>,
    belief: Arc<Belief>,
    phase: watch::Sender<Phase>,
    bound: Mutex<Bound>,
}

#[derive(Debug, Default)]
struct Bound {
    leases: Vec<Weak<Lease>>,
    /// With so many, those that are gone are looked for.
    full: usize,
}

#[derive(Clone, Debug)]
enum Phase {
    Opening,
    Open(Arc<str>),
    Over(Error),
}

impl Hearts {
    /// The one at that server; a new one, if there is none.
    fn at(&self, inner: &Arc<Context>, node: &Arc<Node>) -> Result<Arc<Heart>, Error> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|heart| !matches!(*heart.phase.borrow(), Phase::Over(_)));
        if let Some(heart) = open.iter().find(|heart| Arc::ptr_eq(&heart.node, node)) {
            return Ok(heart.clone());
        }
        let runtime = Handle::try_current().map_err(|_| runtime_is_gone())?;
        let heart = Arc::new(Heart {
            node: node.clone(),
            belief: Arc::new(Belief::none()),
            phase: watch::Sender::new(Phase::Opening),
            bound: Mutex::default(),
        });
        let beat = Beat { heart: heart.clone(), inner: Arc::downgrade(inner) };
        runtime.spawn(beat.run());
        open.push(heart.clone());
        Ok(heart)
    }
}

impl Drop for Hearts {
    fn drop(&mut self) {
        for heart in self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            heart.end(nothing_is_bound());
        }
    }
}

impl Heart {
    async fn id(&self) -> Result<Arc<str>, Error> {
        let mut phase = self.phase.subscribe();
        let phase = phase.wait_for(|phase| !matches!(phase, Phase::Opening)).await;
        match phase.as_deref() {
            Ok(Phase::Open(id)) => Ok(id.clone()),
            Ok(Phase::Over(why)) => Err(why.clone()),
            Ok(Phase::Opening) | Err(_) => Err(runtime_is_gone()),
        }
    }

    /// From now on the lease is believed no longer than this session. (B1)
    fn keep(&self, lease: &Arc<Lease>) -> Result<(), Error> {
        let mut bound = self.bound();
        if let Phase::Over(why) = &*self.phase.borrow() {
            return Err(why.clone());
        }
        if bound.leases.len() >= bound.full {
            bound.leases.retain(is_alive);
            bound.full = 2 * bound.leases.len() + 16;
        }
        bound.leases.push(Arc::downgrade(lease));
        lease.bind(&self.belief);
        Ok(())
    }

    fn end(&self, why: Error) {
        let _bound = self.bound();
        self.phase.send_if_modified(|phase| {
            let ends = !matches!(phase, Phase::Over(_));
            if ends {
                *phase = Phase::Over(why);
            }
            ends
        });
    }

    /// Ends it if nothing is bound.
    fn end_if_idle(&self) -> bool {
        let mut bound = self.bound();
        bound.leases.retain(is_alive);
        let idle = bound.leases.is_empty();
        if idle {
            self.phase.send_replace(Phase::Over(nothing_is_bound()));
        }
        idle
    }

    /// All that is bound to it still.
    fn leases(&self) -> Vec<Arc<Lease>> {
        let alive = self.bound().leases.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        alive.into_iter().filter(|lease| lease.is_bound_to(&self.belief)).collect()
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_alive(lease: &Weak<Lease>) -> bool {
    lease.upgrade().is_some_and(|lease| lease.is_alive())
}

/// Binds a lease to the session at the server that has its key, for as long as all guards of it want. Tries
/// until it is known that it is bound or lost, or for that long.
pub(crate) async fn bind(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    patience: Duration,
) -> Result<(), Error> {
    let mut trouble = Trouble::new(Limit::Never);
    let mut route = inner.router.route(&lease.tenure.key).await?;
    loop {
        match try_bind(inner, lease, &route).await {
            Ok(()) => return Ok(()),
            Err(Error::Lost) => return Err(Error::Lost),
            Err(error) if inner.router.goes_on(&mut route, &error) => {}
            Err(error) => {
                let unknown = error.code() == Some("NOSESSION");
                let error = if unknown { Error::Timeout } else { error };
                trouble.bear(error, patience, inner.router.switched()).await?;
                route = inner.router.route(&lease.tenure.key).await?;
            }
        }
    }
}

async fn try_bind(inner: &Arc<Context>, lease: &Arc<Lease>, to: &Route) -> Result<(), Error> {
    let heart = inner.hearts.at(inner, &to.node)?;
    let id = heart.id().await?;
    let turn = lease.turn().await;
    if lease.is_lost() || !lease.is_alive() {
        return Err(Error::Lost);
    }
    heart.keep(lease)?;
    let tenure = &lease.tenure;
    let sent = inner.now();
    let length = lease.longest(sent).unwrap_or_default();
    let holds = u32::try_from(lease.holds()).ok();
    let mut request = request::acquire(tenure.mode, &*tenure.key, &*tenure.owner, length, holds)?;
    request.arg("SESSION").arg(&*id).arg("BOUND");
    let live = to.node.commands().live_by(inner.router.overdue()).await?;
    let answer = live.call(&request, to.asking, inner.settings.reply_timeout).await;
    let grant = match answer {
        Ok(value) => reply::grant(value).map_err(RedisError::from)?,
        Err(error) => {
            if matches!(error, Error::Timeout) {
                live.condemn();
            }
            match error.code() {
                Some("NOSESSION") => heart.end(error.clone()),
                Some("MISMATCH") => {
                    // It has other holds than ours, which are to be given back all the same.
                    lease.lose(false, Loss::Gone);
                    return Err(Error::Lost);
                }
                _ => {}
            }
            return Err(error);
        }
    };
    match grant {
        Some(grant) if grant.token == tenure.token => {
            lease.bound_to(&turn, &heart.belief);
            let counts = inner.settings.replicas.is_none();
            lease.prolonged(&turn, sent, length, counts, inner.now());
            inner.watchdog.watch(lease);
            Ok(())
        }
        // It was lost, and this is another grant.
        Some(_) => {
            lease.lose(true, Loss::Gone);
            let release =
                request::release(tenure.mode, &*tenure.key, &*tenure.owner, GiveBack::All)?;
            // If this fails, it ends with its lease or with the session.
            let _released = live.call(&release, to.asking, inner.settings.reply_timeout).await;
            Err(Error::Lost)
        }
        None => {
            lease.lose(true, Loss::Taken);
            Err(Error::Lost)
        }
    }
}

/// The task that keeps a session. Whatever ends it ends the session.
struct Beat {
    heart: Arc<Heart>,
    inner: Weak<Context>,
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.heart.end(runtime_is_gone());
    }
}

impl Beat {
    async fn run(self) {
        let mut phase = self.heart.phase.subscribe();
        let why = tokio::select! {
            Err(why) = self.beat() => why,
            over = phase.wait_for(|phase| matches!(phase, Phase::Over(_))) => match over.as_deref() {
                Ok(Phase::Over(why)) => why.clone(),
                Ok(Phase::Opening | Phase::Open(_)) | Err(_) => return,
            },
        };
        tracing::debug!(%why, "the session that keeps what is bound is over");
        self.heart.end(why.clone());
        let Some(inner) = self.inner.upgrade() else { return };
        let forgotten = matches!(why.code(), Some("NOSESSION" | "TRYAGAIN"));
        if forgotten && !self.heart.belief.until().left_at(inner.now()).is_zero() {
            self.heart.belief.forgotten();
        }
        // (B2) And in a cluster another server may have them.
        let bind_anew = stream::iter(self.heart.leases()).for_each_concurrent(AT_ONCE, |lease| {
            let inner = &inner;
            async move {
                let begun = Instant::now();
                while !lease.is_lost() && lease.is_alive() {
                    // Whoever waits for its loss hears of it when its time is over.
                    match timeout(lease.left(), bind(inner, &lease, Duration::ZERO)).await {
                        Ok(Ok(())) => return,
                        Ok(Err(_)) => sleep(pause_after(begun.elapsed()).min(lease.left())).await,
                        Err(_) => {}
                    }
                }
            }
        });
        bind_anew.await;
    }

    fn inner(&self) -> Result<Arc<Context>, Error> {
        self.inner.upgrade().ok_or_else(nothing_is_bound)
    }

    async fn beat(&self) -> Result<Infallible, Error> {
        let (node, belief) = (&self.heart.node, &self.heart.belief);
        let inner = self.inner()?;
        let (ttl, patience) = (inner.settings.session_ttl, inner.settings.reply_timeout);
        let caution = inner.terms.caution;
        let live = node.dial().await?;
        let sent = inner.now();
        drop(inner);
        let opened = live.call(&request::open_session(ttl)?, false, patience).await?;
        belief.extend(caution.until(sent, ttl));
        let id: Arc<str> = outcome::session(opened).map_err(RedisError::from)?.into();
        self.heart.phase.send_replace(Phase::Open(id.clone()));
        let mut live = live;
        loop {
            let trouble = match self.beat_over(&live, &id, ttl).await {
                Err(trouble @ (Error::Connection(_) | Error::Timeout)) => trouble,
                Err(trouble) => return Err(trouble),
                Ok(never) => match never {},
            };
            live.condemn();
            live = self.dial_again(trouble).await?;
        }
    }

    /// Another connection, unless it comes too late; then all that is bound hears of it.
    async fn dial_again(&self, mut trouble: Error) -> Result<Live, Error> {
        let begun = Instant::now();
        loop {
            let inner = self.inner()?;
            let _elsewhere = inner.router.learn(&self.heart.node, &trouble);
            let left = self.heart.belief.until().left_at(inner.now());
            let leases = self.heart.leases();
            if left.is_zero() {
                for lease in &leases {
                    let _over = lease.expire(inner.now());
                }
                return Err(trouble);
            }
            let key = leases.first().map(|lease| lease.tenure.key.clone());
            let now_at = key.and_then(|key| inner.router.believed(&key));
            if now_at.is_some_and(|node| !Arc::ptr_eq(&node, &self.heart.node)) {
                return Err(trouble);
            }
            drop((inner, leases));
            match timeout(left, self.heart.node.dial()).await {
                Ok(Ok(live)) => return Ok(live),
                Ok(Err(other)) => trouble = other,
                Err(_) => trouble = Error::Timeout,
            }
            sleep(pause_after(begun.elapsed()).min(left)).await;
        }
    }

    /// Beats for as long as that connection is there.
    async fn beat_over(&self, live: &Live, id: &str, ttl: Duration) -> Result<Infallible, Error> {
        let (third, mut busy) = (ttl / 3, Instant::now());
        loop {
            let inner = self.inner()?;
            let (sent, caution) = (inner.now(), inner.terms.caution);
            let idle = inner.settings.session_idle;
            drop(inner);
            let next = request::next(id, 0, third)?;
            let told = timeout(2 * third, live.call_unlimited(&next, false)).await;
            let told = told.map_err(|_| Error::Timeout)??;
            outcome::outcomes(told).map_err(RedisError::from)?;
            self.heart.belief.extend(caution.until(sent, ttl));
            if !self.heart.bound().leases.iter().any(is_alive) {
                if busy.elapsed() >= idle && self.heart.end_if_idle() {
                    let (node, close) = (self.heart.node.clone(), request::close_session(id));
                    // What is over is dropped where it waits.
                    tokio::spawn(async move { node.commands().call(&close, ttl).await });
                    return Err(nothing_is_bound());
                }
            } else {
                busy = Instant::now();
            }
        }
    }
}

fn nothing_is_bound() -> Error {
    Error::Connection(RedisError::from((ErrorKind::Io, "nothing is bound to the session")))
}
