//! What a run is about: its scene, the settings of servers and clients, and what is switched off.

use clap::ValueEnum;
use fastrand::Rng;
use std::time::Duration;

/// Which faults there are, and between which servers. Clients wait through sessions, and bind some of
/// what they hold to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scene {
    /// One server that forgets nothing, also when it is killed. Connections break, clients and server
    /// stop for a while, writes are paused.
    Single,
    /// The same with more crashes of the server: its memory is lost, or returns in its last state, or in the
    /// state last written to disk.
    Crashes,
    /// One server that is not killed, and the date jumps, up to an hour ahead or back.
    Dates,
    /// A primary with two replicas, cut off, killed, stopped, replaced.
    Failovers,
    /// Three or five servers that share nothing.
    Quorum,
    /// One server, whose only fault is that it stands still now and then for up to 0.7 s: an offer of
    /// 2 s that is renewed after a third of it leaves 0.8 s. No lease may be lost.
    Stalls,
    /// As `Failovers`. Half of the users wait for several locks in one step, some of them only while there is no
    /// result.
    Sets,
}

impl Scene {
    /// Whether there is a primary with replicas.
    pub(crate) fn is_replicated(self) -> bool {
        matches!(self, Self::Failovers | Self::Sets)
    }
}

/// What keeps grants over the loss of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keeping {
    /// Nothing.
    Nothing,
    /// `all_replicas(2)`: both have each grant and each renewal.
    Replicas,
    /// `min-replicas-to-write` and a quarantine longer than all leases.
    Quarantine,
}

/// A rule that the system follows. Switched off, it leaves its hole open. Rules of the crate are switched off
/// from outside: in its settings, its clock, its user, the network or the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Safeguard {
    /// R1: a lease is counted from before its request was sent. Off, client clocks stand still while a reply is
    /// awaited.
    FromSending,
    /// R2: a waiter counts its lease from the grant by the server, not from the reply.
    GrantedAt,
    /// R4: a holder checks its clock, not only its notices.
    LooksAtClock,
    /// A holder believes in a hundredth less than the server grants. Off, clocks of clients are slower by
    /// that.
    RateMargin,
    /// R5: a renewal without a reply has not happened. Off, the network reports that it has.
    UnansweredIsNothing,
    /// A shorter renewal without a reply may arrive after a longer one. Off, the network reports that it had no
    /// effect.
    CountsLate,
    /// R6: repeated commands say `HOLDS`.
    Holds,
    /// A server that may have forgotten grants nothing new for a while.
    Quarantine,
    /// A primary without replicas takes no writes.
    MinReplicas,
    /// No primary is cut off together with a replica, which would be enough to keep granting.
    NoReplicaAlong,
    /// A grant counts when the replicas have it.
    ReplicasConfirm,
    /// A renewal, too.
    RenewalsConfirm,
    /// All replicas must have it, not only one.
    AllReplicas,
    /// A primary that replicas confirm for does not come back without its data before it is replaced.
    ComesBackWhole,
    /// Tokens ahead of the clock are reserved a little ahead, not a minute: the next primary starts above them
    /// by its clock.
    FloorsByClock,
    /// No server loses all of its data while its tokens are ahead of its clock: if it does, they
    /// may go back.
    DataOutlivesTokens,
    /// A deposed primary answers its waiters.
    DismissDeposed,
    /// The resource refuses tokens that are too small.
    Fence,
    /// The largest token of a quorum's first majority is written back to a majority.
    WriteBack,
    /// A session lasts as long as its client asked for.
    WholeTtl,
}

/// Everything that decides a run, but the seed.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// None: the seed decides.
    pub scene: Option<Scene>,
    /// None: the seed decides.
    pub keeping: Option<Keeping>,
    /// What is switched off.
    pub off: Option<Safeguard>,
    /// The invariants of the lock table are not checked: a bug must be seen from outside.
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
    /// Whether locks are shared, too.
    pub(crate) shared: bool,
    /// The longest lease, and the margin that clients leave.
    pub(crate) lease_ms: u64,
    pub(crate) margin_ms: u64,
    /// Clocks run at most so much faster or slower than they should, in parts per million.
    pub(crate) rates_ppm: i64,
    pub(crate) quarantine_ms: u64,
    /// Replicas that the server needs to accept writes, and replicas that clients wait for.
    pub(crate) min_replicas: usize,
    pub(crate) replicas: u32,
    /// Whether a waiter always confirms its grant by setting the full lease first.
    pub(crate) confirm: bool,
    /// How long clients wait for a reply.
    pub(crate) reply_timeout: Duration,
    /// Range of the ttl of sessions: how long a session lives without contact from its client.
    pub(crate) session_ms: (u64, u64),
    /// Longest life of a session for waits without contact. If it is shorter than an offer, clients die when
    /// they receive grants, and these grants are taken back.
    pub(crate) wait_session_ms: u64,
    /// Processes of Redisson that listen for each lock, and hang.
    pub(crate) listeners: i32,
    /// Whether a server may forget all that it knew.
    pub(crate) forgets: bool,
    /// Whether it is promised that beliefs do not overlap, and that tokens grow.
    pub(crate) promises_belief: bool,
    pub(crate) promises_tokens: bool,
    /// Whether it is promised that no lease is lost.
    pub(crate) promises_leases: bool,
}

impl Plan {
    pub(crate) fn has(&self, safeguard: Safeguard) -> bool {
        self.off != Some(safeguard)
    }

    /// Whether some leases are much shorter than others.
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
        // In failovers a lease must outlast a failover. With a quarantine a replaced primary runs on for 3 s,
        // and the rest of a lease at its renewal must be longer.
        let quarantined = replicated && keeping == Keeping::Quarantine;
        let lease_ms = match scene {
            Scene::Failovers | Scene::Sets if quarantined => 5_000,
            Scene::Failovers | Scene::Sets => 1_500,
            Scene::Quorum => random.u64(300..=1_500),
            // From half of that on: longer than two stalls, also when it is an offer that runs.
            Scene::Stalls => random.u64(20_000..=60_000),
            // Longer than the offer to a waiter, or shorter.
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
        // A quarantine does not depend on the next primary's date.
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
        // What is promised, and 1 % for the rate of the clock it is counted with. The lag that
        // `min-replicas-to-write` allows is a second, and whole seconds are counted, once a second.
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
            // A replaced primary keeps granting. It must not free a lock within two seconds of offering it, or
            // a bound lock, while these are renewed at the new primary.
            confirm: quarantined,
            reply_timeout: if stalls { Duration::from_secs(5) } else { Duration::from_millis(400) },
            session_ms: if quarantined || stalls { (5_000, 7_000) } else { (400, 3_000) },
            wait_session_ms: if quarantined || stalls || random.bool() { u64::MAX } else { 200 },
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
