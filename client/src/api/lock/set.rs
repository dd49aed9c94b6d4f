//! Locks that are acquired in one step.

use super::Lock;
use crate::engine::settings::check_name;
use crate::wire::error::Error;
use crate::wire::request::Mode;
use std::sync::Arc;

/// Largest number of locks that a server accepts in one command.
const SET_MAX: usize = 64;

impl Lock {
    /// Returns the lock's place in the order in which a `MultiLock` acquires locks: by server, database, slot
    /// and name.
    pub(crate) fn rank(&self) -> ((&str, i64, u16), &[u8]) {
        (self.place(), &self.key)
    }

    /// Returns server, database and slot, which are the same for all locks of one step.
    fn place(&self) -> (&str, i64, u16) {
        (&self.inner.place, self.inner.database, self.inner.router.slot(&self.key))
    }

    /// Adds another lock to the step, or returns the other lock if it does not fit. It fits if it
    /// is of the same client and in the same slot, has the same lease and binding, and the step has
    /// room. Neither of the two may have an owner, a value or a ready-key, or be observed.
    pub(crate) fn join(&mut self, other: Self) -> Option<Self> {
        let is_plain = |lock: &Self| {
            lock.owner.is_none() && lock.value.is_none() && lock.unless.is_none() && !lock.observed
        };
        let fits = self.place() == other.place()
            && Arc::ptr_eq(&self.inner, &other.inner)
            && (self.term, self.bound) == (other.term, other.bound)
            && is_plain(self)
            && is_plain(&other)
            && self.names().count() + other.names().count() <= SET_MAX;
        if !fits {
            return Some(other);
        }
        let mut further = self.further.as_deref().cloned().unwrap_or_default();
        let its = other.further.as_deref().cloned().unwrap_or_default();
        if self.mode == other.mode {
            further.with.extend(std::iter::once(other.key).chain(its.with));
        } else if self.mode == Mode::Alone {
            further.under.extend(std::iter::once(other.key).chain(its.with));
        } else {
            // The mode of the command applies to its first lock and to `WITH`, so the exclusive locks become
            // the first lock and `WITH`. The shared locks become `UNDER`.
            further.under.push(std::mem::replace(&mut self.key, other.key));
            further.under.extend(std::mem::replace(&mut further.with, its.with));
            self.mode = other.mode;
        }
        further.under.extend(its.under);
        further.under.sort();
        further.under.dedup();
        // A lock that is acquired in the mode of the step need not be in `UNDER` too.
        further.under.retain(|name| *name != self.key && !further.with.contains(name));
        self.further = Some(Arc::new(further));
        None
    }

    /// Returns whether a client that holds these locks may wait for `other`. Each `MultiLock` is
    /// acquired in this order, so none waits for these locks while it holds one of `other`.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.place() != other.place() || self.names().max() < other.names().min()
    }

    /// Returns the names of all locks that are acquired in one step.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        let further =
            self.further.iter().flat_map(|further| further.with.iter().chain(&further.under));
        std::iter::once(&self.key).chain(further)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.names().try_for_each(|name| check_name(name))?;
        if self.names().count() > SET_MAX {
            return Err(Error::Invalid(format!("more than {SET_MAX} locks in one step")));
        }
        let mut names: Vec<_> = self.names().collect();
        names.sort();
        if names.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
            return Err(Error::Invalid("a lock is named twice".to_owned()));
        }
        Ok(())
    }
}
