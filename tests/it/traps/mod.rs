//! The traps of the platform: what crashes a server or grants a lock twice when it is done the
//! obvious way. Each of them is a test with its name, on each of the servers that differ.

mod clocks;
mod crowds;
mod deaths;
mod failovers;
mod foreign_changes;
mod foreign_writes;
mod key_events;
mod latches;
mod loading;
mod mixture;
mod modules;
mod pauses;
mod readers;
mod reconnects;
mod redisson;
mod refused_writes;
mod replication;
mod roles;
mod searches;
mod semaphores;
mod sessions;
mod stage;
mod trail;
mod travelling;
mod turns;
mod unloading;
mod watchers;
