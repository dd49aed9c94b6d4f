//! Turns of Redisson, step by step: when a lock is left free, for how long, and when again.

#![expect(clippy::panic, reason = "a panic is how a test fails")]

use kvlock_core::{
    Acquire, Cause, Change, Holding, Join, KeyRef, Limits, MOMENT, Millis, MonoMillis, Now,
    Observed, Release, Results, Situation, Table, Token, UnixMillis, WaitReply, Want,
};

const LEASE: Millis = Millis(50);
const LOCK: KeyRef<'static> = KeyRef::lock(0, b"k");

/// Times after which turns are frequent again, and after which a lock without listeners is announced.
const RETRY_MS: u64 = 1_000;
const ASK_AGAIN_MS: u64 = 50;

/// A lock, the time, and the number of processes of Redisson that listen.
struct World {
    table: Table<u32>,
    ms: u64,
    listeners: u64,
}

impl World {
    fn new(listeners: u64) -> Self {
        let mut table = Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED });
        assert!(!table.shares_with_redisson());
        table.share_with_redisson(true);
        assert!(table.shares_with_redisson());
        Self { table, ms: 0, listeners }
    }

    fn now(&self) -> Now {
        Now { unix_us: 1_000_000 + self.ms * 1_000, mono: MonoMillis(5 + self.ms) }
    }

    fn at(&self, seen: Observed<'static>) -> Situation<'static> {
        Situation { key: LOCK, seen, now: self.now(), floor: Some(0), results: Results::NONE }
    }

    fn held(&self) -> Situation<'static> {
        let (token, until) = (Token::from_stored(7), Some(UnixMillis(self.now().unix().0 + 50)));
        let holding = Holding { owner: b"holder", holds: 1, shared: 0, token, until };
        self.at(Observed::Held(holding))
    }

    fn free(&self) -> Situation<'static> {
        self.at(Observed::Free { stored: None })
    }

    /// `next` waits for the lock, if it does not wait already.
    fn wait(&mut self) {
        let (owner, want) = (&b"next"[..], Want::Exclusive);
        let request = Acquire { owner, want, lease: LEASE, holds: None };
        assert_eq!(self.table.wait(&self.held(), &request, None).0, WaitReply::Block);
        let join = Join { owner, want, lease: LEASE, timeout: None };
        self.table.enqueue(&self.held(), &join, 0);
    }

    /// The holder releases the lock, and then the lock is left free or granted. Returns whether it
    /// is left free.
    fn release(&mut self) -> bool {
        let at = self.held();
        let (_, change) = self.table.release(&at, b"holder", Want::Exclusive, Release::One);
        if change == Change::GiveWay {
            self.table.begin_turn(LOCK, self.listeners, self.now());
        } else if change == Change::Free {
            self.table.begin_turn_if_due(LOCK, self.listeners, self.now());
        }
        assert_eq!(self.table.check(), Ok(()));
        let is_free = self.table.gives_way(LOCK, self.now());
        assert_eq!(is_free, !matches!(change, Change::HandOff(_)), "{change:?}");
        is_free
    }

    /// Number of releases with a waiter until the lock is left free. Each of the others hands the
    /// lock to the waiter.
    fn releases_until_turn(&mut self) -> u32 {
        for number in 1..200 {
            self.wait();
            if self.release() {
                return number;
            }
        }
        panic!("there is no turn")
    }

    /// A client of Redisson takes the lock and gives it back. Then it may be left free again.
    fn use_moment(&mut self, cause: Cause) -> bool {
        self.table.look_soon_at_all_of(0, b"k", Cause::Outside, self.now());
        assert!(!self.table.gives_way(LOCK, self.now()), "the moment was used");
        let change = self.table.look(&self.free(), cause);
        let is_free = self.table.gives_way(LOCK, self.now());
        assert_eq!(matches!(change, Change::HandOff(_)), !is_free, "{change:?}");
        is_free
    }

    /// Nobody uses the moment. At its end the waiter is granted the lock.
    fn pass_moment(&mut self) {
        self.ms += MOMENT.0;
        // Used moments are still on the list.
        while self.table.end_moment(self.now()) {}
        let look = self.table.next_look(self.now()).map(|(_, cause)| cause);
        assert_eq!(look, Some(Cause::Release));
        assert!(matches!(self.table.look(&self.free(), Cause::Release), Change::HandOff(_)));
    }

    fn turns(&self) -> u64 {
        self.table.counters().redisson_turns
    }
}

