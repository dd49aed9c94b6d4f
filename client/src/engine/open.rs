//! A session at a server, as seen from here: it opens once, and is over once, for a reason.
//!
//! ```text
//!   at(node) ──► Opening ──► Open(id) ──► Over(why)
//!                   └─────────────────────►┘
//! ```
//!
//! One task drives it. Whatever ends that task, be it the end of its runtime, ends the session; and
//! once it is over nobody comes to use it.

use crate::net::link::runtime_is_gone;
use crate::net::live::Live;
use crate::net::node::Node;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::wire::error::Error;
use crate::wire::outcome;
use crate::wire::request;
use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, RedisError, Value};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// What a session is for.
pub(crate) trait Use: Default + Send + 'static {
    /// Nobody wants anything of it.
    fn is_unused(&self) -> bool;

    /// Whoever still wants something of it takes no harm if it ends: they go on with another.
    fn may_end(&self) -> bool {
        self.is_unused()
    }

    /// It is over.
    fn end(&mut self) {}
}

/// Those of a client, one at each server at most.
#[derive(Debug)]
pub(crate) struct PerNode<U: Use>(Mutex<Vec<Arc<Open<U>>>>);

#[derive(Debug)]
pub(crate) struct Open<U: Use> {
    pub(crate) node: Arc<Node>,
    phase: watch::Sender<Phase>,
    used: Mutex<U>,
}

#[derive(Clone, Debug)]
enum Phase {
    Opening,
    Open(Arc<str>),
    Over(Error),
}

impl<U: Use> Default for PerNode<U> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<U: Use> PerNode<U> {
    /// The one at that server, if there is one.
    pub(crate) fn open_at(&self, node: &Arc<Node>) -> Option<Arc<Open<U>>> {
        let mut open = lock(&self.0);
        open.retain(|session| !session.is_over());
        open.iter().find(|session| Arc::ptr_eq(&session.node, node)).cloned()
    }

    /// The one at that server; a new one, which that task drives, if there is none.
    pub(crate) fn at<T>(
        &self,
        node: &Arc<Node>,
        task: impl FnOnce(Arc<Open<U>>) -> T,
    ) -> Result<Arc<Open<U>>, Error>
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let mut open = lock(&self.0);
        open.retain(|session| !session.is_over());
        if let Some(session) = open.iter().find(|session| Arc::ptr_eq(&session.node, node)) {
            return Ok(session.clone());
        }
        let runtime = Handle::try_current().map_err(|_| runtime_is_gone())?;
        let (phase, used) = (watch::Sender::new(Phase::Opening), Mutex::default());
        let session = Arc::new(Open { node: node.clone(), phase, used });
        let (ends, task) = (Ends(session.clone()), task(session.clone()));
        // A runtime that has ended drops it at once.
        runtime.spawn(async move {
            task.await;
            drop(ends);
        });
        open.push(session.clone());
        Ok(session)
    }
}

impl<U: Use> PerNode<U> {
    /// Closes those that may end, and waits until their servers have heard of it.
    pub(crate) async fn close(&self, patience: Duration) {
        let open = lock(&self.0).clone();
        join_all(open.into_iter().map(|session| session.close_if(U::may_end, patience))).await;
    }
}

impl<U: Use> Drop for PerNode<U> {
    fn drop(&mut self) {
        lock(&self.0).iter().for_each(|session| session.end(unused()));
    }
}

impl<U: Use> Open<U> {
    /// Its name at the server, as soon as it has one.
    pub(crate) async fn id(&self) -> Result<Arc<str>, Error> {
        let mut phase = self.phase.subscribe();
        let phase = phase.wait_for(|phase| !matches!(phase, Phase::Opening)).await;
        match phase.as_deref() {
            Ok(Phase::Open(id)) => Ok(id.clone()),
            Ok(Phase::Over(why)) => Err(why.clone()),
            Ok(Phase::Opening) | Err(_) => Err(runtime_is_gone()),
        }
    }

    pub(crate) fn why_over(&self) -> Option<Error> {
        match &*self.phase.borrow() {
            Phase::Over(why) => Some(why.clone()),
            Phase::Opening | Phase::Open(_) => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Over(_))
    }

    pub(crate) fn used(&self) -> MutexGuard<'_, U> {
        lock(&self.used)
    }

    /// Uses it from now on, unless it is over: nobody ends it meanwhile.
    pub(crate) fn enter<T>(&self, entry: impl FnOnce(&mut U) -> T) -> Result<T, Error> {
        let mut used = self.used();
        self.why_over().map_or_else(|| Ok(entry(&mut used)), Err)
    }

    /// It is over, if it is not yet.
    pub(crate) fn end(&self, why: Error) {
        self.end_if(why, |_| true);
    }

    /// The same, if that is so of what it is used for.
    fn end_if(&self, why: Error, so: impl FnOnce(&mut U) -> bool) -> bool {
        let mut used = self.used();
        if !so(&mut used) {
            return false;
        }
        if !self.is_over() {
            self.phase.send_replace(Phase::Over(why));
        }
        used.end();
        true
    }

    /// Does what keeps it, until that fails or it is over otherwise; says why.
    pub(crate) async fn drive(
        &self,
        work: impl Future<Output = Result<Infallible, Error>>,
    ) -> Error {
        let mut phase = self.phase.subscribe();
        let over = phase.wait_for(|phase| matches!(phase, Phase::Over(_)));
        let why = tokio::select! {
            biased;
            Err(why) = work => why,
            _ = over => self.why_over().unwrap_or_else(runtime_is_gone),
        };
        tracing::debug!(%why, "a session is over");
        self.end(why.clone());
        why
    }

    /// Opens it over that connection, to last for that long without a word, and does that before anybody
    /// can use it.
    pub(crate) async fn open(
        &self,
        live: &Live,
        ttl: Duration,
        patience: Duration,
        before: impl FnOnce(),
    ) -> Result<Arc<str>, Error> {
        let opened = live.probe(&request::open_session(ttl)?, patience).await?;
        let id: Arc<str> = outcome::session(opened)?.into();
        before();
        self.phase.send_if_modified(|phase| {
            let opening = matches!(phase, Phase::Opening);
            if opening {
                *phase = Phase::Open(id.clone());
            }
            opening
        });
        Ok(id)
    }

    /// Asks the server for something in it, which may say that it is over.
    pub(crate) async fn ask(
        &self,
        live: &Live,
        request: &Cmd,
        asking: bool,
        patience: Duration,
    ) -> Result<Value, Error> {
        let answer = live.ask(request, asking, patience).await;
        if let Err(trouble) = &answer
            && trouble.code() == Some("NOSESSION")
        {
            self.end(trouble.clone());
        }
        answer
    }

    /// Closes it if that is so of what it is used for, and waits until the server has heard of it.
    pub(crate) async fn close_if(self: Arc<Self>, so: fn(&U) -> bool, patience: Duration) {
        let id = match &*self.phase.borrow() {
            Phase::Open(id) => id.clone(),
            Phase::Opening | Phase::Over(_) => return,
        };
        if self.end_if(unused(), |used| so(used)) {
            let close = request::close_session(&id);
            // What waits on its own connection would be answered first. Unheard, it ends with its time.
            let _closed = self.node.commands().call(&close, patience).await;
        }
    }
}

/// Ends a session with the task that drives it.
struct Ends<U: Use>(Arc<Open<U>>);

impl<U: Use> Drop for Ends<U> {
    fn drop(&mut self) {
        self.0.end(runtime_is_gone());
    }
}

fn unused() -> Error {
    Error::Connection(RedisError::from((ErrorKind::Io, "the session is closed")))
}
