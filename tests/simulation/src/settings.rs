//! Settings of a run: its scene, the settings of servers and clients, and the switched-off safeguard.

use clap::ValueEnum;
use fastrand::Rng;
use std::time::Duration;

/// Servers and faults. Except in `Quorum`, users of the crate wait through sessions, and bind some of their
/// locks to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scene {
    /// One server that keeps all data when it is killed. Connections break or are cut, clients are killed,
    /// clients and the server pause, and writes are paused.
    Single,
    /// Like `Single`, with more crashes of the server. After a crash its data is empty, or the last state, or
    /// the state last written to disk. With [`Keeping::Replicas`], it is always the last state.
    Crashes,
    /// One server that is not killed, and whose wall clock jumps forward or back by up to an hour.
    Dates,
    /// A primary with two replicas. Servers are cut off, killed, stopped and replaced.
    Failovers,
    /// Three or five servers that share nothing.
    Quorum,
    /// One server, whose only fault is an occasional pause of up to 0.7 s. No lease may be lost: an offer of
    /// 2 s is renewed after a third of it, and a margin of 0.5 s leaves 0.8 s.
    Stalls,
    /// As `Failovers`. Half of the users acquire several locks with one command, in most cases. Some of these
    /// commands wait only while there is no result.
    Sets,
}

impl Scene {
    /// Returns whether there is a primary with replicas.
    pub(crate) fn is_replicated(self) -> bool {
        matches!(self, Self::Failovers | Self::Sets)
    }
}

/// Setting that preserves grants when a primary or its data is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keeping {
    /// Nothing.
    Nothing,
    /// `all_replicas(2)`: both have each grant and each renewal.
    Replicas,
    /// `min-replicas-to-write` and a quarantine longer than all leases.
    Quarantine,
}

/// A rule of the system that can be switched off. Then a violation is possible. Rules of the crate are
/// switched off from outside: in its settings, its clock, its user, the network or the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Safeguard {
    /// A lease is counted from before its request was sent. If off, client clocks stand still while the
    /// reply to an acquire or a renewal is awaited.
    FromSending,
    /// A waiter counts its lease from the grant by the server, not from the reply.
    GrantedAt,
    /// A holder checks its clock, and not only notices of a loss.
    LooksAtClock,
    /// A holder believes for 1 % less than the lease. If off, clocks of clients are slower by 1 %.
    RateMargin,
    /// A renewal without a reply does not count. If off, the network replies that it succeeded.
    UnansweredIsNothing,
    /// A client expects that a shorter renewal without a reply may arrive after a longer one. If off, the
    /// network sometimes replies that it had no effect.
    CountsLate,
    /// Commands carry `HOLDS`, so that a repetition changes nothing.
    Holds,
    /// A server that may have lost grants makes no new ones for a while.
    Quarantine,
    /// A primary without replicas takes no writes.
    MinReplicas,
    /// No primary is cut off together with a replica: one replica is enough for it to keep granting.
    NoReplicaAlong,
    /// A grant counts only when the replicas have confirmed it.
    ReplicasConfirm,
    /// A renewal counts only when the replicas have confirmed it.
    RenewalsConfirm,
    /// A grant or a renewal counts only when all replicas have confirmed it, not only one.
    AllReplicas,
    /// With confirmation by replicas, a primary does not restart without its data before it is replaced.
    ComesBackWhole,
    /// Token floors follow the clock, so they hardly grow with each new primary. If off, a floor is a minute
    /// above the largest token.
    FloorsByClock,
    /// Tokens grow, unless a server loses all of its data while its tokens are ahead of its clock. If off,
    /// they have to grow in that case, too.
    DataOutlivesTokens,
    /// A demoted primary answers its waiters.
    DismissDeposed,
    /// The resource refuses tokens that are too small.
    Fence,
    /// The largest token of a quorum's first majority is written back to a majority.
    WriteBack,
    /// A session lasts as long as its client asked for.
    WholeTtl,
}

/// Everything that determines a run, except the seed and the number of steps.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// None: the seed decides.
    pub scene: Option<Scene>,
    /// None: the seed decides.
    pub keeping: Option<Keeping>,
    /// The safeguard that is switched off.
    pub off: Option<Safeguard>,
    /// Does not check the invariants of the lock table, so that a bug must be visible from outside.
    pub outside: bool,
}

/// The settings of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) scene: Scene,
    pub(crate) keeping: Keeping,
    pub(crate) off: Option<Safeguard>,
    pub(crate) outside: bool,
    pub(crate) clients: usize,
    pub(crate) servers: usize,
    pub(crate) keys: usize,
    /// `true` if users of single locks share some of them.
    pub(crate) shared: bool,
    /// The longest lease.
    pub(crate) lease_ms: u64,
    /// The margin that clients leave before the end of a lease.
    pub(crate) margin_ms: u64,
    /// Largest deviation of a clock's speed, in parts per million.
    pub(crate) rates_ppm: i64,
    pub(crate) quarantine_ms: u64,
    /// Number of replicas that a primary needs to accept writes.
    pub(crate) min_replicas: usize,
    /// Number of replicas whose confirmation clients require.
    pub(crate) replicas: u32,
    /// `true` if a waiter always confirms its grant by setting the full lease first.
    pub(crate) confirm: bool,
    /// Longest wait of clients for a reply.
    pub(crate) reply_timeout: Duration,
    /// Range of the ttl of sessions.
    pub(crate) session_ms: (u64, u64),
    /// `true` if clients also die just before a reply reaches them. The server may then revoke the grants in that
    /// reply.
    pub(crate) dies_unnoticed: bool,
    /// Number of Redisson processes that listen for each lock, and hang.
    pub(crate) listeners: i32,
    /// `true` if a server may lose all its data.
    pub(crate) forgets: bool,
    /// `true` if it is promised that no two owners believe that they hold the same lock, except sharers.
    pub(crate) promises_belief: bool,
    /// `true` if it is promised that tokens grow.
    pub(crate) promises_tokens: bool,
    /// `true` if it is promised that no lease is lost.
    pub(crate) promises_leases: bool,
}

