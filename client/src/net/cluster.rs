//! A cluster: its nodes, the slot map, and how the map is refreshed.
//!
//! ```text
//!   MOVED ──► update that slot ────────────►┌───────────────────────────┐
//!   no answer, READONLY and others ────────►│ CLUSTER SLOTS and INFO    │──► slots ─► nodes
//!   a session is open ► every two seconds ─►│ of one node that answers  │
//!                                           └───────────────────────────┘
//! ```
//!
//! - **C1** A slot map with a lower epoch than the map in use is outdated. It is used only if no node sends
//!   a map that is not outdated.
//! - **C2** A node that has lost all its slots is deposed: calls in flight there end.
//! - **C3** One refresh runs at a time. Tasks that need one at the same moment share it.

use crate::net::address::{At, moved};
use crate::net::connector::Connector;
use crate::net::link::runtime_is_gone;
use crate::net::live::PrimaryEpoch;
use crate::net::node::Node;
use crate::net::pace::Pace;
use crate::net::server::Server;
use crate::net::slots::{SLOTS, View, read_redirect, read_view, slot_of};
use crate::net::transport::Transport;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::wire::error::Error;
use redis::{ConnectionInfo, ErrorKind, Pipeline, RedisError, Value};
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Time that one node has to answer before the next is asked.
const PATIENCE: Duration = Duration::from_secs(2);

/// Interval of refreshes while the client has a session at a node: a node that hangs sends no
/// error.
const ROUND: Duration = Duration::from_secs(2);

/// If a refresh is requested less than this after the last one began, the outcome of the last refresh is
/// used.
const FRESH: Duration = Duration::from_millis(50);

/// The index for a slot that is not served.
const NOBODY: u16 = u16::MAX;

#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    patience: Duration,
    transport: Transport,
    own_renewals: bool,
    state: Mutex<State>,
    looks: tokio::sync::Mutex<Option<Look>>,
    /// Backoff between refreshes that fail.
    pace: Pace,
    switched: Notify,
}

/// Start and outcome of the last refresh.
#[derive(Debug)]
struct Look {
    began: Instant,
    outcome: Result<(), Error>,
}

#[derive(Debug)]
struct State {
    epoch: u64,
    /// All known nodes, including nodes without slots, which may be importing their first slot.
    nodes: HashMap<At, Arc<Node>>,
    /// Nodes that have slots.
    owners: Vec<Arc<Node>>,
    /// Index in `owners` for each slot.
    slots: Vec<u16>,
    /// Replicas of the owners. They can be asked for the slot map, too.
    replicas: Vec<At>,
    /// The node that the last `MOVED` named. The next refresh asks it first: it probably has a newer map.
    knows_best: Option<Arc<Node>>,
    /// The refresh in the background, if one runs.
    looking: Option<JoinHandle<()>>,
}

impl Cluster {
    pub(crate) fn new(
        seeds: Vec<ConnectionInfo>,
        patience: Duration,
        transport: &Transport,
        own_renewals: bool,
    ) -> Result<Self, Error> {
        if seeds.is_empty() {
            return Err(Error::Config("no node of the cluster is named".to_owned()));
        }
        let state = State {
            epoch: 0,
            nodes: HashMap::new(),
            owners: Vec::new(),
            slots: vec![NOBODY; usize::from(SLOTS)],
            replicas: Vec::new(),
            knows_best: None,
            looking: None,
        };
        Ok(Self {
            seeds,
            patience,
            transport: transport.clone(),
            own_renewals,
            state: Mutex::new(state),
            looks: tokio::sync::Mutex::default(),
            pace: Pace::default(),
            switched: Notify::new(),
        })
    }

    /// Returns the slot of the key.
    #[expect(clippy::unused_self, reason = "a router without clusters has none to ask")]
    pub(crate) fn slot(&self, key: &[u8]) -> u16 {
        slot_of(key)
    }

    /// Returns the owner of the key's slot in the current map. Sends no request.
    pub(crate) fn owner_of(&self, key: &[u8]) -> Option<Arc<Node>> {
        self.state().owner_of(slot_of(key))
    }

