//! Semaphores against a model: what each owner holds and until when, and a list of those who wait.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;

use kvlock_core::{
    Acquire, Cause, GrantId, Join, KeyRef, Limits, Millis, MonoMillis, Now, Permits, PermitsChange,
    Release, ReleaseReply, RenewReply, Semaphore, SemaphoreAt, Served, Share, Table, TakeReply,
    UnixMillis, WaitReply, Want,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

const KEY: KeyRef<'static> = KeyRef::semaphore(0, b"pool");
const NAMES: [&str; 4] = ["ann", "anna", "bob", "bobby"];

type Owner = &'static str;

#[derive(Clone, Debug)]
enum Op {
    Set(u64, bool),
    Take {
        owner: Owner,
        permits: u64,
        lease: u64,
        holds: Option<u64>,
        wait: bool,
    },
    /// All that are free.
    Drain(Owner, u64, Option<u64>),
    Release(Owner, Option<u64>),
    ReleaseOne(Owner),
    Renew(Owner, u64),
    Cancel(Owner),
    Delete,
    Pass(u64),
    /// The client of the latest grant to a waiter was gone, or its reply is written.
    Lost,
    Delivered,
    /// A quarantine begins, of that length.
    Quarantine(u64),
    /// The timer runs.
    Timer,
}

fn op() -> impl Strategy<Value = Op> {
    let name = || proptest::sample::select(&NAMES[..]);
    let take = (name(), 1..5_u64, 1..60_u64, option::weighted(0.3, 1..6_u64), any::<bool>());
    prop_oneof![
        2 => (0..7_u64, any::<bool>()).prop_map(|(n, only_new)| Op::Set(n, only_new)),
        10 => take.prop_map(|(owner, permits, lease, holds, wait)| {
            Op::Take { owner, permits, lease, holds, wait }
        }),
        3 => (name(), 1..60_u64, option::weighted(0.5, 1..5_u64))
            .prop_map(|(owner, lease, holds)| Op::Drain(owner, lease, holds)),
        4 => (name(), option::of(0..4_u64)).prop_map(|(owner, to)| Op::Release(owner, to)),
        2 => name().prop_map(Op::ReleaseOne),
        1 => (name(), 1..60_u64).prop_map(|(owner, lease)| Op::Renew(owner, lease)),
        1 => name().prop_map(Op::Cancel),
        1 => Just(Op::Delete),
        4 => (1..30_u64).prop_map(Op::Pass),
        1 => Just(Op::Lost),
        1 => Just(Op::Delivered),
        1 => (0..60_u64).prop_map(Op::Quarantine),
        4 => Just(Op::Timer),
    ]
}

#[derive(Debug, PartialEq)]
struct Wait {
    owner: Owner,
    permits: u64,
    lease: u64,
    client: u32,
}

struct World {
    table: Table<u32>,
    /// How many there are; none if the semaphore is not set.
    limit: Option<u64>,
    /// What each living owner holds, and until when. The dead are found at once.
    held: BTreeMap<Owner, (u64, u64)>,
    waits: Vec<Wait>,
    now: u64,
    /// When the quarantine is over.
    quarantine: u64,
    clients: u32,
    /// The latest grant to a waiter: its name, owner and permits; and whether its owner did
    /// nothing since.
    latest: Option<(GrantId, Owner, u64, bool)>,
}

impl World {
    fn new() -> Self {
        let limits = Limits { waiters: 9, waiters_per_key: 9, draining: false };
        Self {
            table: Table::new(limits),
            limit: None,
            held: BTreeMap::new(),
            waits: Vec::new(),
            now: 1_000,
            quarantine: 0,
            clients: 0,
            latest: None,
        }
    }

    fn now(&self) -> Now {
        Now { unix_us: self.now * 1000, mono: MonoMillis(self.now) }
    }

    fn in_quarantine(&self) -> bool {
        self.now < self.quarantine
    }

    fn used(&self) -> u64 {
        self.held.values().map(|(permits, _)| permits).sum()
    }

    fn at(&self, owner: &str) -> SemaphoreAt<'static> {
        let ends = self.held.values().map(|(_, until)| UnixMillis(*until));
        let own = self.held.get(owner);
        let own = own.map(|(holds, until)| Share { holds: *holds, until: UnixMillis(*until) });
        let (used, earliest) = (self.used(), ends.min());
        let seen = self.limit.map_or(Semaphore::Unset, |limit| {
            Semaphore::Set(Permits { limit, used, own, earliest })
        });
        SemaphoreAt { key: KEY, seen, now: self.now() }
    }

    /// Does what the table says, and sees that no more is held than there is, unless the number
    /// was lowered.
    fn write(&mut self, owner: Owner, change: PermitsChange) -> TestCaseResult {
        match change {
            PermitsChange::None => {}
            PermitsChange::Limit(limit) => self.limit = Some(limit),
            PermitsChange::Own { share, used } => {
                let before = self.used();
                match share {
                    Some(share) => self.held.insert(owner, (share.holds, share.until.0)),
                    None => self.held.remove(owner),
                };
                prop_assert_eq!(used, self.used());
                prop_assert!(used <= before || used <= self.limit.unwrap(), "I12");
            }
        }
        Ok(())
    }

    fn touch(&mut self, owner: Owner) {
        if let Some((_, of, _, untouched)) = &mut self.latest {
            *untouched &= *of != owner;
        }
    }

    fn step(&mut self, op: &Op) -> TestCaseResult {
        match *op {
            Op::Set(limit, only_new) => {
                let expected = !(only_new && self.limit.is_some());
                let at = self.at("");
                let (set, change) = self.table.set_permits(&at, limit, only_new);
                prop_assert_eq!(set, Some(expected));
                self.write("", change)?;
                self.limit = if expected { Some(limit) } else { self.limit };
                self.serve()?;
            }
            Op::Take { owner, permits, lease, holds, wait } => {
                self.take(owner, permits, lease, holds, wait)?;
            }
            Op::Drain(owner, lease, holds) => self.drain(owner, lease, holds)?,
            Op::Release(owner, Some(n)) => self.release(owner, Release::DownTo(n))?,
            Op::Release(owner, None) => self.release(owner, Release::All)?,
            Op::ReleaseOne(owner) => self.release(owner, Release::One)?,
            Op::Renew(owner, lease) => {
                let (at, by) = (self.at(owner), owner.as_bytes());
                let (reply, change) = self.table.renew_permits(&at, by, Millis(lease));
                let holds = self.limit.and_then(|_| self.held.get(owner).copied());
                let expected =
                    holds.map_or(RenewReply::NotHeld, |_| RenewReply::Lease(Millis(lease)));
                prop_assert_eq!(reply, expected);
                self.write(owner, change)?;
                if let Some((permits, _)) = holds {
                    prop_assert_eq!(self.held[owner], (permits, self.now + lease));
                    self.touch(owner);
                }
            }
            Op::Cancel(owner) => {
                let place = self.waits.iter().position(|wait| wait.owner == owner);
                let expected = place.map(|place| self.waits.remove(place).client);
                prop_assert_eq!(self.table.cancel(KEY, owner.as_bytes()), expected);
            }
            Op::Delete => {
                self.limit = None;
                self.held.clear();
                self.table.look_soon(KEY, Cause::Outside, self.now());
            }
            Op::Pass(ms) => {
                self.now += ms;
                let now = self.now;
                self.held.retain(|_, (_, until)| *until >= now);
            }
            Op::Lost => self.lost()?,
            Op::Delivered => {
                if let Some((id, owner, ..)) = self.latest.take() {
                    self.table.delivered_permits(id, owner.as_bytes());
                }
            }
            Op::Quarantine(length) => {
                self.table.set_quarantine(Millis(length), self.now());
                self.table.begin_quarantine(self.now());
                self.quarantine = self.now + length;
            }
            Op::Timer => self.timer()?,
        }
        let in_line = self.table.queue_of(KEY).map(|waiter| *waiter.client);
        let expected = self.waits.iter().map(|wait| wait.client);
        prop_assert_eq!(Vec::from_iter(in_line), Vec::from_iter(expected));
        prop_assert_eq!(self.table.check(), Ok(()));
        Ok(())
    }

    fn take(
        &mut self,
        owner: Owner,
        permits: u64,
        lease: u64,
        holds: Option<u64>,
        wait: bool,
    ) -> TestCaseResult {
        let had = self.held.get(owner).map_or(0, |(permits, _)| *permits);
        let free = self.limit.unwrap_or(0).saturating_sub(self.used());
        let expected = match (self.limit, holds) {
            (None, _) => TakeReply::Unset,
            (_, Some(n)) if n == had => TakeReply::Holds(had),
            (_, Some(n)) if n != had + permits => TakeReply::Mismatch,
            (Some(limit), _) if had + permits > limit => TakeReply::TooMany,
            (Some(_), _) if !self.waits.is_empty() || free < permits => TakeReply::Refused,
            (Some(_), _) if self.in_quarantine() => TakeReply::Refused,
            (Some(_), _) => TakeReply::Holds(had + permits),
        };
        let at = self.at(owner);
        let (want, by, lease_ms) = (Want::Permits(permits), owner.as_bytes(), Millis(lease));
        let request = Acquire { owner: by, want, lease: lease_ms, holds };
        if !wait {
            let (reply, change) = self.table.take_permits(&at, permits, &request);
            prop_assert_eq!(reply, expected);
            return self.taken(owner, lease, expected, change);
        }
        let (reply, change) = self.table.wait_for_permits(&at, permits, &request);
        if expected != TakeReply::Refused {
            prop_assert_eq!(reply, Ok(expected));
            return self.taken(owner, lease, expected, change);
        }
        prop_assert_eq!(reply, Err(WaitReply::Block));
        self.clients += 1;
        let join = Join { owner: by, want, lease: lease_ms, timeout: None };
        let (_, replaced) = self.table.enqueue_for_permits(&at, &join, self.clients);
        let wait = Wait { owner, permits, lease, client: self.clients };
        let old = match self.waits.iter().position(|wait| wait.owner == owner) {
            Some(place) => Some(std::mem::replace(&mut self.waits[place], wait).client),
            None => {
                self.waits.push(wait);
                None
            }
        };
        prop_assert_eq!(replaced, old);
        Ok(())
    }

    fn drain(&mut self, owner: Owner, lease: u64, holds: Option<u64>) -> TestCaseResult {
        let had = self.held.get(owner).map_or(0, |(permits, _)| *permits);
        let free = self.limit.unwrap_or(0).saturating_sub(self.used());
        let expected = match (self.limit, holds) {
            (None, _) => TakeReply::Unset,
            (_, Some(n)) if n <= had => TakeReply::Holds(had),
            (_, Some(n)) if n > had + 1 => TakeReply::Mismatch,
            _ if !self.waits.is_empty() || free == 0 => TakeReply::Refused,
            _ if self.in_quarantine() => TakeReply::Refused,
            _ => TakeReply::Holds(had + free),
        };
        let (at, want) = (self.at(owner), Want::Permits(Permits::MAX));
        let request = Acquire { owner: owner.as_bytes(), want, lease: Millis(lease), holds };
        let (reply, change) = self.table.drain_permits(&at, &request);
        prop_assert_eq!(reply, expected);
        self.taken(owner, lease, expected, change)
    }

    fn taken(
        &mut self,
        owner: Owner,
        lease: u64,
        reply: TakeReply,
        change: PermitsChange,
    ) -> TestCaseResult {
        let end = self.held.get(owner).map_or(0, |(_, until)| *until).max(self.now + lease);
        self.write(owner, change)?;
        if let TakeReply::Holds(holds) = reply {
            prop_assert_eq!(self.held.get(owner), Some(&(holds, end)));
            self.touch(owner);
        } else {
            prop_assert_eq!(change, PermitsChange::None);
        }
        Ok(())
    }

    fn release(&mut self, owner: Owner, release: Release) -> TestCaseResult {
        let had = self.held.get(owner).map(|(permits, _)| *permits);
        let expected = match (had, release) {
            (None, _) => ReleaseReply::NotHeld,
            (Some(had), Release::One) => ReleaseReply::Left(had - 1),
            (Some(_), Release::All) => ReleaseReply::Left(0),
            (Some(had), Release::DownTo(n)) if n <= had => ReleaseReply::Left(n),
            (Some(_), Release::DownTo(_)) => ReleaseReply::Mismatch,
        };
        let at = self.at(owner);
        let (reply, change) = self.table.release_permits(&at, owner.as_bytes(), release);
        prop_assert_eq!(reply, expected);
        self.write(owner, change)?;
        if let ReleaseReply::Left(left) = expected {
            prop_assert_eq!(self.held.get(owner).map_or(0, |(permits, _)| *permits), left);
            self.touch(owner);
        }
        self.serve()
    }

    fn lost(&mut self) -> TestCaseResult {
        let Some((id, owner, permits, untouched)) = self.latest.take() else { return Ok(()) };
        let had = self.held.get(owner).map(|(permits, _)| *permits);
        let at = self.at(owner);
        let change = self.table.take_permits_back(&at, id, owner.as_bytes(), permits);
        self.write(owner, change)?;
        let left = had.map(|had| if untouched { had.saturating_sub(permits) } else { had });
        let left = left.filter(|left| *left > 0);
        prop_assert_eq!(self.held.get(owner).map(|(permits, _)| *permits), left);
        self.serve()
    }

    /// As the module does: serves the first in line until one has to wait.
    fn serve(&mut self) -> TestCaseResult {
        while let Some(first) = self.waits.first() {
            let (owner, permits, lease) = (first.owner, first.permits, first.lease);
            let Some(limit) = self.limit else { break };
            let had = self.held.get(owner).copied().unwrap_or((0, 0));
            let (at, free) = (self.at(owner), limit.saturating_sub(self.used()));
            match self.table.serve_permits(&at, Cause::Release) {
                Served::TooMany(client) => {
                    prop_assert!(had.0 + permits > limit);
                    prop_assert_eq!(client, self.waits.remove(0).client);
                }
                Served::NotYet => {
                    let no_more = free < permits || self.in_quarantine();
                    prop_assert!(no_more, "the first in line could be served");
                    return Ok(());
                }
                Served::Granted(hand_off, share, used) => {
                    prop_assert!(free >= permits, "I12");
                    prop_assert!(!self.in_quarantine(), "I13");
                    prop_assert_eq!(hand_off.client, self.waits.remove(0).client);
                    let until = had.1.max(self.now + lease);
                    prop_assert_eq!((share.holds, share.until.0), (had.0 + permits, until));
                    self.write(owner, PermitsChange::Own { share: Some(share), used })?;
                    self.latest = Some((hand_off.id, owner, permits, true));
                }
            }
        }
        Ok(())
    }

    fn timer(&mut self) -> TestCaseResult {
        let now = self.now();
        self.table.end_quarantine(now);
        let mut looks = 0;
        while let Some((key, _)) = self.table.next_look(now) {
            prop_assert_eq!(key.borrow(), KEY);
            self.serve()?;
            if self.limit.is_none() {
                // They are sent away.
                while let Some(client) = self.table.dismiss_one_of(KEY) {
                    prop_assert_eq!(client, self.waits.remove(0).client);
                }
            }
            looks += 1;
            prop_assert!(looks < 5, "looks have no end");
        }
        // Whoever could be served is: the looks were planned for it.
        let free = self.limit.map(|limit| limit.saturating_sub(self.used()));
        let first = self.waits.first().map(|wait| wait.permits);
        if let (Some(free), Some(first)) = (free, first) {
            let no_more = free < first || self.in_quarantine();
            prop_assert!(no_more, "{free} are free and the first in line wants {first}");
        }
        Ok(())
    }
}

#[test]
fn a_semaphore_does_what_the_contract_says() {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 1_000;
    }
    let run = TestRunner::new(config).run(&vec(op(), 1..80), |ops| {
        let mut world = World::new();
        ops.iter().try_for_each(|op| world.step(op))
    });
    assert!(run.is_ok(), "{}", run.unwrap_err());
}
