//! The state of a lock, as it is reported to observers.

use std::rc::Rc;

use crate::outcome::Cause;
use crate::token::Token;
use crate::value::Value;

/// State of a lock, as sent to observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// The lock is free.
    Vacant,
    /// The lock is shared; the sharers are not named.
    Shared {
        /// The common token of the sharers; `None` if the lock has no valid token.
        token: Option<Token>,
    },
    /// One owner holds the lock exclusively.
    Held {
        /// The owner.
        owner: Rc<[u8]>,
        /// The token of the grant; `None` if the lock has no valid token.
        token: Option<Token>,
        /// The value that the holder has published.
        value: Value,
    },
}

impl HolderState {
    /// Returns whether a change from state `self` to `now` counts as a loss of the lock: the lock
    /// is free, has another exclusive owner, is in another shared period, or has changed between
    /// exclusive and shared.
    pub(crate) fn is_lost_to(&self, now: &Self) -> bool {
        match (self, now) {
            (Self::Vacant, _) => false,
            (Self::Held { owner: before, .. }, Self::Held { owner, .. }) => before != owner,
            (Self::Shared { token: before }, Self::Shared { token }) => {
                before.is_some() && before != token
            }
            (Self::Held { .. } | Self::Shared { .. }, _) => true,
        }
    }
}

/// State of a lock, and its version.
#[derive(Debug, PartialEq, Eq)]
pub struct VersionedState {
    /// The state.
    pub holder_state: HolderState,
    /// Version of this state. Newer states have larger versions, across all locks.
    pub version: u64,
}

impl VersionedState {
    /// Length of the owner and the value, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let HolderState::Held { owner, value, .. } = &self.holder_state else { return 0 };
        owner.len().saturating_add(value.as_ref().map_or(0, |value| value.len()))
    }
}

/// Reason for which the last holder lost a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The holder released the lock.
    Released,
    /// The holder's lease ended.
    Expired,
    /// The lock was released by force.
    Forced,
    /// The key was deleted or overwritten.
    Deleted,
    /// The database was flushed.
    Flushed,
    /// The grant was taken back, because it was never sent to its client.
    TakenBack,
    /// The lock was bound to a session that has ended.
    SessionEnded,
}

impl LossReason {
    /// Returns the reason to report for a cause. `was_over` is `true` if the lease had ended before
    /// the loss was noticed.
    pub(crate) fn by(cause: Cause, was_over: bool) -> Self {
        match cause {
            Cause::Release => Self::Released,
            Cause::Forced => Self::Forced,
            Cause::TakenBack => Self::TakenBack,
            Cause::SessionGone => Self::SessionEnded,
            Cause::Flush => Self::Flushed,
            Cause::Expiry => Self::Expired,
            Cause::Outside | Cause::Check if was_over => Self::Expired,
            Cause::Outside | Cause::Check => Self::Deleted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_state_is_that_of_its_names() {
        let bytes = |holder_state| VersionedState { holder_state, version: 1 }.bytes();
        let held = |value: Value| {
            bytes(HolderState::Held { owner: b"ann".as_slice().into(), token: None, value })
        };
        assert_eq!((held(None), held(Some(b"12345".as_slice().into()))), (3, 8));
        assert_eq!(
            [bytes(HolderState::Vacant), bytes(HolderState::Shared { token: None })],
            [0; 2]
        );
    }
}
