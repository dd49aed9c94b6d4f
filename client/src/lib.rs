//! Distributed locks as native Redis commands: the Rust client.
//!
//! kvlock is a module, `kvlock.so`, that adds the `LOCK.*` commands to a Redis or Valkey server. A lock has
//! an owner, a lease, a fencing token, and a queue in which waiting clients are served in order of arrival.
//! This crate uses the module from Rust, in two layers:
//!
//! - [`Client`], [`Lock`] and [`Guard`]: a lock that stays held while you work, is released when you are
//!   done, and reports when it is lost. This page describes them.
//! - [`AsyncLockCommands`], [`AsyncSemaphoreCommands`] and [`AsyncLatchCommands`]: the commands alone, as
//!   methods of your own redis-rs connections. They do not renew or release by themselves; their
//!   documentation lists what the caller must do.
//!
//! ```no_run
//! # struct Store;
//! # impl Store { async fn write(&self, _: &str, _: kvlock::Token) {} }
//! # async fn example(store: Store, order: &str) -> Result<(), kvlock::Error> {
//! let client = kvlock::Client::connect("redis://127.0.0.1/").await?;
//!
//! let guard = client.lock("orders:42").acquire().await?; // waits for the lock
//! store.write(order, guard.token()).await;               // the store refuses an older token
//! guard.release().await?;                                // or drop it
//! # Ok(()) }
//! ```
//!
//! # Which way to acquire
//!
//! | you want | write |
//! |---|---|
//! | the lock, without a time limit | [`lock.acquire()`](Lock::acquire) |
//! | the lock if it is free, else do something else | [`lock.try_acquire()`](Lock::try_acquire) |
//! | to do something while it is held | [`lock.with(async \|guard\| …)`](Lock::with) |
//! | to wait for at most one second | [`lock.acquire_within(d)`](Lock::acquire_within) |
//! | other clients to get it sooner if this process dies | [`.lease(d)`](Lock::lease), shorter than 30 s |
//! | to keep it while the server restarts, for up to a minute | [`.lease(d)`](Lock::lease), longer |
//! | a short job on many machines to run only once | [`guard.release_in(d)`](Guard::release_in) |
//! | a lock that is not renewed, and ends with its lease | [`.fixed_lease(d)`](Lock::fixed_lease) |
//! | to call code that acquires the same lock | [`.owner(&me)`](Lock::owner) |
//! | many readers or one writer | [`.shared()`](Lock::shared) for the readers |
//! | at most N holders at a time | [`Client::semaphore`] |
//! | to wait until N others are done | [`Client::latch`] |
//! | one of many processes to lead, and all to know the leader | [`Client::election`] |
//! | one of many clients to make a result that all of them want | [`Client::once`] |
//! | several locks, all or none | [`.and([…])`](Lock::and) on one server, [`MultiLock`] on several |
//! | a part of something that other clients lock as a whole | [`.under([…])`](Lock::under) |
//! | a lock that survives while a majority of several servers runs | `Quorum` of the crate `kvlock-quorum` |
//! | another process to take it over | [`guard.detach()`](Guard::detach) here, [`lock.adopt(…)`](Lock::adopt) there |
//! | to start while the server cannot be reached | [`Client::connect_lazy`] |
//! | a warning of a loss, early enough for an orderly stop | [`Builder::margin`] |
//!
//! # Guarantees, and their limits
//!
//! The server never grants an exclusive lock to two owners at the same time. A client **believes** that it
//! holds the lock while [`is_lost()`](Held::is_lost) returns false. Two clients never believe at the same
//! time that they hold the same exclusive lock. The conditions: clocks run at rates that differ by less than
//! 1 %, the server's wall clock is not set forward, the server loses no data, no client deletes the key
//! or forces the release, and only one process takes over a [detached](Guard::detach) lock. The guarantee
//! holds when replies are late, connections break, or a machine is suspended. A lease is
//! counted from a moment no later than its start at the server, on a [clock](Clock) that counts
//! suspend.
//!
//! The guarantee does not cover **the work of a client**. The client can be paused for any time between the
//! check and a write, and then write as if it still held the lock. Only the resource that is written to can
//! refuse this write, by the [`Token`]. A failover of the server can also lose a grant. The page
//! `docs/guarantees.md` of the repository describes the guarantees in full.
//!
//! # Fencing
//!
//! The token of each exclusive grant is larger than the tokens of all earlier grants of that lock. Let the
//! resource remember the largest token it has seen, and refuse a write whose token is smaller, or equal and
//! from another owner. In a database that is a column and a condition:
//!
//! ```sql
//! update account set balance = :balance, token = :token, owner = :owner
//!  where id = :id and (token < :token or (token = :token and owner = :owner))
//! ```
//!
//! If no row was changed, the write was refused. `examples/fencing.rs` shows this with SQLite, and a holder
//! that sleeps past the end of its lease.
//!
//! # Re-entrance
//!
//! Each acquisition is a separate owner, even in the same task: a task that acquires a lock twice waits for
//! itself. Acquisitions with the same [`Owner`] hold the lock together. The second one re-enters at once with
//! the same token, and the lease becomes the longer of the two leases. The lock is free when the last guard is
//! gone. A loss is reported to all guards. Re-entering a lost lock returns [`Error::Lost`], not a new grant.
//!
//! # Cancellation and shutdown
//!
//! Every future of this crate can be dropped at any point. A dropped acquire gives up its place in the queue,
//! and releases a lock that was granted at that moment. A dropped guard releases its lock. This cleanup runs
//! in the background. Before the program ends, wait until it is done:
//!
//! ```no_run
//! # use std::time::Duration;
//! # async fn example(client: kvlock::Client) {
//! client.shutdown(Duration::from_secs(5)).await;
//! # }
//! ```
//!
//! Dropping never blocks and never panics, even outside a runtime or while the runtime shuts down. If no
//! runtime is left to send the release, if the runtime on which a guard is dropped has no timers or no I/O, or
//! if the process is killed, a lock is free when its lease ends. Only
//! the types of the module `blocking` wait for releases when the last of them is dropped.
//!
//! # What happens when …
//!
//! | | to the holder | to the others |
//! |---|---|---|
//! | the holder's process dies | | the next waiter has the lock when the lease ends, or earlier if the lock is [bound](Lock::bound) |
//! | the process is paused, or its machine suspended | for less than the lease: nothing. For longer: `is_lost()` is true before any line of its code runs, and `lost()` completes within one second | as above |
//! | a task blocks a thread of the runtime | as if the process were paused: even if other threads are idle, tokio may process no timers in that time. Use `spawn_blocking` | as above |
//! | the time of its runtime is paused in a test (`tokio::time::pause`) | calls may report a timeout at once, because tokio advances this time while they wait for the server. Leases run on by the [`Clock`] | |
//! | the network is cut | holds the lock until the lease, less the [`margin`](Builder::margin), is over; then the lock is lost | served if they reach the server |
//! | the server restarts and still knows the lock | renewed as soon as the server answers | wait again, in the order in which they reconnect |
//! | the server restarts and has forgotten the lock | lost at the next renewal; until then another owner may hold it too | may be granted the lock at once |
//! | a replica is promoted that does not know the grant | lost at the next renewal, which is sent at once; until then another owner may hold it too | as above |
//! | another client deletes the key, or forces the release | lost at the next renewal, a third of the lease later at most, or within a round trip if it is [observed](Lock::observed); [`lost()`](Held::lost) returns the [reason](Loss) if it is known | the first waiter has the lock at once |
//! | the work takes longer than a [fixed lease](Lock::fixed_lease) | lost | the next waiter has the lock |
//! | a guard is released twice | does not compile | |
//! | a release finds the lock lost | [`Error::Lost`]; another owner's lock is not touched | |
//! | a script keeps the server busy | commands that are answered with `BUSY` are retried; held locks last as long as their leases | served as soon as the script has ended |
//! | an answer is lost | an acquire, a release or a renewal by the watchdog is repeated over a new connection; the two commands have the effect of one. Other calls may return the error | |
//!
//! # Failover
//!
//! With an [`Address`] of Sentinels the client asks them for the primary and subscribes to their messages. It
//! follows the latest of their decisions, and leaves a server as soon as the server is deposed. If all Sentinels
//! were set up anew, and number their decisions from the beginning again, the client follows them after ten seconds,
//! but does not leave a server that still reports the role of a primary. It repeats unanswered commands at the new
//! primary if a repetition is harmless. Waits start again there, in the order in which the clients arrive, and
//! every held lock is renewed there at once. A [fixed lease](Lock::fixed_lease) is checked, and keeps its end. If the
//! new primary does not know a lock, its answer to this renewal shows that. So the lock is [lost](Held::lost)
//! at once, not a third of a lease later.
//!
//! Redis replicates asynchronously, so grants shortly before the failover can be lost. A release shortly
//! before the failover can be lost too. Then the lock is free when its lease ends.
//!
//! [`Builder::patience`] must be longer than a failover takes. Most of that time is the Sentinels'
//! `down-after-milliseconds`, by default 30 s.
//!
//! To survive a failover without losing a grant, require acknowledgement by replicas with
//! [`Builder::min_replicas`]. An acquire or a renewal that too few replicas have received does not count.
//! This protects a grant if the promoted replica is one that has acknowledged. To be sure, require all
//! replicas with [`Builder::all_replicas`]; then one replica that is down stops all locks. With either
//! setting, a primary that dies must not come back without its data before it is replaced. Its replicas would
//! copy the empty data set, and all locks would be free.
//!
//! The server's `kvlock.quarantine-ms` needs no replicas. With it, no new lock is granted for that time after
//! each failover, or after a start that may have lost grants. Acquires that may wait are queued
//! until then.
//!
//! # Cluster
//!
//! With an [`Address`] of a cluster each lock is kept by the node that serves the slot of its name.
//! Everything works as with one server. Locks, semaphores and latches can have any names at the same time.
//! [`MultiLock`] works over several nodes, and [`Client::list`] lists the locks of all nodes. The client has
//! one connection for commands to each node that it needs. It has one more for a session to each node where
//! it waits, observes or has bound locks. If replicas must confirm, it has one more to each node for
//! renewals.
//!
//! | when | then |
//! |---|---|
//! | a slot moves to another node | its locks move with it, with owner, lease and token. Commands and renewals follow at once. The old node ends the waits, and the clients wait in the queue of the new node, in order of arrival there |
//! | a slot is migrating | each lock is requested from the node that has it (`ASK`). The new node may refuse a free lock for a moment (`TRYAGAIN`): a waiting acquire asks again, [`try_acquire`](Lock::try_acquire) returns the error |
//! | a replica takes over | as after a [failover](#failover): waits start again there, all held locks are renewed at once, and the answer shows which of them the new node does not know: these are lost |
//! | a node hangs, with connections open | while the client has a session at a node, it asks the nodes every two seconds for the slot map. Otherwise it asks after a [`reply_timeout`](Builder::reply_timeout) without an answer. When another node has taken over, no call waits for the old one |
//! | a node has lost all its slots | calls in flight there end, and are repeated at the nodes that serve the slots |
//! | the cluster is down, or a slot is not served | waiting acquires retry for the client's [`patience`](Builder::patience), which must be longer than a failover takes: `cluster-node-timeout` and a few seconds |
//!
//! [`min_replicas`](Builder::min_replicas) counts the replicas of the node that has the lock. A
//! master without slots becomes, by default, a replica of the node that took its last one
//! (`cluster-allow-replica-migration`).
//!
//! # For users of Redisson
//!
//! A lock excludes a Redisson `RLock` with the same name. The counterparts:
//!
//! | `RLock` | here |
//! |---|---|
//! | `lock()`, `lockAsync()` | [`lock.acquire()`](Lock::acquire) |
//! | `lockInterruptibly()` | [`lock.acquire()`](Lock::acquire); dropping the future interrupts it |
//! | `lock(lease)` | [`lock.fixed_lease(lease)`](Lock::fixed_lease)`.acquire()` |
//! | `tryLock()` | [`lock.try_acquire()`](Lock::try_acquire) |
//! | `tryLock(wait)` | [`lock.acquire_within(wait)`](Lock::acquire_within) |
//! | `tryLock(wait, lease)` | `lock.fixed_lease(lease).acquire_within(wait)` |
//! | `unlock()` | [`guard.release()`](Guard::release), or drop it |
//! | `forceUnlock()` | [`lock.force_release()`](Lock::force_release) |
//! | `isLocked()` | [`lock.is_locked()`](Lock::is_locked) |
//! | `isHeldByCurrentThread()`, `isHeldByThread(id)` | [`lock.is_held_by(&owner)`](Lock::is_held_by); a guard's [`is_lost()`](Held::is_lost) asks no server |
//! | `getHoldCount()` | [`lock.hold_count(&owner)`](Lock::hold_count), [`guard.holds()`](Guard::holds) |
//! | `remainTimeToLive()` | [`lock.remaining()`](Lock::remaining) |
//! | `getName()` | [`lock.key()`](Lock::key) |
//! | the thread as owner | an [`Owner`], which several tasks may share |
//! | `lockWatchdogTimeout` | [`Builder::lease`], [`lock.lease(d)`](Lock::lease) |
//! | `RFencedLock.getToken()` | [`guard.token()`](Guard::token) |
//! | `RReadWriteLock` | [`lock.shared()`](Lock::shared) and the lock itself; [`guard.downgrade()`](Guard::downgrade) |
//! | `RSemaphore`, `RPermitExpirableSemaphore` | [`Semaphore`] |
//! | `RCountDownLatch` | [`Latch`] |
//! | `RedissonMultiLock` | [`MultiLock`] |
//! | `RedissonRedLock` | `Quorum` of the crate `kvlock-quorum` |
//! | `newCondition()` | none; Redisson does not support it either |
//! | none | [`guard.lost()`](Held::lost), [`guard.watch()`](Held::watch), [`guard.run_until_lost(work)`](Held::run_until_lost), [`guard.extend(d)`](Guard::extend) |
//!
//! # Traces and metrics
//!
//! Acquires and releases are spans of [`tracing`], `kvlock.acquire` and `kvlock.release`, with the `key`
//! and the `token`, at the level `DEBUG`. A collector of spans, such as `tracing-opentelemetry`, shows them
//! inside the program's own spans. Grants, waits, renewals, losses and retried errors are events. Losses
//! and retried errors are warnings.
//!
//! With the feature `metrics` there are histograms and counters through the `metrics` facade. Their names
//! begin with `kvlock_client_`; `kvlock metrics` has the metrics of the server.
//!
//! | name | |
//! |---|---|
//! | `kvlock_client_wait_seconds` | histogram: time from the call until the lock or the permits were held. Calls without a grant are not counted |
//! | `kvlock_client_hold_seconds` | histogram: time from the grant until the lock or the permits were released or lost. A lock at several servers (`kvlock-quorum`) counts once for each |
//! | `kvlock_client_acquired_total`, `…_reentered_total`, `…_refused_total` | results of acquires |
//! | `kvlock_client_waits_total`, `…_withdrawn_total` | waits in the queue, and acquires that ended without a guard and are cleaned up |
//! | `kvlock_client_released_total`, `…_lost_total` | releases, and losses. They do not add up to the acquires: a downgrade counts as a release, an adopted lock was not acquired, a detached one is not released, and a lock that was lost and then released counts in both |
//! | `kvlock_client_renewed_total`, `…_renewals_failed_total`, `…_troubles_total` | renewals, and errors that were retried |
//!
//! # Words
//!
//! | word | |
//! |---|---|
//! | **owner** | the identity that holds a lock at the server: a string, unique to one acquisition or to the acquisitions that share an [`Owner`] |
//! | **holder**, **waiter** | an owner that has the lock; an owner that waits for it |
//! | **grant** | the server's assignment of a lock to an owner, with a **token**. Each exclusive grant has a larger one than all earlier grants of the lock; owners that share the lock at the same time have the same one |
//! | **hold** | one acquisition of the lock by a re-entrant owner; the lock is free when the owner has no hold left |
//! | **lease** | the time for which a grant lasts unless it is renewed. A **fixed** lease is not renewed |
//! | **offer** | the lease of two seconds with which a waiter is granted the lock, before the full one is set |
//! | **margin** | the time before the end of a lease at which its holder counts the lock as lost |
//! | **watchdog** | the task of a client that renews its leases and notices their end |
//! | **hand-off** | a grant of the lock to the first waiter (or to several that share the lock), usually in the same step in which another owner's hold ends |
//! | **session** | the server's record of a client; all waits, observations and bound locks of the client at that server use it |
//! | **confirm** | to set the full lease, or to wait until replicas have acknowledged a grant, before the guard is returned |
//!
//! # Features
//!
//! `tls-rustls`, `tls-rustls-webpki-roots` and `tls-native-tls` are features of redis-rs, for addresses
//! that begin with `rediss://`. With `tls-rustls`, `ring` does the cryptography unless the program has
//! installed another provider. Install that before you make a client, since the first such address installs
//! `ring` for the whole process.
//!
//! `metrics` is described above. `serde` serializes tokens and the types that describe locks. `json` has
//! `OnceKey::get_or_json`. `blocking` is for programs without a runtime. `token-based-authentication` has
//! `Builder::credentials_provider`. These features are off by default. `sentinel` and `cluster` are on by
//! default. Without them there is less to build, and their addresses are [`Config`](Error::Config) errors.
#![forbid(unsafe_code)]

