//! The task that opens a session, reads it, connects again when its connection breaks, and is its heartbeat.
//!
//! It sends `SESSION.NEXT id ack` in a loop; each request waits at the server for up to a tenth of the ttl.
//! While outcomes or changes are awaited and no lock is bound, two requests are in flight, so that the server
//! always has one to answer. On one connection, no outcome is in the answers to two requests.

use crate::engine::clock::Moment;
use crate::engine::lease::Lease;
use crate::engine::limit::pause_after;
use crate::engine::session::{Session, Uses, is_forgotten};
use crate::net::link::runtime_is_gone;
use crate::net::live::Live;
use crate::wire::error::Error;
use crate::wire::outcome::{self, Event};
use crate::wire::request;
use futures_util::stream::{FuturesOrdered, StreamExt};
use redis::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Smallest number of heartbeats in the ttl of a session. When the server stops answering, the time of bound
/// locks counts from the moment at which the last answered heartbeat was sent.
const BEATS: u32 = 10;

/// The reader of a session. Dropped with its task, it ends the session.
pub(super) struct Reader(pub(super) Arc<Session>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.end(runtime_is_gone());
    }
}

impl Reader {
    pub(super) async fn run(self) {
        let session = &self.0;
        let why = tokio::select! {
            biased;
            Err(why) = self.read() => {
                session.shared.router.learn(&session.node, &why);
                why
            }
            () = session.over() => session.why_silent(),
        };
        tracing::debug!(%why, "a session is over");
        session.end(why);
    }

    fn now(&self) -> Moment {
        Moment::of(&*self.0.shared.policy.clock)
    }

    /// Records an answer to a request sent at `sent`: the session lasts for the ttl from that moment.
    fn lasts_from(&self, sent: Moment) {
        let shared = &self.0.shared;
        self.0.belief.extend(shared.policy.safety.until(sent, shared.ttl));
    }

    async fn read(&self) -> Result<Infallible, Error> {
        let (session, router) = (&self.0, &self.0.shared.router);
        let mut live = session.node.dial().await?;
        let id = live.drive_while(self.open(&live)).await?;
        let mut ack = 0;
        loop {
            let broke = live.drive_while(self.read_over(&live, &id, &mut ack));
            match router.looking(broke).await {
                Err(why) if session.is_over() || is_forgotten(&why) => return Err(why),
                // The server sends outcomes that were not acknowledged again over the next connection.
                Err(why) => {
                    live.condemn();
                    live = router.looking(self.dial_again(why)).await?;
                }
                Ok(never) => match never {},
            }
        }
    }

    async fn open(&self, live: &Live) -> Result<Arc<str>, Error> {
        let (session, shared, sent) = (&self.0, &self.0.shared, self.now());
        let request = request::open_session(shared.ttl)?;
        let opened = live.probe(&request, shared.reply_timeout).await?;
        let id: Arc<str> = outcome::session(opened)?.into();
        self.lasts_from(sent);
        session.phase.send_if_modified(|phase| {
            let opening = matches!(phase, super::Phase::Opening);
            if opening {
                *phase = super::Phase::Open(id.clone());
            }
            opening
        });
        Ok(id)
    }

    /// Reconnects, while the session may still be of use.
    async fn dial_again(&self, mut why: Error) -> Result<Live, Error> {
        let session = &self.0;
        let answered = !matches!(why, Error::Connection(_) | Error::Timeout);
        let pause = if answered { pause_after(Duration::ZERO) } else { Duration::ZERO };
        loop {
            let _elsewhere = session.shared.router.learn(&session.node, &why);
            let left = self.left(&why);
            if left.is_zero() {
                return Err(why);
            }
            let dial = async {
                sleep(pause).await;
                session.node.dial().await
            };
            match timeout(left, dial).await {
                Ok(Ok(live)) => return Ok(live),
                Ok(Err(trouble)) => why = trouble,
                Err(_) => {}
            }
        }
    }

