//! The clocks of the servers are five seconds apart when one takes over from the other.

use super::lost::{acquire, end_quarantine, following};
use super::{LEASE, Seen};
use crate::setting::Setting;
use harness::clock::Clock;
use harness::observe;
use harness::site::Site;
use std::time::Instant;
use tokio::runtime::Runtime;

const APART_MS: i64 = 5000;

/// Somebody holds a lock whose lease nobody renews, and another whose lease is renewed. The clock of
/// the next primary is ahead in one try and behind in the next.
pub(super) fn apart(setting: Setting, number: u64, runtime: &Runtime) -> Seen {
    let ahead = if number.is_multiple_of(2) { APART_MS } else { -APART_MS };
    let clock = Clock::new();
    clock.set(ahead);
    let options = setting.options(LEASE);
    let other = options.clone().clock(&clock);
    let site = Site::start(&[options, other.clone(), other]);
    end_quarantine(&site);
    let before = site.primary();
    let holder = runtime.block_on(following(&site, setting));
    let waiter = runtime.block_on(following(&site, setting));
    let watched = runtime.block_on(acquire(&holder, "watched"));
    let asked = Instant::now();
    let lock = holder.lock("fixed").fixed_lease(LEASE);
    let fixed = runtime.block_on(lock.try_acquire()).expect("it answers").expect("it is free");
    for replica in [1, 2] {
        let mut there = site.server(replica).connect();
        observe::wait_for_replica(&mut site.server(before).connect(), &mut there);
    }
    site.server(before).kill9();
    site.wait_for_successor(before);
    let next = runtime.block_on(acquire(&waiter, "fixed"));
    let (taken, end) = (asked.elapsed(), LEASE);
    let mut seen = Seen { granted: 2, ..Seen::default() };
    seen.believed(!fixed.is_lost());
    seen.token(Some(fixed.token().value()), next.token().value());
    // What is renewed after the failover is counted by the next primary's own clock.
    let lock = waiter.lock("watched");
    let stolen = runtime.block_on(lock.acquire_within(LEASE)).expect("it answers");
    seen.believed(stolen.is_some() && !watched.is_lost());
    seen.lost = u64::from(watched.is_lost());
    let (word, by) = if taken < end { ("early", end - taken) } else { ("late", taken - end) };
    seen.notes.insert(format!(
        "{}, clock of the next primary {ahead:+} ms: the next had a lock whose lease nobody renews \
         {} ms {word}; the renewed one was {}",
        setting.name(),
        by.as_millis(),
        if watched.is_lost() { "lost" } else { "kept" },
    ));
    seen
}
