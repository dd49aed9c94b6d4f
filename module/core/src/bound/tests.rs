use super::*;
use crate::outcome::Limits;
use crate::types::MonoMillis;

const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
const KEY: KeyRef<'static> = KeyRef::lock(0, b"k");

/// Returns a table with one binding, the session, and the place of the binding.
fn bound() -> (Table<u32>, SessionId, Place) {
    let mut table = Table::new(Limits::UNLIMITED);
    let session = table.open_session([1; 32], b"user", Millis(60_000), NOW);
    let session = session.expect("there is room");
    table.bind((KEY, b"ann"), (Token::NONE, Millis(50)), session, NOW);
    let place = table.bindings.find(KEY, b"ann").expect("it is bound");
    assert_eq!(table.check(), Ok(()));
    (table, session, place)
}

/// The lock may have been lost in the meantime, without the module noticing.
#[test]
fn a_binding_is_looked_at_within_a_minute_however_long_the_lease_is() {
    let (mut table, session, _) = bound();
    let day = Millis(86_400_000);
    table.bind((KEY, b"ann"), (Token::NONE, day), session, NOW);
    let minute = |n: u64| {
        let mono = MonoMillis(NOW.mono.0 + n * 60_000);
        Now { unix_us: NOW.unix_us + n * 60_000_000, mono }
    };
    for n in 1..3 {
        let before = minute(n);
        let before = Now { mono: MonoMillis(before.mono.0 - 1), ..before };
        assert_eq!(table.next_binding(before), None);
        let due = table.next_binding(minute(n)).expect("it is due");
        assert!(!due.is_orphan);
        table.stays_bound(&due, UnixMillis(NOW.unix_us / 1_000).plus(day), minute(n));
    }
    let due = table.next_binding(minute(3)).expect("it is due");
    table.not_bound(&due);
    assert_eq!(table.bound(), 0);
}

#[test]
fn the_check_finds_a_binding_that_is_not_looked_at() {
    let (mut table, ..) = bound();
    table.bindings.looks.clear();
    assert!(table.check_bound().is_err_and(|text| text.contains("nobody looks")));
    let (mut table, _, place) = bound();
    table.bindings.looks.insert((MonoMillis(7), place));
    assert!(table.check_bound().is_err_and(|text| text.contains("2 looks at 1")));
}

#[test]
fn the_check_finds_a_binding_of_no_session() {
    let unlisted = || {
        let (mut table, session, place) = bound();
        table.sessions.get_mut(session).expect("it is open").bound.clear();
        (table, place)
    };
    let (mut table, place) = unlisted();
    assert!(table.check_bound().is_err_and(|text| text.contains("a session that is gone")));
    // It may be on one of the lists of bindings whose sessions have ended.
    table.bindings.orphan([place].into());
    assert_eq!(table.check_bound(), Ok(()));
    let (mut table, place) = unlisted();
    table.bindings.forget([place].into());
    assert_eq!(table.check_bound(), Ok(()));
    let (mut table, place) = unlisted();
    table.bindings.refused.insert(place);
    assert_eq!(table.check_bound(), Ok(()));
}

#[test]
fn the_check_finds_a_session_with_more_than_its_bindings() {
    let (mut table, session, _) = bound();
    table.sessions.get_mut(session).expect("it is open").bound.insert((1, 1));
    assert!(table.check_bound().is_err_and(|text| text.contains("sessions have more")));
}

#[test]
fn the_check_finds_a_key_that_is_bound_twice_for_one_owner() {
    let (mut table, session, (hash, number)) = bound();
    let again = (hash, number + 1);
    let account = table.account(b"user");
    let binding = Binding {
        key: KEY.to_lock_key(),
        owner: b"ann".as_slice().into(),
        token: Token::NONE,
        session,
        look: MonoMillis(9),
        _charge: account.charge(Quota::Bound, 0),
    };
    table.bindings.all.insert(again, binding);
    table.bindings.looks.insert((MonoMillis(9), again));
    table.sessions.get_mut(session).expect("it is open").bound.insert(again);
    assert!(table.check_bound().is_err_and(|text| text.contains("bound twice")));
}
