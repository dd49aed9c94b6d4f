//! What a server does with locks, permits and latches, and with those who wait for them.

mod arguments;
mod crowds;
mod deaths;
mod replies;
mod searches;
mod timing;
mod waiting_memory;
