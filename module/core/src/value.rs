//! The value of a holder, for example an address or a version. It ends with the grant.
//!
//! ```text
//! alice → 2   fencing-token → t17   lock-value → v10.0.0.7:8080
//! ```
//!
//! Sharers have no value: there is one field, and no sharer is *the* holder.

use std::rc::Rc;

use crate::ids::WaiterId;
use crate::lock::RenewReply;
use crate::observed::Observed;
use crate::outcome::Change;
use crate::table::{Situation, Table};
use crate::token::Token;
use crate::types::Millis;

/// Field of the hash that keeps the holder's value.
pub const VALUE_FIELD: &[u8] = b"lock-value";

/// The most bytes of it.
pub const VALUE_BYTES_MAX: usize = 1_024;

/// Value of a holder, if it has one.
pub type Value = Option<Rc<[u8]>>;

/// Stands before it in the hash, so that it never reads as a number: Redisson counts
/// down from every number in the hash.
const MARK: u8 = b'v';

/// Returns the stored form of a value.
#[must_use]
pub fn stored_value(value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len().saturating_add(1));
    stored.push(MARK);
    stored.extend_from_slice(value);
    stored
}

/// What was written; `None` if it is nothing that we write.
#[must_use]
pub fn value_of(stored: &[u8]) -> Option<&[u8]> {
    let value = stored.strip_prefix(&[MARK])?;
    (1..=VALUE_BYTES_MAX).contains(&value.len()).then_some(value)
}

impl<P> Change<P> {
    /// Adds the value of the holder to a change. An empty value removes the stored one; `None` keeps it.
    #[must_use]
    pub fn saying(mut self, said: Option<&[u8]>) -> Self {
        let Some(said) = said else { return self };
        if matches!(self, Self::None) {
            self = Self::Update { holds: None, token: None, until: None, value: None };
        }
        if let Self::Take { value, .. } = &mut self {
            *value = Some(said.into()).filter(|_| !said.is_empty());
        } else if let Self::Update { value, .. } = &mut self {
            *value = Some(said.into());
        }
        self
    }
}

impl<P> Table<P> {
    /// Sets the value that a waiter will have as the holder. A repeated wait replaces it.
    pub fn will_say(&mut self, waiter: WaiterId, said: Option<&[u8]>) {
        let said = said.filter(|said| !said.is_empty());
        self.queues.set_value(waiter, said.map(Rc::from));
    }

    /// As [`Self::renew`], but sets the value of the holder.
    pub fn renew_saying(
        &mut self,
        at: &Situation<'_>,
        owner: &[u8],
        (lease, at_least): (Millis, Option<Token>),
        said: Option<&[u8]>,
    ) -> (RenewReply, Change<P>) {
        if let (Observed::Shared(sharing), Some(_)) = (&at.seen, said) {
            let shares = sharing.share_of(owner, at.now.unix()).is_some();
            let reply = if shares { RenewReply::Shared } else { RenewReply::NotHeld };
            return (reply, Change::None);
        }
        let (reply, change) = self.renew(at, owner, lease, at_least);
        let said = said.filter(|_| matches!(reply, RenewReply::Lease(_)));
        (reply, change.saying(said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::UnixMillis;

    #[test]
    fn a_value_is_read_as_it_is_written_and_never_as_a_number() {
        for value in [&b"5"[..], b"v", b"10.0.0.7:80", &[0; VALUE_BYTES_MAX]] {
            let stored = stored_value(value);
            assert_eq!(value_of(&stored), Some(value));
            assert_eq!(Observed::read_holds(&stored), None);
        }
        for other in [&b""[..], b"v", b"5", b"V5", &[b'v'; VALUE_BYTES_MAX + 2]] {
            assert_eq!(value_of(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_holder_says_something_or_takes_it_back() {
        let (token, until) = (Token::from_stored(7).expect("it is one"), UnixMillis(9));
        let take = || Change::<()>::Take { token, until, value: None };
        let said = |change: Change<()>| {
            let (Change::Take { value, .. } | Change::Update { value, .. }) = change else {
                panic!("{change:?}");
            };
            value
        };
        assert_eq!(said(take().saying(Some(b"a"))).as_deref(), Some(&b"a"[..]));
        assert_eq!(said(take().saying(Some(b""))), None);
        assert_eq!(take().saying(None), take());
        assert_eq!(said(Change::None.saying(Some(b""))).as_deref(), Some(&b""[..]));
        assert_eq!(Change::<()>::None.saying(None), Change::None);
    }
}
