//! Sessions with many waits, and many sessions: the table works on them in batches.

use kvlock_core::{
    Acquire, Cause, Change, Ending, Holding, Join, KeyRef, Limits, Millis, MonoMillis, Now,
    Observed, Permits, Release, Results, Semaphore, SemaphoreAt, Served, SessionId, Situation,
    Table, Token, UnixMillis, Via, WaitReply, Want,
};

const MANY: usize = 100_000;
const NOW: Now = Now { unix_us: 1_000_000_000, mono: MonoMillis(1_000_000) };
const KEY: KeyRef<'static> = KeyRef::lock(0, b"orders");

fn at(seen: Observed<'_>) -> Situation<'_> {
    Situation { key: KEY, seen, now: NOW, floor: Some(0), results: Results::NONE }
}

fn held(owner: &[u8], token: Option<Token>) -> Observed<'_> {
    let until = Some(UnixMillis(1_010_000));
    Observed::Held(Holding { owner, holds: 1, shared: 0, token, until })
}

fn join(table: &mut Table<u32>, owner: &str, via: Via<u32>) {
    let (owner, want) = (owner.as_bytes(), Want::Exclusive);
    let join = Join { owner, want, lease: Millis(9), timeout: None };
    table.enqueue(&at(held(b"holder", None)), &join, via);
}

/// Returns a table in which a session has many waits for a lock, with one other waiter behind them.
fn crowd() -> (Table<u32>, SessionId) {
    let mut table = Table::new(Limits::UNLIMITED);
    let session = table.open_session([b'0'; 32], b"user", Millis(100), NOW).expect("it is opened");
    for number in 0..MANY {
        join(&mut table, &format!("owner:{number}"), Via::Session(session));
    }
    join(&mut table, "last", Via::Client(7));
    (table, session)
}

/// Disconnects the reader of the session.
fn lose(table: &mut Table<u32>, session: SessionId) {
    let (reading, _) = table.begin_reading(session, Some(1), 0, NOW).expect("it reads");
    table.reader_gone(reading.expect("it is there"), NOW);
}

fn first_in_line(table: &Table<u32>) -> Option<Vec<u8>> {
    table.queue_of(KEY).next().map(|waiter| waiter.owner.to_vec())
}

fn work_off(table: &mut Table<u32>) -> usize {
    let mut turns = 1;
    while table.work_on_sessions() {
        turns += 1;
    }
    turns
}

