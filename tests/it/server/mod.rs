//! Events on the server while clients use locks. Others are in `transcripts/roles.txt` and
//! `transcripts/failovers.txt`.

mod clocks;
mod io_threads;
mod quarantine;
mod refusals;
