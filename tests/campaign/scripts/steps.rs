//! The steps of each script. In some scripts, grants are lost with their primary, because the promoted replica
//! does not have them. In others, two servers act as primary, each with a client, or a killed primary restarts
//! at once. In one, the clocks of the servers differ by five seconds at a failover.

use super::TryResult;
use super::contest::{Contest, LEASE, REPLICAS, Stage};
use crate::setting::Setting;
use harness::clock::Clock;
use harness::{Options, Server, Value, observe};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for the grants of the next primary, before the old one is reconnected or resumed.
const APART: Duration = Duration::from_secs(40);

/// Difference between the clocks of the first primary and its replicas.
const CLOCKS_MS: i64 = 5000;

/// The replicas are cut off from the primary. Then a client requests a lock, and the primary is killed.
pub(super) fn lost_link(setting: Setting, _number: u64) -> TryResult {
    forgotten(setting, |stage| stage.site.proxy(stage.before).cut())
}

/// Like [`lost_link`], but one replica is not cut off. The other one, which did not receive the grant, is
/// promoted.
pub(super) fn stale(setting: Setting, _number: u64) -> TryResult {
    forgotten(setting, |stage| {
        let next = stage.site.proxy(REPLICAS).port();
        stage.site.proxy(stage.before).cut_replica(next);
    })
}

fn forgotten(setting: Setting, cut: fn(&Stage)) -> TryResult {
    let stage = Stage::start(setting, None);
    let Stage { site, before, runtime, .. } = &stage;
    let (inside, outside, lock) = (stage.inside(), stage.outside(), Contest::of("k"));
    for left in (0..5).rev() {
        cut(&stage);
        let is_refused = matches!(setting, Setting::MinReplicas | Setting::AllReplicas);
        if runtime.block_on(lock.take(&inside)) || is_refused || left == 0 {
            break;
        }
        // On a busy machine, the request may come so late after the cut that the primary refuses it because
        // of missing replicas.
        site.proxy(*before).heal();
        stage.wait_for_replicas();
    }
    site.server(*before).kill9();
    let after = site.wait_for_successor(*before);
    assert_eq!(after, REPLICAS, "it is preferred");
    site.proxy(*before).heal();
    let known = site.server(after).connect().run("EXISTS k");
    let is_lost = lock.inside.get().is_some() && known == Value::Integer(0);
    site.server(*before).restart();
    runtime.block_on(lock.clone().acquire(outside));
    TryResult { lost: is_lost.into(), ..stage.end(&[lock]) }
}

/// The primary has no files, is killed and restarts at once. Its replicas copy the empty data set, unless the
/// Sentinels replace it first.
pub(super) fn back_empty(setting: Setting, _number: u64) -> TryResult {
    comes_back(setting, Server::options().in_memory())
}

/// Like [`back_empty`], with an append-only file that is synced before each reply.
pub(super) fn back_with_data(setting: Setting, _number: u64) -> TryResult {
    comes_back(setting, Server::options().in_memory().append_only("always"))
}

/// One client holds a lock with a lease that is not renewed. The primary is killed and restarts at once, and
/// another client requests that lock.
fn comes_back(setting: Setting, options: Options) -> TryResult {
    let stage = Stage::start_with(setting, setting.extend(options, LEASE, REPLICAS as u32), None);
    let Stage { site, before, runtime, .. } = &stage;
    let (inside, outside, lock) = (stage.inside(), stage.outside(), Contest::of("k"));
    runtime.block_on(lock.take(&inside));
    let server = site.server(*before);
    server.restart();
    let known = server.connect().run("EXISTS k");
    site.wait_until_in_order();
    let note = (site.primary() != *before).then(|| "the Sentinels had replaced it".to_owned());
    let is_lost = lock.inside.get().is_some() && known == Value::Integer(0);
    runtime.block_on(lock.clone().acquire(outside));
    TryResult { lost: is_lost.into(), note, ..stage.end(&[lock]) }
}

/// Pauses the primary, and resumes it after another has replaced it. A client's request to the paused primary
/// waits there until the primary resumes.
pub(super) fn paused(setting: Setting, _number: u64) -> TryResult {
    let signal = |stage: &Stage, signal| stage.site.server(stage.before).signal(signal);
    separate_primary(
        &["k"],
        setting,
        |it| signal(it, Signal::SIGSTOP),
        |it| signal(it, Signal::SIGCONT),
    )
}

