//! The tasks, and how each reaches its locks: through one client of a server, of Sentinels or of a cluster,
//! through a quorum of servers, or through raw connections to one or two servers. Each kind of
//! task that does more than acquire and hold a lock has its own module.

mod bound;
mod contested;
mod elections;
mod garbage;
mod hold;
mod latches;
mod results;
mod sets;
mod wire;

pub(crate) use bound::{BEYOND, BOUND};
pub(crate) use contested::Contested;
pub(crate) use elections::ELECTIONS;
pub(crate) use garbage::{CROWD, CommandSource, GARBAGE};
pub(crate) use latches::LATCHES;
pub(crate) use results::{RESULTS, wrong_results};
pub(crate) use sets::SETS;
pub(crate) use wire::{
    CALM, FAULTS as WIRE_FAULTS, KeyKind, Lines, Lock, PERMITS as WIRE_PERMITS, WILD, WIRE,
    client_of, is_heard_by_scripts, keys as wire_keys,
};

use self::hold::take_turn;
use crate::round::Round;
use crate::topology::WirePair;
use harness::history::Request;
use harness::random::Random;
use kvlock::{Builder, Client, Error, Guard, Leadership, Permits};
use kvlock_quorum::{Quorum, QuorumGuard};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::spawn_blocking;

/// A workload: what each of its tasks does.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    tasks: Tasks,
}

/// The work of a task until the round is over.
#[derive(Clone, Copy)]
enum Tasks {
    /// Turns in sequence, each with at most one hold. The function draws the kind of the hold.
    Hold(fn(&mut Random) -> HoldKind),
    /// Turns in sequence. The function runs one turn.
    Turns(for<'a> fn(Turn<'a>) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>),
    /// All work of a task, on a separate thread. The function gets the task's number, and counts its turns in
    /// [`Round::turns`].
    Thread(fn(&Arc<Round>, ClientRoute, usize, Random)),
}

/// One turn of a task.
struct Turn<'a> {
    round: &'a Round,
    route: &'a ClientRoute,
    /// Number of the task.
    number: usize,
    owner: String,
    random: &'a mut Random,
}

pub(crate) const LOCKS: Work =
    Work { name: "locks held alone", tasks: Tasks::Hold(|_| HoldKind::Alone) };

pub(crate) const READERS: Work = Work {
    name: "read-write locks",
    tasks: Tasks::Hold(
        |random| if random.percent(70) { HoldKind::Shared } else { HoldKind::Alone },
    ),
};

pub(crate) const SEMAPHORES: Work = Work {
    name: "permits of semaphores",
    tasks: Tasks::Hold(|random| HoldKind::Permits(1 + random.below(PERMITS.into()) as u32)),
};

impl Work {
    /// Counters, with the minimum that a run must reach.
    pub(crate) fn floors(self) -> &'static [(&'static str, u64)] {
        match self.name {
            "latches" => &[("latches judged", 10), ("waits for latches that had to open", 5)],
            "bound locks" => &[("clients that were gone with a bound lock", 1)],
            "elections" => &[("leaders observed", 10)],
            "sets" => &[("sets of several locks granted", 50)],
            "results" => &[("results found", 20), ("results stored", 10), ("work that failed", 3)],
            _ => &[],
        }
    }

    /// Does the work of the task with the given number, until the round is over.
    pub(crate) async fn start(
        self,
        round: Arc<Round>,
        route: ClientRoute,
        number: usize,
        random: Random,
    ) {
        if let Tasks::Thread(work) = self.tasks {
            let thread = spawn_blocking(move || work(&round, route, number, random));
            return thread.await.expect("it goes on");
        }
        let (round, route, mut random) = (&*round, &route, random);
        for turn in 1.. {
            if round.is_over() {
                return;
            }
            let owner = format!("{number}:{turn}");
            match self.tasks {
                Tasks::Hold(kind) => take_turn(round, route, owner, &mut random, kind).await,
                Tasks::Turns(take) => {
                    take(Turn { round, route, number, owner, random: &mut random }).await;
                }
                Tasks::Thread(_) => {}
            }
            round.turns[number].fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A way to reach the servers.
#[derive(Clone)]
pub(crate) enum ClientRoute {
    One(Client, Box<Reconnect>),
    Quorum(Quorum),
    /// Raw connections.
    Wire(WirePair),
    /// Random commands, with the data to make them from, and the port of their server.
    Garbage(Arc<CommandSource>, u16),
}

/// The builder of a client and its URL, to make another client like it.
#[derive(Clone)]
pub(crate) struct Reconnect {
    builder: Builder,
    url: String,
}

impl Reconnect {
    async fn connect(&self) -> Result<Client, Error> {
        self.builder.clone().connect(self.url.as_str()).await
    }
}

/// A kind of hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldKind {
    Alone,
    Shared,
    /// An exclusive lock that is bound to the session of its client.
    Bound,
    /// The given number of permits of a semaphore with [`PERMITS`].
    Permits(u32),
    Leader,
}

/// Number of permits of each semaphore.
const PERMITS: u32 = 3;

/// Much longer than sessions and any fault, so that a bound lock that is not released becomes free only when
/// its session ends.
pub(crate) const BOUND_LEASE: Duration = Duration::from_secs(60);

impl HoldKind {
    /// Returns whether the hold excludes all others.
    fn is_alone(self) -> bool {
        matches!(self, Self::Alone | Self::Bound | Self::Leader)
    }

    /// The key for this kind. Semaphores persist, so they need another key than locks.
    fn name(self, key: &str) -> String {
        if matches!(self, Self::Permits(_)) { format!("{key}-permits") } else { key.to_owned() }
    }

    /// The lease, if it is not one of the topology's leases.
    fn lease(self) -> Option<Duration> {
        (self == Self::Bound).then_some(BOUND_LEASE)
    }

    /// Returns whether holds of this kind are always renewed or kept by heartbeats.
    fn is_watched(self) -> bool {
        matches!(self, Self::Bound | Self::Leader)
    }

    fn permits(self) -> u64 {
        if let Self::Permits(permits) = self { permits.into() } else { 1 }
    }

    fn request(self, lease: Duration, timeout: Option<Duration>) -> Request {
        match self {
            Self::Alone | Self::Bound | Self::Leader => Request::Acquire { lease, timeout },
            Self::Shared => Request::Share { lease, timeout },
            Self::Permits(_) => Request::Permits { of: PERMITS.into(), lease, timeout },
        }
    }

    fn release(self) -> Request {
        match self {
            Self::Alone | Self::Bound | Self::Leader => Request::Release,
            Self::Shared => Request::ReleaseShare,
            Self::Permits(_) => Request::ReleasePermits,
        }
    }
}

/// A hold: the guard of a lock, permits, or a leadership.
pub(crate) enum Held {
    One(Guard),
    Quorum(QuorumGuard),
    Permits(Permits),
    Leads(Leadership),
}

/// The requested kind and lease of a hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) kind: HoldKind,
    pub(crate) lease: Duration,
    /// `true` if the watchdog renews the lease.
    pub(crate) watched: bool,
}

