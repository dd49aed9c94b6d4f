//! What all parts of a client share.

use crate::engine::background::Background;
use crate::engine::bound::Hearts;
use crate::engine::clock::Moment;
use crate::engine::contended::Contended;
use crate::engine::lease::Terms;
use crate::engine::observer::Observers;
use crate::engine::session::Sessions;
use crate::engine::settings::Settings;
use crate::engine::watchdog::Watchdog;
use crate::net::address::Address;
use crate::net::node::Node;
use crate::net::replicas::Renewals;
use crate::net::router::Router;
use crate::wire::error::Error;
use futures_util::future::join_all;
use redis::{Cmd, ParsingError, RedisError, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// What all clones, guards and tasks of a client share.
pub(crate) struct Context {
    pub(crate) router: Arc<Router>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) sessions: Sessions,
    pub(crate) observers: Observers,
    pub(crate) hearts: Hearts,
    pub(crate) contended: Contended,
    pub(crate) background: Arc<Background>,
    pub(crate) terms: Terms,
    pub(crate) settings: Settings,
    pub(crate) name: Uuid,
    /// Where the server is, without the login.
    pub(crate) place: String,
    numbers: AtomicU64,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(address: Address, settings: Settings, terms: Terms) -> Result<Self, Error> {
        let place = address.to_string();
        let own_renewals = settings.replicas.is_some();
        let router = Arc::new(Router::new(address, settings.reply_timeout, own_renewals)?);
        let renewals = Arc::new(Renewals::new(router.clone(), settings.replicas));
        let watchdog = Watchdog::new(renewals.clone(), terms.clock.clone(), settings.reply_timeout);
        Ok(Self {
            router: router.clone(),
            renewals,
            sessions: Sessions::new(router.clone(), &settings),
            observers: Observers::default(),
            hearts: Hearts::default(),
            contended: Contended::default(),
            watchdog: Arc::new(watchdog),
            background: Arc::default(),
            terms,
            settings,
            name: Uuid::new_v4(),
            place,
            numbers: AtomicU64::new(1),
        })
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::of(&*self.terms.clock)
    }

    pub(crate) fn fresh_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// An owner that nobody ever was before.
    pub(crate) fn fresh_owner(&self) -> Arc<str> {
        format!("{}:{}", self.name, self.fresh_number()).into()
    }

    /// See [`Background::spawn`].
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(|| self.router.runtime(), work);
    }

    /// Asks for something about a key that changes nothing, once more if the connection turns out to
    /// be closed.
    pub(crate) async fn look<T>(
        &self,
        key: &[u8],
        request: &Cmd,
        read: fn(Value) -> Result<T, ParsingError>,
    ) -> Result<T, Error> {
        let patience = self.settings.reply_timeout;
        let mut answer = self.router.call(key, request, patience).await;
        if matches!(answer, Err(Error::Connection(_))) {
            answer = self.router.call(key, request, patience).await;
        }
        Ok(read(answer?).map_err(RedisError::from)?)
    }

    /// Asks all servers that keep locks for something that changes nothing.
    pub(crate) async fn look_everywhere<T>(
        &self,
        request: &Cmd,
        read: fn(Value) -> Result<T, ParsingError>,
    ) -> Result<Vec<T>, Error> {
        let patience = self.settings.reply_timeout;
        let ask = async |node: Arc<Node>| {
            let mut answer = node.commands().call(request, patience).await;
            if matches!(answer, Err(Error::Connection(_))) {
                answer = node.commands().call(request, patience).await;
            }
            if let Err(trouble) = &answer {
                self.router.learn(&node, trouble);
            }
            Ok(read(answer?).map_err(RedisError::from)?)
        };
        let answers = join_all(self.router.nodes().await?.into_iter().map(ask)).await;
        answers.into_iter().collect()
    }

    /// Whether the servers know the commands and let us in. One that cannot be reached now is none
    /// that does not, if another one can.
    pub(crate) async fn check_module(&self) -> Result<(), Error> {
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

    /// Asks for what the server looks at before it looks at rights and keys: it refuses a command
    /// without arguments, but only one that it knows. It does so even before a login, so that is
    /// asked for too.
    async fn check_module_of(&self, node: &Node) -> Result<(), Error> {
        let patience = self.settings.reply_timeout;
        match node.commands().call(&redis::cmd("SESSION.OPEN"), patience).await {
            Err(Error::ModuleMissing(said)) if said.starts_with("wrong number") => {}
            Err(trouble) => return Err(trouble),
            Ok(_) => return Err(Error::Protocol("no arguments were enough".to_owned())),
        }
        match node.commands().call(&redis::cmd("PING"), patience).await {
            Err(Error::Authentication(said)) => Err(Error::Authentication(said)),
            // Any other answer is that of a server that has let us in.
            _ => Ok(()),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.watchdog.close();
    }
}