    /// Returns the owner of the key's slot, after a refresh if the map may be stale. Returns any node for a
    /// slot that is not served: that node replies with an error.
    pub(crate) async fn find(self: &Arc<Self>, key: &[u8]) -> Result<Arc<Node>, Error> {
        let slot = slot_of(key);
        let believed = self.state().owner_of(slot);
        if let Some(node) = &believed
            && !node.is_troubled()
        {
            return Ok(node.clone());
        }
        let looked = self.refresh_map(FRESH).await;
        let state = self.state();
        match (state.owner_of(slot), looked) {
            (Some(node), _) => Ok(node),
            (None, Ok(())) => state.any_owner().ok_or_else(|| passing("no node has a slot")),
            (None, Err(trouble)) => Err(trouble),
        }
    }

    /// Refreshes the map, and returns all nodes that have slots. If the refresh fails, uses the previous map.
    /// Fails only if the previous map has no nodes.
    pub(crate) async fn owners(self: &Arc<Self>) -> Result<Vec<Arc<Node>>, Error> {
        let looked = self.refresh_map(FRESH).await;
        let owners = self.state().owners.clone();
        if owners.is_empty() {
            looked?;
        }
        Ok(owners)
    }

    /// Returns the node that a `MOVED` or an `ASK` names, and whether the command needs `ASKING` there.
    pub(crate) fn redirected(
        self: &Arc<Self>,
        from: &Node,
        error: &RedisError,
    ) -> Option<(Arc<Node>, bool)> {
        let (to, slot) = error.redirect_node()?;
        let there = read_redirect(to, &from.at()?.0)?;
        match error.code() {
            Some("MOVED") => Some((self.moved(slot, &there).ok()?, false)),
            Some("ASK") => Some((self.node_at(&there).ok()?, true)),
            _ => None,
        }
    }

    /// Returns the node at this address. Adds it if it is new.
    fn node_at(&self, at: &At) -> Result<Arc<Node>, Error> {
        self.node_in(&mut self.state(), at)
    }

    /// Applies a `MOVED`: records the new owner of the slot, and starts a refresh.
    fn moved(self: &Arc<Self>, slot: u16, at: &At) -> Result<Arc<Node>, Error> {
        let mut state = self.state();
        let node = self.node_in(&mut state, at)?;
        let place = state.owners.iter().position(|owner| Arc::ptr_eq(owner, &node));
        let place = place.unwrap_or_else(|| {
            state.owners.push(node.clone());
            state.owners.len() - 1
        });
        if let (Some(entry), Ok(place)) = (state.slots.get_mut(usize::from(slot)), place.try_into())
        {
            *entry = place;
        }
        state.knows_best = Some(node.clone());
        drop(state);
        self.look_soon();
        Ok(node)
    }

    /// Marks the node as troubled, and starts a refresh.
    pub(crate) fn troubled(self: &Arc<Self>, node: &Node) {
        node.set_troubled(true);
        self.look_soon();
    }

    /// Returns when a node is deposed.
    pub(crate) async fn switched(&self) {
        self.switched.notified().await;
    }

    /// Refreshes the map at intervals of [`ROUND`]. Never returns.
    pub(crate) async fn keep_looking(&self) -> Infallible {
        loop {
            sleep(ROUND).await;
            if let Err(trouble) = self.refresh(Instant::now(), ROUND).await {
                tracing::debug!(%trouble, "no node of the cluster answers");
            }
        }
    }

    /// Starts a refresh in the background, unless one is running.
    pub(crate) fn look_soon(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let looking = &mut self.state().looking;
        if looking.as_ref().is_none_or(JoinHandle::is_finished) {
            let me = self.clone();
            *looking = Some(runtime.spawn(async move {
                if let Err(trouble) = me.refresh(Instant::now(), FRESH).await {
                    tracing::debug!(%trouble, "no node of the cluster answers");
                }
            }));
        }
    }

    /// Refreshes the map. The refresh is completed even if the caller is cancelled, since other calls need it
    /// too.
    async fn refresh_map(self: &Arc<Self>, fresh: Duration) -> Result<(), Error> {
        let runtime = Handle::try_current().map_err(|_| runtime_is_gone())?;
        let (me, asked) = (self.clone(), Instant::now());
        let looking = runtime.spawn(async move { me.refresh(asked, fresh).await });
        looking.await.unwrap_or_else(|_| Err(runtime_is_gone()))
    }

