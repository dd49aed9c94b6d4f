//! Clients: the crate itself, over connections in memory. Tokio's clock is paused: when all tasks are idle, it
//! advances to the next timer.
//!
//! ```text
//!   the crate ── bytes ──► pipe ── requests ──► network, server
//!      └── timers: tokio ◄── advanced to the next timer or event
//! ```
//!
//! A stopped client receives nothing and sends nothing, and its users pause. Timers inside the crate keep
//! running. A killed client loses its connections, and gets others only in its next life.

mod between;
mod life;
mod pipe;
mod quorum;
mod sets;

pub(crate) use pipe::{Pipe, Said};

use crate::clock::{ClientClock, Rate, micros};
use crate::judge::Rule;
use crate::settings::{Safeguard, Scene};
use crate::sim::{Sim, Who};
use crate::wire::{ClientId, Owner, Request, ServerId};
use kvlock::Clock;
use kvlock::simulation::{Stream, dial_with};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::{AbortHandle, LocalSet, unconstrained, yield_now};
use tokio::time::{Instant, sleep_until};

/// Time limit for retries after errors.
const PATIENCE: Duration = Duration::from_secs(8);

/// Time limit for confirmation by replicas.
const CONFIRMED: Duration = Duration::from_millis(200);

/// Names of owners, by number. The crate chooses random names.
#[derive(Debug, Default)]
pub(crate) struct Names(Vec<Vec<u8>>);

impl Names {
    pub(crate) fn owner(&mut self, name: &[u8]) -> Owner {
        let known = self.0.iter().position(|known| known == name);
        Owner(known.unwrap_or_else(|| {
            self.0.push(name.to_vec());
            self.0.len() - 1
        }))
    }

    /// Translates a simulated owner's name into the crate's name. Returns other text unchanged.
    pub(crate) fn said<'a>(&'a self, text: &'a [u8]) -> &'a [u8] {
        Owner::read(text).and_then(|owner| self.0.get(owner.0)).map_or(text, Vec::as_slice)
    }
}

/// All clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    begin: Option<Instant>,
    all: Vec<Client>,
    /// Wakers of the users of stopped clients.
    stopped: Vec<Waker>,
}

#[derive(Debug)]
struct Client {
    /// Number of the client's current life; connections of earlier lives fail.
    life: u64,
    users: Vec<AbortHandle>,
    clock: Arc<ClientClock>,
    /// The server that the client treats as the primary.
    home: ServerId,
}

/// The clock of a client, for the crate.
#[derive(Debug)]
struct Shared(Arc<ClientClock>);

impl Clock for Shared {
    fn now(&self) -> Duration {
        self.0.now()
    }
}

/// Runs the simulation.
///
/// # Panics
///
/// If no runtime can be created.
pub(crate) fn run(sim: &Rc<Sim>, seed: u64, whole: impl AsyncFnOnce(&Rc<Sim>)) {
    fastrand::seed(seed);
    let mut builder = Builder::new_current_thread();
    // Without this, `select!` chooses among its ready branches at random.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_be_bytes()));
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    let local = LocalSet::new();
    let weak = Rc::downgrade(sim);
    let dialling = dial_with(move |host| dial(&weak, host));
    local.block_on(&runtime, async {
        sim.clients.borrow_mut().begin = Some(Instant::now());
        // This task does not yield because of tokio's budget, so it takes all requests at once.
        unconstrained(whole(sim)).await;
    });
    sim.end();
    sim.clients.take();
    drop((local, runtime, dialling));
}

/// The address that a client uses for a server, or, with `None`, for the current primary. It contains the
/// client and its life.
fn address(client: ClientId, life: u64, server: Option<ServerId>) -> String {
    let server = server.map(|server| format!("-{server}")).unwrap_or_default();
    format!("redis://{client}-{life}{server}:1/")
}

/// Connects a client.
fn dial(sim: &Weak<Sim>, host: &str) -> io::Result<Box<dyn Stream>> {
    let connect = || {
        let sim = sim.upgrade()?;
        let mut numbers = host.split('-').map(|number| number.parse::<usize>().ok());
        let (client, life) = (numbers.next()??, numbers.next()??);
        if sim.clients.borrow().all[client].life != life as u64 {
            return None;
        }
        let server = numbers.next().flatten().unwrap_or_else(|| sim.home_of(client));
        sim.connect(client, server)
    };
    let stream = connect().ok_or(io::ErrorKind::ConnectionRefused)?;
    Ok(Box::new(stream))
}

impl Sim {
    /// Adds a client, whose clock has the given rate, and starts the client's first life.
    pub(crate) fn add_client(self: &Rc<Self>, rate: Rate) {
        // Without the safeguard the clock is slower by the crate's margin, so that the margin has no effect.
        let slower = if self.has(Safeguard::RateMargin) { 0 } else { 10_000 };
        let mut clients = self.clients.borrow_mut();
        let begin = clients.begin.unwrap_or_else(Instant::now);
        let clock = Arc::new(ClientClock::new(begin, Rate(rate.0 - slower)));
        clients.all.push(Client { life: 0, users: Vec::new(), clock, home: 0 });
        let id = clients.all.len() - 1;
        drop(clients);
        self.begin_life(id);
    }

    /// Starts a life of a client, with two users.
    pub(crate) fn begin_life(self: &Rc<Self>, id: ClientId) {
        if self.plan.scene == Scene::Quorum {
            self.begin_life_of_quorums(id);
        } else {
            self.begin_life_of_locks(id);
        }
    }

