//! Locks bound to a session: the server releases them as soon as the session of this client ends.
//!
//! ```text
//!   LOCK.ACQUIRE … HOLDS n SESSION id BOUND HELD ──► binds the holds of the owner; grants nothing
//! ```
//!
//! The heartbeat of the [session](crate::engine::session) keeps the bound locks. Each session with bound
//! locks has a task that binds them again when the session is over or their slots have moved.
//!
//! - **B1** A bound lease counts as held no longer than its session lasts. This limit applies from before the
//!   request to bind is sent. Until the server has answered, the previous session limits the lease too. If the
//!   server refuses to bind the lease, this session does not limit it.
//! - **B2** When the session is over, the locks are bound to another one. Until then, if the server
//!   has forgotten the session, a lock counts as held as long as its lease lasts. Otherwise a lock
//!   is lost if it is not bound again before the time of B1 ends.
//! - **B3** A lock whose slot has moved is bound again at its new node. The session at the old node keeps the
//!   others.

use crate::engine::context::Context;
use crate::engine::lease::Lease;
use crate::engine::limit::{Limit, Trouble, pause_after};
use crate::engine::session::Session;
use crate::net::node::Node;
use crate::net::router::Route;
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::reply;
use crate::wire::request::Mode;
use futures_util::stream::{self, StreamExt};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Largest number of leases of an ended session that are bound again at the same time.
const AT_ONCE: usize = 256;

/// Number of checks per session ttl, for bound locks whose slots have moved.
const LOOKS: u32 = 10;

/// Binds a lease to the session at the server of its key, with the longest lease that any of its guards
/// requests. Retries temporary errors for at most `patience`.
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
            Err(error) if inner.router.follow_redirect(&mut route, &error) => {}
            Err(error) => {
                let unknown = error.code() == Some("NOSESSION");
                let error = if unknown { Error::Timeout } else { error };
                trouble.wait_to_retry(error, patience, inner.router.switched()).await?;
                route = inner.router.route(&lease.held_lock.key).await?;
            }
        }
    }
}

async fn try_bind(inner: &Arc<Context>, lease: &Arc<Lease>, to: &Route) -> Result<(), Error> {
    let session = inner.sessions.at(&to.node)?;
    let id = session.id().await?;
    let turn = lease.turn().await;
    if lease.is_lost() || !lease.is_alive() {
        return Err(lease.lost_error());
    }
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
    // If an earlier request may have bound the lease to this session, a refusal does not say that it is not bound.
    let first = !lease.is_bound_to(&session.belief);
    let was_bound = lease.was_bound();
    session.bind(lease)?;
    keep_bound(inner, &session);
    let answer = session.ask(&live, &request, to.asking).await;
    let grant = match answer {
        Ok(value) => reply::granted(held_lock.mode, value)?,
        // The number of holds at the server differs from the number of guards. The lease counts as lost, and
        // the last guard still releases the lock at the server.
        Err(error) if error.code() == Some("MISMATCH") => {
            lease.lose(false, Loss::Forgotten);
            return Err(lease.lost_error());
        }
        Err(error) => {
            if first && !error.leaves_outcome_unknown() {
                lease.not_bound_to(&turn, &session.belief, was_bound);
            }
            return Err(error);
        }
    };
    match grant {
        Some(grant) if lease.is_ours(grant.token) => {
            lease.bound_to(&turn, &session.belief);
            let counts = inner.settings.replicas.is_none();
            lease.prolonged(&turn, sent, length, counts, inner.now());
            inner.watchdog.watch(lease);
            Ok(())
        }
        // The owner does not hold the lock, or holds it with another token.
        Some(_) | None => {
            lease.mark_not_held();
            Err(lease.lost_error())
        }
    }
}

/// Retries until the lease is bound again, lost or released.
async fn bind_again(inner: &Arc<Context>, lease: &Arc<Lease>) {
    let begun = Instant::now();
    while !lease.is_lost() && lease.is_alive() {
        // Not for longer than the lease lasts, so that its expiry is noticed in time.
        match timeout(lease.left(), bind(inner, lease, Duration::ZERO)).await {
            Ok(Ok(())) => return,
            Ok(Err(_)) => sleep(pause_after(begun.elapsed()).min(lease.left())).await,
            Err(_) => {}
        }
    }
}

/// Starts the task that binds the leases of a session again, unless it runs.
fn keep_bound(inner: &Arc<Context>, session: &Arc<Session>) {
    let (context, at) = (Arc::downgrade(inner), session.clone());
    let pause = inner.settings.session_ttl / LOOKS;
    let rebind = move || rebind_leases(at.clone(), context.clone(), pause);
    session.keeper.start(&inner.runtimes, rebind);
}

/// Binds leases of a session again: a lease when its slot has moved, and all leases when the session is over.
async fn rebind_leases(session: Arc<Session>, inner: Weak<Context>, pause: Duration) {
    let mut moved = Moved::default();
    while timeout(pause, session.over()).await.is_err() {
        let Some(inner) = inner.upgrade() else { return };
        moved.bind_again(&inner, &session.node, session.leases());
    }
    let Some(inner) = inner.upgrade() else { return };
    // (B2) In a cluster the locks may be at other servers.
    let bind_anew = stream::iter(session.leases()).for_each_concurrent(AT_ONCE, |lease| {
        let inner = &inner;
        async move { bind_again(inner, &lease).await }
    });
    bind_anew.await;
}

/// Tasks that bind leases of a session at another node, by number of the lease. (B3)
#[derive(Default)]
struct Moved(HashMap<u64, JoinHandle<()>>);

impl Moved {
    /// Binds each lease whose key has left this node to the session at the key's new node.
    fn bind_again(&mut self, inner: &Arc<Context>, node: &Arc<Node>, leases: Vec<Arc<Lease>>) {
        // Outside a cluster, one server has all keys.
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
