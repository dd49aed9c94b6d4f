//! What others are told of that: replicas, files, listeners, and those who watch a key.

mod key_events;
mod replication;
mod torn;
mod travelling;