/// Cuts the primary off from the replicas, the Sentinels and all clients but one. That client holds a lock and
/// tries to acquire another.
pub(super) fn partition(setting: Setting, _number: u64) -> TryResult {
    let cut = |stage: &Stage| stage.site.proxy(stage.before).cut();
    separate_primary(&["held", "fresh"], setting, cut, |stage| {
        stage.site.proxy(stage.before).heal();
    })
}

/// All locks except the last are held when the primary is cut off or paused. The last is requested after
/// that.
fn separate_primary(
    keys: &[&'static str],
    setting: Setting,
    part: impl Fn(&Stage),
    join: impl Fn(&Stage),
) -> TryResult {
    let stage = Stage::start(setting, None);
    let Stage { site, before, runtime, .. } = &stage;
    let (inside, outside) = (stage.inside(), stage.outside());
    let locks: Vec<Arc<Contest>> = keys.iter().map(|key| Contest::of(key)).collect();
    let (fresh, held) = locks.split_last().expect("there is one");
    held.iter().for_each(|held| runtime.block_on(held.acquire_inside(&inside)));
    part(&stage);
    let asking = runtime.spawn(fresh.clone().insist(inside));
    site.wait_for_successor(*before);
    let acquire = |lock: &Arc<Contest>| runtime.spawn(lock.clone().acquire(outside.clone()));
    let acquiring: Vec<_> = locks.iter().map(acquire).collect();
    wait_for(&locks);
    join(&stage);
    site.wait_for_role(*before, "slave");
    fresh.give_up();
    runtime.block_on(asking).expect("it ends");
    for acquiring in acquiring {
        runtime.block_on(acquiring).expect("it is granted in the end");
    }
    stage.end(&locks)
}

/// Waits until the client that follows the Sentinels has been granted all locks, for at most [`APART`].
fn wait_for(locks: &[Arc<Contest>]) {
    let end = Instant::now() + APART;
    while locks.iter().any(|lock| lock.outside.get().is_none()) && Instant::now() < end {
        sleep(Duration::from_millis(5));
    }
}

/// A client holds two locks, and renews only one of the leases. The clock of the next primary is ahead in one try
/// and behind in the next.
pub(super) fn clocks(setting: Setting, number: u64) -> TryResult {
    let ahead = if number.is_multiple_of(2) { CLOCKS_MS } else { -CLOCKS_MS };
    let clock = Clock::new();
    clock.set(ahead);
    let stage = Stage::start(setting, Some(&clock));
    let Stage { site, before, runtime, .. } = &stage;
    let (holder, waiter) = (stage.outside(), stage.outside());
    let [watched, fixed] = ["watched", "fixed"].map(Contest::of);
    runtime.block_on(watched.acquire_inside(&holder));
    let asked = Instant::now();
    assert!(runtime.block_on(fixed.take(&holder)), "it is free");
    for replica in 1..=REPLICAS {
        let mut there = site.server(replica).connect();
        observe::wait_for_replica(&mut site.server(*before).connect(), &mut there);
    }
    site.server(*before).kill9();
    site.wait_for_successor(*before);
    // The next primary may need all replicas.
    site.server(*before).restart();
    runtime.block_on(fixed.clone().acquire(waiter.clone()));
    let (taken, end) = (asked.elapsed(), LEASE);
    // The holder renews this lease at the next primary, so normally the waiter is not granted this lock.
    runtime.block_on(watched.try_outside(&waiter, LEASE));
    let is_lost = watched.inside.get().is_some_and(|watched| watched.is_lost());
    let (word, by) = if taken < end { ("early", end - taken) } else { ("late", taken - end) };
    let note = format!(
        "{}, clock of the next primary {ahead:+} ms: the next had a lock whose lease nobody renews \
         {} ms {word}; the renewed one was {}",
        setting.name(),
        by.as_millis(),
        if is_lost { "lost" } else { "kept" },
    );
    TryResult { lost: is_lost.into(), note: Some(note), ..stage.end(&[watched, fixed]) }
}
