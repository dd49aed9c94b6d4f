//! The time until which locks bound to a session may be believed: one for all of them.

use crate::engine::clock::Moment;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use std::sync::Arc;

/// Until when a session lasts at least.
#[derive(Debug)]
pub(crate) struct Belief(AtomicU64);

impl Belief {
    /// Of a session that is not open yet.
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(Moment::LONG_AGO.0))
    }

    pub(crate) fn until(&self) -> Moment {
        Moment(self.0.load(Ordering::Acquire))
    }

    /// It lasts until then at least.
    pub(crate) fn extend(&self, until: Moment) {
        self.0.fetch_max(until.0, Ordering::AcqRel);
    }

    /// The server has forgotten the session, so it will not release anything for it.
    pub(crate) fn forgotten(&self) {
        self.0.store(Moment::NEVER.0, Ordering::Release);
    }
}

/// The session that a lease is bound to, if any. Until the server has answered, earlier ones count too.
#[derive(Debug)]
pub(crate) struct Binding {
    /// Whether it is to any; read without the lock.
    any: AtomicU64,
    to: Mutex<Vec<Arc<Belief>>>,
}

impl Binding {
    pub(crate) fn none() -> Self {
        Self { any: AtomicU64::new(0), to: Mutex::new(Vec::new()) }
    }

    /// Whether it is to any, which may be over.
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Acquire) != 0
    }

    /// The server may come to have it bound to that one.
    pub(crate) fn add(&self, belief: &Arc<Belief>) {
        let mut to = lock(&self.to);
        to.retain(|other| !Arc::ptr_eq(other, belief) && other.until() != Moment::NEVER);
        to.push(belief.clone());
        self.any.store(1, Ordering::Release);
    }

    /// The server has it bound to that one.
    pub(crate) fn set(&self, belief: &Arc<Belief>) {
        lock(&self.to).retain(|other| Arc::ptr_eq(other, belief));
    }

    pub(crate) fn is_to(&self, belief: &Arc<Belief>) -> bool {
        lock(&self.to).last().is_some_and(|to| Arc::ptr_eq(to, belief))
    }

    /// Whether it is to a session that lasts.
    pub(crate) fn lasts(&self, now: Moment) -> bool {
        let until = self.until();
        until != Moment::NEVER && until > now
    }

    /// Until when it lets the lease be believed.
    pub(crate) fn until(&self) -> Moment {
        if !self.is_any() {
            return Moment::NEVER;
        }
        lock(&self.to).iter().map(|belief| belief.until()).min().unwrap_or(Moment::NEVER)
    }
}