mod api;
#[cfg(feature = "blocking")]
pub mod blocking;
mod engine;
mod net;
mod sync;
mod wire;

pub use api::builder::Builder;
pub use api::client::Client;
pub use api::election::Election;
pub use api::guard::Guard;
pub use api::held::Held;
pub use api::latch::Latch;
pub use api::leadership::Leadership;
pub use api::lock::Lock;
pub use api::multi::{MultiGuard, MultiLock};
pub use api::observer::{Leader, Observer};
pub use api::once::{Once, OnceKey};
pub use api::semaphore::{Permits, Semaphore};
pub use api::watch::LossWatch;
pub use engine::clock::Clock;
pub use engine::owner::Owner;
#[doc(hidden)] // For kvlock-quorum.
pub use engine::settings::check_lease;
pub use net::address::Address;
/// The version of redis-rs that the interface of this crate uses.
pub use redis;
pub use wire::command::{
    AcquireOptions, AsyncLatchCommands, AsyncLockCommands, AsyncSemaphoreCommands, ReleaseOptions,
};
pub use wire::error::Error;
pub use wire::info::{
    LatchInfo, LockInfo, LockProfile, LockState, LockSummary, SemaphoreInfo, Waiter,
};
pub use wire::loss::Loss;
pub use wire::reply::{Grant, Token};

/// Lets a simulation provide the connections. Not part of the public interface.
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation {
    pub use crate::net::simulated::{Dialling, Stream, dial_with};
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
