//! What befalls the server meanwhile. More of it is in `transcripts/roles.txt` and `transcripts/failovers.txt`.

mod clocks;
mod io_threads;
mod quarantine;
mod refusals;
