//! Runs random operations on a few sessions, in the core and in its reference model. Fails if they differ.
#![no_main]

use kvlock_core_reference::fuzz;
use kvlock_core_reference::sessions::World;

/// Largest number of operations in one run. Most bugs need few, and short runs are fast.
const STEPS: usize = 40;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::<World>(data, STEPS));