    /// Refreshes the slot map. If the last refresh began after `asked`, or less than `fresh` before
    /// it, returns the outcome of that refresh instead.
    async fn refresh(&self, asked: Instant, fresh: Duration) -> Result<(), Error> {
        let mut last = self.looks.lock().await;
        if let Some(Look { began, outcome }) = &*last
            && *began + fresh > asked
        {
            return outcome.clone();
        }
        self.pace.turn().await;
        let began = Instant::now();
        let outcome = match self.fetch_view().await {
            Ok(view) => {
                self.pace.succeeded();
                self.believe(&view)
            }
            Err(trouble) => Err(trouble),
        };
        last.insert(Look { began, outcome }).outcome.clone()
    }

    /// Asks one node after the other until one sends a map that is not outdated.
    async fn fetch_view(&self) -> Result<View, Error> {
        let (known, replicas, epoch) = {
            let mut state = self.state();
            let best = state.knows_best.take();
            let mut known = state.owners.clone();
            fastrand::shuffle(&mut known);
            known.sort_by_key(|node| node.is_troubled());
            (best.into_iter().chain(known), state.replicas.clone(), state.epoch)
        };
        let mut asked = Asked { epoch, outdated: None, troubles: Vec::new() };
        for node in known {
            if let Some(view) = asked.take_in(&node.to_string(), ask_node(&node).await) {
                return Ok(view);
            }
        }
        let template = self.template()?;
        let replicas = replicas.into_iter().map(|at| {
            let at = moved(template.addr(), at);
            template.clone().set_addr(at)
        });
        for info in replicas.chain(self.seeds.iter().cloned()) {
            let name = info.addr().to_string();
            if let Some(view) = asked.take_in(&name, self.ask_at(info).await) {
                return Ok(view);
            }
        }
        asked.no_node_knows()
    }

    async fn ask_at(&self, info: ConnectionInfo) -> Result<View, Error> {
        let server = Server::new(info, PATIENCE.min(self.patience), &self.transport)?;
        let host = server.at().map(|(host, _)| host).unwrap_or_default();
        let asking = async {
            let connection = server.connect().await?;
            read(connection.drive_while(connection.send_all(&questions())).await?, &host)
        };
        timeout(PATIENCE, asking).await.map_err(|_| Error::Timeout)?
    }

    /// Replaces the map by this view, and deposes the nodes that have lost all slots.
    fn believe(&self, view: &View) -> Result<(), Error> {
        let mut state = self.state();
        let mut slots = vec![NOBODY; usize::from(SLOTS)];
        let mut owners: Vec<Arc<Node>> = Vec::new();
        let mut replicas = BTreeSet::new();
        for range in &view.ranges {
            let node = self.node_in(&mut state, &range.primary)?;
            let place = owners.iter().position(|owner| Arc::ptr_eq(owner, &node));
            let place = place.unwrap_or_else(|| {
                owners.push(node);
                owners.len() - 1
            });
            let place = u16::try_from(place).unwrap_or(NOBODY);
            let (first, last) = (usize::from(range.first), usize::from(range.last));
            slots.get_mut(first..=last).unwrap_or_default().fill(place);
            replicas.extend(range.replicas.iter().cloned());
        }
        for node in &owners {
            node.set_troubled(false);
        }
        let mut deposed = std::mem::take(&mut state.owners);
        deposed.retain(|node| !owners.iter().any(|owner| Arc::ptr_eq(owner, node)));
        state.nodes.retain(|_, node| !deposed.iter().any(|other| Arc::ptr_eq(other, node)));
        state.owners = owners;
        state.slots = slots;
        state.replicas = replicas.into_iter().collect();
        state.epoch = view.epoch;
        drop(state);
        for node in &deposed {
            tracing::warn!(%node, "this node of the cluster has no slots any more");
            node.depose();
        }
        if !deposed.is_empty() {
            self.switched.notify_waiters();
        }
        Ok(())
    }

