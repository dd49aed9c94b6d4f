use super::*;
use crate::account::Accounts;
use crate::key::KeyRef;
use crate::news::HolderState;

fn key() -> LockKey {
    KeyRef::lock(0, b"key").to_lock_key()
}

fn ended(ending: Ending) -> Outcome {
    Outcome { key: key(), owner: b"ann".as_slice().into(), ending }
}

fn grant(id: u64) -> Ending {
    let (token, at) = (Token::NONE, MonoMillis(5));
    Ending::Granted(Granted { id: GrantId(id), token, holds: 1, permits: 0, at })
}

/// A change to version `version`, in which `bob` holds the lock.
fn change(version: u64) -> Changed {
    let owner = b"bob".as_slice().into();
    let holder_state = HolderState::Held { owner, token: None, value: None };
    let news = Rc::new(VersionedState { holder_state, version });
    Changed { observer: WaiterId(1), news, why: None }
}

fn push_change(outbox: &mut Outbox, version: u64) {
    outbox.push_change(key(), Rc::default(), change(version));
}

fn numbers(outbox: &Outbox) -> Vec<u64> {
    outbox.after(0).map(|(number, _)| number).collect()
}

#[test]
fn outcomes_are_charged_to_the_user_with_their_names() {
    let mut accounts = Accounts::default();
    let mut outbox = Outbox::of(accounts.of(b"user"));
    outbox.push(ended(Ending::TimedOut));
    assert_eq!((accounts.count(Quota::Waits), accounts.bytes()), (1, WAIT_BYTES + 6));
    push_change(&mut outbox, 1);
    assert_eq!((accounts.count(Quota::Waits), accounts.bytes()), (2, 2 * WAIT_BYTES + 12));
    assert!(outbox.free_one() && outbox.free_one() && outbox.free_one());
    assert!(!outbox.free_one());
    assert_eq!((accounts.count(Quota::Waits), accounts.bytes()), (0, 0));
}

#[test]
fn a_change_takes_the_number_of_an_unsent_change_only() {
    let mut outbox = Outbox::default();
    push_change(&mut outbox, 1);
    push_change(&mut outbox, 2);
    assert_eq!(numbers(&outbox), [1]);
    assert_eq!(outbox.change_of(WaiterId(1)).map(|news| news.version), Some(2));
    outbox.sent = 1;
    push_change(&mut outbox, 3);
    assert_eq!(numbers(&outbox), [2], "the client may have read number 1");
    assert_eq!(outbox.change_of(WaiterId(1)).map(|news| news.version), Some(3));
    assert_eq!(outbox.change_of(WaiterId(2)), None);
    assert_eq!(outbox.check(), Ok(()));
}

#[test]
fn a_reason_is_reported_until_it_is_acknowledged() {
    let mut outbox = Outbox::default();
    let released = Some(LossReason::Released);
    outbox.push_change(key(), Rc::default(), Changed { why: released, ..change(1) });
    let why = |outbox: &Outbox| {
        let (_, last) = outbox.after(0).last()?;
        last.ending.changed().and_then(|changed| changed.why)
    };
    outbox.sent = 1;
    push_change(&mut outbox, 2);
    assert_eq!(why(&outbox), released);
    outbox.sent = 2;
    outbox.acknowledge(2);
    push_change(&mut outbox, 3);
    assert_eq!(why(&outbox), None);
}

#[test]
fn acknowledged_outcomes_are_dropped_a_few_at_a_time() {
    let mut outbox = Outbox::default();
    for _ in 0..3 {
        outbox.push(ended(Ending::Cancelled));
    }
    outbox.sent = 3;
    assert!(!outbox.has_acknowledged());
    outbox.acknowledge(2);
    assert_eq!((outbox.prune(1), outbox.has_acknowledged()), (1, true));
    assert_eq!((outbox.prune(9), outbox.has_acknowledged()), (1, false));
    assert_eq!((outbox.len(), outbox.last()), (1, 3));
}

#[test]
fn only_grants_that_were_not_sent_are_taken_back() {
    let mut outbox = Outbox::default();
    for id in [1, 2] {
        outbox.push(ended(grant(id)));
    }
    outbox.push(ended(Ending::TimedOut));
    push_change(&mut outbox, 1);
    outbox.sent = 1;
    let taken = std::iter::from_fn(|| outbox.take_first());
    let taken: Vec<_> = taken.map(|unsent| unsent.map(|unsent| unsent.id)).collect();
    assert_eq!(taken, [None, Some(GrantId(2)), None, None]);
    assert_eq!(outbox.check(), Ok(()));
}

#[test]
fn the_check_finds_changes_that_are_not_kept_and_numbers_out_of_order() {
    let mut outbox = Outbox::default();
    push_change(&mut outbox, 1);
    assert_eq!(outbox.check(), Ok(()));
    let broken = |break_it: &dyn Fn(&mut Outbox)| {
        let mut outbox = Outbox::default();
        push_change(&mut outbox, 1);
        break_it(&mut outbox);
        let name = outbox.check().err().map(|text| text.chars().take(3).collect::<String>());
        name.unwrap_or_default()
    };
    assert_eq!(broken(&|outbox| outbox.changes.clear()), "I20");
    assert_eq!(broken(&|outbox| outbox.changes.extend([(WaiterId(1), 9)])), "I20");
    assert_eq!(broken(&|outbox| outbox.changes.extend([(WaiterId(2), 1)])), "I20");
    assert_eq!(broken(&|outbox| outbox.sent = 2), "I16");
    assert_eq!(broken(&|outbox| outbox.acked = 1), "I16");
}
