//! One server of a quorum: asking it for a lock, and setting what was decided.
//!
//! An acquisition has a fresh owner at each server. So two addresses of one server, whenever they
//! come to be that, are never counted twice: at the second one the lock is another's.

use kvlock::{Client, Error, Guard, Token};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// A server that leaves this many tries in a row unanswered has to answer something else before it is
/// asked for more. Otherwise what has to be undone would pile up while it hangs.
const UNANSWERED_MAX: usize = 8;

/// For how long a lock is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) length: Duration,
    /// Renewed while the guard lives, or left to end by itself.
    pub(crate) renewed: bool,
}

pub(crate) struct Member {
    pub(crate) client: Client,
    /// Tries that were given up without an answer, since the last answer.
    unanswered: AtomicUsize,
}

impl Member {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, unanswered: AtomicUsize::new(0) }
    }

    /// Asks for the lock with this lease. `None` if another owner holds it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, a grant is released in the background.
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

/// A try that is under way.
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

/// What became of a granted try.
pub(crate) enum Confirmed {
    Held(Guard),
    /// It was over, and may be another's.
    Gone,
    /// The server does not take this token; the try goes on.
    Refused(Guard, Error),
    Failed(Error),
}

/// Sets the full lease, and raises the token to the quorum's token. After an error that depends on the token the
/// attempt continues with another one.
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