#[test]
fn many_waits_of_a_session_are_set_away_and_return_in_order_in_batches() {
    let (mut table, session) = crowd();
    lose(&mut table, session);
    assert!(table.sessions_have_work() && table.next_due(NOW) == Some(Millis(0)));
    assert!(work_off(&mut table) > 100);
    assert_eq!(first_in_line(&table), Some(b"last".to_vec()));
    assert_eq!((table.waiters(), table.check()), (MANY + 1, Ok(())));

    table.begin_reading(session, Some(2), 0, NOW).expect("it reads");
    assert!(work_off(&mut table) > 100);
    let line: Vec<_> = table.queue_of(KEY).map(|waiter| waiter.owner.to_vec()).collect();
    let expected = (0..MANY).map(|n| format!("owner:{n}").into_bytes()).chain([b"last".to_vec()]);
    assert!(line.into_iter().eq(expected));
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn a_lock_skips_waits_of_an_away_session_that_are_not_set_away_yet() {
    let (mut table, session) = crowd();
    lose(&mut table, session);
    let (_, change) =
        table.release(&at(held(b"holder", None)), b"holder", Want::Exclusive, Release::One);
    // The lock stays free until more of the skipped waiters are removed from the head of the queue.
    assert_eq!(change, Change::Free);
    let request = Acquire { owner: b"new", want: Want::Exclusive, lease: Millis(9), holds: None };
    let free = Observed::Free { stored: None };
    assert_eq!(table.wait(&at(free), &request, None).0, WaitReply::Block, "I8");
    for _ in 0..MANY {
        let (_, cause) = table.next_look(NOW).expect("it is looked at again");
        assert_eq!(cause, Cause::Outside);
        if let Change::HandOff(hand_off) = table.look(&at(free), cause) {
            assert_eq!((&*hand_off.owner, hand_off.client), (&b"last"[..], Some(7)));
            return;
        }
    }
    unreachable!("the last one is never served");
}

#[test]
fn permits_skip_waits_of_an_away_session_that_are_not_set_away_yet() {
    let mut table = Table::new(Limits::UNLIMITED);
    let session = table.open_session([b'0'; 32], b"user", Millis(100), NOW).expect("it is opened");
    let seen = Semaphore::Set(Permits { limit: 1, used: 0, own: None, earliest: None });
    let pool = SemaphoreAt { key: KeyRef::semaphore(0, b"pool"), seen, now: NOW };
    let many = (0..200).map(|number| (format!("owner:{number}"), Via::Session(session)));
    for (owner, via) in many.chain([("last".to_owned(), Via::Client(7))]) {
        let want = Want::Permits { more: 1, holds: None };
        let join = Join { owner: owner.as_bytes(), want, lease: Millis(9), timeout: None };
        table.enqueue(&pool, &join, via);
    }
    lose(&mut table, session);
    let mut looks = 0;
    let granted = loop {
        table.pass_over(pool.key);
        match table.serve_permits(&pool, Cause::Release) {
            Served::Granted(hand_off, ..) => break hand_off,
            Served::Dismissed(..) | Served::NotYet => {}
        }
        // More of the waits at the head may be skipped, so the queue is looked at again in the same moment.
        let (key, cause) = table.next_look(NOW).expect("it is looked at again");
        assert_eq!((key.borrow(), cause), (pool.key, Cause::Outside));
        looks += 1;
    };
    assert_eq!((&*granted.owner, granted.client), (&b"last"[..], Some(7)));
    assert!(looks > 5, "{looks}");
}

#[test]
fn the_waits_of_an_ended_session_leave_in_batches() {
    let (mut table, session) = crowd();
    assert_eq!(table.close_session(session), None);
    assert_eq!(table.session_count(), (0, 0));
    assert!(work_off(&mut table) > 100);
    assert_eq!((table.waiters(), table.check()), (1, Ok(())));
    assert_eq!(first_in_line(&table), Some(b"last".to_vec()));
}

#[test]
fn many_acknowledged_outcomes_are_dropped_in_batches() {
    let (mut table, session) = crowd();
    for number in 0..MANY {
        assert_eq!(table.cancel(KEY, format!("owner:{number}").as_bytes()), Some(None));
    }
    let (reading, _) = table.begin_reading(session, Some(1), 0, NOW).expect("it reads");
    let reading = reading.expect("it is there");
    let news = table.news(reading).and_then(Result::ok).expect("there is something");
    assert!(news.map(|(_, outcome)| &outcome.ending).eq(vec![&Ending::Cancelled; MANY]));
    table.sent(reading, MANY as u64, NOW);
    table.begin_reading(session, Some(1), MANY as u64, NOW).expect("it was sent");
    assert!(table.session_waits().1 > MANY / 2 && table.sessions_have_work());
    assert!(work_off(&mut table) > 100);
    assert_eq!((table.session_waits(), table.check()), ((0, 0), Ok(())));
}

fn name(number: u32) -> [u8; 32] {
    let mut name = [b'0'; 32];
    name[..4].copy_from_slice(&number.to_be_bytes());
    name
}

/// Returns a table with `count` sessions, each with a blocked reader.
fn readers(count: u32) -> Table<u32> {
    let mut table = Table::new(Limits::UNLIMITED);
    for number in 0..count {
        let opened = table.open_session(name(number), b"user", Millis(100), NOW);
        let (reading, _) =
            table.begin_reading(opened.expect("it is opened"), Some(1), 0, NOW).expect("it reads");
        table.block_reader(reading.expect("it is there"), number, Millis(100), NOW);
    }
    table
}

/// The server becomes a replica, and a primary again before everything is freed.
#[test]
fn a_role_change_discards_all_sessions_at_once_and_frees_them_one_by_one() {
    const SESSIONS: u32 = 10_000;
    let mut table = readers(SESSIONS);
    let first = table.session(&name(0), b"user").expect("it is there");
    join(&mut table, "granted", Via::Session(first));
    join(&mut table, "waits", Via::Session(first));
    join(&mut table, "blocked", Via::Client(70_000));
    let free = at(Observed::Free { stored: None });
    let Change::HandOff(unsent) = table.look(&free, Cause::Outside) else {
        unreachable!("somebody is served")
    };
    assert_eq!(table.forget(), [70_000]);
    let is_known = |number: u32| table.session(&name(number), b"user").is_some();
    assert!(!(0..SESSIONS).any(is_known), "a session outlives the role change");
    assert_eq!((table.waiters(), table.session_count(), table.bound()), (0, (0, 0), 0));
    assert_eq!((table.session_waits(), table.is_quiet()), ((0, 0), true));
    // Before anything is freed, the table works like a new one.
    let later = table.open_session([b'9'; 32], b"user", Millis(100), NOW).expect("it is opened");
    assert_eq!(table.session(&[b'9'; 32], b"user"), Some(later));
    assert_eq!((later > first, table.check()), (true, Ok(())));
    let freed: Vec<_> = std::iter::from_fn(|| table.free_one()).collect();
    let clients = freed.iter().filter_map(|client| *client);
    assert!(clients.eq(0..SESSIONS), "each blocked reader once");
    assert!(freed.len() > 20_000, "{} pieces", freed.len());
    // The grant of a session from before the role change was not sent. It is not taken back.
    assert_eq!(table.next_unsent(), None);
    let holding =
        Holding { owner: b"granted", holds: 1, shared: 0, token: Some(unsent.token), until: None };
    let held = at(Observed::Held(holding));
    assert_eq!(table.take_back(&held, unsent.id, b"granted", unsent.token), Change::None);
    assert_eq!((table.session_count(), table.check()), ((1, 0), Ok(())));
}

/// Answers a large number of blocked readers, as when the module is drained.
#[test]
fn ten_thousand_readers_are_answered_in_batches_and_once_each() {
    const READERS: u32 = 10_000;
    let mut table = readers(READERS);
    table.wake_readers();
    let mut told = Vec::new();
    while table.next_due(NOW) == Some(Millis(0)) {
        let some = table.next_readers(NOW);
        assert!((1..=128).contains(&some.len()), "{} in one go", some.len());
        told.extend(some.into_iter().map(|(_, client)| client));
    }
    assert!(told.into_iter().eq(0..READERS));
    assert_eq!(table.check(), Ok(()));
}

/// A large table must not be copied to make room, because all clients of the server would wait for that.
#[test]
fn many_unread_grants_are_taken_back_one_by_one() {
    let (mut table, session) = crowd();
    let free = at(Observed::Free { stored: None });
    for number in 0..MANY {
        let before = table.capacity();
        assert!(matches!(table.look(&free, Cause::Outside), Change::HandOff(_)));
        assert!(table.capacity() < before + 9, "{before} and {} by {number}", table.capacity());
    }
    let (reading, _) = table.begin_reading(session, Some(1), 0, NOW).expect("it reads");
    for number in 1..=MANY as u64 {
        let before = table.capacity();
        table.sent(reading.expect("it is there"), number, NOW);
        assert!(table.capacity() + 9 > before, "{before} and {} by {number}", table.capacity());
    }
}
