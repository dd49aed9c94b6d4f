//! Renewing a lease, raising the token and setting the value of a holder.

use std::rc::Rc;

use crate::change::Change;
use crate::ids::WaiterId;
use crate::lock::RenewReply;
use crate::observed::Observed;
use crate::outcome::Cause;
use crate::situation::Situation;
use crate::table::Table;
use crate::token::Token;
use crate::types::{Millis, after};

impl<P> Table<P> {
    /// Restarts the lease of an owner, exclusive or shared. Unlike a reentry it may shorten the
    /// lease. `at_least` is the smallest token that an exclusive lock must have afterwards: a smaller
    /// token is raised, and a lock without a valid token gets a new one.
    pub fn renew(
        &mut self,
        at: &Situation<'_>,
        owner: &[u8],
        lease: Millis,
        at_least: Option<Token>,
    ) -> (RenewReply, Change<P>) {
        let holding = match &at.seen {
            Observed::NotALock { .. } => return (RenewReply::NotALock, Change::None),
            Observed::Shared(sharing) if at_least.is_some() => {
                let shares = sharing.share_of(owner, at.now.unix()).is_some();
                let reply = if shares { RenewReply::Shared } else { RenewReply::NotHeld };
                return (reply, Change::None);
            }
            Observed::Shared(sharing) => return self.renew_share(at, sharing, owner, lease),
            Observed::Held(holding) if holding.owner == owner => holding,
            Observed::Held(_) | Observed::Free { .. } => {
                return (RenewReply::NotHeld, Change::None);
            }
        };
        let token = match self.raise(at, holding.token, at_least) {
            Ok(token) => token,
            Err(reply) => return (reply, Change::None),
        };
        if let Some(token) = token {
            self.set_binding_token(at.key, owner, token);
        }
        let until = at.now.unix().plus(lease);
        self.record_use(at.key, owner, holding.token);
        self.look_no_later_than(at.key, after(until), Cause::Expiry);
        let change = Change::Update { holds: None, token, until: Some(until), value: None };
        (RenewReply::Lease(lease), change)
    }

    /// Returns `at_least` if the lock's token `held` is smaller or not valid, otherwise `None`.
    /// Changes nothing.
    pub(crate) fn token_to_raise(
        &self,
        at: &Situation<'_>,
        held: Option<Token>,
        at_least: Option<Token>,
    ) -> Result<Option<Token>, RenewReply> {
        let held = self.believe(held);
        let Some(wanted) = at_least.filter(|wanted| held.is_none_or(|held| held < *wanted)) else {
            return Ok(None);
        };
        let most = self.tokens.most(at.floor, at.now.unix_us);
        if wanted.value() > most {
            return Err(RenewReply::TooFarAhead(most));
        }
        if at.floor.is_none() {
            // The key may be deleted before its slot has moved. Then the other node would not learn
            // of the raised token.
            return Err(RenewReply::TryAgain);
        }
        Ok(Some(wanted))
    }

    /// Returns the token to write so that the lock's token is at least `at_least`; `None` if no
    /// token must be written.
    fn raise(
        &mut self,
        at: &Situation<'_>,
        held: Option<Token>,
        at_least: Option<Token>,
    ) -> Result<Option<Token>, RenewReply> {
        let Some(at_least) = self.token_to_raise(at, held, at_least)? else { return Ok(None) };
        let held = self.believe(held);
        if held.is_none() {
            let below = Token::from_stored(at_least.value().saturating_sub(1));
            return Ok(Some(self.tokens.issue(below, at.floor, at.now.unix_us)));
        }
        self.tokens.raise(at_least);
        Ok(Some(at_least))
    }

    /// Called when a hash with a token is deleted. Tokens that are issued later with a floor are
    /// larger than `stored`, the token of the hash. Returns this token, or `None` if it is too
    /// large: see [`Self::believe`].
    pub fn continue_above(&mut self, stored: Option<Token>) -> Option<Token> {
        let token = self.believe(stored)?;
        self.tokens.raise(token);
        Some(token)
    }

    /// Returns `stored`, the token of a hash, or `None` if it is too large: see
    /// [`TokenSource::believe`](crate::TokenSource::believe).
    #[must_use]
    pub fn believe(&self, stored: Option<Token>) -> Option<Token> {
        self.tokens.believe(stored)
    }

    /// Sets the value that a waiter will have as the holder. With an empty value, it will have none. With
    /// `None`, an owner that already has a value, as a holder of one lock of a set, keeps it.
    pub fn set_value(&mut self, waiter: WaiterId, value: Option<&[u8]>) {
        self.queues.set_value(waiter, value.map(Rc::from));
    }

    /// Renews like [`Self::renew`]. If `value` is given, also sets the value of the holder.
    pub fn renew_with_value(
        &mut self,
        at: &Situation<'_>,
        owner: &[u8],
        (lease, at_least): (Millis, Option<Token>),
        value: Option<&[u8]>,
    ) -> (RenewReply, Change<P>) {
        if let (Observed::Shared(sharing), Some(_)) = (&at.seen, value) {
            let shares = sharing.share_of(owner, at.now.unix()).is_some();
            let reply = if shares { RenewReply::Shared } else { RenewReply::NotHeld };
            return (reply, Change::None);
        }
        let (reply, change) = self.renew(at, owner, lease, at_least);
        let value = value.filter(|_| matches!(reply, RenewReply::Lease(_)));
        (reply, change.with_value(value))
    }
}
