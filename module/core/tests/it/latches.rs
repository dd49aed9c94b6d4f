//! Latches against a model. After every operation, the table and the model must give the same
//! replies, write the same and release the same waiters.

use kvlock_core::{
    CountDownReply, Join, Latch, LatchAt, LatchChange, Limits, Millis, MonoMillis, Now, Table,
    Want, Work,
};
use kvlock_core_reference::latches::World;
use kvlock_core_reference::latches::world::KEY;
use kvlock_core_reference::{check, counted};

#[test]
fn latches_follow_the_contract() {
    check::<World>();
}

#[test]
fn five_hundred_walks_meet_every_case_often() {
    let counted = counted(500, |world: &World| {
        let counters = world.counters();
        [
            counters.latches_opened,
            counters.released_by_latches,
            counters.repeated,
            counters.timeouts,
            counters.cancelled,
            counters.disconnects,
        ]
    });
    assert!(counted.iter().all(|count| *count > 30), "{counted:?}");
}

#[test]
fn a_count_is_read_as_written_and_zero_is_not_a_latch() {
    for left in [1, 7, Latch::COUNT_MAX] {
        assert_eq!(Latch::read_left(Latch::text(left).as_bytes()), Some(left));
    }
    assert_eq!(Latch::text(3), "latch 3");
    for other in ["", "latch", "latch ", "latch 0", "latch 01", "latch 4294967296", "semaphore 3 1"]
    {
        assert_eq!(Latch::read_left(other.as_bytes()), None, "{other:?}");
    }
}

/// A latch with 100,000 waiters opens at once. The waiters are answered in order of arrival.
#[test]
fn a_latch_with_a_long_queue_opens_at_once() {
    let limits = Limits { waiters: usize::MAX, waiters_per_key: usize::MAX, ..Limits::UNLIMITED };
    let mut table = Table::new(limits);
    let now = Now { unix_us: 1_000_000, mono: MonoMillis(1_000) };
    let seen = Latch::Counting { left: 1, counted: false, until: None };
    let at = LatchAt { key: KEY, seen, now };
    for number in 0..100_000_u32 {
        let name = number.to_be_bytes();
        let timeout = Some(Millis(10));
        let join = Join { owner: &name, want: Want::LatchOpen, lease: Millis(0), timeout };
        table.enqueue(&at, &join, number);
    }
    assert_eq!(table.count_down(&at), (CountDownReply::Left(0), LatchChange::Open));
    assert_eq!((table.waiters_of(KEY), table.has_opened()), (0, true));
    // If nothing were due, the module would disarm its timer, and no waiter would be answered.
    assert_eq!(table.next_due(now), Some(Millis(0)));
    // The timeouts of the waiters have passed, but the waiters are released: none of them is
    // answered as timed out.
    let later = Now { mono: MonoMillis(5_000), ..now };
    let over: Vec<_> = std::iter::from_fn(|| table.time_out_one(later)).collect();
    assert!(over.iter().all(Option::is_none));
    let told = std::iter::from_fn(|| table.next_opened()).flatten();
    assert!(told.eq(0..100_000));
    assert_eq!((table.waiters(), table.has_opened()), (0, false));
    assert_eq!(table.next_due(now), None);
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn waiters_of_an_open_latch_are_not_drained() {
    let mut table = Table::new(Limits::UNLIMITED);
    let now = Now { unix_us: 1_000_000, mono: MonoMillis(1_000) };
    let at =
        LatchAt { key: KEY, seen: Latch::Counting { left: 1, counted: false, until: None }, now };
    for number in 0..20_u32 {
        let name = number.to_be_bytes();
        let join = Join { owner: &name, want: Want::LatchOpen, lease: Millis(0), timeout: None };
        table.enqueue(&at, &join, number);
    }
    assert_eq!(table.count_down(&at), (CountDownReply::Left(0), LatchChange::Open));
    table.limits.draining = true;
    let mut answered = Vec::new();
    while let Some(work) = table.next_work(now, true) {
        assert!(matches!(work, Work::Opened(_)), "{work:?}");
        answered.push(work);
    }
    assert_eq!(answered.len(), 20);
}
