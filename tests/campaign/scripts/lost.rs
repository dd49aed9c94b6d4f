//! Grants that die with their primary, because no replica, or not the one that is promoted, has
//! heard of them.

use super::{LEASE, Seen};
use crate::setting::Setting;
use harness::site::Site;
use harness::{Value, observe};
use kvlock::{Builder, Client, Error, Guard};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long a client tries to acquire that must succeed in the end.
const LONG: Duration = Duration::from_secs(120);

/// How many replicas there are.
const REPLICAS: u32 = 2;

/// A primary with two replicas, as the setting wants them.
pub(super) fn site(setting: Setting) -> Site {
    let options = setting.options(LEASE);
    // The last is promoted if it can be.
    let last = options.clone().config("replica-priority", 1);
    let site = Site::start(&[options.clone(), options, last]);
    site.wait_for_replicas(site.primary(), REPLICAS.into());
    end_quarantine(&site);
    site
}

/// That of the start is not of interest.
pub(super) fn end_quarantine(site: &Site) {
    observe::end_quarantine(&mut site.server(site.primary()).connect());
}

fn builder(setting: Setting) -> Builder {
    setting.builder(REPLICAS).lease(LEASE).patience(Duration::from_secs(60))
}

/// A client at the server itself: when that is gone it hears of nothing.
pub(super) async fn beside(site: &Site, number: usize, setting: Setting) -> Client {
    let builder = builder(setting).reply_timeout(LONG);
    builder.connect(site.server(number).url()).await.expect("the server answers")
}

/// A client that asks the Sentinels, and so follows a failover.
pub(super) async fn following(site: &Site, setting: Setting) -> Client {
    builder(setting).connect(site.url()).await.expect("the primary answers")
}

/// Takes a lock, with a lease that nobody renews; `None` if that was refused for want of replicas.
async fn take(client: &Client) -> Option<Guard> {
    let lock = client.lock("k").fixed_lease(LEASE);
    match lock.try_acquire().await {
        Ok(guard) => Some(guard.expect("it is free")),
        Err(Error::NotReplicated { .. }) => None,
        Err(trouble) if trouble.code() == Some("NOREPLICAS") => None,
        Err(trouble) => panic!("{trouble}"),
    }
}

/// Cuts off replicas, and takes a lock of which they do not hear. On a busy machine a primary that
/// wants replicas may miss them before it is asked: then it is made anew.
fn take_unheard(
    site: &Site,
    holder: &Client,
    setting: Setting,
    runtime: &Runtime,
    cut: impl Fn(),
) -> Option<Guard> {
    for _ in 0..5 {
        cut();
        let mine = runtime.block_on(take(holder));
        if mine.is_some() || matches!(setting, Setting::MinReplicas | Setting::AllReplicas) {
            return mine;
        }
        site.proxy(site.primary()).heal();
        site.wait_for_replicas(site.primary(), REPLICAS.into());
    }
    cut();
    None
}

/// Acquires, and tries again for as long as replicas are missing.
pub(super) async fn acquire(client: &Client, key: &str) -> Guard {
    let end = Instant::now() + LONG;
    loop {
        match client.lock(key).acquire_within(LONG).await {
            Ok(Some(guard)) => return guard,
            Err(trouble) if trouble.is_retryable() && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => panic!("{key}: {other:?}"),
        }
    }
}

/// The replicas are cut off from the primary, which grants one more lock and is killed.
pub(super) fn link(setting: Setting, runtime: &Runtime) -> Seen {
    let site = site(setting);
    let before = site.primary();
    let holder = runtime.block_on(beside(&site, before, setting));
    let other = runtime.block_on(following(&site, setting));
    let cut = || site.proxy(before).cut();
    let mine = take_unheard(&site, &holder, setting, runtime, cut);
    site.server(before).kill9();
    let after = site.wait_for_successor(before);
    site.proxy(before).heal();
    conclude(&site, before, after, mine, &other, runtime)
}

/// One replica is cut off and the other is not. The primary grants one more lock and is killed, and
/// the replica that has not heard of it is promoted.
pub(super) fn stale(setting: Setting, runtime: &Runtime) -> Seen {
    let site = site(setting);
    let (before, stale) = (site.primary(), site.size() - 1);
    let holder = runtime.block_on(beside(&site, before, setting));
    let other = runtime.block_on(following(&site, setting));
    let cut = || site.proxy(before).cut_replica(site.proxy(stale).port());
    let mine = take_unheard(&site, &holder, setting, runtime, cut);
    site.server(before).kill9();
    let after = site.wait_for_successor(before);
    assert_eq!(after, stale, "it is preferred");
    site.proxy(before).heal();
    conclude(&site, before, after, mine, &other, runtime)
}

fn conclude(
    site: &Site,
    dead: usize,
    after: usize,
    mine: Option<Guard>,
    other: &Client,
    runtime: &Runtime,
) -> Seen {
    let mut seen = Seen { granted: u64::from(mine.is_some()), ..Seen::default() };
    let known = site.server(after).connect().run("EXISTS k");
    seen.lost = u64::from(mine.is_some() && known == Value::Integer(0));
    site.server(dead).restart();
    let theirs = runtime.block_on(acquire(other, "k"));
    seen.believed(mine.as_ref().is_some_and(|mine| !mine.is_lost()));
    seen.token(mine.map(|mine| mine.token().value()), theirs.token().value());
    seen
}
