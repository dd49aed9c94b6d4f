//! A client: what the crate does, with its own count of leases, and the rest of its rules said
//! again without sockets. Each part names the file of `client/src` that it follows.

mod acquire;
mod guard;
mod life;
mod quorum;

use crate::clock::{ClientClock, Rate};
use crate::net::End;
use crate::settings::Safeguard;
use crate::sim::{Sim, Who};
use crate::wire::{ClientId, ConnId, Reply, Request, ServerId, Trouble};
use futures_util::future::{Either, select};
use kvlock::Clock;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take.
const REPLY_TIMEOUT: Duration = Duration::from_millis(400);

/// For which of its connections something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Commands,
    Renewals,
}

/// What is known of a client.
#[derive(Debug)]
pub(crate) struct Client {
    clock: Arc<dyn Clock>,
    rate: Rate,
    alive: bool,
    /// The server that it takes for the primary.
    home: ServerId,
    ways: BTreeMap<(ServerId, Way), ConnId>,
}

impl Client {
    pub(crate) fn new(sim: &Sim, rate: Rate) -> Self {
        let begin = Duration::from_micros(1_000_000 + sim.below(1_000_000_000));
        let clock = Arc::new(ClientClock { truth: sim.truth.clone(), rate, begin });
        Self { clock, rate, alive: true, home: 0, ways: BTreeMap::new() }
    }

    pub(crate) fn die(&mut self) {
        self.alive = false;
    }
}

/// A client, to itself.
#[derive(Clone)]
pub(crate) struct Me {
    pub(crate) sim: Rc<Sim>,
    pub(crate) id: ClientId,
}

impl Me {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.sim.clients.borrow()[self.id].clock)
    }

    /// By its own clock.
    fn now(&self) -> Duration {
        self.sim.clients.borrow()[self.id].clock.now()
    }

    fn is_alive(&self) -> bool {
        self.sim.clients.borrow()[self.id].alive
    }

    fn margin(&self) -> Duration {
        Duration::from_millis(self.sim.plan.margin_ms)
    }

    /// Sleeps so long by its own clock.
    async fn sleep(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let rate = self.sim.clients.borrow()[self.id].rate;
        self.sim.sleep(self.id, rate.takes(micros)).await;
    }

    async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        match select(pin!(work), pin!(self.sleep(time))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        if self.is_alive() {
            self.sim.spawn(self.id, Box::pin(work));
        }
    }

    fn below(&self, end: u64) -> u64 {
        self.sim.below(end)
    }

    fn has(&self, safeguard: Safeguard) -> bool {
        self.sim.has(safeguard)
    }

    fn home(&self) -> ServerId {
        self.sim.clients.borrow()[self.id].home
    }

    /// What trouble says of where the primary is: the Sentinels are asked. `client/src/net/router.rs`.
    fn learn(&self, trouble: Trouble) {
        let latest = self.sim.latest.get();
        if trouble.is_passing() && !self.sim.net.borrow().is_cut(self.id, latest) {
            self.sim.clients.borrow_mut()[self.id].home = latest;
        }
    }

    /// A connection that is there, or a new one.
    fn connection(&self, server: ServerId, way: Way) -> Option<ConnId> {
        let known = self.sim.clients.borrow()[self.id].ways.get(&(server, way)).copied();
        let open = known.filter(|conn| self.sim.net.borrow().is_open(*conn, End::Client));
        if open.is_some() {
            return open;
        }
        let fresh = self.sim.connect(self.id, server)?;
        self.sim.clients.borrow_mut()[self.id].ways.insert((server, way), fresh);
        Some(fresh)
    }

    fn condemn(&self, conn: ConnId) {
        self.sim.client_closes(conn);
    }

    /// Asks over one connection, and waits so long for the answer.
    async fn ask_over(
        &self,
        conn: ConnId,
        request: Request,
        patience: Duration,
    ) -> Result<Reply, Trouble> {
        let call = self.sim.ask(conn, request);
        let answer = self.within(patience, call).await.unwrap_or(Err(Trouble::Timeout));
        if answer == Err(Trouble::Timeout) && self.sim.percent(50) {
            self.condemn(conn);
        }
        answer
    }

    /// Asks the server that it takes for the primary.
    async fn ask(
        &self,
        way: Way,
        request: Request,
        patience: Duration,
        via: impl FnOnce(ConnId),
    ) -> Result<Reply, Trouble> {
        let Some(conn) = self.connection(self.home(), way) else {
            self.sleep(Duration::from_millis(5)).await;
            self.learn(Trouble::Unreachable);
            return Err(Trouble::Unreachable);
        };
        via(conn);
        let answer = self.ask_over(conn, request, patience).await;
        if let Err(trouble) = answer {
            self.learn(trouble);
        }
        answer
    }
}

impl Sim {
    /// A client is killed, with all that it was doing. Its connections end, sooner or later.
    pub(crate) fn kill(&self, client: ClientId) {
        self.log(|| format!("client {client} dies"));
        self.clients.borrow_mut()[client].alive = false;
        let work = self.tasks.borrow_mut().take_all_of(client);
        drop(work);
        self.judge.borrow_mut().beliefs.retain(|belief| belief.client != client);
        let conns = self.net.borrow().open_ones(Some(client), None);
        for conn in conns {
            self.break_later(conn);
        }
        self.clients.borrow_mut()[client].ways.clear();
        self.go_on(Who::Client(client));
    }

    fn break_later(&self, conn: ConnId) {
        // Nothing is borrowed by then.
        let event = crate::sim::Event::Later(crate::faults::Fault::Break(conn));
        self.at(self.now(), event);
    }

    /// It begins anew.
    pub(crate) fn begin_life(self: &Rc<Self>, client: ClientId) {
        let mut clients = self.clients.borrow_mut();
        clients[client].alive = true;
        clients[client].home = self.latest.get();
        drop(clients);
        let me = Me { sim: Rc::clone(self), id: client };
        for _ in 0..2 {
            me.spawn(life::live(me.clone()));
        }
    }
}
