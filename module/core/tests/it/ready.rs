//! Waiters with `UNLESS ready-key`: which of them are answered `ready`, which are granted the lock,
//! and the number of key reads.

#![expect(clippy::panic, reason = "a panic is how a test fails")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use kvlock_core::{
    Acquire, Cause, Change, Holding, Join, KeyRef, Keys, Limits, Millis, Observed, Release,
    ReleaseReply, Results, Sharing, Situation, Table, Token, UnixMillis, WaitReply, WaiterId, Want,
};

use super::common::{LEASE, NOW};

const LOCK: KeyRef<'static> = KeyRef::lock(0, b"k");

/// Existing keys, and the number of reads of each key.
#[derive(Debug, Default)]
struct Keyspace {
    there: BTreeSet<Vec<u8>>,
    looks: RefCell<BTreeMap<Vec<u8>, u32>>,
}

impl Keys for Keyspace {
    fn exists(&self, name: &[u8]) -> bool {
        *self.looks.borrow_mut().entry(name.to_vec()).or_default() += 1;
        self.there.contains(name)
    }
}

/// A lock that `first` holds, its waiters by number, and the keyspace.
struct World {
    table: Table<u32>,
    keys: Keyspace,
    token: Token,
}

impl World {
    fn new() -> Self {
        let limits = Limits { waiters: 9_999, waiters_per_key: 9_999, ..Limits::UNLIMITED };
        let mut table = Table::new(limits);
        let free = situation(Observed::Free { stored: None }, Results::NONE);
        let request = Acquire { owner: b"first", want: Want::Exclusive, lease: LEASE, holds: None };
        let (_, change) = table.acquire(&free, &request);
        let token = change.issued().unwrap_or_else(|| panic!("it is free"));
        Self { table, keys: Keyspace::default(), token }
    }

    fn wait(&mut self, client: u32, want: Want, ready_key: Option<&str>) -> WaiterId {
        let owner = client.to_string();
        let at = situation(held(b"first", self.token), Results::among(&self.keys));
        let request = Acquire { owner: owner.as_bytes(), want, lease: LEASE, holds: None };
        assert_eq!(self.table.wait(&at, &request, None).0, WaitReply::Block);
        let join = Join { owner: owner.as_bytes(), want, lease: LEASE, timeout: None };
        let (waiter, _) = self.table.enqueue(&at, &join, client);
        self.table.set_ready_key(waiter, ready_key.map(str::as_bytes));
        waiter
    }

    /// Releases the lock. Returns the owners that are granted it.
    fn release(&mut self) -> Vec<String> {
        let at = situation(held(b"first", self.token), Results::among(&self.keys));
        let (reply, change) = self.table.release(&at, b"first", Want::Exclusive, Release::One);
        assert_eq!(reply, ReleaseReply::Left(0));
        granted(change)
    }

    /// Looks at the lock, which is free. Returns the owners that are granted it.
    fn look(&mut self) -> Vec<String> {
        let free = Observed::Free { stored: Some(self.token) };
        let change = self.table.look(&situation(free, Results::among(&self.keys)), Cause::Outside);
        granted(change)
    }

    /// Does all remaining work on groups of waiters with the same ready key. Returns the clients that
    /// received `ready`.
    fn told(&mut self) -> Vec<u32> {
        while let Some(group) = self.table.next_group() {
            let exists = self.keys.exists(&group.ready_key);
            self.table.looked_at_group(&group, exists);
        }
        assert_eq!(self.table.check(), Ok(()));
        std::iter::from_fn(|| self.table.next_ready_client()).collect()
    }

    fn looks(&self) -> u32 {
        self.keys.looks.borrow().values().sum()
    }
}

fn situation<'a>(seen: Observed<'a>, results: Results<'a>) -> Situation<'a> {
    Situation { key: LOCK, seen, now: NOW, floor: Some(0), results }
}

fn held(owner: &[u8], token: Token) -> Observed<'_> {
    let until = Some(UnixMillis(1_050));
    Observed::Held(Holding { owner, holds: 1, shared: 0, token: Some(token), until })
}

fn granted(change: Change<u32>) -> Vec<String> {
    let name = |owner: &[u8]| String::from_utf8_lossy(owner).into_owned();
    match &change {
        Change::HandOff(hand_off) => vec![name(&hand_off.owner)],
        Change::Share(sharers) => sharers.joined.iter().map(|one| name(&one.owner)).collect(),
        Change::None | Change::Free => vec![],
        Change::Take { .. }
        | Change::Update { .. }
        | Change::GiveWay
        | Change::Leave
        | Change::Beside { .. } => panic!("{change:?}"),
    }
}

#[test]
fn one_release_answers_a_long_group_and_grants_the_next_waiter() {
    let mut world = World::new();
    for client in 0..1_000 {
        world.wait(client, Want::Exclusive, (client != 500).then_some("r"));
    }
    world.keys.there.insert(b"r".to_vec());
    let mut owners = world.release();
    let mut told = world.told();
    while owners.is_empty() {
        owners = world.look();
        told.extend(world.told());
    }
    assert_eq!(owners, ["500"]);
    told.sort_unstable();
    assert_eq!(told, Vec::from_iter((0..1_000).filter(|client| *client != 500)));
    assert_eq!(world.table.waiters(), 0);
}

