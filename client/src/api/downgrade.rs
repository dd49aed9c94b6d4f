//! From holding a lock alone to sharing it, without letting go in between.

use crate::api::guard::Guard;
use crate::engine::claim::Claim;
use crate::engine::lease::{Lease, Term};
use crate::engine::settings::FIRST_LEASE;
use crate::engine::tenure::Tenure;
use crate::wire::error::Error;
use crate::wire::reply::{self, Grant};
use crate::wire::request::{self, Mode};
use redis::RedisError;

impl Guard {
    /// Goes on sharing the lock, with those who [share](crate::Lock::shared) it, instead of holding
    /// it alone: the first who wait for that come in, and nobody who wants it alone was in between.
    ///
    /// The token is a new, larger one: a resource that has seen it refuses what was still under way
    /// from the time before. A guard that shares the lock already stays as it is.
    ///
    /// # Errors
    ///
    /// After each of them the lock is released: [`Lost`](Error::Lost) if it was lost;
    /// [`Invalid`](Error::Invalid) if there are further guards of the same owner; those of the
    /// network.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let writer = client.lock("catalogue").acquire().await?;
    /// // … write, and then check what was written, together with other readers:
    /// let reader = writer.downgrade().await?;
    /// reader.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<Self, Error> {
        let tenure = self.lease().tenure.clone();
        if tenure.mode == Mode::Shared {
            return Ok(self);
        }
        if self.holds() > 1 {
            return Err(Error::Invalid("further guards of this owner hold the lock".to_owned()));
        }
        let Some(term) = self.term() else { return Err(Error::Lost) };
        let (inner, visit) = (self.inner().clone(), self.visit_in(Mode::Shared));
        let mut claim = Claim::of(&inner, Mode::Shared, &tenure.key, &tenure.owner);
        share(&mut claim, term).await?;
        claim.inherit(self.lease().late());
        self.release().await?;
        // Only now the time of sharing begins, and with it the new token.
        let sent = inner.now();
        let grant = share(&mut claim, term).await?;
        let (sent, runs) = if term.length > FIRST_LEASE || inner.settings.replicas.is_some() {
            claim.confirm(term.length).await?.ok_or(Error::Lost)?
        } else {
            (sent, term.length)
        };
        let tenure = Tenure { mode: Mode::Shared, token: grant.token, ..tenure };
        let term = Term { length: runs, ..term };
        let (number, strays) = (inner.fresh_number(), claim.has_strays());
        let (lease, share) = Lease::granted(number, tenure, &inner.terms, sent, term, strays);
        lease.inherit(claim.late(), sent);
        inner.watchdog.watch(&lease);
        claim.keep();
        if let Some(visit) = &visit {
            visit.holds(&lease);
        }
        Ok(Self::new(inner, lease, share, visit))
    }
}

/// Shares the lock, or sees that it is shared; once more if the connection breaks.
async fn share(claim: &mut Claim, term: Term) -> Result<Grant, Error> {
    let lease = term.length.min(FIRST_LEASE);
    let request = request::acquire(claim.mode, &*claim.key, &*claim.owner, lease, Some(1))?;
    let mut again = true;
    loop {
        let inner = claim.inner().clone();
        let (key, patience) = (claim.key.clone(), inner.settings.reply_timeout);
        let via = claim.sending_via();
        let answer = inner.router.call_via(&key, &request, patience, via).await;
        match answer.and_then(|value| Ok(reply::grant(value).map_err(RedisError::from)?)) {
            Ok(Some(grant)) => {
                claim.granted();
                return Ok(grant);
            }
            Ok(None) => {
                claim.refused();
                return Err(Error::Lost);
            }
            Err(trouble) => {
                claim.failed(&trouble);
                if !(again && matches!(trouble, Error::Connection(_))) {
                    return Err(trouble);
                }
                again = false;
            }
        }
    }
}
