//! Plays the conversations in `tests/transcripts`, each in the protocols that it names.

use harness::kind::workspace;
use harness::transcript::{run_file, run_file_on};
use harness::{Kind, on_each_server};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn folder() -> PathBuf {
    workspace().join("tests/transcripts")
}

macro_rules! transcripts {
    ($($name:ident),+ $(,)?) => {
        const LISTED: &[&str] = &[$(stringify!($name)),+];
        $(
            #[test]
            fn $name() {
                run_file(&folder().join(concat!(stringify!($name), ".txt")));
            }
        )+
    };
}

transcripts!(
    acquire_and_release,
    cancel,
    holds_acquire,
    holds_release,
    info,
    info_waiters,
    latch,
    limits,
    list,
    not_locks,
    observe,
    profile,
    reentry,
    renew,
    renew_token,
    replaced_waiter,
    semaphore,
    semaphore_lease,
    semaphore_wait,
    session,
    session_outcomes,
    shared,
    shared_info,
    shared_layout,
    value,
    wait_and_hand_off,
    wait_timeout,
);

/// What servers may do differently, on each of them.
macro_rules! on_each {
    ($($name:ident),+ $(,)?) => {
        const ON_EACH: &[&str] = &[$(stringify!($name)),+];
        $(
            fn $name(kind: Kind) {
                run_file_on(&folder().join(concat!(stringify!($name), ".txt")), &kind);
            }
        )+
        on_each_server!($($name),+);
    };
}

on_each!(
    asleep,
    bound,
    clocks,
    contexts,
    crowds,
    deaths,
    failovers,
    floor,
    foreign_changes,
    foreign_writes,
    latches,
    loading,
    modules,
    observers,
    panics,
    pauses,
    permits,
    promotions,
    quarantine,
    readers,
    reconnects,
    redisson,
    refused_writes,
    roles,
    searches,
    session_away,
    session_ends,
    session_trouble,
    turns,
    unloading,
    watchers,
);

#[test]
fn every_file_of_the_folder_is_listed() {
    let files = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let listed = LISTED.iter().chain(ON_EACH).map(|name| format!("{name}.txt"));
    assert_eq!(files.collect::<BTreeSet<_>>(), listed.collect());
}
