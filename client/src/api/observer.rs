//! Observers of an election.

use crate::engine::context::Context;
use crate::engine::observer::{Observation, observe};
use crate::engine::session::observed::{Known, View};
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::observed::Holder;
use crate::wire::reply::Token;
use std::fmt;
use std::sync::Arc;

/// The leader of an election, as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The leader's owner: [`owner()`](crate::Held::owner) of its leadership.
    pub owner: Vec<u8>,
    /// The term: [`Leadership::term`](crate::Leadership::term). 0 if a Redisson client holds the lock, since
    /// such clients have no terms.
    pub term: Token,
    /// The leader's value; empty if it has none.
    pub value: Vec<u8>,
}

impl From<Holder> for Leader {
    fn from(Holder { owner, token: term, value }: Holder) -> Self {
        Self { owner, term, value }
    }
}

/// Follows the leader of an election, until the observer is dropped. Made by
/// [`Election::observe`](crate::Election::observe).
///
/// The server reports each change at once. That costs the server a few hundred bytes, and no connection
/// besides that of the client's session. Several observers of one election in one client cost it as much as
/// one. Only the newest state is kept: states between two reads are skipped.
///
/// **Terms never decrease**, even if another server replaces the first one. The observer reads the leader
/// from the new server, and ignores reports of earlier terms by the deposed server. The only exception is the
/// term 0 of a [Redisson client](Leader::term). While no server can be reached, the last state remains.
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
    /// The state that the last [`changed`](Self::changed) returned; before that, the first state.
    last: Known,
}

impl Observer {
    pub(crate) async fn of(context: &Arc<Context>, key: &Arc<[u8]>) -> Result<Self, Error> {
        let mut observation = observe(context, key);
        if let View::Known(last) = observation.view() {
            return Ok(Self { observation, last });
        }
        loop {
            match observation.changed().await {
                View::Known(last) => return Ok(Self { observation, last }),
                View::Failed(trouble) => return Err(trouble),
                View::Unknown => {}
            }
        }
    }

    /// Returns the leader in the last known state; `None` if there is none.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        self.known().holder.map(Leader::from)
    }

    /// Returns why the last leader stopped leading, if the server reported a reason: [`Loss::Released`] if
    /// it resigned.
    ///
    /// ```no_run
    /// # fn example(observer: kvlock::Observer) {
    /// if observer.last_loss() == Some(kvlock::Loss::Expired) {
    ///     println!("it died, or was cut off");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn last_loss(&self) -> Option<Loss> {
        self.known().loss
    }

    /// Waits for a change since the last call, or since the observer was made, and returns the new
    /// leader, or `None` if there is none. Skips states in between.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call returns the change.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mut observer: kvlock::Observer) {
    /// while observer.changed().await.is_some() {}
    /// println!("no leader");
    /// # }
    /// ```
    pub async fn changed(&mut self) -> Option<Leader> {
        loop {
            if let View::Known(known) = self.observation.changed().await
                && known != self.last
            {
                self.last = known;
                return self.last.holder.clone().map(Leader::from);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::observed::ObservedState;

    fn held(term: u64) -> ObservedState {
        let holder = Holder { owner: b"ann".into(), token: term.into(), value: Vec::new() };
        ObservedState { holder: Some(holder), shared: None, version: term, loss: None }
    }

    #[tokio::test]
    async fn each_state_is_reported_once_even_if_the_next_one_arrives_during_the_call() {
        const LAST: u64 = 100_000;
        let context = Context::of_no_server();
        let key = Arc::from(&b"k"[..]);
        let (observed, _joined) = context.observers.join(&key);
        observed.apply(held(1));
        let mut observer = Observer::of(&context, &key).await.unwrap();
        let reports = std::thread::spawn(move || {
            (2..=LAST).for_each(|term| drop(observed.apply(held(term))));
        });
        let mut seen = 1;
        while seen < LAST {
            let term = observer.changed().await.unwrap().term.value();
            assert!(term > seen, "{term} after {seen}");
            seen = term;
        }
        reports.join().unwrap();
    }
}
