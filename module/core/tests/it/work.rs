//! Work outside commands: the module asks when the next is due, and for one piece after another. Work of
//! which the first question says nothing would never be done.

use kvlock_core::{
    Acquire, Caller, Cause, Change, CountDownReply, HandOff, Holding, Join, KeyRef, Latch, LatchAt,
    Member, Millis, Observed, Situation, Table, Token, UnsentGrant, Via, WaitReply, WaiterId, Want,
    Work,
};

use super::common::{FREE, LEASE, NOW, at, later, open, table};

const JOIN: Join<'static> =
    Join { owner: b"ann", want: Want::Exclusive, lease: LEASE, timeout: None };

/// A lock that `bob` holds without an end, so that no look is planned.
fn held(name: &[u8]) -> Situation<'_> {
    let token = Token::from_stored(7);
    at(name, Observed::Held(Holding { owner: b"bob", holds: 1, shared: 0, token, until: None }))
}

fn wait(table: &mut Table<u32>, via: Via<u32>) -> WaiterId {
    let request = Acquire { owner: b"ann", want: Want::Exclusive, lease: LEASE, holds: None };
    assert_eq!(table.wait(&held(b"k"), &request, None).0, WaitReply::Block);
    table.enqueue(&held(b"k"), &JOIN, via).0
}

/// Does one thing that leaves work. Returns the pieces of this work.
fn work(leave: impl FnOnce(&mut Table<u32>)) -> Vec<String> {
    let mut table = table();
    leave(&mut table);
    let name = |work: Work<u32>| {
        let text = format!("{work:?}");
        text.split(['(', ' ']).next().unwrap_or_default().to_owned()
    };
    let mut pieces = Vec::new();
    loop {
        let due = table.next_due(NOW) == Some(Millis(0));
        let piece = table.next_work(NOW, true);
        assert!(due || piece.is_none(), "after {pieces:?}: {piece:?}");
        match piece {
            Some(Work::Results(group)) => {
                table.looked_at_group(&group, true);
                pieces.push("Results".to_owned());
            }
            Some(piece) => pieces.push(name(piece)),
            None => {
                assert_ne!(table.next_due(NOW), Some(Millis(0)), "after {pieces:?}");
                return pieces;
            }
        }
    }
}

#[test]
fn all_work_for_sessions_that_is_left_is_due_at_once() {
    assert_eq!(work(|_| ()), [""; 0]);
    // A session gets an outcome, and a message.
    let rung = work(|table| {
        let session = open(table, 1);
        table.add_bell(session);
        wait(table, Via::Session(session));
        assert_eq!(table.cancel(KeyRef::lock(0, b"k"), b"ann"), Some(None));
    });
    assert_eq!(rung, ["Ring"]);
    // Readers are woken.
    let read = work(|table| {
        let session = open(table, 1);
        let (reading, _) = table.begin_reading(session, Some(1), 0, NOW).expect("nothing to read");
        table.block_reader(reading.expect("it is open"), 5, Millis(1_000), NOW);
        table.wake_readers();
    });
    assert_eq!(read, ["Read"]);
    // More sessions than one call marks away were read over a closed connection.
    let away = work(|table| {
        for name in 1..=20 {
            let session = open(table, name);
            assert!(table.begin_reading(session, Some(1), 0, NOW).is_ok());
        }
        table.connection_closed(1, NOW);
    });
    assert!(away.len() > 3 && away.iter().all(|piece| piece == "Done"), "{away:?}");
    // A session with a wait ends.
    let ended = work(|table| {
        let session = open(table, 1);
        wait(table, Via::Session(session));
        assert_eq!(table.close_session(session), None);
    });
    assert_eq!(ended, ["Done"]);
    // A server became a replica.
    let forgotten = work(|table| {
        wait(table, Via::Client(1));
        assert_eq!(table.forget(), [1]);
    });
    assert!(forgotten.iter().all(|piece| piece == "Done") && !forgotten.is_empty());
}

/// Moving a million of them to another list in one turn would stop the server for some time.
#[test]
fn grants_of_an_ended_session_are_taken_back_little_by_little() {
    let mut table = table();
    let session = open(&mut table, 1);
    let names: Vec<_> = (0..90_u8).map(|name| [name]).collect();
    for name in &names {
        table.enqueue(&held(name), &JOIN, Via::Session(session));
        assert!(matches!(table.look(&at(name, FREE), Cause::Outside), Change::HandOff(_)));
    }
    assert_eq!(table.close_session(session), None);
    // While writes are paused, the rest waits.
    while table.next_work(NOW, false).is_some() {}
    assert!((16..50).contains(&table.unsent().count()));
    let (mut taken_back, mut most) = (0, 0);
    while let Some(piece) = table.next_work(NOW, true) {
        taken_back += usize::from(matches!(piece, Work::TakeBack(_)));
        most = most.max(table.unsent().count());
    }
    assert_eq!(taken_back, 90);
    assert!(most < 50, "{most} at once");
}