impl ClientRoute {
    /// A way with its own client.
    pub(crate) fn one(runtime: &Runtime, builder: Builder, url: impl Into<String>) -> Self {
        let again = Reconnect { builder, url: url.into() };
        let client = runtime.block_on(again.connect()).expect("the server answers");
        Self::One(client, Box::new(again))
    }

    /// Acquires a hold of the key. Waits for at most `within`; `None` does not wait.
    async fn acquire(
        &self,
        key: &str,
        term: Term,
        within: Option<Duration>,
    ) -> Result<Option<Held>, Error> {
        let within = within.unwrap_or_default();
        match self {
            Self::One(client, _) => acquire(client, key, term, within).await,
            Self::Quorum(quorum) => {
                let lock = quorum.lock(key);
                let lock = match term.watched {
                    true => lock.lease(term.lease),
                    false => lock.fixed_lease(term.lease),
                };
                Ok(lock.acquire_within(within).await?.map(Held::Quorum))
            }
            Self::Wire(_) | Self::Garbage(..) => panic!("there is no client"),
        }
    }

    /// The client of a way that has exactly one client.
    fn client(&self) -> &Client {
        match self {
            Self::One(client, _) => client,
            Self::Quorum(_) => panic!("a quorum has nothing but locks"),
            Self::Wire(_) | Self::Garbage(..) => panic!("there is no client"),
        }
    }

    /// Waits until all background work of the clients is done.
    pub(crate) async fn settled(&self) {
        match self {
            Self::One(client, _) => client.settled().await,
            Self::Quorum(quorum) => quorum.settled().await,
            Self::Wire(_) | Self::Garbage(..) => {}
        }
    }
}

async fn acquire(
    client: &Client,
    key: &str,
    term: Term,
    within: Duration,
) -> Result<Option<Held>, Error> {
    let Term { kind, lease, watched } = term;
    let lock = match kind {
        HoldKind::Alone => client.lock(key),
        HoldKind::Shared => client.lock(key).shared(),
        HoldKind::Bound => client.lock(key).bound(),
        HoldKind::Permits(permits) => {
            let all = client.semaphore(key).permits(permits);
            let some = if watched { all.lease(lease) } else { all.fixed_lease(lease) };
            return match some.acquire_within(within).await {
                // The semaphore does not exist yet, or the server has lost it.
                Err(error) if error.code() == Some("UNSET") => {
                    all_permits(client, key).await.map(|()| None)
                }
                other => Ok(other?.map(Held::Permits)),
            };
        }
        HoldKind::Leader => {
            let election = client.election(key).lease(lease);
            return Ok(election.campaign_within(within).await?.map(Held::Leads));
        }
    };
    let lock = if watched { lock.lease(lease) } else { lock.fixed_lease(lease) };
    Ok(lock.acquire_within(within).await?.map(Held::One))
}

async fn all_permits(client: &Client, key: &str) -> Result<(), Error> {
    client.semaphore(key).set_once(PERMITS).await.map(|_| ())
}

/// Calls the same method on any kind of hold.
macro_rules! of_held {
    ($held:expr, $guard:ident => $do:expr) => {
        match $held {
            Held::One($guard) => $do,
            Held::Quorum($guard) => $do,
            Held::Permits($guard) => $do,
            Held::Leads($guard) => $do,
        }
    };
}

impl Held {
    /// The token of the hold. Permits have none.
    fn token(&self) -> Option<u64> {
        match self {
            Self::One(guard) => Some(guard.token().value()),
            Self::Quorum(guard) => Some(guard.token().value()),
            Self::Leads(leadership) => Some(leadership.term().value()),
            Self::Permits(_) => None,
        }
    }

    fn is_lost(&self) -> bool {
        of_held!(self, guard => guard.is_lost())
    }

    fn lease_left(&self) -> Duration {
        of_held!(self, guard => guard.lease_left())
    }

    async fn lost(&self) {
        of_held!(self, guard => {
            let _why = guard.lost().await;
        });
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Quorum(guard) => guard.release().await,
            Self::Permits(permits) => permits.release().await,
            Self::Leads(leadership) => leadership.resign().await,
        }
    }
}
