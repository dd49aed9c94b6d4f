//! Distributed locks as native Redis commands: the Rust client.
//!
//! kvlock is a module, `kvlock.so`, that teaches a Redis or Valkey server the `LOCK.*` commands: a
//! lock with an owner, a lease, a fencing token and a queue in which waiting clients are served in
//! the order in which they came. This crate is how to call those commands from Rust.
//!
//! # What is here
//!
//! One layer, the commands: [`LockCommands`] adds a typed method per command to the async
//! connections of [redis-rs](redis), whichever you use: multiplexed, managed, pooled or cluster.
//! Each method sends one command and reads one reply. Nothing here renews a lease, retries, or
//! releases a lock when a value is dropped: that is yours.
//!
//! ```no_run
//! use kvlock::LockCommands;
//! use std::time::Duration;
//!
//! # async fn example() -> redis::RedisResult<()> {
//! let client = redis::Client::open("redis://127.0.0.1/")?;
//! let mut con = client.get_multiplexed_async_connection().await?;
//!
//! let owner = "285475da-9152-4c83-822a-67ee2f116a79:1";
//! let lease = Duration::from_secs(10);
//! match con.lock_acquire("orders:42", owner, lease).await? {
//!     Some(grant) => {
//!         // Within ten seconds, or renew the lease. Hand the token to whatever the lock guards.
//!         write_order(42, grant.token).await;
//!         con.lock_release("orders:42", owner).await?;
//!     }
//!     None => println!("somebody else is at it"),
//! }
//! # Ok(()) }
//! # async fn write_order(_: u64, _: kvlock::Token) {}
//! ```
//!
//! # Keys, owners, times
//!
//! A **key** is the name of the lock. An **owner** says who holds it: 1 to 1,024 bytes of your
//! choice, by convention `<uuid>:<n>`, with one uuid per process and one `n` per task, because
//! whoever sends the same owner *is* that owner. Both are binary safe: strings, byte slices and
//! everything else that redis-rs turns into exactly one argument.
//!
//! A **lease** and a **timeout** are [`Duration`]s. They are sent as whole milliseconds, rounded
//! up; zero and more than ten years (315,360,000,000 ms) are refused before anything is sent. The
//! server's `kvlock.max-lease-ms` (24 hours unless configured) limits leases further.
//!
//! A lock is held until its lease ends, not until you are done. If the process may stall (a long
//! pause, a suspended machine, a slow network), then check the clock, and let the guarded resource
//! check the [`Token`].
//!
//! # Connections for waiting
//!
//! [`lock_wait`](LockCommands::lock_wait) keeps its connection busy until it is answered, so two
//! things must be right:
//!
//! - **Nothing else goes over that connection.** A command sent after the wait is answered after
//!   it. A release or renewal stuck behind a wait costs the lock.
//! - **The client must not give up before the server answers.** redis-rs cuts every reply off after
//!   500 ms unless told otherwise. The server does not learn of that: the waiter keeps its place,
//!   and in its turn **the lock is granted to a caller that has gone**, and stays taken until the
//!   lease ends.
//!
//! ```no_run
//! use kvlock::LockCommands;
//! use std::time::Duration;
//!
//! # async fn example() -> redis::RedisResult<()> {
//! let timeout = Duration::from_secs(30);
//! let config = redis::AsyncConnectionConfig::new()
//!     // Longer than any wait on this connection; `None` for waits without limit.
//!     .set_response_timeout(Some(timeout + Duration::from_secs(5)));
//! let client = redis::Client::open("redis://127.0.0.1/")?;
//! let mut waiting = client
//!     .get_multiplexed_async_connection_with_config(&config)
//!     .await?;
//!
//! let lease = Duration::from_secs(10);
//! let grant = waiting
//!     .lock_wait("orders:42", "alice:1", lease, Some(timeout))
//!     .await?;
//! # let _ = grant;
//! # Ok(()) }
//! ```
//!
//! `redis::aio::ConnectionManagerConfig` has the same setting; a cluster client has
//! `response_timeout` and `overall_response_timeout`, and both count.
//!
//! # Errors
//!
//! "Not granted" and "not held" are `None` or `false`, not errors. Errors are redis-rs's own
//! [`RedisError`](redis::RedisError):
//!
//! | `kind()` | `code()` | meaning |
//! |---|---|---|
//! | `Client` | | a duration out of range; nothing was sent |
//! | `Extension` | `WRONGTYPE` | the key holds something that is not a lock |
//! | `Extension` | `MISMATCH` | the holds asked for do not fit those held |
//! | `Extension` | `QUEUEFULL` | a limit on waiters is reached |
//! | `Extension` | `UNBLOCKED` | the server ended the wait |
//! | `Server(TryAgain)` | `TRYAGAIN` | ask again: the slot is moving, or the server is draining |
//! | `Server(ResponseError)` | `ERR` | an argument is invalid, or `unknown command`: the module is not loaded |
//! | `Parse` | | the reply is not one that this command gives |
//! | `Io` | | timeout or broken connection: **the outcome is unknown** |
//!
//! After an unknown outcome the command may have been carried out, and may still be: a wait can be
//! granted later. Treat the lock as not held, then make it so with
//! [`lock_cancel`](LockCommands::lock_cancel) and [`lock_release`](LockCommands::lock_release).
//!
//! # Sending a command again
//!
//! An acquire that is sent twice is a reentry and counts twice; then one release does not free the
//! lock. Say with the `.._to_holds` methods how often the owner is to hold the lock *after* the
//! command, and a repetition changes nothing. Use them wherever a layer below may repeat commands:
//! redis-rs's cluster client does so after timeouts and broken connections.
//!
//! [`Duration`]: std::time::Duration
#![forbid(unsafe_code)]

mod acquire;
mod background;
mod claim;
mod client;
mod clock;
mod command;
mod error;
mod guard;
mod lease;
mod line;
mod link;
mod lock;
mod observe;
mod owner;
mod pool;
mod reenter;
mod reply;
mod request;
mod sync;
mod wait;
mod watchdog;

pub use client::{Builder, Client};
pub use clock::Clock;
pub use command::LockCommands;
pub use error::Error;
pub use guard::Guard;
pub use lock::Lock;
pub use owner::Owner;
pub use reply::{Grant, LockInfo, LockState, LockSummary, Token, Waiter};