#[test]
fn all_work_for_waiters_that_is_left_is_due_at_once() {
    // The reply with a grant was not sent.
    let unsent = work(|table| {
        wait(table, Via::Client(1));
        let change = table.look(&at(b"k", FREE), Cause::Outside);
        let Change::HandOff(HandOff { id, owner, token, .. }) = change else {
            panic!("{change:?}")
        };
        let key = KeyRef::lock(0, b"k").to_lock_key();
        table.queue_take_back(UnsentGrant { key, owner, id, token, permits: 0 });
    });
    assert_eq!(unsent, ["TakeBack"]);
    // A latch opens.
    let opened = work(|table| {
        let seen = Latch::Counting { left: 1, counted: false, until: None };
        let latch = LatchAt { key: KeyRef::latch(0, b"l"), seen, now: NOW };
        table.enqueue(&latch, &Join { want: Want::LatchOpen, ..JOIN }, 1);
        table.enqueue(&latch, &Join { want: Want::LatchOpen, owner: b"bill", ..JOIN }, 2);
        assert_eq!(table.count_down(&latch).0, CountDownReply::Left(0));
    });
    assert_eq!(opened, ["Opened", "Opened"]);
    // A lock is free, and a result may exist.
    let results = work(|table| {
        let ann = wait(table, Via::Client(1));
        let (bill, _) = table.enqueue(&held(b"k"), &Join { owner: b"bill", ..JOIN }, 2);
        for waiter in [ann, bill] {
            table.set_ready_key(waiter, Some(b"result"));
        }
        drop(table.look(&at(b"k", FREE), Cause::Outside));
    });
    assert_eq!(results, ["Results"]);
    // A set may be granted now.
    let set = work(|table| {
        let members = [at(b"a", FREE), held(b"b")].map(|at| Member { at, under: false });
        let queued = table.enqueue_set(&members, &JOIN, None, Via::Client(1), &Caller::from(None));
        let (waiter, _) = queued.expect("a set is queued");
        table.look_at_set_later(waiter);
    });
    assert_eq!(set, ["Set"]);
    // All keys may have changed.
    let swept = work(|table| {
        wait(table, Via::Client(1));
        table.look_at_all_soon(None, NOW);
    });
    assert!(swept.contains(&"Look".to_owned()), "{swept:?}");
}

#[test]
fn a_wait_is_due_when_its_timeout_has_passed() {
    let mut table = table();
    let join = Join { timeout: Some(Millis(7)), ..JOIN };
    table.enqueue(&held(b"k"), &join, 3);
    assert_eq!(table.next_due(NOW), Some(Millis(7)));
    assert_eq!(table.next_work(NOW, true), None);
    assert_eq!(
        (table.next_due(later(6)), table.next_work(later(6), true)),
        (Some(Millis(1)), None)
    );
    assert_eq!(table.next_due(later(7)), Some(Millis(0)));
    assert_eq!(table.next_work(later(7), true), Some(Work::TimedOut(3)));
    assert_eq!(table.next_due(later(7)), None);
}

/// A piece that may change a key waits until the server takes writes.
#[test]
fn nothing_is_written_while_writes_are_refused() {
    type Leave = fn(&mut Table<u32>);
    let with_writes: [(&str, u64, Leave); 6] = [
        ("Look", 0, |table| {
            wait(table, Via::Client(1));
            table.look_soon(KeyRef::lock(0, b"k"), Cause::Outside, NOW);
        }),
        ("Look", 90, |table| {
            table.look_every = Some(Millis(90));
            wait(table, Via::Client(1));
        }),
        ("Set", 0, |table| {
            let members = [at(b"a", FREE), held(b"b")].map(|at| Member { at, under: false });
            let caller = Caller::from(None);
            let queued = table.enqueue_set(&members, &JOIN, None, Via::Client(1), &caller);
            table.look_at_set_later(queued.expect("a set is queued").0);
        }),
        ("Bound", 0, |table| {
            let session = open(table, 1);
            table.bind((KeyRef::lock(0, b"k"), b"ann"), (Token::NONE, LEASE), session, NOW);
            assert_eq!(table.close_session(session), None);
        }),
        ("Bound", 1_000, |table| {
            let session = open(table, 1);
            table.bind((KeyRef::lock(0, b"k"), b"ann"), (Token::NONE, LEASE), session, NOW);
        }),
        ("TakeBack", 0, |table| {
            let key = KeyRef::lock(0, b"k").to_lock_key();
            wait(table, Via::Client(1));
            let Change::HandOff(granted) = table.look(&at(b"k", FREE), Cause::Outside) else {
                panic!("a waiter gets the lock")
            };
            let HandOff { id, owner, token, .. } = granted;
            table.queue_take_back(UnsentGrant { key, owner, id, token, permits: 0 });
        }),
    ];
    for (name, after, leave) in with_writes {
        let mut table = table();
        leave(&mut table);
        let now = later(after);
        while let Some(work) = table.next_work(now, false) {
            assert_eq!(work, Work::Done, "after {after} ms, instead of {name}");
        }
        let work = table.next_work(now, true).expect("it is due");
        assert!(format!("{work:?}").starts_with(name), "{work:?} instead of {name}");
    }
}
