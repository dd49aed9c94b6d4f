//! A lock that its owner has in hand already: taken in another mode, or over from another process.

use crate::engine::acquire::Held;
use crate::engine::claim::Claim;
use crate::engine::clock::Moment;
use crate::engine::lease::Term;
use crate::engine::settings::FIRST_LEASE;
use crate::wire::error::Error;
use crate::wire::reply::{self, Grant};
use crate::wire::request;
use redis::RedisError;

/// Asks for one hold, at once; once more if the connection turns out to be closed. Says when that was
/// sent.
pub(crate) async fn ask(claim: &mut Claim, term: Term) -> Result<(Grant, Moment), Error> {
    let lease = term.length.min(FIRST_LEASE);
    let request = request::acquire(claim.mode, &*claim.key, &*claim.owner, lease, Some(1))?;
    let mut again = true;
    loop {
        let inner = claim.inner().clone();
        let (key, patience) = (claim.key.clone(), inner.settings.reply_timeout);
        let sent = inner.now();
        let via = claim.sending_via();
        let answer = inner.router.call_via(&key, &request, patience, via).await;
        match answer.and_then(|value| Ok(reply::grant(value).map_err(RedisError::from)?)) {
            Ok(Some(grant)) => {
                claim.granted();
                return Ok((grant, sent));
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

/// Holds what was granted, for the full lease.
pub(crate) async fn hold(
    mut claim: Claim,
    (grant, sent): (Grant, Moment),
    term: Term,
) -> Result<Held, Error> {
    let needs_more = term.length > FIRST_LEASE || claim.inner().settings.replicas.is_some();
    let (sent, runs) = if needs_more {
        claim.confirm(term.length).await?.ok_or(Error::Lost)?
    } else {
        (sent, term.length)
    };
    let held = claim.hold(grant, sent, runs, Term { length: runs, ..term })?;
    claim.keep();
    Ok(held)
}
