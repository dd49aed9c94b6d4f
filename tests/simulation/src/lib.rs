//! Servers and clients in one thread, in virtual time. The settings and a seed decide everything except one
//! choice of tokio (see below).
//!
//! ```text
//!   clients                          network                     servers
//!   the crates themselves            connections in order,       the module itself, with its keys
//!   clocks at their own rates        late, broken, cut           in memory; two clocks
//!   stopped, killed                                              replication, promotions, crashes
//!        │                                                            │
//!        └───────── beliefs ────────►  judge  ◄───── written keys ──────────┘
//! ```
//!
//! A *step* is one event: a message that arrives, a timer, a fault. After each step the [judge](Rule) checks
//! the rules. After the last step all faults end, and the system must come to rest: every waiter is served,
//! and no state is left.
//!
//! A server is the module: most of its files are compiled unchanged. In place of `module/src/redis`, they use
//! `redis/` of this crate, with keys, timers and blocked clients in memory. The rest of a real server is in
//! `node/`. That folder also has the judge's view of the server, which is mainly written keys and replies. A
//! client is the crate `kvlock`, or `kvlock-quorum` on it, over connections in memory and on tokio's clock:
//! waits through sessions, bound locks, renewals, retries and background work.
//!
//! Each [`Safeguard`] can be switched off. Then some seed must show the violation that the safeguard
//! prevents.
//!
//! If several branches of a `select!` of the crate are ready at once, tokio chooses one at random. Only with
//! `RUSTFLAGS="--cfg tokio_unstable"` does the seed decide this choice too, so that a run can be repeated
//! exactly. `scripts/campaign simulation` sets this flag, and `scripts/campaign --deep` tests that runs are
//! repeated exactly. `scripts/test` does not set it, so another run of a seed may differ.

#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::panic,
    reason = "clients, servers and locks are few, and a panic is how a simulation fails"
)]

mod client;
mod clock;
mod faults;
mod judge;
mod net;
mod node;
#[allow(dead_code, reason = "the module asks for more than is looked at here")]
mod redis;
mod settings;
mod sim;
mod wire;

/// Compiles files of the module. Their `crate::redis`, `crate::clock` and `crate::info` are the modules of this
/// crate.
macro_rules! of_the_module {
    ($($name:ident $path:literal)*) => {
        $(
            #[path = $path]
            #[allow(
                dead_code,
                unexpected_cfgs,
                clippy::drop_non_drop,
                reason = "nobody asks for all that there is, and to close a key does nothing here"
            )]
            mod $name;
        )*
    };
}

/// An empty `INFO`, which no client asks for.
mod info {
    pub(crate) fn write(_: &crate::server::Server, _: &crate::redis::InfoWriter) {}
}

of_the_module! {
    bound "../../../module/src/bound.rs"
    commands "../../../module/src/commands/mod.rs"
    config "../../../module/src/config.rs"
    floor "../../../module/src/floor.rs"
    holders "../../../module/src/holders.rs"
    keyspace "../../../module/src/keyspace.rs"
    latch "../../../module/src/latch.rs"
    module "../../../module/src/module.rs"
    observers "../../../module/src/observers.rs"
    operate "../../../module/src/operate.rs"
    replies "../../../module/src/replies.rs"
    semaphore "../../../module/src/semaphore.rs"
    server "../../../module/src/server.rs"
    sessions "../../../module/src/sessions.rs"
    sets "../../../module/src/sets.rs"
    sharers "../../../module/src/sharers.rs"
    slot "../../../module/src/slot.rs"
    waiting "../../../module/src/waiting.rs"
    wake "../../../module/src/wake.rs"
    writer "../../../module/src/writer.rs"
}

pub use judge::{Counts, Rule, Violation};
pub use settings::{Keeping, Safeguard, Scene, Settings};

use clock::{MS, Rate, SECOND};
use fastrand::Rng;
use node::Node;
use settings::Plan;
use sim::{Sim, Who};
use std::rc::Rc;

/// Longest true time from the end of the faults until the system is at rest, in addition to the longest hold.
const REST: u64 = 120 * SECOND;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first violation, if there was one.
    pub violation: Option<Violation>,
    /// Counts of events.
    pub counts: Counts,
    /// Log of all events, if requested.
    pub log: Vec<String>,
}

