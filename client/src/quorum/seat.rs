//! One server of a quorum: asking it for a lock, and undoing that.
//!
//! An acquisition has a fresh owner at each server. So two addresses of one server, whenever they
//! come to be that, are never counted twice: at the second one the lock is another's.

use crate::api::client::Client;
use crate::api::guard::Guard;
use crate::engine::claim::Claim;
use crate::engine::context::Context;
use crate::engine::lease::{Lease, Term};
use crate::engine::observe;
use crate::engine::tenure::Tenure;
use crate::wire::error::Error;
use crate::wire::reply::{self, Token};
use crate::wire::request::{self, Mode};
use redis::{Pipeline, RedisError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A server that leaves so many tries unanswered is not asked for more until it has answered one
/// of them. Otherwise what has to be undone would pile up while it hangs.
const UNSETTLED_MAX: usize = 8;

pub(crate) struct Seat {
    pub(crate) client: Client,
    /// Tries that may have been granted, and that nobody waits for any more.
    unsettled: AtomicUsize,
}

impl Seat {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, unsettled: AtomicUsize::new(0) }
    }

    fn inner(&self) -> &Arc<Context> {
        &self.client.inner
    }

    /// Where it is, without the login.
    pub(crate) fn place(&self) -> &str {
        &self.client.inner.place
    }

    /// What no other server has, and this one until it starts again.
    pub(crate) async fn identity(&self) -> Result<String, Error> {
        let inner = self.inner();
        inner.check_module().await?;
        let mut info = redis::cmd("INFO");
        info.arg("server");
        let answer =
            inner.router.only()?.commands().call(&info, inner.settings.reply_timeout).await?;
        let text: String = redis::from_redis_value(answer).map_err(RedisError::from)?;
        let id = text.lines().find_map(|line| line.strip_prefix("run_id:"));
        let id = id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        id.ok_or_else(|| Error::Protocol("INFO has no run_id".to_owned()))
    }

    /// Asks for the lock for as long as `offer`. `None`: it is another's.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is held, after a moment in the background.
    pub(crate) async fn ask(
        self: Arc<Self>,
        key: Arc<[u8]>,
        offer: Duration,
        patience: Duration,
    ) -> Result<Option<Bid>, Error> {
        if self.unsettled.load(Ordering::Relaxed) >= UNSETTLED_MAX {
            return Err(Error::Timeout);
        }
        let claim = Claim::new(self.inner(), Mode::Alone, &key);
        let mut bid = Bid { seat: self, claim: Some(claim), token: None, unanswered: false };
        let end = Instant::now() + patience;
        let mut again = true;
        loop {
            match bid.send(offer, end.saturating_duration_since(Instant::now())).await {
                Ok(Some(token)) => {
                    bid.token = Some(token);
                    return Ok(Some(bid));
                }
                Ok(None) => return Ok(None),
                // A connection may have been closed while nobody used it, and only now it shows.
                Err(Error::Connection(_)) if again => again = false,
                Err(trouble) => return Err(trouble),
            }
        }
    }
}

/// A try at one server. Unless it becomes a guard, dropping it releases in the background what was
/// or may have been granted.
pub(crate) struct Bid {
    seat: Arc<Seat>,
    /// Taken out only at the end.
    claim: Option<Claim>,
    token: Option<Token>,
    unanswered: bool,
}

impl Bid {
    async fn send(&mut self, offer: Duration, patience: Duration) -> Result<Option<Token>, Error> {
        let inner = self.seat.inner().clone();
        let Some(claim) = &mut self.claim else { return Ok(None) };
        let request = request::acquire(claim.mode, &*claim.key, &*claim.owner, offer, Some(1))?;
        let begin = Instant::now();
        let link = inner.router.only()?.commands();
        let live = timeout(patience, link.live()).await.map_err(|_| Error::Timeout)??;
        claim.sending(live.clone());
        self.unanswered = true;
        let answer = live.call(&request, false, patience.saturating_sub(begin.elapsed())).await;
        let answer = answer.and_then(|value| Ok(reply::grant(value).map_err(RedisError::from)?));
        match answer {
            Ok(Some(grant)) => {
                claim.granted();
                self.unanswered = claim.has_strays();
                Ok(Some(grant.token))
            }
            Ok(None) => {
                claim.refused();
                self.unanswered = claim.has_strays();
                Ok(None)
            }
            // It may be carried out yet, but before what follows it on the same connection.
            Err(Error::Timeout) => Err(Error::Timeout),
            Err(trouble) => {
                claim.failed(&trouble);
                self.unanswered = claim.has_strays();
                Err(trouble)
            }
        }
    }

