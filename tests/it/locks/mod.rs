//! What a server does with locks, permits and latches, and with those who wait for them.

mod crowds;
mod replies;
mod timing;
mod waiting_memory;
