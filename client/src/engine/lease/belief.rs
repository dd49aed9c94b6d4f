//! The moment until which the client treats locks bound to a session as held. All locks of a session share
//! this moment.

use crate::engine::clock::Moment;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use std::sync::Arc;

/// Moment until which a session is known to last.
#[derive(Debug)]
pub(crate) struct Belief(AtomicU64);

impl Belief {
    /// Returns the value for a session that is not open yet.
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(Moment::LONG_AGO.0))
    }

    pub(crate) fn until(&self) -> Moment {
        Moment(self.0.load(Ordering::Acquire))
    }

    /// Records that the session lasts at least until `until`.
    pub(crate) fn extend(&self, until: Moment) {
        self.0.fetch_max(until.0, Ordering::AcqRel);
    }

    /// Records that the server has forgotten the session: it will not release locks when the session ends.
    pub(crate) fn forgotten(&self) {
        self.0.store(Moment::NEVER.0, Ordering::Release);
    }
}

/// The session that a lease is bound to, if any. Earlier sessions count too, until the server confirms the
/// binding to the last one.
#[derive(Debug)]
pub(crate) struct Binding {
    /// 1 after the first request to bind the lease, unless the server refused it. Read without the mutex.
    any: AtomicU64,
    to: Mutex<Vec<Arc<Belief>>>,
}

impl Binding {
    pub(crate) fn none() -> Self {
        Self { any: AtomicU64::new(0), to: Mutex::new(Vec::new()) }
    }

    /// Returns whether the lease was ever bound, or may have been. The session may have ended.
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Acquire) != 0
    }

    /// Records that the server may bind the lease to this session.
    pub(crate) fn add(&self, belief: &Arc<Belief>) {
        let mut to = lock(&self.to);
        to.retain(|other| !Arc::ptr_eq(other, belief) && other.until() != Moment::NEVER);
        to.push(belief.clone());
        self.any.store(1, Ordering::Release);
    }

    /// Records that the server has bound the lease to this session only.
    pub(crate) fn set(&self, belief: &Arc<Belief>) {
        lock(&self.to).retain(|other| Arc::ptr_eq(other, belief));
    }

    /// Records that the server has not bound the lease to this session, after a request before which
    /// [`is_any`](Self::is_any) was `any`.
    pub(crate) fn remove(&self, belief: &Arc<Belief>, any: bool) {
        let mut to = lock(&self.to);
        to.retain(|other| !Arc::ptr_eq(other, belief));
        self.any.store(any.into(), Ordering::Release);
    }

    pub(crate) fn is_to(&self, belief: &Arc<Belief>) -> bool {
        lock(&self.to).last().is_some_and(|to| Arc::ptr_eq(to, belief))
    }

    /// Returns whether the lease is bound to a session that has not ended, and that the server has
    /// not forgotten.
    pub(crate) fn lasts(&self, now: Moment) -> bool {
        let until = self.until();
        until != Moment::NEVER && until > now
    }

    /// Returns the moment until which the binding lets the lease count as held.
    pub(crate) fn until(&self) -> Moment {
        if !self.is_any() {
            return Moment::NEVER;
        }
        lock(&self.to).iter().map(|belief| belief.until()).min().unwrap_or(Moment::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_keeps_each_session_once_and_none_that_was_forgotten() {
        let binding = Binding::none();
        let [first, second] = [(), ()].map(|()| Arc::new(Belief::none()));
        binding.add(&first);
        binding.add(&first);
        assert_eq!(lock(&binding.to).len(), 1);
        binding.add(&second);
        assert_eq!(lock(&binding.to).len(), 2);
        first.forgotten();
        binding.add(&second);
        assert_eq!(lock(&binding.to).len(), 1);
        assert!(binding.is_to(&second));
    }

    #[test]
    fn a_refused_binding_limits_nothing() {
        let binding = Binding::none();
        let [first, second] = [(), ()].map(|()| Arc::new(Belief::none()));
        binding.add(&first);
        binding.add(&second);
        first.extend(Moment(7));
        assert_eq!(binding.until(), Moment::LONG_AGO);
        binding.remove(&second, true);
        assert!(binding.is_any());
        assert_eq!(binding.until(), Moment(7));
        binding.remove(&first, false);
        assert!(!binding.is_any());
        assert_eq!(binding.until(), Moment::NEVER);
        // A lease that was bound before stays one, although the server has forgotten the session.
        first.forgotten();
        binding.add(&first);
        binding.add(&second);
        binding.remove(&second, true);
        assert!(binding.is_any());
        assert_eq!(binding.until(), Moment::NEVER);
    }
}
