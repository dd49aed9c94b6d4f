//! One server of a quorum: requests for a lock, and the confirmation of grants with the quorum's token.
//!
//! An acquisition has a new owner for each address. So a server never counts twice, even if two addresses
//! begin to lead to it later: it refuses the second request, because the owner of the first holds the lock.

use kvlock::{Client, Error, Guard, Token};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Number of attempts in a row that a server may leave unanswered. After that it must first answer another
/// request. Otherwise the releases to send would pile up while it hangs.
const UNANSWERED_MAX: usize = 8;

/// Length of a requested lease, and whether it is renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) length: Duration,
    /// `true` if the lease is renewed while the guard exists. Otherwise it ends by itself.
    pub(crate) renewed: bool,
}

pub(crate) struct Member {
    pub(crate) client: Client,
    /// Attempts that were given up without an answer, since the last answer.
    unanswered: AtomicUsize,
}

impl Member {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, unanswered: AtomicUsize::new(0) }
    }

    /// Asks for the lock with this lease. `None` if the server refuses it, for example because another owner
    /// holds it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a grant is released in the background.
    pub(crate) async fn ask(
        self: Arc<Self>,
        key: Arc<[u8]>,
        offer: Term,
        patience: Duration,
    ) -> Result<Option<Guard>, Error> {
        let end = Instant::now() + patience;
        let late = |_| Error::Timeout;
        if self.unanswered.load(Ordering::Relaxed) >= UNANSWERED_MAX {
            timeout_at(end, self.client.ready()).await.map_err(late)??;
        }
        let lock = self.client.lock(&key);
        let lock =
            if offer.renewed { lock.lease(offer.length) } else { lock.fixed_lease(offer.length) };
        let mut asked = Asked { member: &self, answered: false };
        let answer = timeout_at(end, lock.try_acquire()).await.map_err(late)?;
        asked.answered = true;
        answer
    }
}

/// A request in flight.
struct Asked<'a> {
    member: &'a Member,
    answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let unanswered = &self.member.unanswered;
        if self.answered {
            unanswered.store(0, Ordering::Relaxed);
        } else {
            unanswered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Outcome of the confirmation of a grant.
pub(crate) enum Confirmed {
    Held(Guard),
    /// The grant has ended, and another owner may hold the lock.
    Gone,
    /// The server refuses this token. The attempt may continue with a smaller one.
    Refused(Guard, Error),
    Failed(Error),
}

/// Sets the full lease, and raises the token to the quorum's token.
pub(crate) async fn confirm(
    mut guard: Guard,
    token: Token,
    term: Term,
    patience: Duration,
) -> Confirmed {
    let raised = timeout(patience, guard.raise_token(token, term.length)).await;
    match raised.unwrap_or(Err(Error::Timeout)) {
        Ok(()) if guard.is_lost() => Confirmed::Failed(Error::Timeout),
        Ok(()) => Confirmed::Held(guard),
        Err(Error::Lost(_)) => Confirmed::Gone,
        Err(Error::Invalid(said)) if said.starts_with("invalid TOKEN") => {
            Confirmed::Refused(guard, Error::Invalid(said))
        }
        Err(trouble) => Confirmed::Failed(trouble),
    }
}
