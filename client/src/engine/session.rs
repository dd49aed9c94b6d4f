//! How waits are carried: all of a client's at one server through one session, which one task reads.
//!
//! ```text
//!   task ── LOCK.WAIT … SESSION id ──► server: "queued"       over the connection for commands
//!    ▲                                   │ granted, open, timeout, …
//!    └── by owner ── reader ◄── SESSION.NEXT id ack           over one of its own
//! ```
//!
//! Two `SESSION.NEXT` are under way, so that the server always has one to answer: over one connection
//! each goes on after what the one before was told.
//!
//! - **S1** A session is over once, for a reason; then each of its waits ends with that, and asks
//!   again through another. The server knows the owner, so it keeps its place if that still stands.
//! - **S2** What the reader is told for an owner whom nobody waits for any more is nobody's: whoever
//!   gave that wait up sees to it that nothing is left, with its [`Claim`](crate::engine::claim::Claim).

use crate::engine::settings::Settings;
use crate::net::link::runtime_is_gone;
use crate::net::live::Live;
use crate::net::node::Node;
use crate::net::router::Router;
use crate::wire::error::Error;
use crate::wire::observed::Seen;
use crate::wire::outcome::{self, News, Told};
use crate::wire::request;
use futures_util::stream::{FuturesOrdered, StreamExt};
use redis::{ErrorKind, RedisError, Value};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

/// For how long the server keeps a session that nobody reads: a new connection has to be made, or a
/// process stands still.
const TTL: Duration = Duration::from_secs(10);

/// How long the server lets the reader wait. One that has died is noticed when it is over.
const PARKED: Duration = Duration::from_secs(5);

/// The sessions of a client, one at each server at most.
#[derive(Debug)]
pub(crate) struct Sessions {
    router: Arc<Router>,
    /// How long the server may take to answer.
    patience: Duration,
    idle: Duration,
    open: Mutex<Vec<Arc<Session>>>,
}

impl Sessions {
    pub(crate) fn new(router: Arc<Router>, settings: &Settings) -> Self {
        let (patience, idle) = (settings.reply_timeout, settings.session_idle);
        Self { router, patience, idle, open: Mutex::default() }
    }

    /// The one at that server, if there is one.
    pub(crate) fn open_at(&self, node: &Arc<Node>) -> Option<Arc<Session>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let here = |session: &&Arc<Session>| Arc::ptr_eq(&session.node, node);
        open.iter().filter(here).find(|session| !session.is_over()).cloned()
    }

    /// The one at that server; a new one, if there is none.
    pub(crate) fn at(&self, node: &Arc<Node>) -> Result<Arc<Session>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let here = |session: &Arc<Session>| Arc::ptr_eq(&session.node, node);
        if let Some(session) = open.iter().find(|session| here(session) && !session.is_over()) {
            return Ok(session.clone());
        }
        open.retain(|session| !session.is_over());
        let runtime = Handle::try_current().map_err(|_| runtime_is_gone())?;
        let session = Arc::new(Session {
            node: node.clone(),
            phase: watch::Sender::new(Phase::Opening),
            told: Mutex::default(),
        });
        let (patience, idle) = (self.patience, self.idle);
        let reader =
            Reader { session: session.clone(), router: self.router.clone(), patience, idle };
        runtime.spawn(reader.run());
        open.push(session.clone());
        Ok(session)
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        for session in self.open.get_mut().unwrap_or_else(PoisonError::into_inner) {
            session.end(nobody_waits());
        }
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    node: Arc<Node>,
    phase: watch::Sender<Phase>,
    told: Mutex<ToTell>,
}

/// Who is told what of a session.
#[derive(Debug, Default)]
struct ToTell {
    /// By owner.
    waits: HashMap<Arc<str>, oneshot::Sender<Told>>,
    /// By the name of the lock: what it was last.
    observed: HashMap<Arc<[u8]>, watch::Sender<Last>>,
}

/// The last that an observer was told; an error ends it.
type Last = Option<Result<Seen, Error>>;

impl ToTell {
    fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.observed.is_empty()
    }
}

#[derive(Clone, Debug)]
enum Phase {
    Opening,
    Open(Arc<str>),
    Over(Error),
}

impl Session {
    fn is_over(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Over(_))
    }

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

    /// From now on that owner is told what becomes of its wait.
    pub(crate) fn expect(self: &Arc<Self>, owner: &Arc<str>) -> Result<Ticket, Error> {
        let (sender, told) = oneshot::channel();
        self.enter(|to_tell| to_tell.waits.insert(owner.clone(), sender))?;
        Ok(Ticket { session: self.clone(), owner: owner.clone(), told })
    }

    /// From now on there is somebody who is told what becomes of that lock. One for each.
    pub(crate) fn observe(self: &Arc<Self>, key: &Arc<[u8]>) -> Result<Changes, Error> {
        let (sender, last) = watch::channel(None);
        self.enter(|to_tell| to_tell.observed.insert(key.clone(), sender))?;
        Ok(Changes { session: self.clone(), key: key.clone(), last })
    }

    fn enter<T>(&self, entry: impl FnOnce(&mut ToTell) -> T) -> Result<(), Error> {
        let mut to_tell = self.to_tell();
        // Nobody ends it between the question and the entry.
        if let Phase::Over(why) = &*self.phase.borrow() {
            return Err(why.clone());
        }
        entry(&mut to_tell);
        Ok(())
    }

    fn why_over(&self) -> Error {
        match &*self.phase.borrow() {
            Phase::Over(why) => why.clone(),
            Phase::Opening | Phase::Open(_) => Error::Timeout,
        }
    }

    /// It is over, if it is not yet.
    pub(crate) fn end(&self, why: Error) {
        self.end_if(why, |_| true);
    }

    /// The same, if that is so of those who are to be told.
    fn end_if(&self, why: Error, so: impl Fn(&ToTell) -> bool) -> bool {
        let mut to_tell = self.to_tell();
        if !so(&to_tell) {
            return false;
        }
        self.phase.send_if_modified(|phase| {
            let ends = !matches!(phase, Phase::Over(_));
            if ends {
                *phase = Phase::Over(why);
            }
            ends
        });
        // Without anybody to tell it they look for why.
        *to_tell = ToTell::default();
        true
    }

    fn to_tell(&self) -> MutexGuard<'_, ToTell> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in line, as seen from here. Dropped, nobody hears of it any more.
