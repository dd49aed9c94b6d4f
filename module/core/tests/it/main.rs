//! Tests of the core through its public interface. They are one program, because linking many takes longer.

mod bells;
mod bound;
mod circles;
mod common;
mod crowds;
mod grants;
mod held;
mod latches;
mod limits;
mod locks;
mod looks;
mod memory;
mod observers;
mod readers;
mod ready;
mod searches;
mod semaphores;
mod sessions;
mod set_holds;
mod set_limits;
mod sets;
mod transcripts;
mod turns;
mod work;