/// Runs `steps` steps, then ends all faults and waits until the system is at rest. Stops at a violation.
///
/// # Panics
///
/// If the module or the crate panics.
#[must_use]
pub fn run(seed: u64, steps: u64, settings: &Settings, logs: bool) -> Report {
    let mut random = Rng::with_seed(seed);
    let plan = Plan::draw(settings, seed, &mut random);
    let sim = Sim::new(plan, random, logs);
    sim.log(|| format!("{plan:?}"));
    client::run(&sim, seed, async |sim| whole(sim, steps).await);
    let (violation, counts) = {
        let judge = sim.judge.borrow();
        (judge.first.clone(), judge.counts)
    };
    Report { violation, counts, log: sim.take_log() }
}

async fn whole(sim: &Rc<Sim>, steps: u64) {
    populate(sim);
    while sim.judge.borrow().counts.steps < steps && sim.judge.borrow().first.is_none() {
        if !sim.step(u64::MAX).await {
            break;
        }
    }
    if sim.judge.borrow().first.is_none() {
        come_to_rest(sim).await;
    }
}

/// Searches for the smallest number of steps after which a seed shows a violation. Returns the number that a
/// binary search finds, and the report of that run.
#[must_use]
pub fn shrink(seed: u64, steps: u64, settings: &Settings) -> (u64, Report) {
    let fails = |steps| run(seed, steps, settings, false).violation;
    let (mut good, mut bad) = (0, steps);
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        match fails(middle) {
            Some(violation) => bad = middle.min(violation.step.max(good + 1)),
            None => good = middle,
        }
    }
    (bad, run(seed, bad, settings, true))
}

fn populate(sim: &Rc<Sim>) {
    let plan = sim.plan;
    let rate =
        || Rate(sim.below(plan.rates_ppm.unsigned_abs() * 2 + 1).cast_signed() - plan.rates_ppm);
    for id in 0..plan.servers {
        let apart = match plan.scene {
            // Failovers require clocks that agree, so these servers start with the same date.
            Scene::Single
            | Scene::Crashes
            | Scene::Dates
            | Scene::Failovers
            | Scene::Stalls
            | Scene::Sets => 0,
            Scene::Quorum => sim.below(3_600 * SECOND).cast_signed(),
        };
        let primary = id == 0 || plan.scene == Scene::Quorum;
        // Servers that replace each other also have clocks of equal speed.
        let rate = if plan.scene.is_replicated() { Rate(0) } else { rate() };
        let mut server = Node::new(id, rate, apart);
        server.primary = primary;
        server.begins(sim, false);
        sim.servers.borrow_mut().push(server);
    }
    if plan.scene.is_replicated() {
        let mut servers = sim.servers.borrow_mut();
        for replica in 1..plan.servers {
            if let Ok([primary, replica]) = servers.get_disjoint_mut([0, replica]) {
                primary.takes_on(sim, replica);
            }
        }
    }
    for _ in 0..plan.clients {
        sim.add_client(rate());
    }
    sim.at(500 * MS, Who::Nobody, Sim::next_fault);
}

/// Ends all faults, and checks that the system comes to rest.
async fn come_to_rest(sim: &Rc<Sim>) {
    sim.calm_down();
    // A user that has just begun to hold a lock may hold it for two leases.
    let end = sim.now() + REST + 2 * sim.plan.lease_ms * MS;
    loop {
        for _ in 0..32 {
            if !sim.step(end).await || sim.judge.borrow().first.is_some() {
                break;
            }
        }
        if sim.judge.borrow().first.is_some() || is_at_rest(sim) {
            return;
        }
        if sim.now() + 2 * SECOND > end {
            break;
        }
    }
    let servers = sim.servers.borrow();
    let mut judge = sim.judge.borrow_mut();
    let (users, waiting) = (sim.users_at_work(), waiting(sim));
    let text = format!("{users} users, {waiting} in line, {servers:?}");
    judge.fail(Rule::Left, text);
}

/// Returns whether no user is busy, no client waits, no lock is held, and sessions have received all their outcomes.
fn is_at_rest(sim: &Sim) -> bool {
    let free = sim.servers.borrow().iter().all(|server| !server.primary || server.is_free(sim));
    let told = sim.servers.borrow().iter().all(|server| server.owes_nothing(sim));
    free && told && sim.users_at_work() == 0 && waiting(sim) == 0
}

/// Number of waiters at all servers.
fn waiting(sim: &Sim) -> usize {
    sim.servers.borrow().iter().map(Node::waiting).sum()
}
