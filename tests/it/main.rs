//! The tests on real servers: one binary, so that it is linked once. What is a dialogue is in
//! `tests/transcripts`; here is what counts, races, or needs more than one server.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "these are tests: a panic is how one fails, and their numbers are small"
)]

mod arguments;
mod asking;
mod asleep;
mod campaign;
mod chaos;
mod clocks;
mod cluster;
mod crowds;
mod deaths;
mod documents;
mod failovers;
mod fifo;
mod foreign;
mod fuzz;
mod guard;
mod harness_itself;
mod key_events;
mod languages;
mod loading;
mod modules;
mod pauses;
mod planted;
mod quarantine;
mod replication;
mod replies;
mod roles;
mod searches;
mod sessions;
mod stage;
mod timing;
mod token_floor;
mod tokens;
mod torn;
mod trail;
mod transcripts;
mod travelling;
mod unloading;
mod waiting_memory;
mod watchers;
mod wrong_type;
