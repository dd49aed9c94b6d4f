use super::*;
use crate::key::KeyRef;
use crate::observed::Observed;
use crate::outcome::Limits;
use crate::results::Results;
use crate::set::Member;
use crate::situation::Situation;
use crate::table::Table;
use crate::types::{Millis, MonoMillis, Now};
use crate::waiter::{Caller, Join};

const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };

fn join(owner: &[u8], want: Want) -> Join<'_> {
    Join { owner, want, lease: Millis(50), timeout: None }
}

/// Returns a table with a waiter for the locks `a` and, of `UNDER`, `top`; one waiter that shares `a`
/// alone; and one that wants `a` alone. Also returns the places at `a` and `top`, and those waiters.
fn world() -> (Table<u32>, [WaiterId; 2], [WaiterId; 2]) {
    let mut table = Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED });
    let at = |name| {
        let (key, seen) = (KeyRef::lock(0, name), Observed::Free { stored: None });
        Situation { key, seen, now: NOW, floor: Some(0), results: Results::NONE }
    };
    let members = [(&b"a"[..], false), (b"top", true)];
    let members = members.map(|(name, under)| Member { at: at(name), under });
    let caller = Caller::from(None);
    let set = join(b"ann", Want::Exclusive);
    let queued = table.enqueue_set(&members, &set, None, Via::Client(1), &caller);
    let (main, _) = queued.expect("a set is queued");
    let further = table.queues.places_of(main)[1].0;
    let singles = [(&b"bob"[..], Want::Shared), (b"carol", Want::Exclusive)];
    let singles = singles.map(|(owner, want)| table.enqueue(&at(b"a"), &join(owner, want), 2).0);
    assert_eq!(table.check(), Ok(()));
    (table, [main, further], singles)
}

/// Returns what the check reports after a change of the records of a world.
fn broken(change: impl FnOnce(&mut Queues<u32>, [(QueueId, WaiterId); 4])) -> String {
    let (mut table, [main, further], [shares, alone]) = world();
    let queues = &mut table.queues;
    let place = |id| (queues.waiter(id).map(|it| it.queue).unwrap_or_default(), id);
    let places = [main, further, shares, alone].map(place);
    change(queues, places);
    queues.check_sets().expect_err("it is broken")
}

#[test]
fn the_check_finds_waits_for_sets_without_their_places() {
    const NONE: WaiterId = WaiterId(999);
    let is_no_wait = |text: String| text.starts_with("I21") && text.contains("no waiter for a set");
    let further = |id| [(id, false)].into();
    let wait = |further| Wait { further, holds: None };
    assert!(is_no_wait(broken(|queues, [_, (_, place), ..]| {
        queues.sets.waits.insert(NONE, wait(further(place)));
    })));
    assert!(is_no_wait(broken(|queues, [(_, main), ..]| {
        queues.sets.waits.insert(main, wait(Box::default()));
    })));
    let elsewhere = broken(|queues, [(_, main), .., (_, alone)]| {
        queues.sets.waits.insert(main, wait(further(alone)));
    });
    assert!(elsewhere.contains("no place of"), "{elsewhere}");
}

#[test]
fn the_check_finds_sets_that_are_held_up_nowhere_or_twice() {
    let nowhere = broken(|queues, _| queues.sets.held_up.clear());
    assert!(nowhere.starts_with("I22"), "{nowhere}");
    let twice = broken(|queues, [_, further, ..]| queues.sets.held_up.extend([further]));
    assert!(twice.starts_with("I22"), "{twice}");
}

#[test]
fn the_check_finds_places_that_are_not_in_line() {
    let not_in_line = |text: String| text.contains("is not in line");
    assert!(not_in_line(broken(|queues, [(queue, main), ..]| {
        queues.move_beside(queue, main);
        queues.sets.beside.clear();
    })));
    assert!(not_in_line(broken(|queues, [main, ..]| queues.sets.beside.extend([main]))));
    // This waiter waits for one lock only.
    assert!(not_in_line(broken(|queues, [.., alone]| queues.sets.in_line.extend([alone]))));
}

#[test]
fn the_check_finds_places_that_are_not_beside_a_line() {
    let not_beside = |text: String| text.contains("beside a line");
    assert!(not_beside(broken(|queues, [(queue, main), ..]| {
        queues.sets.in_line.clear();
        queues.move_beside(queue, main);
    })));
    // This waiter waits for one lock only.
    assert!(not_beside(broken(|queues, [_, _, shares, _]| queues.sets.beside.extend([shares]))));
    assert!(not_beside(broken(|queues, [(queue, _), (_, further), ..]| {
        queues.sets.beside.insert((queue, further));
    })));
}

#[test]
fn a_set_is_tried_again_for_its_own_database() {
    let (mut table, [main, _], _) = world();
    let held_up_at =
        |table: &Table<u32>| table.set_is_held_up_at(main).map(|key| key.name.to_vec());
    while table.next_set(None).is_some() {}
    assert_eq!((table.has_sets_to_look_at(), held_up_at(&table)), (false, Some(b"a".to_vec())));
    table.look_at_set_later(main);
    assert_eq!(held_up_at(&table), None, "it is about to be tried again");
    assert_eq!([table.next_set(Some(1)), table.next_set(Some(0))], [None, Some(main)]);
    assert_eq!(table.next_set(None), None);
    // The same, if its queue is looked at.
    let queue = table.queues.find(KeyRef::lock(0, b"a")).expect("somebody waits");
    table.queues.note_sets(queue);
    assert_eq!([table.next_set(Some(1)), table.next_set(Some(0))], [None, Some(main)]);
    assert_eq!(table.next_set(None), None);
}