    /// The token that this server has given.
    pub(crate) fn token(&self) -> Option<Token> {
        self.token
    }

    /// Sets the full lease, and raises the token to that of the quorum. With an error for which
    /// another token might do, the try goes on.
    pub(crate) async fn confirm(
        mut self,
        token: Token,
        term: Term,
        patience: Duration,
    ) -> Confirmed {
        let inner = self.seat.inner().clone();
        let Some(claim) = &self.claim else { return Confirmed::Failed(Error::Timeout) };
        let tenure = Tenure {
            mode: claim.mode,
            key: claim.key.clone(),
            owner: claim.owner.clone(),
            token,
            raised: true,
        };
        let begin = Instant::now();
        let renewal = async {
            let mut renewal = Pipeline::with_capacity(2);
            renewal.add_command(tenure.renewal(term.length)?);
            let node = inner.router.only()?;
            let live = node.renewals().live().await?;
            let sent = inner.now();
            let patience = patience.saturating_sub(begin.elapsed());
            let answers = inner.renewals.send(node, &live, renewal, patience).await?;
            let answer =
                answers.into_iter().next().unwrap_or(redis::Value::Okay).extract_error()?;
            Ok((sent, reply::lease(answer).map_err(RedisError::from)?))
        };
        let (sent, runs) = match timeout(patience, renewal).await {
            Ok(Ok((sent, Some(runs)))) => (sent, runs.min(term.length)),
            // The offer was over before we came.
            Ok(Ok((_, None))) => return Confirmed::Gone,
            Ok(Err(Error::Invalid(said))) if said.starts_with("invalid TOKEN") => {
                return Confirmed::Refused(self, Error::Invalid(said));
            }
            Ok(Err(trouble)) => return Confirmed::Failed(trouble),
            Err(_) => return Confirmed::Failed(Error::Timeout),
        };
        let (number, strays) = (inner.fresh_number(), claim.has_strays());
        let term = Term { length: runs, ..term };
        let (lease, share) = Lease::granted(number, tenure, &inner.terms, sent, term, strays);
        // The answer may have taken longer than the lease.
        if lease.left().is_zero() {
            return Confirmed::Failed(Error::Timeout);
        }
        inner.watchdog.watch(&lease);
        observe::acquired(&lease.tenure);
        if let Some(claim) = self.claim.take() {
            claim.keep();
        }
        Confirmed::Held(Guard::new(inner, lease, share, None))
    }

    /// Gives back what was granted, and returns when that has been answered or given up.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it goes on in the background.
    pub(crate) async fn undo(mut self) {
        if let Some(claim) = self.claim.take_if(|_| !self.unanswered) {
            claim.undo().await;
        }
    }
}

impl Drop for Bid {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take_if(|_| self.unanswered) else { return };
        let seat = self.seat.clone();
        seat.unsettled.fetch_add(1, Ordering::Relaxed);
        let unsettled = Unsettled(seat.clone());
        seat.inner().spawn(async move {
            claim.undo().await;
            drop(unsettled);
        });
    }
}

/// A try that is being undone; counts also where nobody is left to do it.
struct Unsettled(Arc<Seat>);

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.unsettled.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What became of a granted try.
pub(crate) enum Confirmed {
    Held(Guard),
    /// It was over, and may be another's.
    Gone,
    /// The server does not take this token; the try goes on.
    Refused(Bid, Error),
    Failed(Error),
}
