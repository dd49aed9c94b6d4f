//! Who leads, as seen by others.

use crate::engine::context::Context;
use crate::engine::observer::{Known, Observation, Observers, View};
use crate::wire::error::Error;
use crate::wire::observed::{Departure, Holder};
use crate::wire::reply::Token;
use std::fmt;
use std::sync::Arc;

/// A leader, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Who: [`Guard::owner`](crate::Guard::owner) of its leadership.
    pub owner: Vec<u8>,
    /// The term: [`Leadership::term`](crate::Leadership::term). A client of Redisson has none, which
    /// is 0 here.
    pub term: Token,
    /// What it says of itself; empty if nothing.
    pub value: Vec<u8>,
}

/// Sees who leads, until it is dropped. Made by [`Election::observe`](crate::Election::observe).
///
/// The server tells of changes as they happen: it costs the server some hundred bytes and no
/// connection, and several observers of one client cost it no more than one. Only the newest state
/// is kept, so who looks seldom sees no more than that. **Terms never go back**, also while the server
/// is replaced by another one: who leads is asked anew there, and what a deposed server says of an
/// earlier term is not shown. As long as no server can be reached it stays at what was seen last.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let observer = client.election("scheduler").observe().await?;
/// if let Some(leader) = observer.leader() {
///     println!("term {}: {}", leader.term, leader.value.escape_ascii());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Observer {
    observation: Observation,
    /// What was known last.
    last: Known,
}

impl Observer {
    pub(crate) async fn of(context: &Arc<Context>, key: &Arc<[u8]>) -> Result<Self, Error> {
        let mut observation = Observers::observe(context, key);
        let mut view = observation.view();
        loop {
            match view {
                View::Known(last) => return Ok(Self { observation, last }),
                View::Failed(trouble) => return Err(trouble),
                View::Unknown => view = observation.changed().await,
            }
        }
    }

    /// Who leads at this moment, as far as is known here; `None` if nobody does.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        let Holder { owner, token: term, value } = self.known().holder?;
        Some(Leader { owner, term, value })
    }

    /// How the leader before went, if that was seen.
    ///
    /// ```no_run
    /// # fn example(observer: kvlock::Observer) {
    /// if observer.departure() == Some(kvlock::Departure::Expired) {
    ///     println!("it died, or was cut off");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn departure(&self) -> Option<Departure> {
        self.known().departure
    }

    /// Waits until something is new since the last call, or since this was made, and says who leads
    /// then. What was new in between is passed over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is new is new for the next call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mut observer: kvlock::Observer) {
    /// while observer.changed().await.is_some() {}
    /// println!("nobody leads");
    /// # }
    /// ```
    pub async fn changed(&mut self) -> Option<Leader> {
        loop {
            if let View::Known(known) = self.observation.changed().await
                && known != self.last
            {
                self.last = known;
                return self.leader();
            }
        }
    }

    fn known(&self) -> Known {
        match self.observation.view() {
            View::Known(known) => known,
            View::Unknown | View::Failed(_) => self.last.clone(),
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("known", &self.known()).finish_non_exhaustive()
    }
}
