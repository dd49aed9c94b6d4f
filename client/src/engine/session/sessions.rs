//! The sessions of a client, at most one for each server.

use crate::engine::lease::LeasePolicy;
use crate::engine::session::reader::Reader;
use crate::engine::session::{Session, Shared, Uses, closed};
use crate::engine::settings::Settings;
use crate::net::link::runtime_is_gone;
use crate::net::node::Node;
use crate::net::router::Router;
use crate::sync::{Mutex, lock};
use crate::wire::error::Error;
use futures_util::future::join_all;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The sessions of a client. A wait, an observation or a bound lock opens one at a server that has none.
#[derive(Debug)]
pub(crate) struct Sessions {
    open: Mutex<Vec<Arc<Session>>>,
    shared: Arc<Shared>,
}

impl Sessions {
    pub(crate) fn new(router: Arc<Router>, settings: &Settings, policy: LeasePolicy) -> Self {
        let shared = Shared {
            router,
            policy,
            reply_timeout: settings.reply_timeout,
            ttl: settings.session_ttl,
            idle: settings.session_idle,
            silence: settings.session_ttl.min(settings.patience),
        };
        Self { open: Mutex::default(), shared: Arc::new(shared) }
    }

    /// Returns the session at that server, if there is one.
    pub(crate) fn open_at(&self, node: &Arc<Node>) -> Option<Arc<Session>> {
        find(&mut lock(&self.open), node)
    }

    /// Returns the session at that server. If there is none, starts to open one.
    pub(crate) fn at(&self, node: &Arc<Node>) -> Result<Arc<Session>, Error> {
        let mut open = lock(&self.open);
        if let Some(session) = find(&mut open, node) {
            return Ok(session);
        }
        let runtime = Handle::try_current().map_err(|_| runtime_is_gone())?;
        let session = Arc::new(Session::new(node.clone(), self.shared.clone()));
        // A runtime that has ended drops the task at once, which ends the session.
        runtime.spawn(Reader(session.clone()).run());
        open.push(session.clone());
        Ok(session)
    }

    /// Returns a session that is never opened, and lasts until it is ended.
    #[cfg(test)]
    pub(crate) fn without_reader(&self, node: &Arc<Node>) -> Arc<Session> {
        Arc::new(Session::new(node.clone(), self.shared.clone()))
    }

    /// Closes the sessions that have no waits and no bound locks. Waits for the answers, up to the reply
    /// timeout.
    pub(crate) async fn close(&self) {
        let open = lock(&self.open).clone();
        join_all(open.into_iter().map(|session| session.close_if(Uses::may_end))).await;
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        lock(&self.open).iter().for_each(|session| session.end(closed()));
    }
}

fn find(open: &mut Vec<Arc<Session>>, node: &Arc<Node>) -> Option<Arc<Session>> {
    open.retain(|session| !session.is_over());
    open.iter().find(|session| Arc::ptr_eq(&session.node, node)).cloned()
}
