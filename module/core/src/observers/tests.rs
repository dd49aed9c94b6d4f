use super::*;
use crate::outcome::Limits;
use crate::types::MonoMillis;

const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
const KEY: KeyRef<'static> = KeyRef::lock(0, b"k");

fn held(owner: u8) -> HolderState {
    HolderState::Held { owner: [owner].into(), token: None, value: None }
}

/// Returns a table with a lock and this number of observers, and its queue.
fn observed(observers: u8) -> (Table<u32>, QueueId) {
    let mut table = Table::new(Limits::UNLIMITED);
    for name in 0..observers {
        let session = table.open_session([name; 32], b"user", Millis(60_000), NOW);
        let session = session.expect("there is room");
        assert!(table.observe(KEY, NOW, (HolderState::Vacant, None), session).is_ok());
    }
    let queue = table.queues.find(KEY.of_kind(Kind::Changes)).expect("it is observed");
    assert_eq!(table.check(), Ok(()));
    (table, queue)
}

fn becomes(table: &mut Table<u32>, holder_state: HolderState) {
    table.notice(KEY, NOW, Some(Cause::Outside), (holder_state, None));
}

fn broken(table: &Table<u32>) -> bool {
    table.check_observers().is_err_and(|text| text.starts_with("I20"))
}

#[test]
fn the_check_finds_an_observer_that_knows_too_much_or_too_little() {
    let (mut table, queue) = observed(1);
    let (id, _) = table.queues.walk(queue).next().expect("it observes");
    let version = table.watches.all[&queue].news.version;
    for wrong in [version + 1, version - 1] {
        table.queues.now_knows(id, wrong);
        assert!(broken(&table), "{wrong}");
    }
    table.queues.now_knows(id, version);
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn the_check_finds_a_round_that_left_out_an_observer() {
    let (mut table, queue) = observed(20);
    becomes(&mut table, held(1));
    let round = table.watches.all[&queue].round.expect("some are not informed yet");
    let ids = Vec::from_iter(table.queues.walk(queue).map(|(id, _)| id));
    assert_eq!((round.after, table.check()), (Some(ids[15]), Ok(())));
    let mut set_round = |round: Option<Round>| {
        table.watches.all.get_mut(&queue).expect("it is observed").round = round;
        broken(&table)
    };
    // The round has passed an observer that was not informed.
    assert!(set_round(Some(Round { after: Some(ids[16]), ..round })));
    assert!(set_round(None));
    // If another round follows, the observer will be informed then.
    assert!(!set_round(Some(Round { after: Some(ids[16]), again: true })));
    assert!(!set_round(Some(round)));
    table.watches.telling.clear();
    assert!(broken(&table));
}

#[test]
fn the_check_finds_an_old_change_and_a_wrong_number_of_observers() {
    let (mut table, queue) = observed(1);
    becomes(&mut table, held(1));
    let (id, waiter) = table.queues.walk(queue).next().expect("it observes");
    let session = waiter.via.session().expect("it has a session");
    let news = Rc::new(VersionedState { holder_state: held(2), version: 99 });
    let changed = Changed { observer: id, news, why: None };
    let outbox = &mut table.sessions.get_mut(session).expect("it is open").outbox;
    outbox.push_change(KEY.to_lock_key(), Rc::default(), changed);
    assert!(broken(&table));

    let (mut table, _) = observed(2);
    table.watches.observers = 1;
    assert!(broken(&table));
}

#[test]
fn an_observer_that_asked_for_the_state_meanwhile_is_not_informed_of_it_again() {
    let (mut table, queue) = observed(40);
    becomes(&mut table, held(1));
    assert_eq!((table.observers_of(KEY), table.counters.changes_told), (40, 16));
    assert!(table.sessions_have_work());
    let (id, last) = table.queues.walk(queue).last().expect("it observes");
    let session = last.via.session().expect("it has a session");
    assert!(table.observe(KEY, NOW, (held(1), None), session).is_ok());
    while table.inform_next() {}
    assert!(!table.sessions_have_work());
    assert_eq!((table.counters.changes_told, table.check()), (39, Ok(())));
    let outbox = &table.sessions.get(session).expect("it is open").outbox;
    assert_eq!(outbox.change_of(id), None);
}

#[test]
fn the_end_of_the_lease_is_looked_at_if_no_regular_look_comes_before() {
    let regular = NOW.unix().plus(REGULARLY);
    for (until, expected) in [
        (None, (regular, true)),
        (Some(UnixMillis(1_500)), (UnixMillis(1_501), false)),
        (Some(UnixMillis(regular.0 - 1)), (regular, false)),
        (Some(regular), (regular, true)),
    ] {
        let (mut table, queue) = observed(1);
        table.notice(KEY, NOW, None, (held(1), until));
        let look = table.queues.queue(queue).and_then(|queue| queue.look);
        assert_eq!(look.map(|look| (look.due, look.checks)), Some(expected), "{until:?}");
    }
}