    /// A client of the crate for one server, or for the current primary.
    fn crate_of(&self, id: ClientId, server: Option<ServerId>) -> Option<kvlock::Client> {
        let plan = &self.plan;
        let (life, clock) = {
            let client = &self.clients.borrow().all[id];
            (client.life, Shared(Arc::clone(&client.clock)))
        };
        let (least, most) = plan.session_ms;
        let builder = kvlock::Client::builder()
            .clock(clock)
            .margin(Duration::from_millis(plan.margin_ms))
            .reply_timeout(plan.reply_timeout)
            .patience(PATIENCE)
            .session_ttl(Duration::from_millis(least + self.below(most - least)))
            .confirm(plan.confirm || self.percent(20));
        let builder = if plan.replicas == 2 {
            builder.all_replicas(2, CONFIRMED)
        } else {
            builder.min_replicas(plan.replicas, CONFIRMED)
        };
        let client = builder.connect_lazy(address(id, life, server));
        client.map_err(|trouble| self.fails(trouble.to_string())).ok()
    }

    /// The server that a client treats as the primary: the latest primary. If the client is cut off from it,
    /// the server that the client treated as the primary before.
    fn home_of(&self, id: ClientId) -> ServerId {
        let latest = self.latest.get();
        let home = &mut self.clients.borrow_mut().all[id].home;
        if !self.net.borrow().is_cut(id, latest) {
            *home = latest;
        }
        *home
    }

    /// Starts a user of a client. The user pauses while the client is stopped.
    fn spawn_user(self: &Rc<Self>, client: ClientId, work: impl Future<Output = ()> + 'static) {
        let user = User { sim: Rc::clone(self), client, work: Box::pin(work) };
        let handle = tokio::task::spawn_local(user).abort_handle();
        self.clients.borrow_mut().all[client].users.push(handle);
    }

    pub(crate) fn users_at_work(&self) -> usize {
        let clients = self.clients.borrow();
        let users = clients.all.iter().flat_map(|client| &client.users);
        users.filter(|user| !user.is_finished()).count()
    }

    /// Wakes the users of stopped clients, which check again whether they are stopped.
    pub(crate) fn wake_users(&self) {
        std::mem::take(&mut self.clients.borrow_mut().stopped).into_iter().for_each(Waker::wake);
    }

    /// Kills a client: aborts its users, and breaks its connections.
    pub(crate) fn kill(&self, id: ClientId) {
        self.log(|| format!("client {id} dies"));
        self.judge.borrow_mut().beliefs.retain(|belief| belief.client != id);
        let users = {
            let client = &mut self.clients.borrow_mut().all[id];
            client.life += 1;
            std::mem::take(&mut client.users)
        };
        users.iter().for_each(AbortHandle::abort);
        let conns = {
            let mut net = self.net.borrow_mut();
            net.close_pipes_of(id);
            net.open_ones(Some(id), None)
        };
        for conn in conns {
            // The connection breaks in a later event, when nothing is borrowed.
            self.at(self.now(), Who::Nobody, move |sim| sim.break_connection(conn));
        }
        self.go_on(Who::Client(id));
    }

    /// Takes the messages of clients. Pending if there are none.
    fn take_in(&self, context: &mut Context<'_>) -> Poll<()> {
        let begin = self.clients.borrow().begin;
        let now = micros(begin.map_or(Duration::ZERO, |begin| begin.elapsed()));
        self.truth.set(now.max(self.now()));
        let is_stopped = |client| self.is_stopped(Who::Client(client));
        let all = self.net.borrow_mut().take_said(is_stopped, context);
        let news = if all.is_empty() { Poll::Pending } else { Poll::Ready(()) };
        for (conn, said) in all {
            match said {
                Said::Close => self.client_closes(conn),
                Said::Command(words) => {
                    let request = Request::new(words, &mut self.names.borrow_mut());
                    self.pass_on(conn, request);
                }
            }
        }
        self.let_clocks_stand_still();
        news
    }

    /// Runs the crate until the next event, then the event. Returns `false` if there is no event up to `end`.
    pub(crate) async fn step(self: &Rc<Self>, end: u64) -> bool {
        let begin = self.clients.borrow().begin.unwrap_or_else(Instant::now);
        let mut nobody = Context::from_waker(Waker::noop());
        loop {
            let _news = self.take_in(&mut nobody);
            let Some(next) = self.next_time().filter(|next| *next <= end) else {
                return false;
            };
            tokio::select! {
                biased;
                () = poll_fn(|context| self.take_in(context)) => {}
                () = sleep_until(begin + Duration::from_micros(next)) => break,
            }
        }
        let _news = self.take_in(&mut nobody);
        let happened = self.happens_next(end, self.now());
        self.let_clocks_stand_still();
        // Lets woken tasks run, and the tasks that they wake.
        for _ in 0..3 {
            yield_now().await;
        }
        let _news = self.take_in(&mut nobody);
        self.judge.borrow_mut().look_at_beliefs();
        happened
    }

    fn fails(&self, text: String) {
        self.judge.borrow_mut().fail(Rule::Left, text);
    }
}

struct User {
    sim: Rc<Sim>,
    client: ClientId,
    work: Pin<Box<dyn Future<Output = ()>>>,
}

impl Future for User {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.sim.is_stopped(Who::Client(self.client)) {
            self.sim.clients.borrow_mut().stopped.push(context.waker().clone());
            return Poll::Pending;
        }
        self.work.as_mut().poll(context)
    }
}
