//! Whatever happens to a latch: the table and the model of its tests must answer the same,
//! write the same and release the same people.
#![no_main]

use kvlock_core_reference::fuzz;
use kvlock_core_reference::latches::World;

/// How many steps a walk has at most: most bugs need few, and short ones are fast.
const STEPS: usize = 24;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::<World>(data, STEPS));
