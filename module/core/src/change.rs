//! Changes of the key of a lock.

use std::rc::Rc;

use crate::ids::GrantId;
use crate::mode::Share;
use crate::token::Token;
use crate::types::UnixMillis;
use crate::value::Value;

/// Change to write to the key of a lock, and the waiters that are granted the lock with it.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<P> {
    /// No change.
    None,
    /// The lock was free; now one owner holds it once.
    Take {
        /// The token of the grant.
        token: Token,
        /// End of the lease.
        until: UnixMillis,
        /// Value of the holder.
        value: Value,
    },
    /// The holder stays the same. A field that is `None` does not change.
    Update {
        /// New number of holds.
        holds: Option<u64>,
        /// New token: for a lock that had none, or raised by a renewal.
        token: Option<Token>,
        /// New end of the lease.
        until: Option<UnixMillis>,
        /// New value of the holder; an empty value removes the stored one.
        value: Value,
    },
    /// The lock becomes free, and no waiter is granted it. Delete the key and announce to Redisson
    /// that the lock is free. Then call [`Table::begin_turn_if_due`](crate::Table::begin_turn_if_due) with
    /// the number of processes that the message reached.
    Free,
    /// It is the turn of Redisson's clients: announce to them that the lock is free. If the message
    /// reaches a process, delete the key and call [`Table::begin_turn`](crate::Table::begin_turn). Otherwise
    /// call [`Table::hand_off_instead_of_turn`](crate::Table::hand_off_instead_of_turn), and carry
    /// out the change that it returns.
    GiveWay,
    /// The first waiter gets the lock. Replaces the whole content of the key.
    HandOff(HandOff<P>),
    /// These owners share the lock, together with the earlier sharers unless a new period begins.
    Share(Sharers<P>),
    /// The owner that the operation is for stops sharing the lock. Other sharers are left in the
    /// hash; their leases may have ended.
    Leave,
    /// Sets the number of shared holds of the exclusive holder.
    Beside {
        /// Number of shared holds; may be 0.
        holds: u64,
        /// A token, for a lock that had none.
        token: Option<Token>,
        /// New end of the lease; `None` leaves it unchanged.
        until: Option<UnixMillis>,
    },
}

impl<P> Change<P> {
    /// Returns the new token of the lock. `None` if the change does not write a token.
    #[must_use]
    pub fn issued(&self) -> Option<Token> {
        match self {
            Self::Take { token, .. } | Self::HandOff(HandOff { token, .. }) => Some(*token),
            Self::Update { token, .. }
            | Self::Share(Sharers { token, .. })
            | Self::Beside { token, .. } => *token,
            Self::None | Self::Free | Self::GiveWay | Self::Leave => None,
        }
    }

    /// Returns the new expiry time of the key. `None` if the change does not set one.
    #[must_use]
    pub fn until(&self) -> Option<UnixMillis> {
        match self {
            Self::Take { until, .. } | Self::HandOff(HandOff { until, .. }) => Some(*until),
            Self::Update { until, .. }
            | Self::Share(Sharers { until, .. })
            | Self::Beside { until, .. } => *until,
            Self::None | Self::Free | Self::GiveWay | Self::Leave => None,
        }
    }

    /// Returns this change, or [`Change::None`] if it would change nothing.
    pub(crate) fn or_none(self) -> Self {
        let nothing =
            matches!(self, Self::Update { holds: None, token: None, until: None, value: None });
        if nothing { Self::None } else { self }
    }

    /// Adds the value of the holder to a change. An empty value removes the stored value; `None`
    /// keeps it. [`Self::None`] becomes an update; a change of another kind than [`Self::Take`] and
    /// [`Self::Update`] stays as it is.
    #[must_use]
    pub fn with_value(mut self, new: Option<&[u8]>) -> Self {
        let Some(new) = new else { return self };
        if matches!(self, Self::None) {
            self = Self::Update { holds: None, token: None, until: None, value: None };
        }
        if let Self::Take { value, .. } = &mut self {
            *value = Some(new.into()).filter(|_| !new.is_empty());
        } else if let Self::Update { value, .. } = &mut self {
            *value = Some(new.into());
        }
        self
    }
}

/// A change of the sharers of a lock.
#[derive(Debug, PartialEq, Eq)]
pub struct Sharers<P> {
    /// `true` if a shared period begins: the earlier content of the key is deleted.
    pub begins: bool,
    /// The token of the period; if `None`, the key has it already.
    pub token: Option<Token>,
    /// New share of the owner that the operation is for; if `None`, it does not change.
    pub own: Option<Share>,
    /// Waiters that join, each with one hold.
    pub joined: Vec<HandOff<P>>,
    /// New expiry time of the key. `None` leaves it unchanged; a new key then never expires.
    pub until: Option<UnixMillis>,
}

/// A grant of a lock, of permits or of a set of locks to a waiter.
#[derive(Debug, PartialEq, Eq)]
pub struct HandOff<P> {
    /// Identifies the grant.
    pub id: GrantId,
    /// The new owner.
    pub owner: Rc<[u8]>,
    /// The token of the grant.
    pub token: Token,
    /// End of the lease.
    pub until: UnixMillis,
    /// Value that the new owner publishes.
    pub value: Value,
    /// The client to answer; `None` if the grant is an outcome of a session.
    pub client: Option<P>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_the_token_that_was_issued_for_it() {
        let (token, until) = (Token::from_stored(7), UnixMillis(9));
        let take = Change::<()>::Take { token: token.expect("it is one"), until, value: None };
        assert_eq!(take.issued(), token);
        let update = Change::<()>::Update { holds: None, token, until: None, value: None };
        assert_eq!(update.issued(), token);
        assert_eq!(Change::<()>::Beside { holds: 1, token: None, until: None }.issued(), None);
        assert_eq!(Change::<()>::Free.issued(), None);
    }

    #[test]
    fn a_holder_sets_a_value_or_removes_it() {
        let (token, until) = (Token::from_stored(7).expect("it is one"), UnixMillis(9));
        let take = || Change::<()>::Take { token, until, value: None };
        let value_of = |change: Change<()>| {
            let (Change::Take { value, .. } | Change::Update { value, .. }) = change else {
                panic!("{change:?}");
            };
            value
        };
        assert_eq!(value_of(take().with_value(Some(b"a"))).as_deref(), Some(&b"a"[..]));
        assert_eq!(value_of(take().with_value(Some(b""))), None);
        assert_eq!(take().with_value(None), take());
        assert_eq!(value_of(Change::None.with_value(Some(b""))).as_deref(), Some(&b""[..]));
        assert_eq!(Change::<()>::None.with_value(None), Change::None);
    }
}
