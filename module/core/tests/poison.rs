//! One poisoned hash must not spoil the locks of the whole server.
//!
//! Anybody may write the largest token that is believed. The tokens that are issued after it are
//! larger than that, and as good as any other: they are written to hashes, and read back.

use kvlock_core::{
    Acquire, AcquireReply, Change, Join, KeyRef, Limits, Millis, MonoMillis, Now, Observed,
    Release, Situation, TOKEN_FIELD, TOKEN_STORED_MAX, Table, Token, UnixMillis,
};

fn at(seen: Observed<'_>) -> Situation<'_> {
    Situation {
        key: KeyRef { db: 0, name: b"orders" },
        seen,
        now: Now { unix_us: 1_000_000_000, mono: MonoMillis(0) },
        floor: 0,
    }
}

/// What is read from the hash of a holder with this token.
fn held<'a>(owner: &'a str, token: &'a str) -> Observed<'a> {
    let fields = [(owner.as_bytes(), &b"1"[..]), (TOKEN_FIELD, token.as_bytes())];
    Observed::from_fields(fields, Some(UnixMillis(1_010_000)))
}

fn acquire(table: &mut Table<()>, seen: Observed<'_>, owner: &str) -> Token {
    let request = Acquire { owner: owner.as_bytes(), lease: Millis(1_000), holds: None };
    match table.acquire(&at(seen), &request) {
        (AcquireReply::Granted { token, .. }, _) => token,
        (other, _) => panic!("{other:?}"),
    }
}

/// A table that met the largest token that is believed, in another lock.
fn poisoned() -> Table<()> {
    let mut table = Table::new(Limits { waiters: 10, waiters_per_key: 10, draining: false });
    let stored = Token::from_stored(TOKEN_STORED_MAX);
    let token = acquire(&mut table, Observed::Free { stored }, "mallory");
    assert!(token.value() > TOKEN_STORED_MAX);
    table
}

#[test]
fn a_token_beyond_those_that_are_believed_is_kept_by_a_reentry() {
    let mut table = poisoned();
    let token = acquire(&mut table, Observed::Free { stored: None }, "alice");
    let in_the_hash = token.value().to_string();
    let again = acquire(&mut table, held("alice", &in_the_hash), "alice");
    assert_eq!(again, token, "it is the same grant");
}

#[test]
fn a_grant_with_a_token_beyond_those_that_are_believed_can_be_taken_back() {
    let mut table = poisoned();
    let join = Join { owner: b"bob", lease: Millis(1_000), timeout: None };
    let alice = at(held("alice", "1000000000"));
    table.enqueue(&alice, &join, ());
    let (_, change) = table.release(&alice, b"alice", Release::One);
    let token = change.issued().expect("it is bob's");
    let in_the_hash = token.value().to_string();
    let change = table.take_back(&at(held("bob", &in_the_hash)), b"bob", token);
    assert_eq!(change, Change::Free, "bob was gone");
}
