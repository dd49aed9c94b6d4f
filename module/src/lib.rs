//! kvlock.so: distributed locks as native commands of Redis and Valkey.
//!
//! ```text
//!  clients ──► server ──► redis/      the fence: the only unsafe code, every entry guarded
//!                           │ ▲
//!                   Command │ │ Reply, Key, Parked, Timer
//!                           ▼ │
//!                         commands/   parse → ask the table → carry out → reply
//!                         module.rs   callbacks: events, timers, lost clients
//!                           │ ▲
//!                           ▼ │
//!                         server.rs   the state: lock table, blocked clients, options
//!                         waiting.rs  what a blocked client waits for
//!                         replies.rs  replies that several of these send
//!                         operate.rs  asks the table, carries out its decisions
//!                         keyspace.rs reads a lock from its key
//!                         sharers.rs  finds live sharers, removes expired ones
//!                         writer.rs   writes a change to the key
//!                           │ ▲
//!                 Situation │ │ Change
//!                           ▼ │
//!                         kvlock-core pure decisions: which owner gets the lock
//! ```
#![cfg_attr(test, allow(dead_code, reason = "the server is not there in unit tests"))]

mod bound;
mod clock;
mod commands;
mod config;
mod floor;
mod holders;
mod info;
mod keyspace;
mod latch;
mod module;
mod observers;
mod operate;
mod redis;
mod replies;
mod semaphore;
mod server;
mod sessions;
mod sets;
mod sharers;
mod slot;
mod waiting;
mod wake;
mod writer;

#[cfg(not(any(test, feature = "system-alloc")))]
#[global_allocator]
static ALLOCATOR: redis::ServerMemory = redis::ServerMemory;
