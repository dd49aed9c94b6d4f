//! Clocks that jump, the installation, I/O threads, a quarantine and refused keys. Tests of role changes and
//! failovers are in `transcripts/roles.txt` and `transcripts/failovers.txt`.

mod clocks;
mod installing;
mod io_threads;
mod quarantine;
mod refusals;