#[test]
fn a_release_reads_each_ready_key_once_and_the_first_one_twice() {
    let mut world = World::new();
    for client in 0..300 {
        let ready_key = format!("r{client}");
        world.wait(client, Want::Exclusive, Some(&ready_key));
    }
    assert_eq!(world.release(), ["0"]);
    assert_eq!(world.told(), [0; 0]);
    // One read for the first waiter, which now has the lock, and one for each remaining group.
    assert_eq!(world.looks(), 1 + 299);
    for client in 300..2_000 {
        world.wait(client, Want::Exclusive, Some("same"));
    }
    world.keys.looks.borrow_mut().clear();
    assert_eq!(world.look(), ["1"]);
    assert_eq!(world.told(), [0; 0]);
    assert_eq!(world.looks(), 1 + 298 + 1);
}

#[test]
fn waiting_sharers_whose_result_exists_are_not_granted() {
    let mut world = World::new();
    for (client, ready_key) in [(1, None), (2, Some("r")), (3, Some("other")), (4, None)] {
        world.wait(client, Want::Shared, ready_key);
    }
    world.keys.there.insert(b"r".to_vec());
    assert_eq!(world.release(), ["1", "3", "4"]);
    assert_eq!(world.told(), [2]);
}

#[test]
fn the_waiter_behind_a_ready_sharer_is_looked_at_at_once() {
    let mut world = World::new();
    world.wait(1, Want::Exclusive, None);
    world.wait(2, Want::Exclusive, None);
    // The owner waits again and keeps its place at the head.
    world.wait(1, Want::Shared, Some("r"));
    world.keys.there.insert(b"r".to_vec());
    let (token, until) = (Some(world.token), Some(UnixMillis(1_050)));
    let sharing = Sharing { asked: b"", own: None, token, until, holders: 1, living: None };
    let at = situation(Observed::Shared(sharing), Results::among(&world.keys));
    let change = world.table.look(&at, Cause::Outside);
    assert_eq!(granted(change), [""; 0]);
    assert_eq!(world.told(), [1]);
    // All sharers may have expired before the key does.
    assert_eq!(world.table.next_due(NOW), Some(Millis(0)));
}

#[test]
fn a_result_deleted_while_its_group_is_answered_is_no_longer_reported() {
    let mut world = World::new();
    for client in 0..200 {
        world.wait(client, Want::Exclusive, (client > 0).then_some("r"));
    }
    world.keys.there.insert(b"r".to_vec());
    assert_eq!(world.release(), ["0"]);
    let group = world.table.next_group().unwrap_or_else(|| panic!("somebody waits for r"));
    world.table.looked_at_group(&group, true);
    let some = std::iter::from_fn(|| world.table.next_ready_client()).count();
    assert!((1..199).contains(&some), "{some} in one go");
    world.keys.there.clear();
    assert_eq!(world.told(), [0; 0]);
    assert_eq!(world.table.waiters(), 199 - some);
}

#[test]
fn a_group_is_answered_even_if_no_waiter_can_be_served() {
    let mut world = World::new();
    let first = world.wait(1, Want::Exclusive, None);
    world.wait(2, Want::Exclusive, Some("r"));
    world.keys.there.insert(b"r".to_vec());
    assert_eq!(world.release(), ["1"]);
    assert_eq!(world.told(), [2]);
    assert_eq!(world.table.disconnected(first), None);
}

#[test]
fn leaving_the_queue_leaves_the_group() {
    let mut world = World::new();
    let first = world.wait(1, Want::Exclusive, Some("r"));
    world.wait(2, Want::Exclusive, Some("r"));
    assert_eq!(world.table.disconnected(first), Some(1));
    assert_eq!(world.table.cancel(LOCK, b"2"), Some(Some(2)));
    world.keys.there.insert(b"r".to_vec());
    assert_eq!(world.release(), [""; 0]);
    assert_eq!((world.told(), world.looks()), (vec![], 0));
}

#[test]
fn an_owner_that_is_answered_at_once_loses_its_place() {
    let mut world = World::new();
    world.wait(7, Want::Exclusive, Some("r"));
    world.table.record_ready(LOCK, b"7");
    assert_eq!(world.told(), [7]);
    assert_eq!((world.table.waiters(), world.table.counters().told_ready), (0, 2));
    assert_eq!(world.release(), [""; 0]);
}

#[test]
fn a_waiter_behind_any_number_of_ready_ones_gets_the_lock() {
    for ready in [31, 32, 33, 64, 96, 97, 200] {
        for by_release in [false, true] {
            let mut world = World::new();
            for client in 0..ready {
                world.wait(client, Want::Exclusive, Some("r"));
            }
            world.wait(ready, Want::Exclusive, None);
            world.keys.there.insert(b"r".to_vec());
            let mut granted = if by_release { world.release() } else { world.look() };
            let mut told = world.told();
            // Does all due work as the module does: looks, and groups between them.
            while granted.is_empty() && world.table.next_look(NOW).is_some() {
                granted = world.look();
                told.extend(world.told());
            }
            assert_eq!(granted, [ready.to_string()], "{ready} {by_release}");
            told.sort_unstable();
            assert_eq!(told, Vec::from_iter(0..ready));
        }
    }
}

#[test]
fn a_result_that_is_deleted_meanwhile_leaves_no_waiter_behind() {
    let mut world = World::new();
    for client in 0..500 {
        world.wait(client, Want::Exclusive, Some("r"));
    }
    world.keys.there.insert(b"r".to_vec());
    assert_eq!(world.release(), Vec::<String>::new());
    world.keys.there.clear();
    let mut granted = Vec::new();
    while granted.is_empty() && world.table.next_look(NOW).is_some() {
        granted = world.look();
    }
    assert_eq!(granted.len(), 1);
}
