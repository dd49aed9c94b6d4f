//! The tests on real servers: one binary, so that it is linked once.

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
mod client;
mod cluster;
mod clustered;
mod contexts;
mod documents;
mod fifo;
mod fuzz;
mod guard;
mod harness_itself;
mod languages;
mod limits;
mod planted;
mod quarantine;
mod replies;
mod shared_load;
mod timing;
mod token_floor;
mod tokens;
mod torn;
mod transcripts;
mod traps;
mod waiting_memory;
mod wrong_type;
