//! Locks, permits and latches on a server, and their waiters.

mod crowds;
mod replies;
mod timing;
mod waiting_memory;