#[derive(Debug)]
pub(crate) struct Ticket {
    session: Arc<Session>,
    owner: Arc<str>,
    told: oneshot::Receiver<Told>,
}

impl Ticket {
    /// What has become of it; an error if the session is over.
    pub(crate) async fn told(&mut self) -> Result<Told, Error> {
        if let Ok(told) = (&mut self.told).await {
            return Ok(told);
        }
        Err(self.session.why_over())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.session.to_tell().waits.remove(&self.owner);
    }
}

/// What becomes of a lock, as seen from here. Dropped, nobody hears of it any more.
#[derive(Debug)]
pub(crate) struct Changes {
    session: Arc<Session>,
    key: Arc<[u8]>,
    last: watch::Receiver<Last>,
}

impl Changes {
    /// The next state; an error if the session is over, or this has to be asked for again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Seen, Error> {
        match self.last.changed().await {
            Ok(()) => self.last.borrow_and_update().clone().unwrap_or(Err(Error::Timeout)),
            Err(_) => Err(self.session.why_over()),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.session.to_tell().observed.remove(&self.key);
    }
}

/// The task that hears what becomes of the waits. Whatever ends it ends the session.
struct Reader {
    session: Arc<Session>,
    router: Arc<Router>,
    patience: Duration,
    idle: Duration,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.session.end(runtime_is_gone());
    }
}

impl Reader {
    async fn run(self) {
        let mut phase = self.session.phase.subscribe();
        let why = tokio::select! {
            Err(why) = self.read() => why,
            _ = phase.wait_for(|phase| matches!(phase, Phase::Over(_))) => return,
        };
        tracing::debug!(%why, "the session is over");
        self.router.learn(&self.session.node, &why);
        self.session.end(why);
    }

    async fn read(&self) -> Result<Infallible, Error> {
        let Session { node, phase, .. } = &*self.session;
        let patience = self.patience;
        let live = node.dial().await?;
        let opened = live.call(&request::open_session(TTL)?, false, patience).await?;
        let id: Arc<str> = outcome::session(opened).map_err(RedisError::from)?.into();
        phase.send_replace(Phase::Open(id.clone()));
        let (mut live, mut ack) = (Arc::new(live), 0);
        loop {
            let broke = self.read_over(live, &id, &mut ack);
            match self.router.looking(broke).await {
                Err(why) if self.session.is_over() => return Err(why),
                // What was on its way is told again.
                Err(Error::Connection(_) | Error::Timeout) => live = Arc::new(node.dial().await?),
                Err(trouble) => return Err(trouble),
                Ok(never) => match never {},
            }
        }
    }

    /// Reads for as long as that connection is there.
    async fn read_over(
        &self,
        live: Arc<Live>,
        id: &str,
        ack: &mut u64,
    ) -> Result<Infallible, Error> {
        let patience = self.patience;
        let (mut under_way, mut busy) = (FuturesOrdered::new(), Instant::now());
        loop {
            while under_way.len() < 2 {
                let (live, next) = (live.clone(), request::next(id, *ack, PARKED)?);
                under_way.push_back(async move { live.call_unlimited(&next, false).await });
            }
            let told = timeout(PARKED + patience, under_way.next()).await;
            let told = told.map_err(|_| Error::Timeout)?.unwrap_or(Err(Error::Timeout))?;
            if self.take_in(told, ack)? {
                // Those who were told go first.
                tokio::task::yield_now().await;
            }
            if !self.session.to_tell().is_empty() {
                busy = Instant::now();
            } else if busy.elapsed() >= self.idle
                && self.session.end_if(nobody_waits(), ToTell::is_empty)
            {
                let (node, close) = (self.session.node.clone(), request::close_session(id));
                // The reads that are under way would be answered first.
                tokio::spawn(async move { node.commands().call(&close, patience).await });
                return Err(nobody_waits());
            }
        }
    }

    /// Whether anybody was told anything.
    fn take_in(&self, told: Value, ack: &mut u64) -> Result<bool, Error> {
        let before = *ack;
        for outcome in outcome::outcomes(told).map_err(RedisError::from)? {
            // Twice, after a connection broke.
            if outcome.seq > *ack {
                *ack = outcome.seq;
                let mut to_tell = self.session.to_tell();
                match outcome.news {
                    News::Of(owner, told) => {
                        let wait = to_tell.waits.remove(&*owner);
                        // Whoever does not take it any more has seen to it that nothing is left.
                        let _taken = wait.map(|wait| wait.send(told));
                    }
                    News::About(key, seen) => {
                        if let Some(observer) = to_tell.observed.get(&*key) {
                            observer.send_replace(Some(seen.map_err(Error::from)));
                        }
                    }
                }
            }
        }
        Ok(*ack > before)
    }
}

fn nobody_waits() -> Error {
    Error::Connection(RedisError::from((ErrorKind::Io, "the session is closed")))
}
