//! Latches against a model: a number, a set of those who have counted, and a list of those who wait.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;

use kvlock_core::{
    Cause, CountDownReply, Join, KeyRef, Latch, LatchAt, LatchChange, LatchWait, Limits, Millis,
    MonoMillis, Now, SetReply, Table, UnixMillis, WaitReply, Want,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

const KEY: KeyRef<'static> = KeyRef::latch(0, b"latch");
const NAMES: [&str; 4] = ["ann", "anna", "bob", "bobby"];

#[derive(Clone, Debug)]
enum Op {
    Set {
        count: u64,
        replace: bool,
        lifetime: Option<u64>,
    },
    CountDown(Option<&'static str>),
    Wait(&'static str, Option<u64>),
    Cancel(&'static str),
    /// Somebody deletes the key.
    Delete,
    Pass(u64),
    /// The timer runs: the released are answered, then waits end, then looks are taken.
    Timer,
}

fn op() -> impl Strategy<Value = Op> {
    let name = || proptest::sample::select(&NAMES[..]);
    prop_oneof![
        2 => (1..5_u64, any::<bool>(), option::of(5..50_u64))
            .prop_map(|(count, replace, lifetime)| Op::Set { count, replace, lifetime }),
        6 => option::of(name()).prop_map(Op::CountDown),
        6 => (name(), option::of(1..60_u64)).prop_map(|(name, ms)| Op::Wait(name, ms)),
        1 => name().prop_map(Op::Cancel),
        1 => Just(Op::Delete),
        3 => (1..30_u64).prop_map(Op::Pass),
        3 => Just(Op::Timer),
    ]
}

#[derive(Default)]
struct Key {
    left: u64,
    counted: BTreeSet<&'static str>,
    until: Option<u64>,
}

#[derive(Debug, PartialEq)]
struct Wait {
    name: &'static str,
    client: u32,
    end: Option<u64>,
}

struct World {
    table: Table<u32>,
    key: Option<Key>,
    now: u64,
    clients: u32,
    /// Those in line, as the model has them; and those whose latch has opened.
    waits: Vec<Wait>,
    released: Vec<u32>,
}

impl World {
    fn new() -> Self {
        let limits = Limits { waiters: 3, waiters_per_key: 9, draining: false };
        Self {
            table: Table::new(limits),
            key: None,
            now: 1_000,
            clients: 0,
            waits: Vec::new(),
            released: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        Now { unix_us: self.now * 1000, mono: MonoMillis(self.now) }
    }

    fn at(&self, participant: Option<&str>) -> LatchAt<'static> {
        let seen = match &self.key {
            None => Latch::Open,
            Some(key) => Latch::Counting {
                left: key.left,
                counted: participant.is_some_and(|name| key.counted.contains(name)),
                until: key.until.map(UnixMillis),
            },
        };
        LatchAt { key: KEY, seen, now: self.now() }
    }

    /// All who wait are released, in order.
    fn open(&mut self) {
        self.released.extend(self.waits.drain(..).map(|wait| wait.client));
    }

    fn step(&mut self, op: &Op) -> TestCaseResult {
        match *op {
            Op::Set { count, replace, lifetime } => self.set(count, replace, lifetime)?,
            Op::CountDown(participant) => self.count_down(participant)?,
            Op::Wait(name, timeout) => self.wait(name, timeout)?,
            Op::Cancel(name) => {
                let expected = self.waits.iter().position(|wait| wait.name == name);
                let expected = expected.map(|place| self.waits.remove(place).client);
                prop_assert_eq!(self.table.cancel(KEY, name.as_bytes()), expected);
            }
            Op::Delete => {
                if self.key.take().is_some() {
                    self.table.look_soon(KEY, Cause::Outside, self.now());
                }
            }
            Op::Pass(ms) => {
                self.now += ms;
                let now = self.now;
                drop(self.key.take_if(|key| key.until.is_some_and(|until| until < now)));
            }
            Op::Timer => self.timer()?,
        }
        let in_line = self.table.queue_of(KEY).map(|waiter| *waiter.client);
        let expected = self.waits.iter().map(|wait| wait.client);
        prop_assert_eq!(Vec::from_iter(in_line), Vec::from_iter(expected));
        prop_assert_eq!(self.table.waiters(), self.waits.len() + self.released.len());
        prop_assert_eq!(self.table.check(), Ok(()));
        Ok(())
    }

    fn set(&mut self, count: u64, replace: bool, lifetime: Option<u64>) -> TestCaseResult {
        let until = lifetime.map(|lifetime| self.now + lifetime);
        let at = self.at(None);
        let (reply, change) = self.table.set_latch(&at, count, replace, until.map(UnixMillis));
        if self.key.is_some() && !replace {
            prop_assert_eq!((reply, change), (SetReply::Counting, LatchChange::None));
            return Ok(());
        }
        prop_assert_eq!(reply, SetReply::Set);
        prop_assert_eq!(change, LatchChange::Begin { count, until: until.map(UnixMillis) });
        if self.key.is_none() {
            // They waited for the one before.
            self.open();
        }
        self.key = Some(Key { left: count, until, ..Key::default() });
        Ok(())
    }

    fn count_down(&mut self, participant: Option<&'static str>) -> TestCaseResult {
        let at = self.at(participant);
        let (reply, change) = self.table.count_down(&at);
        let expected = match &mut self.key {
            None => CountDownReply::Open,
            Some(key) => {
                let counts = participant.is_none_or(|name| key.counted.insert(name));
                key.left -= u64::from(counts);
                CountDownReply::Left(key.left)
            }
        };
        prop_assert_eq!(reply, expected);
        if expected == CountDownReply::Left(0) {
            prop_assert_eq!(change, LatchChange::Open);
            self.key = None;
            self.open();
        } else if let LatchChange::Count { left } = change {
            prop_assert_eq!(CountDownReply::Left(left), expected);
        } else {
            prop_assert_eq!(change, LatchChange::None);
        }
        Ok(())
    }

    fn wait(&mut self, name: &'static str, timeout: Option<u64>) -> TestCaseResult {
        let at = self.at(None);
        let reply = self.table.wait_for_latch(&at, name.as_bytes());
        let place = self.waits.iter().position(|wait| wait.name == name);
        let full = self.waits.len() + self.released.len() >= 3;
        let expected = match (&self.key, place) {
            (None, _) => LatchWait::Open,
            (Some(_), None) if full => LatchWait::Later(WaitReply::QueueFull),
            (Some(_), _) => LatchWait::Later(WaitReply::Block),
        };
        prop_assert_eq!(reply, expected);
        if expected != LatchWait::Later(WaitReply::Block) {
            return Ok(());
        }
        self.clients += 1;
        let (owner, lease, timeout) = (name.as_bytes(), Millis(0), timeout.map(Millis));
        let join = Join { owner, want: Want::Zero, lease, timeout };
        let (_, replaced) = self.table.enqueue_for_latch(&at, &join, self.clients);
        let end = timeout.map(|timeout| self.now + timeout.0);
        let wait = Wait { name, client: self.clients, end };
        let old = match place {
            Some(place) => Some(std::mem::replace(&mut self.waits[place], wait).client),
            None => {
                self.waits.push(wait);
                None
            }
        };
        prop_assert_eq!(replaced, old);
        Ok(())
    }

    fn timer(&mut self) -> TestCaseResult {
        let released = Vec::from_iter(std::iter::from_fn(|| self.table.next_released()));
        prop_assert_eq!(released, std::mem::take(&mut self.released));
        let now = self.now();
        while let Some(client) = self.table.time_out_one(now) {
            let place = self.waits.iter().position(|wait| wait.client == client);
            let wait = self.waits.remove(place.unwrap());
            prop_assert!(wait.end.is_some_and(|end| end <= self.now), "{wait:?} ended early");
        }
        prop_assert!(self.waits.iter().all(|wait| wait.end.is_none_or(|end| end > self.now)));
        let mut looks = 0;
        while let Some((key, _)) = self.table.next_look(now) {
            prop_assert_eq!(key.borrow(), KEY);
            self.table.look_at_latch(&self.at(None));
            if self.key.is_none() {
                self.open();
            }
            looks += 1;
            prop_assert!(looks < 5, "looks have no end");
        }
        prop_assert!(self.key.is_some() || self.waits.is_empty(), "open, and they wait");
        let released = Vec::from_iter(std::iter::from_fn(|| self.table.next_released()));
        prop_assert_eq!(released, std::mem::take(&mut self.released));
        Ok(())
    }
}

#[test]
fn a_latch_does_what_the_contract_says() {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 1_000;
    }
    let run = TestRunner::new(config).run(&vec(op(), 1..80), |ops| {
        let mut world = World::new();
        ops.iter().try_for_each(|op| world.step(op))
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}

/// With 100,000 in line a latch opens in one step, and whoever is told walks past nobody.
#[test]
fn a_latch_with_a_long_queue_opens_at_once() {
    let limits = Limits { waiters: usize::MAX, waiters_per_key: usize::MAX, draining: false };
    let mut table = Table::new(limits);
    let now = Now { unix_us: 1_000_000, mono: MonoMillis(1_000) };
    let seen = Latch::Counting { left: 1, counted: false, until: None };
    let at = LatchAt { key: KEY, seen, now };
    for number in 0..100_000_u32 {
        let name = number.to_be_bytes();
        let timeout = Some(Millis(10));
        let join = Join { owner: &name, want: Want::Zero, lease: Millis(0), timeout };
        table.enqueue_for_latch(&at, &join, number);
    }
    assert_eq!(table.count_down(&at), (CountDownReply::Left(0), LatchChange::Open));
    assert_eq!((table.waiters_of(KEY), table.has_released()), (0, true));
    // Their time is over, but they are released: nobody is told otherwise.
    let later = Now { mono: MonoMillis(5_000), ..now };
    assert_eq!(table.time_out_one(later), None);
    let told = std::iter::from_fn(|| table.next_released());
    assert!(told.eq(0..100_000));
    assert_eq!((table.waiters(), table.has_released()), (0, false));
    assert_eq!(table.check(), Ok(()));
}