impl Plan {
    pub(crate) fn has(&self, safeguard: Safeguard) -> bool {
        self.off != Some(safeguard)
    }

    /// Returns whether some leases are much shorter than others.
    pub(crate) fn has_short_leases(&self) -> bool {
        !matches!(self.scene, Scene::Failovers | Scene::Sets | Scene::Stalls)
    }

    #[expect(clippy::too_many_lines, reason = "one setting after the other")]
    pub(crate) fn draw(settings: &Settings, seed: u64, random: &mut Rng) -> Self {
        let scene = settings.scene.unwrap_or_else(|| Scene::value_variants()[(seed % 7) as usize]);
        let off = settings.off;
        let has = |safeguard| off != Some(safeguard);
        let drawn = match random.u8(0..5) {
            0 => Keeping::Nothing,
            1 | 2 => Keeping::Replicas,
            _ => Keeping::Quarantine,
        };
        let keeping = settings.keeping.unwrap_or(drawn);
        let replicated = scene.is_replicated();
        let servers = match scene {
            Scene::Single | Scene::Crashes | Scene::Dates | Scene::Stalls => 1,
            Scene::Failovers | Scene::Sets => 3,
            Scene::Quorum => {
                if random.bool() {
                    3
                } else {
                    5
                }
            }
        };
        // A lease must outlast a failover. With a quarantine, a replaced primary accepts writes for up to 3
        // s. When a lease is renewed, the rest of it must be longer than that.
        let quarantined = replicated && keeping == Keeping::Quarantine;
        let lease_ms = match scene {
            Scene::Failovers | Scene::Sets if quarantined => 5_000,
            Scene::Failovers | Scene::Sets => 1_500,
            Scene::Quorum => random.u64(300..=1_500),
            // Users request at least half of this time, so each lease is longer than two stalls.
            Scene::Stalls => random.u64(20_000..=60_000),
            // Some leases are longer than the offer to a waiter, others are shorter.
            Scene::Single | Scene::Crashes | Scene::Dates => {
                if random.bool() {
                    random.u64(300..=1_500)
                } else {
                    random.u64(1_000..=10_000)
                }
            }
        };
        // Without a margin clocks must agree better.
        let no_margin = !has(Safeguard::RateMargin) || (!replicated && random.bool());
        let stalls = scene == Scene::Stalls;
        let (margin_ms, rates_ppm) = if no_margin { (0, 5_000) } else { (500, 10_000) };
        // A quarantine does not depend on the date of the next primary, so a small margin is enough.
        let margin_ms = if quarantined { 50 } else { margin_ms };
        let forgets = match scene {
            Scene::Single | Scene::Dates | Scene::Stalls => false,
            Scene::Crashes => keeping != Keeping::Replicas,
            Scene::Failovers | Scene::Sets => {
                keeping != Keeping::Replicas || !has(Safeguard::ComesBackWhole)
            }
            Scene::Quorum => keeping == Keeping::Quarantine && random.bool(),
        };
        let kept = keeping == Keeping::Quarantine && has(Safeguard::Quarantine);
        // `min-replicas-to-write` allows a lag of one second. It counts whole seconds, once per second, so a
        // replaced primary may write for up to 3 s. Different rates of the clocks add 2 %.
        let longest = lease_ms + if replicated { 3_000 } else { 0 };
        let quarantine_ms = if kept { longest + longest / 50 } else { 0 };
        let confirms = keeping == Keeping::Replicas && has(Safeguard::ReplicasConfirm);
        let enough = if has(Safeguard::AllReplicas) { 2 } else { 1 };
        let replicas = if replicated && confirms { enough } else { 0 };
        let guarded = keeping == Keeping::Quarantine && has(Safeguard::MinReplicas);
        Self {
            scene,
            keeping,
            off,
            outside: settings.outside,
            clients: random.usize(2..=4),
            servers,
            keys: match (scene, random.bool()) {
                (Scene::Sets, _) => 3,
                (_, true) => 1,
                (_, false) => 2,
            },
            shared: !replicated && scene != Scene::Quorum && random.u8(0..3) == 0,
            lease_ms,
            margin_ms,
            rates_ppm: if replicated { 1_000 } else { rates_ppm },
            quarantine_ms,
            min_replicas: usize::from(replicated && guarded),
            replicas,
            // A replaced primary continues to grant. Without `confirm` it could free an offered lock after two
            // seconds, or a bound lock, although the holder renews it at the new primary.
            confirm: quarantined,
            reply_timeout: if stalls { Duration::from_secs(5) } else { Duration::from_millis(400) },
            session_ms: if quarantined || stalls { (5_000, 7_000) } else { (400, 3_000) },
            dies_unnoticed: !(quarantined || stalls || random.bool() || scene == Scene::Quorum),
            listeners: if seed / 5 % 4 == 3 { 2 } else { 0 },
            forgets,
            promises_belief: match scene {
                Scene::Single | Scene::Quorum | Scene::Stalls => true,
                Scene::Dates => false,
                Scene::Crashes | Scene::Failovers | Scene::Sets => keeping != Keeping::Nothing,
            },
            promises_tokens: !(scene == Scene::Quorum && forgets),
            promises_leases: stalls,
        }
    }
}
