//! A primary that Sentinels monitor: its address, and the detection of a failover.
//!
//! Sentinels number their decisions (`config-epoch`). A Sentinel that has not received the latest decision
//! would name the deposed server. So the watch task asks all Sentinels, and a decision older than the last known
//! one is not followed, unless all Sentinels have forgotten that one: they were set up anew. The named server
//! must also report the role of a primary itself. While the known one reports that role, it is not left for a
//! server that only older decisions name.

use crate::net::address::{At, moved};
use crate::net::connection::Connection;
use crate::net::deadline::after;
use crate::net::live::PrimaryEpoch;
use crate::net::race::first_ok;
use crate::net::runtimes::{Runtimes, Single};
use crate::net::server::Server;
use crate::net::transport::Transport;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::wire::error::Error;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{ConnectionInfo, ErrorKind, RedisError, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Longest time to wait for one Sentinel: for its answer, or for the connection that watches it.
/// [`first_ok`] asks the next Sentinel earlier.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which the watch task asks the Sentinels, since a message can be lost. The task ends
/// within this time after the [`Sentinels`] are dropped.
const ROUND: Duration = Duration::from_secs(1);

/// A primary that a Sentinel named less than this ago is used without asking again. Longer than the time between
/// two answers of a Sentinel to the watch task, even while another Sentinel is silent.
const FRESH: Duration = Duration::from_secs(3);

/// The last known decision is given up if no Sentinel has named it for this long, and then all Sentinels name
/// older ones.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// The channel on which Sentinels announce a new primary.
const SWITCH: &str = "+switch-master";

#[derive(Debug)]
pub(crate) struct Sentinels {
    sentinels: Vec<Server>,
    name: String,
    server: ConnectionInfo,
    patience: Duration,
    transport: Transport,
    /// Index of the Sentinel to ask first: the one that answered the last new connection, or the next one after
    /// a failed attempt.
    first: AtomicUsize,
    state: Mutex<State>,
    switched: Notify,
    runtimes: Arc<Runtimes>,
    /// The watch task.
    watching: Single,
}

#[derive(Default)]
struct State {
    current: Option<Primary>,
    /// `true` if an attempt to connect has failed since a Sentinel last named the current primary.
    failed: bool,
    /// Connections to Sentinels that have answered, by their index.
    open: HashMap<usize, Connection>,
}

impl State {
    fn is_fresh(&self) -> bool {
        !self.failed && self.current.as_ref().is_some_and(|current| current.named.elapsed() < FRESH)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("current", &self.current).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Primary {
    at: At,
    /// The number of the decision.
    epoch: u64,
    /// Time at which a Sentinel last named this primary by this decision.
    named: Instant,
    primary_epoch: Arc<PrimaryEpoch>,
}

impl Sentinels {
    pub(crate) fn new(
        sentinels: &[ConnectionInfo],
        name: String,
        server: ConnectionInfo,
        patience: Duration,
        transport: &Transport,
        runtimes: &Arc<Runtimes>,
    ) -> Result<Self, Error> {
        let at_sentinels = transport.for_sentinels();
        let each = |info: &ConnectionInfo| {
            Server::new(info.clone(), PATIENCE.min(patience), &at_sentinels)
        };
        Ok(Self {
            sentinels: sentinels.iter().map(each).collect::<Result<_, _>>()?,
            name,
            server,
            patience,
            transport: transport.clone(),
            first: AtomicUsize::new(0),
            state: Mutex::default(),
            switched: Notify::new(),
            runtimes: runtimes.clone(),
            watching: Single::default(),
        })
    }

    /// Connects to the primary within `patience`. If an attempt fails, the next one begins with another
    /// Sentinel, which may have learned of a failover earlier. While no primary is known, makes up to one
    /// attempt for each Sentinel; otherwise one.
    pub(crate) async fn dial(self: &Arc<Self>) -> Result<(Connection, Arc<PrimaryEpoch>), Error> {
        let end = after(self.patience);
        let tries = if self.state().current.is_none() { self.sentinels.len() } else { 1 };
        let mut outcome = Err(Error::Timeout);
        for _ in 0..tries.max(1) {
            match timeout_at(end, self.dial_primary()).await {
                Ok(done) => outcome = done,
                Err(_) => outcome = outcome.or(Err(Error::Timeout)),
            }
            if outcome.is_ok() {
                break;
            }
            self.state().failed = true;
            let next = self.first.load(Ordering::Relaxed) + 1;
            self.first
                .store(next.checked_rem(self.sentinels.len()).unwrap_or(0), Ordering::Relaxed);
            if Instant::now() >= end {
                break;
            }
        }
        outcome
    }

    async fn dial_primary(self: &Arc<Self>) -> Result<(Connection, Arc<PrimaryEpoch>), Error> {
        let (at, primary_epoch) = match self.known() {
            Some(known) => known,
            None => {
                let (at, epoch) = self.find().await?;
                let primary_epoch = self.primary_is(&at, epoch);
                (at, primary_epoch.ok_or_else(|| passing("an outdated Sentinel"))?)
            }
        };
        self.keep_watching();
        Ok((self.connect(at).await?, primary_epoch))
    }

    /// Connects to a server, and checks that it reports the role of a primary.
    async fn connect(&self, at: At) -> Result<Connection, Error> {
        let info = self.server.clone().set_addr(moved(self.server.addr(), at));
        let connection = Server::new(info, self.patience, &self.transport)?.connect().await?;
        let is_primary = connection.drive_while(reports_primary(&connection));
        let is_primary = timeout(self.patience, is_primary);
        if !is_primary.await.map_err(|_| Error::Timeout)?? {
            return Err(passing("the server that Sentinel names is not a primary yet"));
        }
        Ok(connection)
    }

    /// Returns the primary if a Sentinel has named it less than [`FRESH`] ago, and the last attempt to
    /// connect did not fail.
    fn known(&self) -> Option<(At, Arc<PrimaryEpoch>)> {
        let state = self.state();
        let current = state.current.as_ref().filter(|_| state.is_fresh())?;
        Some((current.at.clone(), current.primary_epoch.clone()))
    }

    /// Returns when another server has become the primary.
    pub(crate) async fn switched(&self) {
        self.switched.notified().await;
    }

    /// Returns all Sentinels with their indexes, beginning with the one to ask first.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &Server)> {
        let first = self.first.load(Ordering::Relaxed);
        let all = self.sentinels.iter().enumerate();
        all.clone().skip(first).chain(all.take(first))
    }

    /// Asks the Sentinels, beginning with `first`, until one names the primary. A silent one delays the next
    /// only by its head start.
    async fn find(&self) -> Result<(At, u64), Error> {
        let ask = |(index, sentinel)| async move {
            let (at, epoch) = self.ask_in_time(index, sentinel).await?;
            Ok((index, at, epoch))
        };
        let asks: Vec<_> = self.in_turn().map(ask).collect();
        let (index, at, epoch) = first_ok(asks).await.unwrap_or(Err(Error::Timeout))?;
        if self.state().current.as_ref().is_none_or(|current| epoch >= current.epoch) {
            self.first.store(index, Ordering::Relaxed);
        }
        Ok((at, epoch))
    }

    async fn ask_in_time(&self, index: usize, sentinel: &Server) -> Result<(At, u64), Error> {
        timeout(PATIENCE, self.ask(index, sentinel)).await.map_err(|_| Error::Timeout)?
    }

    async fn ask(&self, index: usize, sentinel: &Server) -> Result<(At, u64), Error> {
        let mut both = redis::pipe();
        both.cmd("SENTINEL").arg("MASTER").arg(&self.name);
        both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        // A connection that is closed or hangs is not put back.
        let open = self.state().open.remove(&index);
        let mut answered = None;
        if let Some(connection) = open
            && let Ok(answers) = connection.send_all(&both).await
        {
            answered = Some((connection, answers));
        }
        let (connection, answers) = match answered {
            Some(answered) => answered,
            None => {
                let connection = sentinel.connect().await?;
                connection.drive();
                let answers = connection.send_all(&both).await?;
                (connection, answers)
            }
        };
        self.state().open.insert(index, connection);
        let mut answers = answers.into_iter().map(Value::extract_error);
        let mut next = || answers.next().transpose().map(|answer| answer.unwrap_or(Value::Nil));
        let decision = next().map_err(|error| self.refused(error))?;
        let address = next().map_err(|error| self.refused(error))?;
        read_primary(decision, address)
    }

    fn refused(&self, error: RedisError) -> Error {
        let said = error.detail().unwrap_or_default();
        if said.starts_with("No such master") {
            Error::Config(format!("Sentinel knows no primary called {:?}", self.name))
        } else if said.starts_with("unknown command") {
            Error::Config(
                "the server is no Sentinel: the address of a server begins with redis:// or rediss://"
                    .to_owned(),
            )
        } else {
            error.into()
        }
    }

    /// Records the primary. If it is another server than before, ends the epoch of the previous primary.
    /// Returns `None` if another server is known from a later decision, or if another Sentinel has just named
    /// another server for the same decision.
    fn primary_is(&self, at: &At, epoch: u64) -> Option<Arc<PrimaryEpoch>> {
        let mut state = self.state();
        let fresh = state.is_fresh();
        let named = Instant::now();
        if let Some(current) = &mut state.current {
            let same = current.at == *at;
            if same && epoch < current.epoch {
                return Some(current.primary_epoch.clone());
            }
            if epoch < current.epoch || (epoch == current.epoch && !same && fresh) {
                return None;
            }
            if same {
                (current.epoch, current.named) = (epoch, named);
                let primary_epoch = current.primary_epoch.clone();
                state.failed = false;
                return Some(primary_epoch);
            }
            tracing::warn!(from = ?current.at, to = ?at, "the primary is another server now");
            current.primary_epoch.end();
            self.switched.notify_waiters();
        }
        let primary_epoch = Arc::new(PrimaryEpoch::default());
        let current =
            Primary { at: at.clone(), epoch, named, primary_epoch: primary_epoch.clone() };
        state.current = Some(current);
        state.failed = false;
        Some(primary_epoch)
    }

    /// Returns the known primary if no Sentinel has named its decision for [`FORGOTTEN`].
    fn forgotten(&self) -> Option<At> {
        let state = self.state();
        let current = state.current.as_ref();
        let forgotten = current.filter(|current| current.named.elapsed() > FORGOTTEN);
        forgotten.map(|current| current.at.clone())
    }

    /// Gives up the last known decision: from now on, each decision counts as newer.
    fn forget_decision(&self) {
        tracing::warn!("the Sentinels were set up anew");
        if let Some(current) = &mut self.state().current {
            current.epoch = 0;
        }
    }

    /// Starts the watch task, unless it runs.
    fn keep_watching(self: &Arc<Self>) {
        let me = Arc::downgrade(self);
        self.watching.start(&self.runtimes, move || watch(me.clone()));
    }

    /// Subscribes to [`SWITCH`] at the first Sentinel that accepts a connection.
    async fn listen(&self) -> Result<redis::aio::PubSub, Error> {
        let mut last = Error::Timeout;
        for (_, sentinel) in self.in_turn() {
            match sentinel.listen().await {
                Ok(mut messages) => {
                    timeout(PATIENCE, messages.subscribe(SWITCH))
                        .await
                        .map_err(|_| Error::Timeout)??;
                    return Ok(messages);
                }
                Err(trouble) => last = trouble,
            }
        }
        Err(last)
    }

    /// Asks all Sentinels for the primary, since one that is cut off from the others still names the deposed
    /// server. If the primary is another server than before, calls in flight at the previous primary fail.
    async fn refresh(&self) {
        let asks = self.in_turn().map(|(index, sentinel)| self.ask_in_time(index, sentinel));
        let mut answers: FuturesUnordered<_> = asks.collect();
        let (mut older, mut others) = (0, 0);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((at, epoch)) => {
                    let known = self.state().current.as_ref().map_or(0, |current| current.epoch);
                    older += usize::from(epoch < known);
                    others += usize::from(self.primary_is(&at, epoch).is_none());
                }
                Err(trouble) => tracing::debug!(%trouble, "a Sentinel does not answer"),
            }
        }
        // The Sentinels were set up anew, and number their decisions from the beginning again. But if one address
        // leads to several Sentinels, others may still know the last decision.
        if older == self.sentinels.len()
            && let Some(at) = self.forgotten()
            && (others == 0 || !matches!(timeout(PATIENCE, self.connect(at)).await, Ok(Ok(_))))
        {
            self.forget_decision();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Asks for the primary after each message of a Sentinel, and after each [`ROUND`] without a message.
async fn watch(sentinels: Weak<Sentinels>) {
    loop {
        let Some(me) = sentinels.upgrade() else { return };
        let messages = me.listen().await;
        me.refresh().await;
        drop(me);
        let Ok(messages) = messages else {
            sleep(ROUND).await;
            continue;
        };
        let mut messages = messages.into_on_message();
        loop {
            let told = timeout(ROUND, messages.next()).await;
            let Some(me) = sentinels.upgrade() else { return };
            me.refresh().await;
            if matches!(told, Ok(None)) {
                break;
            }
        }
    }
}

/// Reads the answers to `SENTINEL MASTER` and `SENTINEL GET-MASTER-ADDR-BY-NAME`. The first has the number of
/// the decision, but during a failover still the address of the old primary. So the address is from the
/// second.
fn read_primary(decision: Value, address: Value) -> Result<(At, u64), Error> {
    let wrong = |error| Error::Protocol(format!("of a Sentinel: {error}"));
    let fields: HashMap<String, String> = redis::from_redis_value(decision).map_err(wrong)?;
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok());
    let epoch = epoch.ok_or_else(|| Error::Protocol("of a Sentinel: no epoch".to_owned()))?;
    Ok((redis::from_redis_value(address).map_err(wrong)?, epoch))
}

/// Asks the server whether it is a primary. Uses `HELLO`, which every user may send, unlike `ROLE`.
async fn reports_primary(connection: &Connection) -> Result<bool, Error> {
    let answer = connection.send(&redis::cmd("HELLO")).await?;
    let fields: HashMap<String, Value> = redis::from_redis_value(answer.extract_error()?)
        .map_err(|error| Error::Protocol(format!("to HELLO: {error}")))?;
    let role = fields.get("role").cloned().unwrap_or(Value::Nil);
    Ok(redis::from_redis_value::<String>(role).is_ok_and(|role| role == "master"))
}

/// Returns a retryable error, for a state that may pass.
fn passing(what: &'static str) -> Error {
    Error::Connection(RedisError::from((ErrorKind::Io, what)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo;

    #[test]
    fn an_older_decision_of_a_sentinel_is_ignored() {
        let server = || "redis://127.0.0.1:1/".into_connection_info().unwrap();
        let transport = Transport::default();
        let sentinels = Sentinels::new(
            &[server()],
            "m".to_owned(),
            server(),
            PATIENCE,
            &transport,
            &Runtimes::new(),
        )
        .unwrap();
        let at = |port| ("127.0.0.1".to_owned(), port);
        assert!(sentinels.primary_is(&at(1), 5).is_some());
        assert!(sentinels.primary_is(&at(2), 6).is_some());
        assert!(sentinels.primary_is(&at(1), 5).is_none(), "an older decision was followed");
        assert_eq!(sentinels.known().map(|(at, _)| at), Some(at(2)));
        assert!(sentinels.primary_is(&at(1), 7).is_some());
        assert!(sentinels.primary_is(&at(2), 7).is_none(), "two servers for one decision");
        sentinels.state().failed = true;
        assert!(sentinels.primary_is(&at(2), 7).is_some(), "no connection to the other one");
        assert!(
            sentinels.primary_is(&at(2), 6).is_some(),
            "the decision does not matter for the same server"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_that_all_sentinels_have_forgotten_is_given_up() {
        let server = || "redis://127.0.0.1:1/".into_connection_info().unwrap();
        let (transport, runtimes) = (Transport::default(), Runtimes::new());
        let sentinels =
            Sentinels::new(&[server()], "m".to_owned(), server(), PATIENCE, &transport, &runtimes)
                .unwrap();
        let at = |port| ("127.0.0.1".to_owned(), port);
        assert!(sentinels.primary_is(&at(1), 5).is_some());
        assert_eq!(sentinels.forgotten(), None);
        tokio::time::advance(FORGOTTEN + Duration::from_millis(1)).await;
        assert!(sentinels.primary_is(&at(1), 4).is_some(), "the same server");
        assert!(sentinels.primary_is(&at(2), 4).is_none(), "another server");
        assert_eq!(sentinels.forgotten(), Some(at(1)));
        sentinels.forget_decision();
        assert!(sentinels.primary_is(&at(2), 4).is_some(), "all decisions are newer");
        assert!(sentinels.primary_is(&at(1), 3).is_none(), "older than the new one");
    }
}