#[test]
fn a_lock_is_left_free_for_a_moment() {
    let mut world = World::new(1);
    assert!(!world.table.has_moments());
    assert_eq!(world.releases_until_turn(), 1);
    assert!(world.table.has_moments());
    assert_eq!(world.table.next_due(world.now()), Some(MOMENT));
    world.ms = MOMENT.0 - 1;
    assert!(world.table.gives_way(LOCK, world.now()));
    assert!(!world.table.end_moment(world.now()));
    world.ms = MOMENT.0;
    assert!(!world.table.gives_way(LOCK, world.now()));
    assert!(world.table.end_moment(world.now()));
    assert!(!world.table.has_moments());
    assert!(!world.table.end_moment(world.now()));
}

#[test]
fn unused_moments_make_turns_rarer_and_a_used_one_makes_them_frequent() {
    let mut world = World::new(1);
    assert_eq!(world.releases_until_turn(), 1);
    // A round has a release for the waiter and one for the holder.
    for rounds in [2, 4, 8, 16, 32, 64, 64] {
        world.pass_moment();
        assert_eq!(world.releases_until_turn(), 2 * rounds);
    }
    assert!(!world.use_moment(Cause::Outside), "the turn had one moment");
    assert_eq!(world.releases_until_turn(), 2);
    assert_eq!(world.turns(), 9);
    // After a second, one round is enough again.
    for (since, releases) in [(RETRY_MS - 1, 4), (RETRY_MS, 2)] {
        world.pass_moment();
        world.ms += since - MOMENT.0;
        assert_eq!(world.releases_until_turn(), releases, "after {since} ms");
        assert!(!world.use_moment(Cause::Outside));
        assert_eq!(world.releases_until_turn(), 2);
    }
}

#[test]
fn a_moment_that_ends_without_a_waiter_makes_turns_no_rarer() {
    let mut world = World::new(1);
    assert!(world.release(), "nobody waits");
    world.ms = MOMENT.0;
    assert!(world.table.end_moment(world.now()));
    assert_eq!(world.table.next_look(world.now()), None);
    assert_eq!(world.releases_until_turn(), 2);
}

#[test]
fn each_listening_process_has_a_moment_of_a_turn() {
    for (listeners, moments) in [(1, 1), (2, 2), (64, 64), (65, 64)] {
        let mut world = World::new(listeners);
        assert_eq!(world.releases_until_turn(), 1);
        while world.use_moment(Cause::Outside) {
            assert_eq!(world.table.check(), Ok(()));
        }
        assert_eq!(world.turns(), moments);
    }
    // The lease of a client of Redisson ended: it may be dead, and gets no further moment.
    let mut world = World::new(2);
    assert_eq!(world.releases_until_turn(), 1);
    assert!(!world.use_moment(Cause::Expiry));
    world.wait();
    let change = world.table.look(&world.free(), Cause::Outside);
    assert!(matches!(change, Change::HandOff(_)), "the turn is over: {change:?}");
}

/// A server that becomes a replica forgets them.
#[test]
fn the_turns_of_a_limited_number_of_locks_are_remembered() {
    let name = |number: u32| format!("lock {number}");
    let is_turn = |world: &mut World, number| {
        let (held, name) = (world.held(), name(number));
        let at = Situation { key: KeyRef::lock(0, name.as_bytes()), ..held };
        let join = Join { owner: b"next", want: Want::Exclusive, lease: LEASE, timeout: None };
        world.table.enqueue(&at, &join, 0);
        world.table.release(&at, b"holder", Want::Exclusive, Release::One).1 == Change::GiveWay
    };
    let mut world = World::new(1);
    for number in 0..1_025 {
        world.table.begin_turn(KeyRef::lock(0, name(number).as_bytes()), 1, world.now());
    }
    assert_eq!(world.table.check(), Ok(()));
    assert_eq!([0, 1, 1_024].map(|number| is_turn(&mut world, number)), [true, false, false]);

    drop(world.table.forget());
    assert!(world.table.shares_with_redisson() && !world.table.has_moments());
    assert_eq!([1, 1_024].map(|number| is_turn(&mut world, number)), [true, true]);
}

