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
//! - **S3** A session that the server has not answered for its ttl is given up here too, and its waits
//!   begin anew: the time since the last answer counts against their patience.

use crate::engine::open::{Open, PerNode, Use};
use crate::engine::settings::Settings;
use crate::net::live::Live;
use crate::net::node::Node;
use crate::net::router::Router;
use crate::wire::error::Error;
use crate::wire::observed::Seen;
use crate::wire::outcome::{self, News, Told};
use crate::wire::request;
use futures_util::stream::{FuturesOrdered, StreamExt};
use redis::Value;
// In whichever order waits hear that the session is over, a simulation has to do it again.
#[cfg(feature = "simulation")]
use std::collections::BTreeMap as HashMap;
#[cfg(not(feature = "simulation"))]
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};

/// Time after which the server ends a session that has no reader: long enough to reconnect, or for a
/// paused process to resume.
const TTL: Duration = Duration::from_secs(10);

/// How long the server lets the reader wait. One that has died is noticed when it is over.
const PARKED: Duration = Duration::from_secs(5);

/// The sessions of a client for its waits.
#[derive(Debug)]
pub(crate) struct Sessions {
    router: Arc<Router>,
    /// How long the server may take to answer.
    patience: Duration,
    idle: Duration,
    /// Longest silence of a server after which a session there still counts.
    silence: Duration,
    open: PerNode<ToTell>,
}

/// One of them.
pub(crate) type Session = Open<ToTell>;

impl Sessions {
    pub(crate) fn new(router: Arc<Router>, settings: &Settings) -> Self {
        let (patience, idle) = (settings.reply_timeout, settings.session_idle);
        let silence = TTL.min(settings.patience);
        Self { router, patience, idle, silence, open: PerNode::default() }
    }

    /// The one at that server, if there is one.
    pub(crate) fn open_at(&self, node: &Arc<Node>) -> Option<Arc<Session>> {
        self.open.open_at(node)
    }

    /// The one at that server; a new one, if there is none.
    pub(crate) fn at(&self, node: &Arc<Node>) -> Result<Arc<Session>, Error> {
        let (router, patience, idle) = (self.router.clone(), self.patience, self.idle);
        let silence = self.silence;
        self.open.at(node, |session| Reader { session, router, patience, idle, silence }.run())
    }

    /// Closes those that nobody waits through.
    pub(crate) async fn close(&self) {
        self.open.close(self.patience).await;
    }
}

/// Who is told what of a session.
#[derive(Debug)]
pub(crate) struct ToTell {
    /// When the server last answered a `SESSION.NEXT`; before the first answer, when the session began.
    heard: Instant,
    /// By owner.
    waits: HashMap<Arc<str>, oneshot::Sender<Told>>,
    /// By the name of the lock: what it was last.
    observed: HashMap<Arc<[u8]>, watch::Sender<Last>>,
}

impl Default for ToTell {
    fn default() -> Self {
        let (waits, observed) = (HashMap::new(), HashMap::new());
        Self { heard: Instant::now(), waits, observed }
    }
}

/// The last that an observer was told; an error ends it.
type Last = Option<Result<Seen, Error>>;

impl Use for ToTell {
    fn is_unused(&self) -> bool {
        self.waits.is_empty() && self.observed.is_empty()
    }

    /// A wait would lose its place, an observer begins anew.
    fn may_end(&self) -> bool {
        self.waits.is_empty()
    }

    /// Without anybody to tell them they look for why.
    fn end(&mut self) {
        self.waits.clear();
        self.observed.clear();
    }
}

impl Open<ToTell> {
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

    /// When the server last answered its reader.
    pub(crate) fn heard(&self) -> Instant {
        self.used().heard
    }

    /// Why nothing is told any more.
    fn why_silent(&self) -> Error {
        self.why_over().unwrap_or(Error::Timeout)
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
        Err(self.session.why_silent())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.session.used().waits.remove(&self.owner);
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
            Err(_) => Err(self.session.why_silent()),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.session.used().observed.remove(&self.key);
    }
}

/// The task that hears what becomes of the waits.
struct Reader {
    session: Arc<Session>,
    router: Arc<Router>,
    patience: Duration,
    idle: Duration,
    silence: Duration,
}

impl Reader {
    async fn run(self) {
        let read = async {
            let Err(why) = self.read().await;
            self.router.learn(&self.session.node, &why);
            Err(why)
        };
        self.session.drive(read).await;
    }

    async fn read(&self) -> Result<Infallible, Error> {
        let mut live = self.session.node.dial().await?;
        let id = live.beside(self.session.open(&live, TTL, self.patience, || {})).await?;
        let mut ack = 0;
        loop {
            let broke = live.beside(self.read_over(&live, &id, &mut ack));
            match self.router.looking(broke).await {
                Err(why) if self.session.is_over() => return Err(why),
                // Outcomes that were in flight are sent again.
                Err(why @ (Error::Connection(_) | Error::Timeout)) => {
                    live = self.router.looking(self.dial_again(why)).await?;
                }
                Err(trouble) => return Err(trouble),
                Ok(never) => match never {},
            }
        }
    }

    /// Connects again, until the server has been silent for so long that the session is gone there, or
    /// that its waits give up.
    async fn dial_again(&self, mut why: Error) -> Result<Live, Error> {
        let node = &self.session.node;
        let gone = self.session.heard() + self.silence;
        while why.is_retryable() && !node.is_deposed() && Instant::now() < gone {
            let _elsewhere = self.router.learn(node, &why);
            match timeout_at(gone, node.dial()).await {
                Ok(Ok(live)) => return Ok(live),
                Ok(Err(trouble)) => why = trouble,
                Err(_) => {}
            }
        }
        Err(why)
    }

    /// Reads for as long as that connection is there.
    async fn read_over(&self, live: &Live, id: &str, ack: &mut u64) -> Result<Infallible, Error> {
        let patience = self.patience;
        let (mut under_way, mut busy) = (FuturesOrdered::new(), Instant::now());
        // Where connections are cut before a `SESSION.NEXT` that waits is answered, this one hears.
        let look = live.probe(&request::look(id, *ack), patience).await;
        self.hear(look, ack)?;
        loop {
            while under_way.len() < 2 {
                let next = request::next(id, *ack, PARKED)?;
                under_way.push_back(async move { live.call_unlimited(&next, false).await });
            }
            let told = timeout(PARKED + patience, under_way.next()).await;
            let told = told.map_err(|_| Error::Timeout)?.unwrap_or(Err(Error::Timeout));
            self.hear(told, ack)?;
            if !self.session.used().is_unused() {
                busy = Instant::now();
            } else if busy.elapsed() >= self.idle {
                // That ends this.
                tokio::spawn(self.session.clone().close_if(ToTell::is_unused, patience));
            }
        }
    }

    /// Takes in the answer to a `SESSION.NEXT`.
    fn hear(&self, answer: Result<Value, Error>, ack: &mut u64) -> Result<(), Error> {
        if !matches!(answer, Err(Error::Connection(_) | Error::Timeout)) {
            self.session.used().heard = Instant::now();
        }
        for outcome in outcome::outcomes(answer?)? {
            // Twice, after a connection broke.
            if outcome.seq > *ack {
                *ack = outcome.seq;
                let mut to_tell = self.session.used();
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
        Ok(())
    }
}
