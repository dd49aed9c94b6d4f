//! The holds of the guards of a lease, and the leases that they request.

use crate::engine::clock::Moment;
use crate::engine::settings::LEASE_MIN;
use std::time::Duration;

/// Lease that a guard requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseSpec {
    pub(crate) length: Duration,
    /// `true` if the watchdog renews the lease while the guard lives.
    pub(crate) watched: bool,
}

/// Identifies the hold of one guard in a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShareId(u32);

/// The hold of one guard.
#[derive(Debug)]
struct Share {
    id: ShareId,
    term: LeaseSpec,
    /// End of a fixed lease.
    ends: Moment,
    /// `true` if the guard was dropped or is ending. Then it needs no renewals.
    abandoned: bool,
}

impl Share {
    fn wants(&self, now: Moment) -> Duration {
        match self.term {
            LeaseSpec { length, watched: true } => length,
            LeaseSpec { watched: false, .. } => self.ends.left_at(now),
        }
    }
}

/// The holds of all guards of a lease.
#[derive(Debug, Default)]
pub(super) struct Shares {
    list: Vec<Share>,
    next: u32,
    longest_ever: Duration,
}

impl Shares {
    /// Adds a hold that was requested at `sent`.
    pub(super) fn add(&mut self, sent: Moment, term: LeaseSpec) -> ShareId {
        let id = ShareId(self.next);
        self.next = self.next.wrapping_add(1);
        self.list.push(Share { id, term, ends: sent.after(term.length), abandoned: false });
        self.longest_ever = self.longest_ever.max(term.length);
        id
    }

    pub(super) fn remove(&mut self, share: ShareId) {
        self.list.retain(|other| other.id != share);
    }

    /// Records that the guard of this share was dropped or is ending.
    pub(super) fn abandon(&mut self, share: ShareId) {
        if let Some(share) = self.get_mut(share) {
            share.abandoned = true;
        }
    }

    /// Returns the number of holds: one for each guard, and for each dropped guard whose release has not been
    /// sent yet.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns whether the guard of `share` exists.
    pub(super) fn has(&self, share: ShareId) -> bool {
        self.guards().any(|other| other.id == share)
    }

    /// Returns whether any guard exists.
    pub(super) fn has_any(&self) -> bool {
        self.guards().next().is_some()
    }

    pub(super) fn term(&self, share: ShareId) -> Option<LeaseSpec> {
        self.list.iter().find(|other| other.id == share).map(|share| share.term)
    }

    /// Returns whether any guard requests renewals.
    pub(super) fn is_watched(&self) -> bool {
        self.guards().any(|share| share.term.watched)
    }

    /// Returns whether a guard other than that of `share` was dropped, and its release was not sent yet.
    pub(super) fn is_giving_back(&self, share: ShareId) -> bool {
        self.list.iter().any(|other| other.id != share && other.abandoned)
    }

    /// Returns the longest lease that any guard requests, from `now` on. If all are fixed, it is at least the
    /// rest of the lease that ends at `until`, which may be longer because of a guard that was released.
    pub(super) fn longest(&self, now: Moment, until: Moment) -> Option<Duration> {
        let longest = self.guards().map(|share| share.wants(now)).max()?;
        if self.is_watched() {
            return Some(longest);
        }
        Some(longest.max(until.left_at(now)).max(LEASE_MIN))
    }

    /// Returns the longest lease that any guard has requested. The server's lease ends at most this long after
    /// the command that set it.
    pub(super) fn longest_ever(&self) -> Duration {
        self.longest_ever
    }

    /// Returns the length to request, at `sent`, for a share whose lease is to be set to `length`.
    pub(super) fn changing(&mut self, share: ShareId, sent: Moment, length: Duration) -> Duration {
        self.longest_ever = self.longest_ever.max(length);
        let others = self.guards().filter(|other| other.id != share);
        others.map(|other| other.wants(sent)).fold(length, Duration::max)
    }

    /// Records that the server has set the lease of a share to `length` with a command sent at `sent`.
    pub(super) fn changed(&mut self, share: ShareId, sent: Moment, length: Duration) {
        if let Some(share) = self.get_mut(share) {
            share.term.length = length;
            share.ends = sent.after(length);
        }
    }

    fn guards(&self) -> impl Iterator<Item = &Share> {
        self.list.iter().filter(|share| !share.abandoned)
    }

    fn get_mut(&mut self, id: ShareId) -> Option<&mut Share> {
        self.list.iter_mut().find(|share| share.id == id)
    }
}
