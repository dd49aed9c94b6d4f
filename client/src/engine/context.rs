//! State that all parts of a client share.

use crate::engine::clock::Moment;
use crate::engine::contended::Contended;
use crate::engine::lease::LeasePolicy;
use crate::engine::lease::watchdog::Watchdog;
use crate::engine::limit::Trouble;
use crate::engine::session::observed::Observers;
use crate::engine::session::sessions::Sessions;
use crate::engine::settings::Settings;
use crate::net::address::Address;
use crate::net::node::Node;
use crate::net::replicas::Renewals;
use crate::net::router::Router;
use crate::net::runtimes::Runtimes;
use crate::wire::error::Error;
use futures_util::future::join_all;
use redis::{Cmd, ParsingError, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// State that all clones, guards and tasks of a client share.
pub(crate) struct Context {
    pub(crate) router: Arc<Router>,
    pub(crate) runtimes: Arc<Runtimes>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) sessions: Sessions,
    pub(crate) observers: Observers,
    pub(crate) contended: Contended,
    /// Work that outlives its caller: releases, and the cleanup of dropped acquires.
    pub(crate) background: TaskTracker,
    pub(crate) policy: LeasePolicy,
    pub(crate) settings: Settings,
    pub(crate) name: Uuid,
    /// Address of the server, without credentials.
    pub(crate) place: String,
    pub(crate) database: i64,
    numbers: AtomicU64,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Context {
    /// A context for tests that reach no server.
    #[cfg(test)]
    pub(crate) fn of_no_server() -> Arc<Self> {
        use crate::engine::clock::{Boottime, SafetyMargin};
        let safety = SafetyMargin { margin: std::time::Duration::ZERO };
        let clock = Arc::new(Boottime);
        let address = Address::try_from("redis://127.0.0.1:1/").unwrap();
        let context = Self::new(address, Settings::default(), LeasePolicy { clock, safety });
        Arc::new(context.unwrap())
    }

    pub(crate) fn new(
        address: Address,
        settings: Settings,
        policy: LeasePolicy,
    ) -> Result<Self, Error> {
        let (place, database) = (address.to_string(), address.database());
        let own_renewals = settings.replicas.is_some();
        let (reply_timeout, transport) = (settings.reply_timeout, &settings.transport);
        let runtimes = Runtimes::new();
        let router = Router::new(address, reply_timeout, transport, own_renewals, &runtimes)?;
        let router = Arc::new(router);
        let renewals = Arc::new(Renewals::new(router.clone(), settings.replicas));
        let watchdog = Watchdog::new(
            renewals.clone(),
            policy.clock.clone(),
            settings.reply_timeout,
            runtimes.clone(),
        );
        let background = TaskTracker::new();
        // A closed tracker still accepts tasks, and its `wait` returns when none is left.
        background.close();
        Ok(Self {
            router: router.clone(),
            runtimes,
            renewals,
            sessions: Sessions::new(router.clone(), &settings, policy.clone()),
            observers: Observers::default(),
            contended: Contended::default(),
            watchdog: Arc::new(watchdog),
            background,
            policy,
            settings,
            name: Uuid::new_v4(),
            place,
            database,
            numbers: AtomicU64::new(1),
        })
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::of(&*self.policy.clock)
    }

    pub(crate) fn fresh_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns an owner that was never used before.
    pub(crate) fn fresh_owner(&self) -> Arc<str> {
        format!("{}:{}", self.name, self.fresh_number()).into()
    }

    /// Runs `work` in the background, as [`Runtimes::spawn`] does: perhaps in part, and then again. Without a
    /// runtime, does nothing, and held locks end with their leases. Neither blocks nor panics.
    pub(crate) fn spawn<F>(&self, mut work: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let counted = self.background.token();
        self.runtimes.spawn(move || {
            // It counts until this closure is dropped.
            let _counted = &counted;
            work()
        });
    }

    /// Returns when the next attempt is due, or returns the error; see [`Trouble::wait_to_retry`].
    pub(crate) async fn wait_to_retry(
        &self,
        trouble: &mut Trouble,
        error: Error,
    ) -> Result<(), Error> {
        trouble.wait_to_retry(error, self.settings.patience, self.router.switched()).await
    }

    /// Sends an idempotent request about a key. Repeats it once if the connection was closed.
    pub(crate) async fn query<T>(
        &self,
        key: &[u8],
        request: &Cmd,
        read: fn(Value) -> Result<T, ParsingError>,
    ) -> Result<T, Error> {
        let patience = self.settings.reply_timeout;
        Ok(read(twice(|| self.router.call(key, request, patience)).await?)?)
    }

    /// Sends a read-only request to all servers that keep locks.
    pub(crate) async fn look_everywhere<T>(
        &self,
        request: &Cmd,
        read: fn(Value) -> Result<T, ParsingError>,
    ) -> Result<Vec<T>, Error> {
        let patience = self.settings.reply_timeout;
        let ask = async |node: Arc<Node>| {
            let answer = twice(|| node.commands().call(request, patience)).await;
            if let Err(trouble) = &answer {
                self.router.learn(&node, trouble);
            }
            Ok(read(answer?)?)
        };
        let answers = join_all(self.router.nodes().await?.into_iter().map(ask)).await;
        answers.into_iter().collect()
    }

    /// Checks that the servers know the commands and accept the login. Ignores a server that cannot be
    /// reached if another one can.
    pub(crate) async fn check_module(&self) -> Result<(), Error> {
        let _here = self.runtimes.remember();
        let nodes = self.router.nodes().await?;
        let many = nodes.len() > 1;
        let check = async |node: Arc<Node>| match self.check_module_of(&node).await {
            Err(Error::ModuleMissing(said)) if many => {
                Err(Error::ModuleMissing(format!("{node}: {said}")))
            }
            other => other,
        };
        let outcomes = join_all(nodes.into_iter().map(check)).await;
        let reached = outcomes.iter().any(Result::is_ok);
        let troubles = outcomes.into_iter().filter_map(Result::err);
        troubles
            .filter(|trouble| !(reached && trouble.is_retryable()))
            .min_by_key(Error::is_retryable)
            .map_or(Ok(()), Err)
    }

    /// Returns whether a server that does not know the commands is a Sentinel.
    async fn is_sentinel(&self, node: &Node) -> bool {
        let answer = node.commands().call(&redis::cmd("HELLO"), self.settings.reply_timeout).await;
        let fields = answer
            .ok()
            .and_then(|answer| redis::from_redis_value::<HashMap<String, Value>>(answer).ok());
        let mode = fields.and_then(|mut fields| fields.remove("mode"));
        mode.is_some_and(|mode| {
            redis::from_redis_value(mode).is_ok_and(|mode: String| mode == "sentinel")
        })
    }

    /// Checks one server, with a command without arguments and with `PING`. The server checks the name of a
    /// command and the number of its arguments before keys and rights (ACL). So it refuses a known command
    /// because of its arguments, even without a login. Then `PING` checks the login.
    async fn check_module_of(&self, node: &Node) -> Result<(), Error> {
        let patience = self.settings.reply_timeout;
        let open = redis::cmd("SESSION.OPEN");
        match twice(|| node.commands().call(&open, patience)).await {
            Err(Error::ModuleMissing(said)) if said.starts_with("wrong number") => {}
            Err(trouble @ Error::ModuleMissing(_)) => {
                return Err(if self.is_sentinel(node).await { a_sentinel() } else { trouble });
            }
            Err(trouble) => return Err(trouble),
            Ok(_) => {
                return Err(Error::Protocol("SESSION.OPEN without arguments succeeded".to_owned()));
            }
        }
        match node.commands().call(&redis::cmd("PING"), patience).await {
            Err(Error::Authentication(said)) => Err(Error::Authentication(said)),
            // Any other answer comes from a server that has accepted the login. Network errors are ignored:
            // the server has just answered.
            _ => Ok(()),
        }
    }
}

fn a_sentinel() -> Error {
    Error::Config(
        "the server is a Sentinel: the address of the primary that it knows is \
         redis-sentinel://host:port/?sentinelServiceName=name"
            .to_owned(),
    )
}

/// Asks once more if the connection was closed, for example while it was idle.
async fn twice<T, A>(ask: impl Fn() -> A) -> Result<T, Error>
where
    A: Future<Output = Result<T, Error>>,
{
    match ask().await {
        Err(Error::Connection(_)) => ask().await,
        answer => answer,
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.watchdog.close();
    }
}
