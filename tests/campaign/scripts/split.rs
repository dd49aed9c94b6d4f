//! Two servers that both take themselves for the primary, with clients at each.

use super::Seen;
use super::lost::{acquire, beside, following, site};
use crate::setting::Setting;
use kvlock::{Client, Error, Guard};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long the servers stay apart if those outside are not granted what they want before.
const APART: Duration = Duration::from_secs(40);

/// One lock, and the guards that were granted on either side.
#[derive(Debug, Default)]
struct Side {
    inside: OnceLock<Guard>,
    outside: OnceLock<Guard>,
    doubled: AtomicBool,
    over: AtomicBool,
}

impl Side {
    fn granted(&self, is_inside: bool, guard: Guard) {
        let (own, other) =
            if is_inside { (&self.inside, &self.outside) } else { (&self.outside, &self.inside) };
        own.set(guard).expect("once");
        let believes = |guard: &OnceLock<Guard>| guard.get().is_some_and(|guard| !guard.is_lost());
        if believes(own) && believes(other) {
            self.doubled.store(true, Ordering::SeqCst);
        }
    }

    /// Asks the deposed primary again and again until it grants the lock, or it is over.
    async fn insist(self: Arc<Self>, client: Client, key: &'static str) {
        while !self.over.load(Ordering::SeqCst) {
            match client.lock(key).try_acquire().await {
                Ok(Some(guard)) => return self.granted(true, guard),
                Ok(None) | Err(Error::NotReplicated { .. }) => {}
                Err(trouble) => assert!(trouble.is_retryable(), "{trouble}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Acquires where most are.
    async fn acquire(self: Arc<Self>, client: Client, key: &'static str) {
        let guard = acquire(&client, key).await;
        self.granted(false, guard);
    }

    fn report(&self, seen: &mut Seen) {
        let token = |guard: &OnceLock<Guard>| guard.get().map(|guard| guard.token().value());
        seen.granted += u64::from(self.inside.get().is_some());
        seen.believed(self.doubled.load(Ordering::SeqCst));
        // A grant of the deposed primary must have the smaller token.
        if let Some(outside) = token(&self.outside) {
            seen.token(token(&self.inside), outside);
        }
    }
}

/// Until all have been granted what they want outside, or for as long as they may stay apart.
fn wait_for(sides: &[Arc<Side>]) {
    let end = Instant::now() + APART;
    while sides.iter().any(|side| side.outside.get().is_none()) && Instant::now() < end {
        sleep(Duration::from_millis(5));
    }
}

/// The primary stands still until another has taken its place, and goes on then. One client asks it
/// all the time, and its last question is waiting there.
pub(super) fn paused(setting: Setting, runtime: &Runtime) -> Seen {
    let site = site(setting);
    let before = site.primary();
    let stubborn = runtime.block_on(beside(&site, before, setting));
    let other = runtime.block_on(following(&site, setting));
    let side = Arc::<Side>::default();
    site.server(before).signal(Signal::SIGSTOP);
    let asking = runtime.spawn(side.clone().insist(stubborn, "k"));
    site.wait_for_successor(before);
    let acquiring = runtime.spawn(side.clone().acquire(other, "k"));
    wait_for(std::slice::from_ref(&side));
    site.server(before).signal(Signal::SIGCONT);
    site.wait_for_role(before, "slave");
    side.over.store(true, Ordering::SeqCst);
    runtime.block_on(asking).expect("it ends");
    runtime.block_on(acquiring).expect("it is granted in the end");
    let mut seen = Seen::default();
    side.report(&mut seen);
    seen
}

/// The primary is cut off from everybody but one client, which holds a lock and takes another.
pub(super) fn partition(setting: Setting, runtime: &Runtime) -> Seen {
    let site = site(setting);
    let before = site.primary();
    let inside = runtime.block_on(beside(&site, before, setting));
    let outside = runtime.block_on(following(&site, setting));
    let [held, fresh] = [Arc::<Side>::default(), Arc::<Side>::default()];
    held.granted(true, runtime.block_on(acquire(&inside, "held")));
    site.proxy(before).cut();
    let asking = runtime.spawn(fresh.clone().insist(inside, "fresh"));
    site.wait_for_successor(before);
    let acquiring = [
        runtime.spawn(held.clone().acquire(outside.clone(), "held")),
        runtime.spawn(fresh.clone().acquire(outside, "fresh")),
    ];
    let sides = [held, fresh];
    wait_for(&sides);
    site.proxy(before).heal();
    site.wait_for_role(before, "slave");
    sides[1].over.store(true, Ordering::SeqCst);
    runtime.block_on(asking).expect("it ends");
    let mut seen = Seen::default();
    for (side, acquiring) in sides.iter().zip(acquiring) {
        runtime.block_on(acquiring).expect("it is granted in the end");
        side.report(&mut seen);
    }
    seen
}
