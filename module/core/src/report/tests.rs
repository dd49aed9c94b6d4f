use super::*;
use crate::agenda::{Agenda, Look};
use crate::change::Change;
use crate::ids::{QueueId, SessionId, WaiterId};
use crate::mode::Want;
use crate::observed::Observed;
use crate::outcome::{Cause, Limits};
use crate::results::Results;
use crate::sessions::Sessions;
use crate::situation::Situation;
use crate::types::{Millis, MonoMillis, Now, UnixMillis};
use crate::waiter::Join;

const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };

fn table() -> Table<u32> {
    Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED })
}

/// Queues a waiter with a timeout at a key that expires.
fn wait(table: &mut Table<u32>, key: KeyRef<'_>, owner: &[u8], now: Now) -> WaiterId {
    let timeout = Some(Millis(9));
    let join = Join { owner, want: Want::Exclusive, lease: Millis(9), timeout };
    table.enqueue_at(key, now, Some(UnixMillis(1_050)), &join, 0.into()).0
}

/// Returns a table with two waiters for one lock and one for another, these three waiters, and
/// the queue of the first lock.
fn three() -> (Table<u32>, [WaiterId; 3], QueueId) {
    let (mut table, key) = (table(), KeyRef::lock(0, b"k"));
    let first = wait(&mut table, key, b"a", NOW);
    let second = wait(&mut table, key, b"b", NOW);
    let third = wait(&mut table, KeyRef::lock(0, b"other"), b"a", NOW);
    assert_eq!(table.check(), Ok(()));
    let queue = table.queues.find(key).expect("somebody waits");
    (table, [first, second, third], queue)
}

/// Returns the name of the broken invariant.
fn broken(table: &Table<u32>) -> String {
    table.check().expect_err("it is broken").chars().take(2).collect()
}

#[test]
fn the_check_finds_a_waiter_at_the_wrong_place() {
    let (mut table, [.., third], queue) = three();
    table.queues.waiter_mut(third).expect("it waits").queue = queue;
    assert_eq!(broken(&table), "I1");
    let (mut table, _, queue) = three();
    // The queue counts more waiters than it has.
    table.queues.queue_mut(queue).expect("it is there").len = 9;
    assert_eq!(broken(&table), "I1");
    let (mut table, [_, second, _], queue) = three();
    // A waiter is not in line.
    table.queues.step_out(second);
    assert_eq!(broken(&table), "I1");
    table.queues.queue_mut(queue).expect("it is there").len = 1;
    assert_eq!(broken(&table), "I1");
}

#[test]
fn the_check_finds_a_waiter_without_its_own_place() {
    let (mut table, [_, second, _], _) = three();
    table.queues.waiter_mut(second).expect("it waits").owner = b"a".as_slice().into();
    assert_eq!(broken(&table), "I2");
}

