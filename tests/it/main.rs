//! Tests on real servers, and of documents, imports and planted bugs, in one binary, which is linked only once.
//! Dialogues of clients with servers are in `tests/transcripts`; tests that these cannot express are here.

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

mod asking;
mod campaign;
mod documents;
mod effects;
mod harness_itself;
mod imports;
mod locks;
mod planted;
mod server;
mod transcripts;