    fn node_in(&self, state: &mut State, at: &At) -> Result<Arc<Node>, Error> {
        if let Some(node) = state.nodes.get(at) {
            return Ok(node.clone());
        }
        let template = self.template()?;
        let info = template.clone().set_addr(moved(template.addr(), at.clone()));
        let server = Server::new(info, self.patience, &self.transport)?;
        let connector = Connector::Node(Box::new(server), Arc::new(PrimaryEpoch::default()));
        let node = Arc::new(Node::new(connector, self.own_renewals));
        state.nodes.insert(at.clone(), node.clone());
        Ok(node)
    }

    /// Returns the first seed, whose login and TLS settings are used for all nodes.
    fn template(&self) -> Result<&ConnectionInfo, Error> {
        self.seeds.first().ok_or(Error::Timeout)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn owner_of(&self, slot: u16) -> Option<Arc<Node>> {
        let place = *self.slots.get(usize::from(slot))?;
        self.owners.get(usize::from(place)).cloned()
    }

    fn any_owner(&self) -> Option<Arc<Node>> {
        fastrand::choice(&self.owners).cloned()
    }
}

/// Answers received so far during a refresh.
struct Asked {
    epoch: u64,
    outdated: Option<View>,
    troubles: Vec<(String, Error)>,
}

impl Asked {
    /// Records an answer. Returns its view if the view has slots and is not outdated.
    fn take_in(&mut self, name: &str, answer: Result<View, Error>) -> Option<View> {
        match answer {
            Ok(view) if view.ranges.is_empty() => {
                let trouble =
                    passing("it has no slots: `redis-cli --cluster create` gives it some");
                self.troubles.push((name.to_owned(), trouble));
            }
            Ok(view) if view.epoch >= self.epoch => return Some(view),
            Ok(view) => {
                if self.outdated.as_ref().is_none_or(|best| best.epoch < view.epoch) {
                    self.outdated = Some(view);
                }
            }
            Err(trouble) => self.troubles.push((name.to_owned(), trouble)),
        }
        None
    }

    /// Returns the outcome after all nodes have been asked. Uses the outdated view with the highest epoch, if
    /// there is one: the cluster was probably created anew.
    fn no_node_knows(self) -> Result<View, Error> {
        if let Some(view) = self.outdated {
            return Ok(view);
        }
        let said: Vec<String> =
            self.troubles.iter().map(|(name, trouble)| format!("{name}: {trouble}")).collect();
        // An error that is not retryable is preferred, because the user has to fix its cause.
        let lasting = |trouble: &Error| !trouble.is_retryable();
        if let Some((_, trouble)) = self.troubles.into_iter().find(|(_, t)| lasting(t)) {
            return Err(trouble);
        }
        let detail = said.join("; ");
        Err(Error::Connection(RedisError::from((ErrorKind::Io, "no node knows the slots", detail))))
    }
}

async fn ask_node(node: &Node) -> Result<View, Error> {
    let host = node.at().map(|(host, _)| host).unwrap_or_default();
    let asking = async {
        let live = node.commands().live().await?;
        let answers = live.call_all(&questions(), PATIENCE).await;
        if matches!(answers, Err(Error::Timeout)) {
            live.condemn();
        }
        read(answers?, &host)
    };
    timeout(PATIENCE, asking).await.map_err(|_| Error::Timeout)?
}

fn questions() -> Pipeline {
    let mut questions = Pipeline::with_capacity(2);
    questions.cmd("CLUSTER").arg("SLOTS");
    questions.cmd("CLUSTER").arg("INFO");
    questions
}

fn read(answers: Vec<Value>, host: &str) -> Result<View, Error> {
    let mut answers = answers.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil)).map_err(refused);
    let (slots, info) = (next()?, next()?);
    read_view(slots, info, host)
}

fn refused(error: RedisError) -> Error {
    let said = error.detail().unwrap_or_default();
    if said.contains("cluster support disabled") {
        return Error::Config(
            "the server is no node of a cluster: its address begins with redis:// or rediss://"
                .to_owned(),
        );
    }
    error.into()
}

/// Returns a retryable error, for a state that may pass.
fn passing(what: &'static str) -> Error {
    Error::Connection(RedisError::from((ErrorKind::Io, what)))
}

#[cfg(test)]
mod tests;
