//! Bugs that are planted on purpose, to prove that the tests see them.
//!
//! They exist only in builds with the feature `planted`, where the environment variable
//! `KVLOCK_PLANTED` names the one that is there; in one thread [`Bug::plant`] decides that. `scripts/test planted` plants each in turn and expects
//! a test to fail. In any other build [`Bug::is_planted`] is the constant `false`.

macro_rules! bugs {
    ($($(#[$what:meta])* $bug:ident $name:literal)*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$what])* $bug,)*
        }

        impl Bug {
            /// All of them, with their names.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$bug, $name),)*];
        }
    };
}

bugs! {
    /// The last waiter is served first.
    Lifo "lifo"
    /// Anybody may release a lock.
    ReleaseAnyOwner "release-any-owner"
    /// Anybody may renew a lock.
    RenewAnyOwner "renew-any-owner"
    /// A hand-off keeps the token of the grant before.
    TokenNotRaised "token-not-raised"
    /// A reentry gets a new token.
    TokenOnReentry "token-on-reentry"
    /// Grants after a raise of the token do not know of it.
    RaiseForgotten "raise-forgotten"
    /// A token may be raised as far as anybody likes.
    RaiseUnbounded "raise-unbounded"
    /// A reentry with a shorter lease shortens what is left.
    ReentryShortens "reentry-shortens"
    /// A repeated `HOLDS n` counts again.
    RepeatCounts "repeat-counts"
    /// A wait whose time is over goes on.
    TimeoutStays "timeout-stays"
    /// A free lock goes to a newcomer although somebody waits.
    Overtaking "overtaking"
    /// A second wait of an owner gets a second place.
    SecondPlace "second-place"
    /// One waiter more than the limit.
    LimitOffByOne "limit-off-by-one"
    /// A renewed lease is not looked at again when it ends.
    LookForgotten "look-forgotten"
    /// Timers write while the clients are paused.
    NoPauseGuard "no-pause-guard"
    /// Grants in a slot that belongs to another server.
    NoSlotProbe "no-slot-probe"
    /// Grants on a writable replica.
    NoRoleCheck "no-role-check"
    /// Grants that nobody asked for, with too few replicas.
    NoReplicasCheck "no-replicas-check"
    /// A blocked client is unblocked twice.
    DoubleUnblock "double-unblock"
    /// A grant is written from inside a key event.
    WriteInNotification "write-in-notification"
    /// A grant to a client that was gone stays.
    GrantToTheDead "grant-to-the-dead"
    /// A waiter whose client is gone stays in the queue.
    GhostWaiter "ghost-waiter"
    /// The token floor is not read after a start.
    FloorIgnored "floor-ignored"
    /// Whoever takes over begins right above the floor that it finds.
    FloorAlone "floor-alone"
    /// Those who wait with Redisson are not told that a lock ends sooner than they have seen.
    SoonerUntold "sooner-untold"
    /// The key of a shared lock lives on when its longest lease was given back.
    LongestOutlivesItself "longest-outlives-itself"
    /// Those who wait with Redisson are not told.
    PublishMissing "publish-missing"
    /// The same, on the replicas only.
    PublishNotRelayed "publish-not-relayed"
    /// A refused acquire opens the key for writing.
    RefusedTouches "refused-touches"
    /// The lease is not replicated.
    LeaseNotReplicated "lease-not-replicated"
    /// A flushed database wakes nobody.
    FlushIgnored "flush-ignored"
    /// Waiters stay when the module is drained.
    DrainKeepsWaiters "drain-keeps-waiters"
    /// The server dies of a hash that is no lock.
    DiesOfHashes "dies-of-hashes"
    /// A hash that is no lock is taken for a free one.
    TakesOverHashes "takes-over-hashes"
    /// A lock is shared with a newcomer although somebody waits.
    ReaderOvertakes "reader-overtakes"
    /// A lock that is shared goes to somebody who wants it alone.
    WriterAmongReaders "writer-among-readers"
    /// Somebody whose lease has ended still counts as sharing a lock.
    DeadReaderBlocks "dead-reader-blocks"
    /// Who shares a lock with a shorter lease shortens it for the others.
    ReaderShortens "reader-shortens"
    /// Of those who wait to share a lock, one is let in and the others are forgotten.
    OneReaderOnly "one-reader-only"
    /// A lock that its holder goes on sharing keeps its token.
    DowngradeKeepsToken "downgrade-keeps-token"
    /// Who shares a lock may wait to hold it alone.
    UpgradeWaits "upgrade-waits"
    /// A release gives back the holds of the other mode if there are none of its own.
    ReleaseCrossesModes "release-crosses-modes"
    /// Shares whose lease has ended are not removed as long as the lock is shared.
    DeadReadersStay "dead-readers-stay"
    /// A participant counts a latch down as often as it asks.
    CountsTwice "counts-twice"
    /// Only the first batch of those who wait for a latch is answered when it opens.
    LatchForgetsTheRest "latch-forgets-the-rest"
    /// A repeated `HOLDS n` takes permits again.
    PermitsCountTwice "permits-count-twice"
    /// Permits go to a newcomer although somebody waits.
    PermitsOvertake "permits-overtake"
    /// One permit more is given than there are.
    OnePermitTooMany "one-permit-too-many"
    /// The permits of a dead holder never come back.
    DeadKeepPermits "dead-keep-permits"
    /// What a search has found is believed whatever becomes of the key.
    RemembersForEver "remembers-for-ever"
    /// All searches go on from where any of them ended.
    OnePlaceForAll "one-place-for-all"
    /// A repeated taking of all permits takes those that became free since.
    DrainTakesTwice "drain-takes-twice"
    /// Who could be given nothing hears why the server would not give it.
    RefusedForNothing "refused-for-nothing"
    /// Some tries of a free lock are refused.
    RefusesFree "refuses-free"
    /// A lock that was left free for Redisson is left so for ever.
    MomentNeverEnds "moment-never-ends"
    /// All processes of Redisson that listen have one moment together.
    OneMomentForAll "one-moment-for-all"
    /// Moments that no process uses come as often as before.
    UnusedMomentsGoOn "unused-moments-go-on"
    /// A quarantine keeps nobody from anything.
    NoQuarantine "no-quarantine"
    /// An outcome is kept twice for a session.
    OutcomeTwice "outcome-twice"
    /// A reader on a new connection goes on where the one before ended, acknowledged or not.
    LostAtTakeover "lost-at-takeover"
    /// Who was passed over while its session was away stays so.
    PlaceLost "place-lost"
    /// A session that is away is granted something.
    AwayGranted "away-granted"
    /// A grant that was sent to the client is taken back when its session ends.
    WrittenTakenBack "written-taken-back"
    /// A session that nobody reads lives on.
    SessionOutlives "session-outlives"
    /// Anybody may use a session.
    ForeignSession "foreign-session"
    /// The time of a session does not begin anew when its reader is answered.
    TtlTooEarly "ttl-too-early"
    /// What is bound stays when its session is gone.
    BoundStays "bound-stays"
    /// What is bound anew to another session stays bound to the one before.
    BoundTwice "bound-twice"
    /// What is bound is released whatever grant the owner has by then.
    BoundTokenIgnored "bound-token-ignored"
    /// Observers are never told that nobody holds a lock.
    VacantUntold "vacant-untold"
    /// A change that was not read yet stays, whatever comes after it.
    OldNews "old-news"
    /// Changes that were sent and not acknowledged are all kept.
    ChangesPileUp "changes-pile-up"
}

impl Bug {
    /// Says whether this one is there.
    #[cfg(not(feature = "planted"))]
    #[must_use]
    pub const fn is_planted(self) -> bool {
        false
    }

    /// Says whether this one is there.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn is_planted(self) -> bool {
        static PLANTED: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
        let planted = PLANTED.get_or_init(|| {
            let name = std::env::var("KVLOCK_PLANTED").ok()?;
            Self::ALL.iter().find(|(_, named)| *named == name).map(|(bug, _)| *bug)
        });
        HERE.get().unwrap_or(*planted) == Some(self)
    }

    /// Plants that one, or none, for what this thread does from now on.
    #[cfg(feature = "planted")]
    pub fn plant(bug: Option<Self>) {
        HERE.set(Some(bug));
    }
}

#[cfg(feature = "planted")]
thread_local! {
    static HERE: std::cell::Cell<Option<Option<Bug>>> = const { std::cell::Cell::new(None) };
}