#[test]
fn a_moment_ends_with_a_look_even_if_its_lock_was_forgotten() {
    let mut world = World::new(1);
    assert_eq!(world.releases_until_turn(), 1);
    // More locks than are remembered.
    for number in 0..1_024 {
        let name = format!("other {number}");
        world.table.begin_turn_if_due(KeyRef::lock(0, name.as_bytes()), 1, world.now());
    }
    assert!(!world.table.gives_way(LOCK, world.now()));
    world.pass_moment();
}

#[test]
fn a_moment_that_was_used_ends_without_a_look() {
    let mut world = World::new(2);
    assert_eq!(world.releases_until_turn(), 1);
    world.table.look_soon_at_all_of(0, b"k", Cause::Outside, world.now());
    while world.table.next_look(world.now()).is_some() {}
    world.ms += MOMENT.0;
    assert!(world.table.end_moment(world.now()));
    assert_eq!(world.table.next_look(world.now()), None);
}

#[test]
fn no_moment_begins_while_turns_are_off_or_in_a_quarantine() {
    let off = |world: &mut World| world.table.share_with_redisson(false);
    let quarantine = |world: &mut World| {
        world.table.set_quarantine(Millis(1_000));
        world.table.begin_quarantine(world.now());
    };
    for forbid in [off, quarantine] {
        let mut world = World::new(2);
        forbid(&mut world);
        let change = world.table.release(&world.held(), b"holder", Want::Exclusive, Release::One).1;
        assert_eq!(change, Change::Free);
        world.table.begin_turn_if_due(LOCK, 2, world.now());
        assert_eq!(world.turns(), 0);

        let mut world = World::new(2);
        assert_eq!(world.releases_until_turn(), 1);
        forbid(&mut world);
        assert!(world.table.gives_way(LOCK, world.now()), "a moment is not cut short");
        world.table.look_soon_at_all_of(0, b"k", Cause::Outside, world.now());
        drop(world.table.look(&world.free(), Cause::Outside));
        assert_eq!(world.turns(), 1);
    }
    // A waiter came before the message was sent.
    let mut world = World::new(2);
    world.wait();
    world.table.begin_turn_if_due(LOCK, 2, world.now());
    assert_eq!(world.turns(), 0);
    let mut world = World::new(2);
    world.table.begin_turn_if_due(LOCK, 0, world.now());
    assert_eq!(world.turns(), 0);
}

#[test]
fn a_lock_without_listeners_is_announced_again_after_a_while() {
    let mut world = World::new(0);
    let announced = |world: &mut World| {
        world.wait();
        let (_, change) =
            world.table.release(&world.held(), b"holder", Want::Exclusive, Release::One);
        if change == Change::GiveWay {
            let change = world.table.hand_off_instead_of_turn(&world.held());
            assert!(matches!(change, Change::HandOff(_)));
            return true;
        }
        assert!(matches!(change, Change::HandOff(_)), "{change:?}");
        false
    };
    assert!(announced(&mut world));
    assert!(!announced(&mut world));
    world.ms += ASK_AGAIN_MS - 1;
    assert!(!announced(&mut world));
    world.ms += 1;
    assert!(announced(&mut world));
    world.ms += ASK_AGAIN_MS;
    world.listeners = 1;
    assert_eq!(world.releases_until_turn(), 1);
    assert!(!world.use_moment(Cause::Outside));
    assert_eq!(world.releases_until_turn(), 2);
}