#[test]
fn the_check_finds_missing_and_superfluous_plans() {
    let (mut table, ..) = three();
    table.agenda = Agenda::default();
    assert_eq!(broken(&table), "I5");

    // An entry is missing, at a wrong time, or superfluous.
    let (mut table, [first, ..], queue) = three();
    let end = Some(NOW.mono.plus(Millis(9)));
    table.agenda.drop_wait(None, end, first);
    assert_eq!(broken(&table), "I5");
    table.agenda.add_wait(None, Some(MonoMillis(7)), first);
    assert_eq!(broken(&table), "I5");
    table.agenda.add_wait(None, end, first);
    assert_eq!(broken(&table), "I5");
    table.agenda.drop_wait(None, Some(MonoMillis(7)), first);
    assert_eq!(table.check(), Ok(()));
    let look = |due| Some(Look { due: UnixMillis(due), flow: None, checks: false });
    table.agenda.move_look(queue, look(1_051), look(7));
    assert_eq!(broken(&table), "I5");
    table.agenda.move_look(queue, None, look(1_051));
    assert_eq!(broken(&table), "I5");
    table.agenda.move_look(queue, look(7), None);
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn the_check_finds_missing_and_superfluous_ends_of_sessions() {
    let mut table = table();
    let id = table.open_session([1; 32], b"user", Millis(9), NOW).expect("there is room");
    let end = NOW.mono.plus(Millis(9));
    assert_eq!(table.check(), Ok(()));
    table.agenda.drop_alarm(end, id);
    assert_eq!(broken(&table), "I1");
    table.agenda.add_alarm(MonoMillis(7), id);
    assert_eq!(broken(&table), "I1");
    table.agenda.add_alarm(end, id);
    assert_eq!(broken(&table), "I1");
    table.agenda.drop_alarm(MonoMillis(7), id);
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn the_check_finds_more_waiters_than_allowed() {
    let (mut table, ..) = three();
    table.limits.waiters_per_key = 1;
    assert_eq!(table.check(), Ok(()), "the limit was lowered meanwhile");
    table.counters.waiters_peak = 1;
    assert_eq!(broken(&table), "I7");
    table.counters.waiters_peak = 2;
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn the_locks_of_a_database_are_listed_by_how_many_wait_and_then_by_how_long() {
    let (mut table, ..) = three();
    let earlier = Now { mono: MonoMillis(4), ..NOW };
    wait(&mut table, KeyRef::lock(0, b"older"), b"a", earlier);
    wait(&mut table, KeyRef::lock(1, b"elsewhere"), b"a", NOW);
    wait(&mut table, KeyRef::latch(0, b"latch"), b"a", NOW);
    wait(&mut table, KeyRef::semaphore(0, b"pool"), b"a", NOW);
    let listed = |count| {
        let found = table.most_waited_for(0, count);
        Vec::from_iter(found.into_iter().map(|lock| (lock.key.name.to_vec(), lock.waiters)))
    };
    let all = [(b"k".to_vec(), 2), (b"older".to_vec(), 1), (b"other".to_vec(), 1)];
    assert_eq!(listed(9), all);
    assert_eq!(listed(1), all[..1]);
    assert_eq!(table.most_waited_for(1, 9).len(), 1);
    assert_eq!((table.waiters(), table.waiting_keys()), (7, 6));
    assert_eq!(table.waiters_of(KeyRef::lock(0, b"k")), 2);
    assert_eq!(table.waiters_of(KeyRef::latch(0, b"k")), 0);
}

/// Returns a table with a session that has a wait and an outcome, and the session.
fn session() -> (Table<u32>, SessionId) {
    let mut table = table();
    let id = table.open_session([1; 32], b"user", Millis(9), NOW).expect("there is room");
    let key = KeyRef::lock(0, b"k");
    for owner in [b"a".as_slice(), b"b"] {
        let join = Join { owner, want: Want::Exclusive, lease: Millis(9), timeout: None };
        table.enqueue_at(key, NOW, None, &join, Via::Session(id));
    }
    assert_eq!(table.cancel(key, b"a"), Some(None));
    assert_eq!((table.session_waits(), table.check()), ((1, 1), Ok(())));
    (table, id)
}

#[test]
fn the_check_finds_wrong_counts_of_sessions() {
    let broken_by = |break_it: &dyn Fn(&mut Sessions<u32>)| {
        let (mut table, _) = session();
        break_it(&mut table.sessions);
        let text = table.check().expect_err("it is broken");
        text.chars().take(3).collect::<String>()
    };
    assert_eq!(broken_by(&|sessions| sessions.waits = 2), "I14");
    assert_eq!(broken_by(&|sessions| sessions.outcomes = 2), "I16");
    assert_eq!(broken_by(&|sessions| sessions.away = 1), "I15");
}

#[test]
fn the_check_finds_waits_that_are_listed_elsewhere() {
    let (mut table, id) = session();
    let other = table.open_session([2; 32], b"user", Millis(9), NOW).expect("there is room");
    let wait = table.queues.first().expect("somebody waits");
    table.sessions.leave(id, wait);
    assert!(table.check().is_err_and(|text| text.starts_with("I14")));
    table.sessions.join(other, wait);
    assert!(table.check().is_err_and(|text| text.starts_with("I14")));
}

#[test]
fn a_waiter_is_found_by_its_key_and_owner() {
    let (table, ..) = three();
    let found = |name: &[u8], owner: &[u8]| table.waits_for(KeyRef::lock(0, name), owner);
    assert!(found(b"k", b"a") && found(b"k", b"b") && found(b"other", b"a"));
    assert!(!found(b"other", b"b") && !found(b"none", b"a"));
    assert_eq!(table.blocked(), 3);
    let (table, _) = session();
    assert_eq!((table.blocked(), table.waiters()), (0, 1));
}

#[test]
fn waiting_times_are_measured_and_reset() {
    let (mut table, key) = (table(), KeyRef::lock(0, b"k"));
    wait(&mut table, key, b"a", NOW);
    let now = Now { mono: NOW.mono.plus(Millis(7)), ..NOW };
    let seen = Observed::Free { stored: None };
    let at = Situation { key, seen, now, floor: Some(0), results: Results::NONE };
    assert!(matches!(table.look(&at, Cause::Outside), Change::HandOff(_)));
    let costs: Vec<_> = table.profile(0, 9).iter().map(|(_, cost)| cost.waited).collect();
    assert_eq!((costs, table.wait_times().count()), (vec![Millis(7)], 1));
    table.reset_profile();
    assert!(table.profile(0, 9).is_empty());
}

#[test]
fn bindings_to_forget_are_work() {
    let mut table = table();
    assert!(!table.sessions_have_work());
    table.bindings.forget([(1, 1)].into());
    assert!(table.sessions_have_work());
    while table.work_on_sessions() {}
    assert!(!table.sessions_have_work());
}