    /// Returns how long the session may still be of use after this error. Expires bound leases whose time is
    /// over. If waits fail earlier than bound locks end, ends only the waits. (S3, S4)
    fn left(&self, why: &Error) -> Duration {
        let (session, shared) = (&self.0, &self.0.shared);
        let is_tried_again = why.is_retryable() && !session.node.is_deposed();
        let waits_last = if is_tried_again { shared.silence } else { Duration::ZERO };
        let waits_left = waits_last.saturating_sub(session.heard().elapsed());
        let leases = session.leases();
        if leases.is_empty() {
            return waits_left;
        }
        let is_elsewhere = |lease: &Arc<Lease>| {
            let now_at = shared.router.believed(&lease.held_lock.key);
            now_at.is_some_and(|node| !Arc::ptr_eq(&node, &session.node))
        };
        if leases.iter().all(is_elsewhere) {
            return Duration::ZERO;
        }
        let left = session.belief.until().left_at(self.now());
        if left.is_zero() {
            for lease in &leases {
                let _over = lease.expire(self.now());
            }
        }
        if waits_left.is_zero() {
            session.uses().end_waits();
            return left;
        }
        left.min(waits_left)
    }

    /// Reads outcomes until the connection breaks.
    async fn read_over(&self, live: &Live, id: &str, ack: &mut u64) -> Result<Infallible, Error> {
        let (session, shared) = (&self.0, &self.0.shared);
        let pause = shared.ttl / BEATS;
        let patience = pause + shared.reply_timeout.min(shared.ttl / 3);
        let (mut in_flight, mut busy) = (FuturesOrdered::new(), Instant::now());
        let sent = self.now();
        // This request is answered at once, so that each connection brings at least one answer: some networks
        // cut a connection before a waiting `SESSION.NEXT` is answered.
        let look = live.probe(&request::look(id, *ack), shared.reply_timeout).await;
        self.hear(sent, look, ack)?;
        loop {
            let ahead = 1 + usize::from(session.uses().reads_ahead());
            while in_flight.len() < ahead {
                let (sent, next) = (self.now(), request::next(id, *ack, pause)?);
                in_flight.push_back(async move { (sent, live.call_unlimited(&next, false).await) });
            }
            let answer = timeout(patience, in_flight.next()).await.map_err(|_| Error::Timeout)?;
            let (sent, answer) = answer.ok_or(Error::Timeout)?;
            self.hear(sent, answer, ack)?;
            if !session.uses().is_unused() {
                busy = Instant::now();
            } else if busy.elapsed() >= shared.idle {
                // If the session is closed, this loop ends.
                tokio::spawn(session.clone().close_if(Uses::is_unused));
            }
        }
    }

    /// Processes the answer to a `SESSION.NEXT` that was sent at `sent`.
    fn hear(&self, sent: Moment, answer: Result<Value, Error>, ack: &mut u64) -> Result<(), Error> {
        if !matches!(answer, Err(Error::Connection(_) | Error::Timeout)) {
            self.0.uses().heard = Instant::now();
        }
        let outcomes = outcome::outcomes(answer?)?;
        self.lasts_from(sent);
        // After a connection broke, some are sent twice.
        for outcome in outcomes {
            if outcome.seq > *ack {
                *ack = outcome.seq;
                self.deliver(outcome.news);
            }
        }
        Ok(())
    }

    fn deliver(&self, news: Event) {
        let mut uses = self.0.uses();
        match news {
            Event::Wait(owner, told) => {
                let wait = uses.waits.remove(&*owner);
                // (S2)
                let _taken = wait.map(|wait| wait.send(told));
            }
            Event::Observed(key, seen) => {
                if let Some(observer) = uses.observed.get(&*key) {
                    observer.send_replace(Some(seen.map_err(Error::from)));
                }
            }
        }
    }
}
