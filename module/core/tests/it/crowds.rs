//! Number of pieces of work that the table does for many waiters, locks or observers before it works for
//! another client.
#![expect(clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

use kvlock_core::{
    Cause, Ending, HolderState, Holding, Join, KeyRef, Latch, LatchAt, Limits, Millis, MonoMillis,
    Now, Observed, Results, SessionId, Situation, Table, UnixMillis, Via, Want, Work,
};

const MANY: usize = 30_000;
/// Limit for the number of pieces of work after which the table works for another client.
const FEW: usize = 60;
const NOW: Now = Now { unix_us: 1_000_000_000, mono: MonoMillis(1_000_000) };

fn later(ms: u64) -> Now {
    Now { unix_us: NOW.unix_us + ms * 1_000, mono: NOW.mono.plus(Millis(ms)) }
}

fn table() -> Table<u32> {
    Table::new(Limits::UNLIMITED)
}

fn open(table: &mut Table<u32>, number: u8) -> SessionId {
    let ttl = Millis(60_000);
    table.open_session([number; 32], b"user", ttl, NOW).expect("it is opened")
}

fn held(key: KeyRef<'_>, until: u64) -> Situation<'_> {
    let until = Some(UnixMillis(NOW.unix_us / 1_000 + until));
    let seen = Observed::Held(Holding { owner: b"h", holds: 1, shared: 0, token: None, until });
    Situation { key, seen, now: NOW, floor: Some(0), results: Results::NONE }
}

fn wait(table: &mut Table<u32>, at: &Situation<'_>, owner: &str, via: Via<u32>, timeout: u64) {
    let timeout = (timeout > 0).then_some(Millis(timeout));
    let (owner, want) = (owner.as_bytes(), Want::Exclusive);
    table.enqueue(at, &Join { owner, want, lease: Millis(9), timeout }, via);
}

/// Queues [`MANY`] waiters for one lock through one session.
fn crowd(table: &mut Table<u32>, timeout: u64) -> SessionId {
    let session = open(table, b'c');
    let at = held(KeyRef::lock(0, b"crowded"), 600_000);
    for number in 0..MANY {
        wait(table, &at, &number.to_string(), Via::Session(session), timeout);
    }
    session
}

/// Works until `is_it` accepts a piece of work. Returns the number of pieces.
fn pieces(
    table: &mut Table<u32>,
    now: Now,
    is_it: impl Fn(&Table<u32>, &Work<u32>) -> bool,
) -> usize {
    for piece in 1..10 * MANY {
        let Some(work) = table.next_work(now, true) else { break };
        if is_it(table, &work) {
            return piece;
        }
    }
    panic!("never");
}

fn work_off(table: &mut Table<u32>, now: Now) {
    while table.next_work(now, true).is_some() {}
}

#[test]
fn a_timeout_is_not_delayed_by_many_other_timeouts() {
    let mut table = table();
    crowd(&mut table, 50);
    wait(&mut table, &held(KeyRef::lock(0, b"v"), 600_000), "v", Via::Client(7), 50);
    let taken = pieces(&mut table, later(50), |_, work| *work == Work::TimedOut(7));
    assert!(taken < FEW, "{taken}");
    work_off(&mut table, later(50));
    assert_eq!((table.waiters(), table.check()), (0, Ok(())));
}

#[test]
fn a_timeout_is_not_delayed_by_a_latch_that_opens_for_many() {
    let mut table = table();
    let session = open(&mut table, b'c');
    let key = KeyRef::latch(0, b"gate");
    let seen = Latch::Counting { left: 1, counted: false, until: None };
    let at = LatchAt { key, seen, now: NOW };
    for number in 0..MANY {
        let owner = number.to_string();
        let join = Join {
            owner: owner.as_bytes(),
            want: Want::LatchOpen,
            lease: Millis(0),
            timeout: Some(Millis(50)),
        };
        table.enqueue(&at, &join, Via::Session(session));
    }
    wait(&mut table, &held(KeyRef::lock(0, b"v"), 600_000), "v", Via::Client(7), 50);
    table.count_down(&at);
    let taken = pieces(&mut table, later(50), |_, work| *work == Work::TimedOut(7));
    assert!(taken < FEW, "{taken}");
    // The latch opened before the timeouts passed, so none of its waiters times out.
    work_off(&mut table, later(50));
    let (reading, _) = table.begin_reading(session, None, 0, later(50)).expect("it reads");
    let news = table.news(reading.expect("it is there")).and_then(Result::ok);
    let news: Vec<_> = news.into_iter().flatten().collect();
    assert_eq!(news.len(), MANY);
    assert!(news.iter().all(|(_, outcome)| outcome.ending == Ending::Open));
}

#[test]
fn an_ended_lease_is_not_delayed_by_many_ended_leases_of_another_user() {
    let mut table = table();
    let session = open(&mut table, b'c');
    for number in 0..MANY {
        let name = format!("k{number}");
        let at = held(KeyRef::lock(0, name.as_bytes()), 10);
        wait(&mut table, &at, "o", Via::Session(session), 0);
    }
    wait(&mut table, &held(KeyRef::lock(0, b"v"), 20), "v", Via::Client(7), 0);
    let is_it = |_: &Table<u32>, work: &Work<u32>| matches!(work, Work::Look(key, Cause::Expiry) if *key.name == *b"v");
    let taken = pieces(&mut table, later(30), is_it);
    assert!(taken < FEW, "{taken}");
}

#[test]
fn ended_leases_come_before_regular_looks_which_follow() {
    let mut table = table();
    let session = open(&mut table, b'c');
    for number in 0..10_000 {
        let name = format!("k{number}");
        let key = KeyRef::lock(0, name.as_bytes());
        let observed = table.observe(key, NOW, (HolderState::Vacant, None), session);
        observed.expect("there is room");
    }
    wait(&mut table, &held(KeyRef::lock(0, b"v"), 20), "v", Via::Session(session), 0);
    let is_it = |_: &Table<u32>, work: &Work<u32>| matches!(work, Work::Look(key, Cause::Expiry) if *key.name == *b"v");
    let taken = pieces(&mut table, later(60_000), is_it);
    assert!(taken < FEW, "{taken}");
    let is_check = |_: &Table<u32>, work: &Work<u32>| matches!(work, Work::Look(_, Cause::Check));
    assert!(pieces(&mut table, later(60_000), is_check) < FEW);
}

#[test]
fn taking_back_a_grant_is_not_delayed_by_the_work_of_many() {
    let mut table = table();
    let crowd = crowd(&mut table, 0);
    let session = open(&mut table, b's');
    let key = KeyRef::lock(0, b"v");
    wait(&mut table, &held(key, 600_000), "dead", Via::Session(session), 0);
    let free = Observed::Free { stored: None };
    let at = Situation { key, seen: free, now: NOW, floor: Some(0), results: Results::NONE };
    drop(table.look(&at, Cause::Outside));
    table.close_session(crowd);
    table.close_session(session);
    let taken = pieces(&mut table, NOW, |_, work| matches!(work, Work::TakeBack(_)));
    assert!(taken < FEW, "{taken}");
    work_off(&mut table, NOW);
    assert_eq!((table.waiters(), table.check()), (0, Ok(())));
}

#[test]
fn releasing_a_bound_lock_is_not_delayed_by_many_others() {
    let mut table = table();
    let (crowd, session) = (open(&mut table, b'c'), open(&mut table, b's'));
    let lease = Millis(600_000);
    let bind = |table: &mut Table<u32>, name: &str, session| {
        let key = KeyRef::lock(0, name.as_bytes());
        table.bind((key, b"o"), (kvlock_core::Token::NONE, lease), session, NOW);
    };
    (0..MANY).for_each(|number| bind(&mut table, &format!("k{number}"), crowd));
    bind(&mut table, "v", session);
    table.close_session(crowd);
    table.close_session(session);
    let is_it = |_: &Table<u32>, work: &Work<u32>| matches!(work, Work::Bound(bound) if *bound.key.name == *b"v" && bound.is_orphan);
    let taken = pieces(&mut table, NOW, is_it);
    assert!(taken < FEW, "{taken}");
}

#[test]
fn an_observer_is_not_delayed_by_a_constantly_changing_lock() {
    let mut table = table();
    let busy = KeyRef::lock(0, b"busy");
    let stands = |owner: usize| HolderState::Held {
        owner: owner.to_string().into_bytes().into(),
        token: None,
        value: None,
    };
    for number in 0..2_000_u32 {
        let mut name = [b'0'; 32];
        name[..4].copy_from_slice(&number.to_be_bytes());
        let session = table.open_session(name, b"user", Millis(60_000), NOW).expect("it is open");
        table.observe(busy, NOW, (stands(0), None), session).expect("there is room");
    }
    let quiet = KeyRef::lock(0, b"quiet");
    let session = open(&mut table, b'q');
    table.observe(quiet, NOW, (stands(0), None), session).expect("there is room");
    table.notice(busy, NOW, Some(Cause::Release), (stands(1), None));
    table.notice(quiet, NOW, Some(Cause::Release), (stands(1), None));
    let mut pieces = 0_usize;
    while table.view_session(session).expect("it is there").outcomes == 0 {
        table.notice(busy, NOW, Some(Cause::Release), (stands(2 + pieces), None));
        table.next_work(NOW, true).expect("there is more");
        pieces += 1;
    }
    assert!(pieces < FEW, "{pieces}");
}

#[test]
fn a_closed_connection_sets_its_sessions_away_in_batches() {
    let mut table = table();
    for number in 0..10_000_u32 {
        let mut name = [b'0'; 32];
        name[..4].copy_from_slice(&number.to_be_bytes());
        let session = table.open_session(name, b"user", Millis(60_000), NOW).expect("it is open");
        let key = number.to_be_bytes();
        let at = held(KeyRef::lock(0, &key), 600_000);
        wait(&mut table, &at, "o", Via::Session(session), 0);
        table.begin_reading(session, Some(1), 0, NOW).expect("it reads");
    }
    table.connection_closed(1, NOW);
    assert!(table.session_count().1 < 100, "{:?}", table.session_count());
    work_off(&mut table, NOW);
    assert_eq!((table.session_count(), table.check()), ((10_000, 10_000), Ok(())));
}
